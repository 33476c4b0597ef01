"""Connections to the server: the client that all are made with, and the driver's own session.

The session is for planning, positions and checks, never for rows.
"""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import pymysql
from pymysql.connections import Connection
from pymysql.cursors import Cursor

from tidegate.pipelines.errors import SourceError, SourceUnreachable
from tidegate.pipelines.progress import Progress, Task
from tidegate.pipelines.sources.mysql_cdc.errors import (
    IS_LOCKED,
    LOCK_WAIT_S,
    LOCKED,
    LOST,
    UNLOCK,
    UNREACHABLE,
    TableLocked,
    code_and_text,
)

ALL_ROWS = 2**64 - 1
"""No limit of rows."""

_EXACT: Mapping[str, str | int] = {
    # What a value looks like.
    "time_zone": "'+00:00'",
    "sql_mode": "''",
    "lc_time_names": "'en_US'",
    "div_precision_increment": 4,
    "default_week_format": 0,
    "group_concat_max_len": 1 << 20,
    # Which rows a SELECT finds, and in which order.
    "sql_select_limit": ALL_ROWS,
    "sql_auto_is_null": 0,
    "max_sort_length": 1024,
    "sql_buffer_result": 0,
    # What the catalog says.
    "sql_quote_show_create": 1,
    # Whether a statement, or the session, lives long enough.
    "max_join_size": ALL_ROWS,
    "sql_big_selects": 1,
    "sql_safe_updates": 0,
    "completion_type": "'NO_CHAIN'",
    "lock_wait_timeout": LOCK_WAIT_S,
    "wait_timeout": 28_800,
    "net_read_timeout": 900,
    "net_write_timeout": 900,
}
_OF_MARIADB = {"max_statement_time": 0, "idle_transaction_timeout": 0, "idle_readonly_transaction_timeout": 0}
_OF_MYSQL = {
    "50708": {"max_execution_time": 0},
    "80013": {"information_schema_stats_expiry": 0, "resultset_metadata": "'FULL'", "use_secondary_engine": "'OFF'"},
    "80030": {"show_gipk_in_create_table_and_information_schema": 1},
}
"""By the version that has them. MariaDB passes over comments of these numbers, and MySQL over comments of MariaDB's."""


def _settings(values: Mapping[str, str | int]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in values.items())


EXACT = " ".join(
    [
        _settings(_EXACT),
        f"/*M!100300 , {_settings(_OF_MARIADB)} */",
        *(f"/*!{version} , {_settings(values)} */" for version, values in _OF_MYSQL.items()),
    ]
)
"""Every setting of a session that changes what is read of a table, its catalog or a position, as SET takes them: no
global value, and none of `init_connect`, is left in force. Each session is opened with them. Values of a row do not
depend on the session otherwise: `preflight` refuses a column whose value does."""

SESSION = f"SET {EXACT}"


@dataclass(frozen=True)
class ServerOptions:
    """How to reach a server. The password is in no repr, no plan, no error.

    `server_ids` are the ids that dump connections may show the server, one each; empty means 0, which is what
    mysqlbinlog shows: such a connection takes no replica's place. Timeouts are seconds.
    """

    hostname: str
    port: int = 3306
    username: str = ""
    password: str = field(default="", repr=False)
    server_ids: tuple[int, ...] = ()
    connect_timeout: float = 30.0
    read_timeout: float = 120.0
    tls_ca: str | None = None
    """Path of a CA certificate; given, the connection is encrypted and the server's certificate checked."""
    tls_identity: bool = False
    """Whether the certificate must also name `hostname`."""

    @property
    def where(self) -> str:
        """`host:port`, for people."""
        return f"{self.hostname}:{self.port}"

    @property
    def connecting(self) -> dict[str, Any]:
        """What both clients, the snapshot's and the binlog's, give pymysql."""
        tls = {"ssl_ca": self.tls_ca, "ssl_verify_cert": True, "ssl_verify_identity": self.tls_identity}
        return {
            "host": self.hostname,
            "port": self.port,
            "user": self.username,
            # In UTF-8; of a text pymysql would make latin1.
            "password": self.password.encode(),
            "charset": "utf8mb4",
            "autocommit": True,
            "connect_timeout": max(1, round(self.connect_timeout)),
            "init_command": SESSION,
            **(tls if self.tls_ca else {}),
        }


