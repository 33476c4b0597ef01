"""Reads chunks into Arrow batches, without Spark: the queries in a read view; and the cut, the log position that the
view equals. MariaDB and MySQL have each a rule for it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa
import pymysql
from pymysql.connections import Connection
from pymysql.cursors import Cursor

from tidegate.pipelines.commands import resnapshot, then
from tidegate.pipelines.errors import SourceError
from tidegate.pipelines.sources.cdc.changelog import SOURCE_FIELDS, snapshot_columns
from tidegate.pipelines.sources.cdc.chunks import Chunk, SnapshotKey
from tidegate.pipelines.sources.cdc.database import CutRule
from tidegate.pipelines.sources.cdc.errors import RETRY, SnapshotError, UnreadableKey
from tidegate.pipelines.sources.mysql_cdc.binlog.model import BinlogPosition
from tidegate.pipelines.sources.mysql_cdc.binlog.scan import scan_gtids
from tidegate.pipelines.sources.mysql_cdc.catalog import NoBound, Server
from tidegate.pipelines.sources.mysql_cdc.connection import EXACT, Client, ServerOptions
from tidegate.pipelines.sources.mysql_cdc.errors import typed, unreadable_key
from tidegate.pipelines.sources.mysql_cdc.snapshot.results import canonical_array, select, values_of
from tidegate.pipelines.sources.mysql_cdc.types import SourceColumn, exact_expression, snapshot_expression
from tidegate.pipelines.syntax.types import quoted

Scan = Callable[[ServerOptions, BinlogPosition, BinlogPosition], Iterable[tuple[BinlogPosition, str | None]]]

SESSION_STATEMENT = "START TRANSACTION WITH CONSISTENT SNAPSHOT"
"""Opens the read view, under REPEATABLE READ only: READ COMMITTED ignores it silently."""


class MysqlCutRule(CutRule[BinlogPosition], Protocol):
    """`CutRule` of a server whose read views have their place by SQL."""

    def columns(self, cursor: Cursor, start: BinlogPosition) -> tuple[str, str]:
        """SQL of the file's number and of the position that a read view opened from now on has reached, whole numbers,
        asked once in each chunk's read view, before its rows. `start` is what `start` gave before the first chunk."""
        ...


def cut_rule(server: Server, options: ServerOptions) -> MysqlCutRule:
    """The rule of this server."""
    return MariaDbCut(server) if server.flavor == "mariadb" else MySqlCut(server, options)


def status_position(cursor: Cursor, server: Server) -> BinlogPosition:
    """Where the server will write next. Raises SourceError when it writes no binlog."""
    cursor.execute(server.status_command)
    found = cursor.fetchone()
    if found is None:
        raise no_binlog()
    return BinlogPosition(found[0], int(found[1]))


def no_binlog() -> SourceError:
    """The server writes no binlog."""
    return SourceError(
        "the server writes no binlog",
        state="nothing was read",
        next_command="start it with log_bin = binlog and a server_id in its configuration",
    )


class MariaDbCut:
    """MariaDB reports it: BINLOG_SNAPSHOT_FILE and _POSITION of the very transaction, in the order of commits."""

    exact = True
    # Made a number here: '' would be 0, and is no position.
    _STATUS = (
        "(SELECT CAST(NULLIF({}, '') AS SIGNED) FROM information_schema.SESSION_STATUS WHERE VARIABLE_NAME = '{}')"
    )

    def __init__(self, server: Server) -> None:
        self._server = server

    def start(self, cursor: Cursor) -> BinlogPosition:
        # Not SHOW MASTER STATUS: it may be past transactions that are written and not yet visible.
        cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        cursor.execute(SESSION_STATEMENT)
        cursor.execute("SHOW STATUS LIKE 'binlog_snapshot_%'")
        found = {name.lower(): value for name, value in cursor.fetchall()}
        cursor.execute("COMMIT")
        if not found.get("binlog_snapshot_file"):
            raise no_binlog()
        return BinlogPosition(found["binlog_snapshot_file"], int(found["binlog_snapshot_position"]))

    def columns(self, cursor: Cursor, start: BinlogPosition) -> tuple[str, str]:
        file = self._STATUS.format("SUBSTRING_INDEX(VARIABLE_VALUE, '.', -1)", "BINLOG_SNAPSHOT_FILE")
        return file, self._STATUS.format("VARIABLE_VALUE", "BINLOG_SNAPSHOT_POSITION")

    def after(self, cursor: Cursor) -> BinlogPosition:
        return status_position(cursor, self._server)


