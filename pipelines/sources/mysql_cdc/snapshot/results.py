"""Asks the server for a result set by its protocol of prepared statements, whose numbers come as their own bytes.

https://dev.mysql.com/doc/dev/mysql-server/latest/page_protocol_command_phase_ps.html, and MariaDB's COM_STMT_EXECUTE.
Text costs the server 0.1 s and the reader 0.15 s more for 1,000,000 rows of seven columns.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pymysql.connections import Connection
from pymysql.protocol import FieldDescriptorPacket

from tidegate.pipelines.sources.mysql_cdc.field_types import Type
from tidegate.pipelines.sources.mysql_cdc.snapshot.packets import Piece, pieces

_PREPARE, _EXECUTE = 0x16, 0x17
_NO_CURSOR, _ONCE = 0, 1
_UNSIGNED = 0x20


WIDTHS = {
    Type.TINY: 1,
    Type.SHORT: 2,
    Type.YEAR: 2,
    Type.INT24: 4,
    Type.LONG: 4,
    Type.LONGLONG: 8,
    Type.FLOAT: 4,
    Type.DOUBLE: 8,
}
"""Bytes of a value. One of a type that is not here comes after its length, or has a shape of its own."""

INTEGERS = frozenset({Type.TINY, Type.SHORT, Type.YEAR, Type.INT24, Type.LONG, Type.LONGLONG})


@dataclass(frozen=True)
class ResultColumn:
    """A column of a result set. `type` is a code of Type, or one that is not known."""

    name: str
    type: int
    unsigned: bool = False


def select(connection: Connection[Any], query: str) -> tuple[Sequence[ResultColumn], Iterator[Piece]]:
    """The columns of `query` and its rows, which must be read to their end, or the connection be cut.

    Raises pymysql's errors and OSError, also while the rows are read.
    """
    # pymysql has no command for this, so its parts are used.
    client: Any = connection
    client._execute_command(_PREPARE, query)
    statement, columns, parameters = struct.unpack_from("<IHH", client._read_packet().get_all_data(), 1)
    for described in (parameters, columns):
        for _ in range(described + 1 if described else 0):
            client._read_packet()
    client._execute_command(_EXECUTE, struct.pack("<IBI", statement, _NO_CURSOR, _ONCE))
    count = client._read_packet().read_length_encoded_integer()
    fields = [client._read_packet(FieldDescriptorPacket) for _ in range(count)]
    client._read_packet()
    found = [ResultColumn(field.name, field.type_code, bool(field.flags & _UNSIGNED)) for field in fields]
    return found, pieces(client._sock, _received(client))


def _received(client: Any) -> bytes:
    """What the client's own reader has read ahead."""
    return client._rfile.read(len(client._rfile.peek()))
