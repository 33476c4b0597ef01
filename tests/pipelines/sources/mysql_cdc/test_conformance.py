"""Tables of a MariaDB pass what is asked of every connector (docs/connectors.md)."""

from __future__ import annotations

import pytest

from tests.conftest import Database
from tests.pipelines.sources.kafka.play import options_sql
from tidegate.pipelines.sources.mysql_cdc import CONNECTOR
from tidegate.pipelines.testing import connector_tests

pytestmark = pytest.mark.usefixtures("spark")


def declared(database: Database) -> str:
    database.execute("CREATE TABLE t (k INT PRIMARY KEY, v VARCHAR(20))", "FLUSH BINARY LOGS")
    options = database.options("t") | {"scan.incremental.snapshot.chunk.size": "10"}
    return f"CREATE TABLE t (k INT PRIMARY KEY NOT ENFORCED, v STRING) WITH ({options_sql(options)})"


def changed(arrival: int, database: Database) -> None:
    """Thirty rows, then changes of some."""
    start = arrival * 100
    database.execute(
        f"INSERT INTO t SELECT seq, 'new' FROM seq_{start}_to_{start + 29}",
        f"UPDATE t SET v = 'changed' WHERE k = {start + 1}",
        f"DELETE FROM t WHERE k = {start + 2}",
    )


TestMySqlCdc = connector_tests(CONNECTOR, declared, changed, live_snapshot=True)
