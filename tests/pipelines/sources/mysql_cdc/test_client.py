"""What connections ask of TLS, without one being made."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path
from typing import Any

import pytest

from tidegate.pipelines.sources.mysql_cdc.binlog.model import ServerOptions
from tidegate.pipelines.sources.mysql_cdc.client import Client
from tidegate.pipelines.sources.mysql_cdc.options import parse
from tidegate.pipelines.sources.mysql_cdc.preflight import encryption_notes

AUTHORITY = Path(__file__).parents[3] / "fixtures" / "tls" / "ca.pem"


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
