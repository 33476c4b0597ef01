"""One read view of the server, as exact reading needs it: its place in the log, and a query's rows as of that place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from pymysql.connections import Connection

from tidegate.pipelines.sources.mysql_cdc.binlog.model import ServerOptions
from tidegate.pipelines.sources.mysql_cdc.client import Client
from tidegate.pipelines.sources.mysql_cdc.options import MysqlOptions
from tidegate.pipelines.sources.mysql_cdc.snapshot.cut import SESSION_STATEMENT

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
    told = options.snapshot
    server = replace(
        options.server,
        connect_timeout=options.server.connect_timeout if told.connect_timeout is None else told.connect_timeout,
        read_timeout=ANSWER_TIMEOUT_S if told.answer_timeout is None else told.answer_timeout,
    )
    return Reader(server, isolation_variable, told.session_variables)
