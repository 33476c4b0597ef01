"""Services that tests share: one Spark session, one MariaDB server, and a fresh database for each test."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pymysql.connections import Connection
from pyspark.sql import SparkSession

from pipelines.sources.mysql_cdc.server import EmbeddedMariaDb
from pipelines.testing import spark_session

_numbers = itertools.count(1)

os.environ["SPARK_CONF_DIR"] = str(Path(__file__).parent / "fixtures" / "spark")


@dataclass(frozen=True)
class Database:
    """A database of a test's own. `user` and `password` may read it and the binlog, over TCP."""

    server: EmbeddedMariaDb
    name: str
    user: str
    password: str

    def connect(self, **settings: Any) -> Connection:
        """A connection as root, in autocommit, with this database chosen."""
        return self.server.connect(**{"database": self.name, **settings})

    def execute(self, *statements: str) -> tuple[tuple[Any, ...], ...]:
        """Run statements as root and return the rows of the last one."""
        return self.server.execute(*statements, database=self.name)

    def options(self, table: str, **more: str) -> dict[str, str]:
        """The WITH options of a mysql-cdc table that reads `table`; in `more`, `_` stands for `-`."""
        return {
            "connector": "mysql-cdc",
            "hostname": self.server.host,
            "port": str(self.server.port),
            "username": self.user,
            "password": self.password,
            "database-name": self.name,
            "table-name": table,
            **{key.replace("_", "-"): value for key, value in more.items()},
        }

    def environment(self, **more: object) -> dict[str, str]:
        """What the script of examples/clicks finds in the environment to get here, and `more`."""
        found = {
            "MYSQL_HOST": self.server.host,
            "MYSQL_PORT": self.server.port,
            "MYSQL_USER": self.user,
            "MYSQL_PASSWORD": self.password,
        }
        return {name: str(value) for name, value in {**found, **more}.items()}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files of minutes come first: begun last, one would run alone while the other workers have nothing left."""
    long = {item.path for item in items if item.get_closest_marker("long")}
    items.sort(key=lambda item: item.path not in long)


@pytest.fixture(scope="session")
def spark() -> SparkSession:
    return spark_session()


@pytest.fixture(scope="session")
def mariadb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedMariaDb]:
    """A server for the whole run. Tests that stop it, or change its settings, start one of their own."""
    with EmbeddedMariaDb(tmp_path_factory.mktemp("mariadb")) as server:
        server.create_user("reader", "reader-secret")
        yield server


SECRET = "s3c+et/per cent% &ünd€"
"""A password that is written otherwise wherever it is escaped or encoded."""
ACCOUNT = "reader-of-clicks-7"
"""A user's name that no page, script or table has."""


@pytest.fixture
def example_database(mariadb: EmbeddedMariaDb) -> Iterator[Database]:
    """The database of examples/clicks, under the name that it has there; its user is ACCOUNT, the password SECRET."""
    mariadb.create_database("example_database")
    mariadb.create_user(ACCOUNT, SECRET)
    try:
        yield Database(mariadb, "example_database", ACCOUNT, SECRET)
    finally:
        mariadb.execute("DROP DATABASE example_database", f"DROP USER '{ACCOUNT}'@'127.0.0.1'")


@pytest.fixture
def database(mariadb: EmbeddedMariaDb) -> Iterator[Database]:
    name = f"test_{next(_numbers)}"
    mariadb.create_database(name)
    try:
        yield Database(mariadb, name, "reader", "reader-secret")
    finally:
        with contextlib.suppress(Exception):
            mariadb.execute(f"DROP DATABASE `{name}`")
