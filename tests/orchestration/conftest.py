from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.orchestration.services import Webhook

SHOP = """
CREATE TABLE person (id INT PRIMARY KEY NOT ENFORCED, name STRING) WITH (
    'connector' = 'mysql-cdc', 'hostname' = '{host}', 'port' = '{port}', 'username' = 'reader',
    'password' = '${{SHOP_PASSWORD}}', 'database-name' = 'shop', 'table-name' = 'person'
);
CREATE TABLE call (id INT, proctime AS PROCTIME()) WITH ('connector' = 'scripted');
CREATE TABLE named_call (id INT, name STRING) WITH ('connector' = 'scripted');
INSERT INTO named_call SELECT call.id, name FROM call
JOIN person FOR SYSTEM_TIME AS OF call.proctime ON call.id = person.id;
"""
"""A pipeline whose build side is the tests' own server."""


@pytest.fixture
def webhook(monkeypatch: pytest.MonkeyPatch) -> Iterator[Webhook]:
    """A webhook that $TIDEGATE_WEBHOOK_URL names."""
    with Webhook() as found:
        monkeypatch.setenv("TIDEGATE_WEBHOOK_URL", found.url)
        yield found


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return tmp_path / "lake"
