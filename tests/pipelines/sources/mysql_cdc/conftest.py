from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Database
from tidegate.pipelines.sources.mysql_cdc.server import EmbeddedMariaDb


@pytest.fixture
def lone(server: None, tmp_path: Path) -> Iterator[Database]:
    """A server of the test's own: its settings may be changed, and no other test has written into its log."""
    with EmbeddedMariaDb(tmp_path / "server") as made:
        made.create_database("shop")
        made.create_user("reader", "reader-secret")
        yield Database(made, "shop", "reader", "reader-secret")
