"""Columns of every type, each between texts, members, JSON and a shape, whose character sets are counted through them;
and such a table as the snapshot and the log have it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pyarrow as pa

from tests.conftest import Database
from tests.pipelines.sources.mysql_cdc.binlog.all_types import COLUMNS
from tests.pipelines.sources.mysql_cdc.binlog.recording import position, read, server_of, wanted
from tidegate.pipelines.sources.cdc.chunks import WHOLE
from tidegate.pipelines.sources.mysql_cdc.binlog.model import WantedTable
from tidegate.pipelines.sources.mysql_cdc.catalog import MysqlKey
from tidegate.pipelines.sources.mysql_cdc.snapshot.reading import Reader, SnapshotQuery, Work
from tidegate.pipelines.sources.mysql_cdc.types import SourceColumn

_BINARY_MEMBERS = {
    "enum('a','Ж') character set binary": ("'a'", "'Ж'", "'a'"),
    "set('x','Ж') character set binary": ("'x,Ж'", "'Ж'", "''"),
}
_OF_MARIADB = ("inet4", "inet6", "uuid", "compressed", "decimal(38,38)")
_OF_MYSQL = {
    "vector(3)": ("STRING_TO_VECTOR('[1,2.5,-3]')", "STRING_TO_VECTOR('[0,0,0]')", "NULL"),
    "vector": ("STRING_TO_VECTOR('[1]')", "STRING_TO_VECTOR('[-0.5,1e38]')", "NULL"),
}
MARIADB = {**COLUMNS, **_BINARY_MEMBERS}
MYSQL = {
    kind: values
    for kind, values in {**COLUMNS, **_BINARY_MEMBERS, **_OF_MYSQL}.items()
    if not any(word in kind for word in _OF_MARIADB)
}
"""As `all_types.COLUMNS`: what each server has, also what cannot be declared."""

MIXED = {
    "varchar(3) character set latin1": "'ä'",
    "varchar(3) character set latin2": "'ł'",
    "enum('x','ł') character set latin2": "'ł'",
    "json": "'[1]'",
    "varchar(3) character set cp1251": "'Ж'",
    "set('x','Ж') character set cp1251": "'x,Ж'",
    "point": "ST_GeomFromText('POINT(1 2)')",
}
"""Neighbours whose character sets are listed one by one."""
ALIKE = {**dict.fromkeys(("text", "varchar(3)", "enum('x','ł')"), "'ł'"), "text character set latin1": "'ä'"}
"""Neighbours most of whose character sets are the default."""


def create(database: Database, table: str, kinds: dict[str, Sequence[str]], neighbours: dict[str, str]) -> None:
    """A table of `kinds` (c0, c1, …), with a neighbour (n0, n1, …) before, between and after them, and three rows."""
    between = [list(neighbours.items())[number % len(neighbours)] for number in range(len(kinds) + 1)]
    columns, rows = [f"n0 {between[0][0]} NULL"], [[between[0][1]] for _ in range(3)]
    for number, (kind, values) in enumerate(kinds.items()):
        beside, value = between[number + 1]
        columns += [f"c{number} {kind} NULL", f"n{number + 1} {beside} NULL"]
        for row, own in zip(rows, values, strict=True):
            row += [own, value]
    database.execute(
        "SET SESSION sql_mode = '', time_zone = '+00:00'",
        f"CREATE TABLE {table} (id INT PRIMARY KEY, {', '.join(columns)}) CHARACTER SET utf8mb4",
        *(f"INSERT INTO {table} VALUES ({number}, {', '.join(row)})" for number, row in enumerate(rows)),
    )


def snapshot(database: Database, table: WantedTable) -> pa.Table:
    """The table as a snapshot has it, in the order of its key."""
    query = SnapshotQuery("t", table.database, table.name, table.columns, MysqlKey(), ("1", "2"))
    reader = Reader(server_of(database), "transaction_isolation")
    rows = pa.Table.from_batches([*Work.of(reader, query, [WHOLE]).read(0)])
    return rows.select([column.name for column in table.columns]).sort_by("id")


def differing(of_log: pa.Table, of_snapshot: pa.Table) -> list[tuple[str, object, object]]:
    """The columns whose values are not the same: name, the log's, the snapshot's."""
    return [
        (name, of_log[name].to_pylist(), of_snapshot[name].to_pylist())
        for name in of_snapshot.column_names
        if not of_log[name].equals(of_snapshot[name])
    ]


def _readable(column: SourceColumn) -> bool:
    of_bytes = column.data_type in ("enum", "set") and column.charset in (None, "binary")
    return column.data_type != "vector" and not of_bytes


def _only(table: WantedTable, declared: Callable[[SourceColumn], bool]) -> WantedTable:
    return replace(table, columns=tuple(column for column in table.columns if declared(column)))


def fault(database: Database, kinds: dict[str, Sequence[str]]) -> list[tuple[str, object, object]]:
    """What differs between snapshot and log, where all that can be declared is, and where the neighbours alone are."""
    wrong = []
    for name, neighbours in (("mixed", MIXED), ("alike", ALIKE)):
        start = position(database)
        create(database, name, kinds, neighbours)
        whole = wanted(database, name)
        for table in (_only(whole, _readable), _only(whole, lambda column: not column.name.startswith("c"))):
            wrong += differing(read(database, table, start), snapshot(database, table))
    return wrong
