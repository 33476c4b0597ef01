"""A table read again beside its log: what the server is asked, and what it answers; without Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

from tests.conftest import Database
from tests.pipelines.sources.mysql_cdc.driver import MemorySplits, declare
from tidegate.pipelines.clock import system_clock
from tidegate.pipelines.connectors.protocol import Comparable, SourceContext, SourcePosition
from tidegate.pipelines.errors import SourceError
from tidegate.pipelines.sources.cdc.chunks import WHOLE
from tidegate.pipelines.sources.cdc.snapshot import TableComparison
from tidegate.pipelines.sources.mysql_cdc.binlog.model import BinlogPosition
from tidegate.pipelines.sources.mysql_cdc.source import MysqlCdcSource

KEYS = {
    "a number": ("id INT PRIMARY KEY, v INT", ("id",), "(1, 1), (2, 2)", {"id": 2}, "`id` IN (2)"),
    "a text": (
        "k VARCHAR(9) PRIMARY KEY, v INT",
        ("k",),
        "('ä', 1), ('Z''z', 2)",
        {"k": "Z'z"},
        "`k` IN (_utf8mb4 X'5a277a')",
    ),
    "bytes": ("k VARBINARY(8) PRIMARY KEY, v INT", ("k",), "(X'FF', 1), (X'00', 2)", {"k": b"\xff"}, "`k` IN (X'ff')"),
    "two columns": (
        "a INT, id INT, v INT, PRIMARY KEY (a, id)",
        ("a", "id"),
        "(1, 1, 1), (1, 2, 2), (2, 2, 3)",
        {"a": 1, "id": 2},
        "(`a` = 1 AND `id` = 2)",
    ),
}
TYPES = {"a": "INT", "id": "INT", "v": "INT"}


def opened(
    database: Database, key: Sequence[str], columns: Mapping[str, str], folder: Path, **more: str
) -> MysqlCdcSource:
    table = declare(database.options("item", **more), columns, key)
    return MysqlCdcSource(
        SourceContext(
            table=table,
            options=table.options.resolve({}),
            generation=1,
            splits=MemorySplits(),
            scratch=str(folder),
            clock=system_clock,
        )
    )


def rows_of(comparison: TableComparison[BinlogPosition], condition: str) -> pa.Table:
    """What a task of Spark would read."""
    return pa.Table.from_batches(comparison.reader([WHOLE], condition).read(0))


@pytest.mark.parametrize("name", KEYS)
def test_rows_of_some_keys_are_read_in_one_view_that_tells_its_place(name: str, database: Database, tmp_path: Path):
    there, key, values, wanted, condition = KEYS[name]
    database.execute(f"CREATE TABLE item ({there})", f"INSERT INTO item VALUES {values}")
    kind = "BYTES" if isinstance(wanted.get("k"), bytes) else "STRING"
    columns = {column: TYPES.get(column, kind) for column in (*key, "v")}
    with closing(opened(database, key, columns, tmp_path)) as source:
        assert isinstance(source, Comparable)
        comparison = source.comparison(SourcePosition())
        assert comparison.exact
        assert comparison.columns == [*key, "v"]
        assert comparison.condition([wanted]) == condition
        low, found, high = comparison.low(), rows_of(comparison, condition), comparison.high()
        assert found.select(list(key)).to_pylist() == [wanted]
        # Rows carry the number of the log's file, places its name.
        assert low.text == high.text
        seq = found["_seq"][0].as_py()
        assert low.text.endswith(f".{seq['file']:06}:{seq['position']}")
        assert len(rows_of(comparison, "TRUE")) == len(values.split("), ("))


def test_keys_that_can_not_be_written_ask_for_all_rows(database: Database, tmp_path: Path):
    database.execute("CREATE TABLE item (at DATETIME PRIMARY KEY)")
    with closing(opened(database, ("at",), {"at": "TIMESTAMP(3)"}, tmp_path)) as source:
        assert source.comparison(SourcePosition()).condition([{"at": "2020-01-01"}]) == "TRUE"


def test_a_changelog_without_the_whole_table_is_refused(database: Database, tmp_path: Path):
    database.execute("CREATE TABLE item (id INT PRIMARY KEY)")
    more = {"scan.startup.mode": "latest-offset"}
    with closing(opened(database, ("id",), {"id": "INT"}, tmp_path, **more)) as source:  # noqa: SIM117
        with pytest.raises(SourceError, match="is no image of the table"):
            source.comparison(SourcePosition())
