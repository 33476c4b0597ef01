"""Services that tests share: one Spark session, one MariaDB server, and a fresh database for each test."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from pymysql.connections import Connection
from pyspark.sql import SparkSession

from pipelines.sources.mysql_cdc.server import EmbeddedMariaDb
from pipelines.testing import spark_session

_numbers = itertools.count(1)


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


@pytest.fixture(scope="session")
def spark() -> SparkSession:
    return spark_session()


@pytest.fixture(scope="session")
def mariadb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedMariaDb]:
    """A server for the whole run. Tests that stop it, or change its settings, start one of their own."""
    with EmbeddedMariaDb(tmp_path_factory.mktemp("mariadb")) as server:
        server.create_user("reader", "reader-secret")
        yield server


@pytest.fixture
def database(mariadb: EmbeddedMariaDb) -> Iterator[Database]:
    name = f"test_{next(_numbers)}"
    mariadb.create_database(name)
    try:
        yield Database(mariadb, name, "reader", "reader-secret")
    finally:
        with contextlib.suppress(Exception):
            mariadb.execute(f"DROP DATABASE `{name}`")