class MySqlCut:
    """MySQL 8 knows only which transactions are visible (gtid_executed), not where they are in the log.

    A file and position would cover transactions that are written but not yet visible. So the set is read before the
    view is opened, and the position is the place of the first transaction in the log that is not in the set.
    """

    exact = False

    def __init__(self, server: Server, options: ServerOptions, scan: Scan = scan_gtids) -> None:
        self._server = server
        self._options = options
        self._scan = scan

    def start(self, cursor: Cursor) -> BinlogPosition:
        # Nothing before the newest file is invisible: a new one begins when all transactions of the old are committed.
        return self._visible(cursor, None)

    def columns(self, cursor: Cursor, start: BinlogPosition) -> tuple[str, str]:
        reached = self._visible(cursor, start)
        return str(reached.number), str(reached.position)

    def after(self, cursor: Cursor) -> BinlogPosition:
        return status_position(cursor, self._server)

    def _visible(self, cursor: Cursor, known: BinlogPosition | None) -> BinlogPosition:
        """Just before the first transaction that is not visible, looked for from `known` on."""
        cursor.execute("SELECT @@GLOBAL.gtid_executed")
        executed = GtidSet.parse((cursor.fetchone() or ("",))[0])
        end = status_position(cursor, self._server)
        for place, transaction in self._scan(self._options, known or BinlogPosition(end.file), end):
            # One without a readable id is taken as not visible: to begin too early only costs time.
            if transaction is None or transaction not in executed:
                return place
        return end


class GtidSet:
    """A set of MySQL's transaction ids, "uuid:1-5:7,uuid:tag:1-3". `"uuid:6" in GtidSet.parse(…)` asks for one."""

    def __init__(self, intervals: dict[str, list[tuple[int, int]]]) -> None:
        self._intervals = intervals

    @classmethod
    def parse(cls, text: str) -> GtidSet:
        """From @@gtid_executed. Raises SourceError for a text of another form."""
        intervals: dict[str, list[tuple[int, int]]] = {}
        for source in "".join(text.split()).split(","):
            if not source:
                continue
            uuid, *parts = source.lower().split(":")
            if not re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", uuid) or not parts:
                raise SourceError(f"{source!r} is no set of transaction ids", where="@@gtid_executed")
            name = uuid
            for part in parts:
                numbers = re.fullmatch(r"(\d+)(?:-(\d+))?", part)
                if numbers:
                    first = int(numbers.group(1))
                    intervals.setdefault(name, []).append((first, int(numbers.group(2) or first)))
                elif re.fullmatch(r"[a-z_]\w{0,31}", part):
                    name = f"{uuid}:{part}"
                else:
                    raise SourceError(f"{source!r} is no set of transaction ids", where="@@gtid_executed")
        return cls(intervals)

    def __contains__(self, transaction: str) -> bool:
        name, _, number = transaction.lower().rpartition(":")
        return any(first <= int(number) <= last for first, last in self._intervals.get(name, ()))


@dataclass(frozen=True)
class Work:
    """`cdc.database.ChunkReader`. Pickled to the executors, the password with it, and shown nowhere.

    `selects` are the SQL of the chunks' rows, one each.
    """

    reader: Reader
    query: SnapshotQuery
    chunks: tuple[Chunk, ...]
    selects: tuple[str, ...]

    @classmethod
    def of(cls, reader: Reader, query: SnapshotQuery, chunks: Sequence[Chunk], condition: str | None = None) -> Work:
        """`condition`: the server's SQL that holds for the wanted rows; None for all."""
        return cls(reader, query, tuple(chunks), tuple(query.rows(chunk, condition) for chunk in chunks))

    def __str__(self) -> str:
        return str(self.query)

    @property
    def columns(self) -> Sequence[SourceColumn]:
        return self.query.columns

    def read(self, number: int) -> Iterator[pa.RecordBatch]:
        """The rows of one of the chunks in batches of about `results.PIECE_BYTES`, each with the cut of its own read
        view. Raises SnapshotError that names the table and the chunk."""
        query, chunk, first = self.query, self.chunks[number], 0
        schema = pa.schema([*SOURCE_FIELDS, *(pa.field(each.name, each.canonical.arrow) for each in query.columns)])
        try:
            with read_view(self.reader, query.cut_columns) as view:
                found, pieces = select(view.connection, self.selects[number])
                for piece in pieces:
                    values = zip(values_of(piece, found), found, query.columns, strict=True)
                    columns = [canonical_array(*each) for each in values]
                    _require_keys(query, columns)
                    count = len(piece.starts)
                    source = snapshot_columns(chunk.name, (view.file, view.position), view.began_s, first, count)
                    yield pa.RecordBatch.from_arrays([*source, *columns], schema=schema)
                    first += count
        except SnapshotError as error:
            raise error.at(f"{chunk.name} of {query}") from error
        except (pymysql.err.MySQLError, OSError) as error:
            raise typed(error, f"{chunk.name} of {query}") from error


