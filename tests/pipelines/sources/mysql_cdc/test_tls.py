"""Encrypted connections: of the driver, of the snapshot, of the binlog; and to nobody else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.conftest import Database
from tests.pipelines.sources.mysql_cdc.driver import Driver, declare
from tidegate.pipelines.errors import SourceError
from tidegate.pipelines.sources.mysql_cdc.server import EmbeddedMariaDb

TLS = Path(__file__).parents[4] / "tests" / "fixtures" / "tls"


@pytest.fixture
def secure(tmp_path: Path) -> Iterator[Database]:
    """A server that lets nobody in over TCP unless encrypted."""
    options = {
        "skip_ssl": None,
        "ssl_ca": str(TLS / "ca.pem"),
        "ssl_cert": str(TLS / "server.pem"),
        "ssl_key": str(TLS / "server-key.pem"),
        "require_secure_transport": True,
    }
    with EmbeddedMariaDb(tmp_path / "server", options=options) as server:
        server.create_database("shop")
        server.create_user("reader", "reader-secret")
        yield Database(server, "shop", "reader", "reader-secret")


def with_tls(database: Database, mode: str, authority: Path) -> dict[str, str]:
    return database.options("t") | {
        "jdbc.properties.sslMode": mode,
        "jdbc.properties.serverSslCert": str(authority),
    }


@pytest.mark.parametrize("mode", ["verify-full", "verify-ca"])
def test_both_phases_are_read_encrypted(spark: SparkSession, secure: Database, tmp_path: Path, mode: str) -> None:
    secure.execute("CREATE TABLE t (k INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    driver = Driver(spark, tmp_path, declare(with_tls(secure, mode, TLS / "ca.pem"), {"k": "INT"}, ["k"]))
    driver.run()
    secure.execute("INSERT INTO t VALUES (2)")
    driver.run()
    assert set(driver.state()) == {(1,), (2,)}


def test_without_encryption_nothing_is_said(spark: SparkSession, secure: Database, tmp_path: Path) -> None:
    secure.execute("CREATE TABLE t (k INT PRIMARY KEY)")
    with pytest.raises(SourceError, match="encrypted connections only"):
        Driver(spark, tmp_path, declare(secure.options("t"), {"k": "INT"}, ["k"])).run()


def test_a_server_that_another_authority_vouches_for_is_refused(
    spark: SparkSession, secure: Database, tmp_path: Path
) -> None:
    secure.execute("CREATE TABLE t (k INT PRIMARY KEY)")
    options = with_tls(secure, "verify-full", TLS / "server.pem")
    with pytest.raises(SourceError, match="certificate verify failed"):
        Driver(spark, tmp_path, declare(options, {"k": "INT"}, ["k"])).run()
