"""What connections ask of TLS, without one being made.

Encrypted connections: of the driver, of the snapshot, of the binlog; and to nobody else.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.conftest import Database, own_server
from tests.pipelines.sources.mysql_cdc.binlog.recording import position
from tests.pipelines.sources.mysql_cdc.driver import Driver, declare
from tidegate.pipelines.connectors.protocol import LogRetention
from tidegate.pipelines.errors import SourceError
from tidegate.pipelines.sources.mysql_cdc.binlog.model import BinlogPosition
from tidegate.pipelines.sources.mysql_cdc.catalog import read_server
from tidegate.pipelines.sources.mysql_cdc.connection import Client, ServerOptions
from tidegate.pipelines.sources.mysql_cdc.log import retention
from tidegate.pipelines.sources.mysql_cdc.options import parse
from tidegate.pipelines.sources.mysql_cdc.preflight import encryption_notes

TLS = Path(__file__).parents[3] / "fixtures" / "tls"
AUTHORITY = TLS / "ca.pem"


def context(server: ServerOptions) -> ssl.SSLContext:
    client: Any = Client(**server.connecting, defer_connect=True)
    return client.ctx


def test_a_certificate_that_is_asked_for_is_checked() -> None:
    named = context(ServerOptions("db", tls_ca=str(AUTHORITY), tls_identity=True))
    assert (named.verify_mode, named.check_hostname) == (ssl.CERT_REQUIRED, True)
    signed = context(ServerOptions("db", tls_ca=str(AUTHORITY)))
    assert (signed.verify_mode, signed.check_hostname) == (ssl.CERT_REQUIRED, False)


def test_what_a_server_offers_by_itself_is_taken_without_reading_authorities_for_each() -> None:
    first, second = context(ServerOptions("db")), context(ServerOptions("other"))
    assert first is second
    assert (first.verify_mode, first.check_hostname) == (ssl.CERT_NONE, False)
    assert first.get_ca_certs() == []


class Ends:
    """A socket between two addresses."""

    def __init__(self, own: str, peer: str) -> None:
        self.own, self.peer = own, peer

    def getsockname(self) -> tuple[str, int]:
        return self.own, 40_000

    def getpeername(self) -> tuple[str, int]:
        return self.peer, 3306


def notes(sock: object, **options: str) -> list[str]:
    client: Any = Client(host="db", defer_connect=True)
    client._sock = sock
    given = {"hostname": "db", "username": "u", "password": "p", "database-name": "shop", "table-name": "t", **options}
    return list(encryption_notes(client, parse(given)))


def test_a_connection_to_another_machine_without_tls_is_warned_of() -> None:
    [note] = notes(Ends("10.0.0.1", "10.0.0.2"))
    assert "the connection to another machine is not encrypted" in note
    assert "'jdbc.properties.sslMode' = 'verify-full'" in note
    asked = {"jdbc.properties.sslMode": "verify-full", "jdbc.properties.serverSslCert": str(AUTHORITY)}
    assert notes(Ends("10.0.0.1", "10.0.0.2"), **asked) == []
    assert notes(Ends("10.0.0.1", "10.0.0.1")) == []


def test_what_is_encrypted_to_anyone_is_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Client, "encrypted", True)
    [note] = notes(Ends("10.0.0.1", "10.0.0.2"))
    assert "nobody checks that it is the server who answers" in note


def test_a_server_of_this_machine_is_known_by_its_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as here:
        assert notes(here) == []


@pytest.fixture
def secure(tmp_path: Path) -> Iterator[Database]:
    """A server that lets nobody in over TCP unless encrypted."""
    options: dict[str, str | bool | None] = {
        "skip_ssl": None,
        "ssl_ca": str(AUTHORITY),
        "ssl_cert": str(TLS / "server.pem"),
        "ssl_key": str(TLS / "server-key.pem"),
        "require_secure_transport": True,
    }
    with own_server(tmp_path / "server", **options) as made:
        yield made


def with_tls(database: Database, mode: str, authority: Path) -> dict[str, str]:
    return database.options("t") | {
        "jdbc.properties.sslMode": mode,
        "jdbc.properties.serverSslCert": str(authority),
    }


def test_both_phases_are_read_encrypted_from_the_server_that_was_asked_for(
    spark: SparkSession, secure: Database, tmp_path: Path
) -> None:
    secure.execute("CREATE TABLE t (k INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    drivers = [
        Driver(spark, tmp_path / mode, declare(with_tls(secure, mode, AUTHORITY), {"k": "INT"}, ["k"]))
        for mode in ("verify-full", "verify-ca")
    ]
    for driver in drivers:
        driver.run()
    secure.execute("INSERT INTO t VALUES (2)")
    for driver in drivers:
        driver.run()
        assert set(driver.state()) == {(1,), (2,)}
    # Without encryption nothing is said, nor to a server that another authority vouches for.
    for options, what in (
        (secure.options("t"), "encrypted connections only"),
        (with_tls(secure, "verify-full", TLS / "server.pem"), "certificate verify failed"),
    ):
        with pytest.raises(SourceError, match=what):
            Driver(spark, tmp_path / "refused", declare(options, {"k": "INT"}, ["k"])).run()


KEPT = 864_000


@pytest.fixture
def kept(database: Database) -> Iterator[None]:
    """The server keeps its binlog for ten days."""
    with database.settings(binlog_expire_logs_seconds=KEPT):
        yield


def asked(database: Database, at: BinlogPosition, now: float | None = None) -> LogRetention:
    options = parse(database.options("any"))
    with closing(database.connect()) as connection, connection.cursor() as cursor:
        when = round((time.time() if now is None else now) * 1000)
        return retention(cursor, read_server(cursor), options.server, at, when)


def test_nothing_of_the_newest_file_goes_by_age(database: Database, kept: None):
    assert asked(database, position(database)).left_s is None


def test_a_closed_file_goes_once_its_days_are_over(database: Database, kept: None):
    at = position(database)
    database.execute("FLUSH BINARY LOGS")
    found = asked(database, at)
    assert found.kept_s == KEPT
    assert found.left_s is not None
    assert KEPT - 3600 < found.left_s <= KEPT
    assert found.position == str(at)
    assert asked(database, at, time.time() + KEPT - 60).left_s == pytest.approx(60, abs=30)
    assert asked(database, at, time.time() + KEPT + 60).left_s == 0


def test_a_server_that_keeps_all_lets_nothing_go(database: Database):
    at = position(database)
    database.execute("FLUSH BINARY LOGS")
    found = asked(database, at)
    assert (found.left_s, found.kept_s) == (None, None)


def test_a_file_that_is_not_there_is_gone(database: Database, kept: None):
    assert asked(database, BinlogPosition("binlog.999999", 4)).left_s == 0
