"""Sets the stage: what will be downloaded is announced, a real MariaDB on loopback has `user_info` in it, the
environment is what the script and Dagster look into.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

from tidegate.orchestration.demo.site import DATABASE, GENDERS, SCRIPT, USER, Site, Sizes, environment, export, typed
from tidegate.orchestration.web_server import prepare
from tidegate.pipelines.errors import TidegateError
from tidegate.pipelines.jars import home, is_cached, java
from tidegate.pipelines.location import Location
from tidegate.pipelines.progress import Progress, step
from tidegate.pipelines.sources.mysql_cdc.server import EmbeddedMariaDb
from tidegate.pipelines.sources.mysql_cdc.server_install import needs_download
from tidegate.pipelines.spark_versions import spark_jars
from tidegate.pipelines.text import counted


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
        step(progress, f"fill user_info with {counted(rows, 'row')}"),
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


_BYTES_PER_ROW = 600
_FREE_BYTES = 500 * 2**20


@contextlib.contextmanager
def opened(site: Site, sizes: Sizes, progress: Progress, port: int | None = None) -> Iterator[EmbeddedMariaDb]:
    """A database with a new `user_info`, an empty lake, and the environment for them.

    Raises JavaMissing, ServerUnavailable, JarsUnavailable, and TidegateError where there is no room.
    """
    java()
    _require_script()
    site.root.mkdir(parents=True, exist_ok=True)
    _require_room(site.root, sizes)
    with serving(site.database, progress, port) as (server, password):
        for folder in (site.lake, site.dagster):
            shutil.rmtree(folder, ignore_errors=True)
        prepare(site.dagster)
        fill(server, sizes.rows, progress)
        site.sizes.write_text(json.dumps(asdict(sizes)), encoding="utf-8")
        export(environment(site, sizes, server.host, server.port, password))
        yield server


@contextlib.contextmanager
def reopened(site: Site, progress: Progress) -> Iterator[EmbeddedMariaDb]:
    """The database of the newest demo as it was left, and the environment for its lake.

    Raises TidegateError when there was no demo.
    """
    if not Location(site.lake).is_there() or not site.sizes.exists():
        raise TidegateError(
            "there is no demo to open yet",
            where=str(site.root),
            state="nothing was started",
            next_command=typed(site, "demo", "demo"),
        )
    sizes = Sizes(**json.loads(site.sizes.read_text(encoding="utf-8")))
    with serving(site.database, progress) as (server, password):
        if not is_filled(server):
            raise TidegateError(
                "the demo's database has no user_info: its last run did not get that far",
                where=str(site.database),
                state="nothing was changed",
                next_command=typed(site, "demo", "demo"),
            )
        prepare(site.dagster)
        export(environment(site, sizes, server.host, server.port, password))
        yield server


def _require_script() -> None:
    if not SCRIPT.exists():
        raise TidegateError(
            "the demo's pipeline is not part of an installed package",
            where=str(SCRIPT),
            state="nothing was started",
            next_command="make demo   (in a clone of the repository)",
        )


def _require_room(folder: Path, sizes: Sizes) -> None:
    needed = _FREE_BYTES + _BYTES_PER_ROW * (sizes.rows + sizes.clicks)
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise TidegateError(
            f"the demo needs {needed // 2**20} MB of disk and {free // 2**20} MB are free",
            where=str(folder.absolute()),
            state="nothing was changed",
            next_command="free some space and run the same command again, or make it smaller: "
            "tidegate demo --rows 100000 --clicks 50000",
        )


_SERVER_BYTES = 149_000_000
_JAR_BYTES = (95_000_000, 500_000, 100_000, 9_200_000, 200_000, 100_000)
"""What is downloaded for each of `SparkJars.all`, with what it depends on."""
_JAR_NAMES = ("Delta Lake", *["Spark's Kafka source"] * 4, "Spark's Avro")
_BYTES_PER_MINUTE = 120_000_000
"""What a connection of 16 Mbit/s brings."""


def announce(site: Site, say: Callable[[str], None]) -> None:
    """Say it. Raises ServerUnavailable where $TIDEGATE_MARIADBD names no server."""
    of_jars = zip(spark_jars().all, _JAR_NAMES, _JAR_BYTES, strict=True)
    jars = [(name, size) for coordinate, name, size in of_jars if not is_cached(coordinate)]
    missing = list(dict.fromkeys(name for name, _ in jars))
    needed = sum(size for _, size in jars)
    if needs_download():
        missing.append("a MariaDB server")
        needed += _SERVER_BYTES
    if missing:
        say(
            f"The first run downloads {', '.join(missing)} into {home()}: {_megabytes(needed)}, "
            f"{_minutes(needed)}, once."
        )
    if site.database.exists():
        say(f"Using the database server in {site.database} again; user_info, the lake and its history are made anew.")
    say(f"Everything of the demo lies in {site.root}; remove that folder to be rid of it.")


def _megabytes(needed: int) -> str:
    return f"about {max(round(needed / 1_000_000), 1)} MB"


def _minutes(needed: int) -> str:
    minutes = needed / _BYTES_PER_MINUTE
    return "less than a minute" if minutes < 1 else f"1 to {round(minutes) + 1} minutes"