def _require_keys(query: SnapshotQuery, columns: Sequence[pa.Array]) -> None:
    """A column of the key is never NULL on the server: here it is where its value is none of its own."""
    for column, values in zip(query.columns, columns, strict=True):
        if column.name in query.exact and values.null_count:
            what, mend = unreadable_key(column)
            raise UnreadableKey(what, next_command=then(mend, RETRY))


@dataclass(frozen=True)
class SnapshotQuery:
    """What is read of a table, whatever the chunk. `name` is what the script calls it; it names the `columns` too.

    `cut_columns` are the SQL of the cut's file number and position, to be asked in the chunk's read view. `exact`:
    names of the columns, those of the declared key, that have a value of their own in every row.
    """

    name: str
    database: str
    table: str
    columns: Sequence[SourceColumn]
    key: SnapshotKey
    cut_columns: tuple[str, str]
    exact: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return f"{self.database}.{self.table}"

    def rows(self, chunk: Chunk, condition: str | None = None) -> str:
        """The chunk's rows; with a `condition` (the server's SQL) those of them that it holds for. Raises NoBound."""
        values = ", ".join(f"{self._value(column)} AS {quoted(column.name)}" for column in self.columns)
        try:
            within = chunk.predicate(self.key)
        except NoBound as error:
            error.reword(next_command=resnapshot(self.name, "a new generation: its chunks are planned again"))
            raise
        wanted = " AND ".join(f"({part})" for part in (within, condition) if part)
        source = f"{quoted(self.database)}.{quoted(self.table)}{'' if condition else self.key.hint}"
        return f"SELECT {values} FROM {source}" + (f" WHERE {wanted}" if wanted else "")  # noqa: S608 quoted

    def _value(self, column: SourceColumn) -> str:
        expression = snapshot_expression(column)
        return exact_expression(column, expression) if column.name in self.exact else expression


_BEGAN = "@tidegate_began"


@dataclass(frozen=True)
class Reader:
    """How connections that read chunks are made. `isolation_variable` is what this server calls it.

    `session_variables` are the script's own, as SET takes them, and may be secret.
    """

    server: ServerOptions
    isolation_variable: str
    session_variables: str = field(default="", repr=False)

    @property
    def settings(self) -> str:
        """SQL of a session whose reads are exact. What exactness needs comes last, so that nothing undoes it."""
        own = [
            f"{self.isolation_variable}='REPEATABLE-READ'",
            EXACT,
            # In whole seconds, as most servers date a commit.
            f"{_BEGAN}=UNIX_TIMESTAMP()",
        ]
        return "SET " + ", ".join([*([self.session_variables] if self.session_variables else []), *own])


@dataclass(frozen=True)
class ReadView:
    """An open read view: the file's number and the position that it has reached, and the second (UTC) it began in."""

    connection: Connection
    file: int
    position: int
    began_s: int


@contextmanager
def read_view(reader: Reader, cut_columns: Sequence[str]) -> Iterator[ReadView]:
    """A connection of its own with a read view. It is cut off at the end, whatever the server still sends.

    Raises pymysql's errors and OSError.
    """
    connection = Client(**reader.server.connecting, read_timeout=reader.server.read_timeout, write_timeout=60)
    try:
        with connection.cursor() as cursor:
            cursor.execute(reader.settings)
            cursor.execute(SESSION_STATEMENT)
            cursor.execute(f"SELECT {', '.join(cut_columns)}, {_BEGAN}")
            file, position, began = cursor.fetchone() or (0, 0, 0)
        yield ReadView(connection, int(file), int(position), int(began))
    finally:
        connection._force_close()  # type: ignore[attr-defined]
