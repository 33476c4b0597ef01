from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from tests.assets.clicks import Hand, pipeline, script
from tests.orchestration.services import Dagster, Webhook, dagster_home, running

CLOSED = """
CREATE TABLE customer (customer_id INT PRIMARY KEY NOT ENFORCED, name STRING) WITH (
    'connector' = 'mysql-cdc', 'hostname' = '127.0.0.1', 'port' = '1', 'username' = 'reader',
    'password' = 'hunter2-in-the-script', 'database-name' = 'shop', 'table-name' = 'customer'
);
CREATE TABLE visit (customer_id INT, proctime AS PROCTIME()) WITH ('connector' = 'scripted');
CREATE TABLE named_visit (customer_id INT, name STRING) WITH ('connector' = 'scripted');
INSERT INTO named_visit SELECT visit.customer_id, name FROM visit
JOIN customer FOR SYSTEM_TIME AS OF visit.proctime ON visit.customer_id = customer.customer_id;
"""
"""A pipeline whose build side can not be reached."""


@pytest.fixture
def webhook(monkeypatch: pytest.MonkeyPatch) -> Iterator[Webhook]:
    """A webhook that $TIDEGATE_WEBHOOK_URL names."""
    with Webhook() as found:
        monkeypatch.setenv("TIDEGATE_WEBHOOK_URL", found.url)
        yield found


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as found:
        yield found


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return tmp_path / "lake"


@pytest.fixture(scope="session")
def dagster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dagster]:
    """`dg dev` on three pipelines of one lake: `clicks` runs well, `strict` gets a click that its gate holds, `closed`
    reads a server that is not there."""
    folder = tmp_path_factory.mktemp("dagster")
    texts = {"clicks": script(), "strict": script("block", "s_"), "closed": CLOSED}
    paths = []
    for name, text in texts.items():
        paths.append(folder / f"{name}.sql")
        paths[-1].write_text(text)
    lake = folder / "lake"
    clicks = Hand(pipeline(), lake)
    strict = Hand(pipeline("block", prefix="s_"), lake, "s_")
    for hand in (clicks, strict):
        hand.users(1, 2)
        hand.all_users_are_there()
        hand.clicks(1, 2, 9)
    with (
        Webhook() as webhook,
        running(
            dagster_home(folder / "home"),
            folder / "dagster.log",
            TIDEGATE_SCRIPT=":".join(str(path) for path in paths),
            TIDEGATE_LAKE=str(lake),
            TIDEGATE_WEBHOOK_URL=webhook.url,
            SHOP_PASSWORD="hunter2-in-the-environment",
        ) as address,
    ):
        yield Dagster(address, folder, clicks, strict, webhook)


@pytest.fixture(scope="session")
def held_run(dagster: Dagster) -> str:
    """A run of `strict` that is over; its id."""
    dagster.watching()
    run_id = dagster.launch("strict")
    assert dagster.ended(run_id) == "FAILURE"
    return run_id
