"""Column types as a TABLE_MAP names them, and what it says of each column."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.pipelines.sources.mysql_cdc.field_types import Type

METADATA_BYTES = {
    Type.TINY: 0,
    Type.SHORT: 0,
    Type.LONG: 0,
    Type.LONGLONG: 0,
    Type.INT24: 0,
    Type.NULL: 0,
    Type.DATE: 0,
    Type.NEWDATE: 0,
    Type.YEAR: 0,
    Type.TIMESTAMP: 0,
    Type.TIME: 0,
    Type.DATETIME: 0,
    Type.FLOAT: 1,
    Type.DOUBLE: 1,
    Type.TIMESTAMP2: 1,
    Type.DATETIME2: 1,
    Type.TIME2: 1,
    Type.BLOB: 1,
    Type.TINY_BLOB: 1,
    Type.MEDIUM_BLOB: 1,
    Type.LONG_BLOB: 1,
    Type.BLOB_COMPRESSED: 1,
    Type.JSON: 1,
    Type.GEOMETRY: 1,
    Type.VECTOR: 1,
    Type.VARCHAR: 2,
    Type.VARCHAR_COMPRESSED: 2,
    Type.BIT: 2,
    Type.NEWDECIMAL: 2,
    Type.VAR_STRING: 2,
    Type.STRING: 2,
    Type.ENUM: 2,
    Type.SET: 2,
}
NUMERIC = frozenset(
    {
        Type.TINY,
        Type.SHORT,
        Type.INT24,
        Type.LONG,
        Type.LONGLONG,
        Type.YEAR,
        Type.FLOAT,
        Type.DOUBLE,
        Type.NEWDECIMAL,
    }
)
_BLOBS = frozenset({Type.BLOB, Type.TINY_BLOB, Type.MEDIUM_BLOB, Type.LONG_BLOB, Type.BLOB_COMPRESSED})
_STRINGS = frozenset({Type.STRING, Type.VARCHAR, Type.VAR_STRING, Type.VARCHAR_COMPRESSED})
ENUM_OR_SET = frozenset({Type.ENUM, Type.SET})
TEXT_OF_MYSQL = _STRINGS | _BLOBS
TEXT_OF_MARIADB = TEXT_OF_MYSQL | {Type.GEOMETRY}
"""Which columns have a character set in the optional metadata: of MariaDB a GEOMETRY is one (binary)."""


@dataclass(frozen=True)
class MapColumn:
    """A column of a TABLE_MAP. `type` is ENUM or SET for those (they travel as STRING); `metadata` its bytes.

    `collation` is the server's collation id of text (63: bytes), None where the event does not say. `members` are
    the raw names of an ENUM or SET, in its character set.
    """

    type: Type
    metadata: bytes
    name: str | None = None
    unsigned: bool = False
    collation: int | None = None
    members: tuple[bytes, ...] = ()

    @property
    def max_bytes(self) -> int:
        """How long a STRING, VARCHAR or the like may be, in bytes."""
        if self.type == Type.STRING:
            first, second = self.metadata
            return ((first & 0x30) ^ 0x30) << 4 | second
        return int.from_bytes(self.metadata, "little")
