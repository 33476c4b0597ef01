"""Reads chunks into Arrow batches, without Spark: what is asked of the server, in a read view whose place is known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pymysql
from pymysql.connections import Connection

from tidegate.pipelines.commands import resnapshot, then
from tidegate.pipelines.sources.cdc.changelog import SOURCE_FIELDS, snapshot_columns
from tidegate.pipelines.sources.cdc.chunks import Chunk, SnapshotKey
from tidegate.pipelines.sources.cdc.errors import RETRY, SnapshotError, UnreadableKey
from tidegate.pipelines.sources.mysql_cdc.connection import Client, ServerOptions
from tidegate.pipelines.sources.mysql_cdc.errors import MEND_DATES, no_such_date, typed
from tidegate.pipelines.sources.mysql_cdc.key import NoBound
from tidegate.pipelines.sources.mysql_cdc.options import MysqlOptions
from tidegate.pipelines.sources.mysql_cdc.snapshot.cut import SESSION_STATEMENT
from tidegate.pipelines.sources.mysql_cdc.snapshot.results import canonical_array, select, values_of
from tidegate.pipelines.sources.mysql_cdc.types import SourceColumn, exact_expression, quote, snapshot_expression


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
        """The rows of one of the chunks in batches of about `packets.PIECE_BYTES`, each with the cut of its own read
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
            raise type(error)(
                error.what, where=f"{chunk.name} of {query}", state=error.state, next_command=error.advice
            ) from error
        except (pymysql.err.MySQLError, OSError) as error:
            raise typed(error, f"{chunk.name} of {query}") from error


def _require_keys(query: SnapshotQuery, columns: Sequence[pa.Array]) -> None:
    """A column of the key is never NULL on the server: here it is where its date does not exist."""
    for column, values in zip(query.columns, columns, strict=True):
        if column.name in query.exact and values.null_count:
            raise UnreadableKey(no_such_date(column.name), next_command=then(MEND_DATES, RETRY))


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
        values = ", ".join(f"{self._value(column)} AS {quote(column.name)}" for column in self.columns)
        try:
            within = chunk.predicate(self.key)
        except NoBound as error:
            error.reword(next_command=resnapshot(self.name, "a new generation: its chunks are planned again"))
            raise
        wanted = " AND ".join(f"({part})" for part in (within, condition) if part)
        source = f"{quote(self.database)}.{quote(self.table)}{'' if condition else self.key.hint}"
        return f"SELECT {values} FROM {source}" + (f" WHERE {wanted}" if wanted else "")  # noqa: S608 quoted

    def _value(self, column: SourceColumn) -> str:
        expression = snapshot_expression(column)
        return exact_expression(column, expression) if column.name in self.exact else expression


WRITE_TIMEOUT_S = 900
"""The server waits this long for a reader that writes Parquet in between."""

ANSWER_TIMEOUT_S = 900.0
"""And a reader this long for the server, which may have to look for the first row."""

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
            "time_zone='+00:00'",
            "sql_mode=''",
            f"net_write_timeout={WRITE_TIMEOUT_S}",
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
    """A connection of its own with a read view. It is cut at the end: what it still sends is not waited for.

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


def reader(options: MysqlOptions, isolation_variable: str) -> Reader:
    """How the chunks of a table are read. A time limit of the script's, if there is one, takes the place of ours."""
    limits = options.snapshot
    server = replace(
        options.server,
        connect_timeout=options.server.connect_timeout if limits.connect_timeout is None else limits.connect_timeout,
        read_timeout=ANSWER_TIMEOUT_S if limits.answer_timeout is None else limits.answer_timeout,
    )
    return Reader(server, isolation_variable, limits.session_variables)