class Session:
    """One connection, in autocommit and in UTC, that comes about when it is first needed, and again when it was lost in
    between.

    `answer_within` (s): how long each answer may take, those while it comes about too; None: as long as it takes, for
    planning a snapshot may ask for much.
    """

    def __init__(self, server: ServerOptions, where: str, answer_within: float | None = None) -> None:
        self.server = server
        self.where = where
        self.answer_within = answer_within
        self._connection: Connection | None = None

    @contextlib.contextmanager
    def cursor(self) -> Iterator[Cursor]:
        """A cursor; what goes wrong with it is raised as SourceError."""
        with explaining(self.where), self._open().cursor() as cursor:
            yield cursor

    def _open(self) -> Connection:
        if self._connection is not None:
            try:
                self._connection.ping(reconnect=False)
                return self._connection
            except (pymysql.err.MySQLError, OSError):
                self.close()
        with explaining(self.server.where):
            self._connection = Client(
                **self.server.connecting,
                read_timeout=self.answer_within,
                write_timeout=self.answer_within,
            )
        return self._connection

    def close(self) -> None:
        """Let go of the connection."""
        if self._connection is not None:
            with contextlib.suppress(pymysql.err.MySQLError, OSError):
                self._connection.close()
            self._connection = None


@contextlib.contextmanager
def explaining(where: str) -> Iterator[None]:
    """Raise an error of the server or the network as SourceError, with a next command."""
    try:
        yield
    except (pymysql.err.MySQLError, OSError) as error:
        raise explain(error, where) from error


def explain(error: Exception, where: str) -> SourceError:
    """What an error of the server or the network means."""
    code, text = code_and_text(error)
    state = "what was committed before is kept; nothing of this step was committed"
    again = "run the same command again"
    if code in UNREACHABLE:
        return SourceUnreachable(
            f"the server cannot be reached: {text}",
            where=where,
            state=state,
            next_command=f"check hostname, port and the network, then {again}",
        )
    if code in (1045, 1044, 1698):
        return SourceError(
            f"the server refuses the user: {text}",
            where=where,
            state=state,
            next_command=f"check username and password, then {again}",
        )
    if code == LOCKED:
        return TableLocked(IS_LOCKED, where=where, state=state, next_command=f"{UNLOCK}, then {again}")
    if code in LOST or isinstance(error, OSError):
        return SourceUnreachable(
            f"the connection was lost: {text}",
            where=where,
            state=state,
            next_command=f"{again}: it goes on from there",
        )
    return SourceError(
        f"the server says: ({code}) {text}", where=where, state=state, next_command=f"mend that, then {again}"
    )


def execute_once_unlocked(cursor: Cursor, statement: str, table: str, progress: Progress) -> None:
    """Execute a statement that reads `table`, while `progress` says that a lock on it is waited for. Raises pymysql's
    error (LOCKED) where it is not released within LOCK_WAIT_S."""
    waits: Task | None = None
    for turns in range(len(_LOCK_WAITS), 0, -1):
        try:
            cursor.execute(f"SET lock_wait_timeout = {_LOCK_WAITS[-turns]}")
            cursor.execute(statement)
            break
        except pymysql.err.MySQLError as error:
            if code_and_text(error)[0] != LOCKED or turns == 1:
                raise
            waits = waits or progress.task(f"waiting for a lock on {table}", 1)
            waits.note(f"another session holds it; {sum(_LOCK_WAITS[1 - turns :])} s left")
        finally:
            cursor.connection.query(f"SET lock_wait_timeout = {LOCK_WAIT_S}")
    if waits is not None:
        waits.advance(1)


_LOCK_WAITS = (1, *[5] * 5, 4)
"""So long (s) is waited each time, LOCK_WAIT_S in all."""


class Client(Connection):
    """A connection. Without `tls_ca` it accepts any certificate, as pymysql does; but the authorities of this machine,
    which are not used then, are not read anew (20 ms) for each connection."""

    @property
    def on_this_machine(self) -> bool:
        """Whether the server is on the machine that asks: both ends have one address."""
        ends: Any = getattr(self, "_sock", None)
        return ends is not None and ends.getsockname()[0] == ends.getpeername()[0]

    @property
    def encrypted(self) -> bool:
        return isinstance(getattr(self, "_sock", None), ssl.SSLSocket)

    def _create_ssl_ctx(self, sslp: Any) -> ssl.SSLContext:
        parent: Any = super()
        return parent._create_ssl_ctx(sslp) if sslp else _any_certificate()


@lru_cache(maxsize=1)
def _any_certificate() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
