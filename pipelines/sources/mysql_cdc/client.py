"""The client that all connections are made with: pymysql, without what it does for nothing at each of them."""

from __future__ import annotations

import ssl
from functools import lru_cache
from typing import Any

from pymysql.connections import Connection


class Client(Connection):
    """A connection. Where no certificate is asked for, one that the server offers is taken as it is, as pymysql does;
    but the authorities of this machine, which nobody asks then, are not read again (20 ms) for each connection."""

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
