"""The demo's database: a real MariaDB on loopback with `user_info` in it."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator
from pathlib import Path

from tidegate.orchestration.demo.site import DATABASE, GENDERS, USER
from tidegate.pipelines.errors import TidegateError
from tidegate.pipelines.progress import Progress, step
from tidegate.pipelines.sources.mysql_cdc.server import EmbeddedMariaDb


def gender(user_id: int) -> str:
    """The gender of a user in the table as it is filled."""
    return GENDERS[user_id % len(GENDERS)]


@contextlib.contextmanager
def serving(folder: Path, progress: Progress, port: int | None = None) -> Iterator[tuple[EmbeddedMariaDb, str]]:
    """The server, and the password of USER in this start of it. Raises ServerUnavailable."""
    password = secrets.token_hex(16)
    with step(progress, "start MariaDB"):
        server = EmbeddedMariaDb(folder, port=port, progress=progress, options={"innodb_buffer_pool_size": "256M"})
        server.start()
    try:
        server.execute(f"CREATE DATABASE IF NOT EXISTS `{DATABASE}`")
        server.create_user(USER, password, database=DATABASE)
        yield server, password
    finally:
        server.stop()


def fill(server: EmbeddedMariaDb, rows: int, progress: Progress) -> None:
    """Make `user_info` anew with users 1 to `rows`, and begin the binlog anew: nothing of an older run is in it."""
    with (
        step(progress, f"fill user_info with {rows:,} rows"),
        contextlib.closing(server.connect(database=DATABASE)) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute("DROP TABLE IF EXISTS user_info")
        cursor.execute("CREATE TABLE user_info (user_id INT PRIMARY KEY, gender VARCHAR(8) NOT NULL) ENGINE=InnoDB")
        cursor.execute("SET sql_log_bin = 0")
        cursor.execute(
            "INSERT INTO user_info SELECT seq, ELT(1 + seq %% 3, %s, %s, %s) FROM seq_1_to_1000000000 WHERE seq <= %s",
            (*GENDERS, rows),
        )
        cursor.execute("RESET MASTER")


def is_filled(server: EmbeddedMariaDb) -> bool:
    """Whether there is a table to read."""
    return bool(server.execute("SHOW TABLES LIKE 'user_info'", database=DATABASE))


def transaction_at(server: EmbeddedMariaDb, position: str) -> int:
    """The number of the last transaction before a binlog position ("binlog.000001:4711"), as the server reports it.

    0 before the first. Raises TidegateError when the server does not know the position.
    """
    file, _, offset = position.rpartition(":")
    ((gtid,),) = server.execute(f"SELECT BINLOG_GTID_POS('{file}', {int(offset)})")
    if gtid is None:
        raise TidegateError(f"MariaDB does not know the binlog position {position}", next_command="tidegate demo")
    return int(gtid.rpartition("-")[2]) if gtid else 0
