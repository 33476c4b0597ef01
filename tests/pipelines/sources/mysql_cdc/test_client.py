"""What connections ask of TLS, without one being made."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

from pipelines.sources.mysql_cdc.binlog.model import ServerOptions
from pipelines.sources.mysql_cdc.client import Client

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
