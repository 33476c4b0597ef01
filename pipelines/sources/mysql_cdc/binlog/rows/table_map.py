"""TABLE_MAP events: what the rows after them hold. Column names need binlog_row_metadata=FULL.

Layout: MySQL `Table_map_event` (libs/mysql/binlog/event/rows_event.h), the same in MariaDB's `Table_map_log_event`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum

from tidegate.pipelines.sources.mysql_cdc.errors import MalformedEvent, UnsupportedEvent
from tidegate.pipelines.sources.mysql_cdc.types import WHOLE_NUMBERS, Type

TABLE_ID_BYTES = 6
POST_HEADER_BYTES = 8
"""Table id and flags, before the body that `parse` takes."""


class _Field(IntEnum):
    """Kinds of optional metadata."""

    SIGNEDNESS = 1
    DEFAULT_CHARSET = 2
    COLUMN_CHARSET = 3
    COLUMN_NAME = 4
    SET_VALUES = 5
    ENUM_VALUES = 6
    ENUM_AND_SET_DEFAULT_CHARSET = 10
    ENUM_AND_SET_COLUMN_CHARSET = 11


@dataclass(frozen=True)
class TableMap:
    """A table as the row events after it see it."""

    database: str
    name: str
    columns: tuple[MapColumn, ...]

    def __str__(self) -> str:
        return f"{self.database}.{self.name}"


def table_name(body: bytes) -> tuple[str, str]:
    """(database, table) of a TABLE_MAP body, without looking at its columns."""
    end = 1 + body[0]
    start = end + 2
    return body[1:end].decode(), body[start : start + body[end + 1]].decode()


def parse(body: bytes, where: object = "", *, mariadb: bool = True) -> TableMap:
    """A TABLE_MAP body: what follows table id and flags, without the checksum. `mariadb`: it wrote the event.

    Raises UnsupportedEvent for a column type that is not known: without its length no row can be read.
    """
    try:
        return _parse(body, where, TEXT_OF_MARIADB if mariadb else TEXT_OF_MYSQL)
    except (IndexError, UnicodeDecodeError) as error:
        raise MalformedEvent(f"a table map that cannot be read: {error}", where=where) from error


def _parse(body: bytes, where: object, texts: frozenset[Type]) -> TableMap:
    database, name = table_name(body)
    at = 1 + body[0] + 1
    at += 1 + body[at] + 1
    count, at = lenenc(body, at)
    codes = body[at : at + count]
    at += count
    length, at = lenenc(body, at)
    columns = list(_types(codes, body[at : at + length], f"{database}.{name}", where))
    at += length + (count + 7) // 8  # the bits say which columns may be NULL; the rows' own bits say which are
    fields = dict(_optional_fields(body, at))
    return TableMap(database, name, tuple(_described(columns, fields, texts)))


def _types(codes: bytes, metadata: bytes, table: str, where: object) -> Iterator[MapColumn]:
    at = 0
    for ordinal, code in enumerate(codes):
        if code not in METADATA_BYTES:
            raise UnsupportedEvent(
                f"column {ordinal + 1} of {table} has the type code {code}, whose length in a row is not known",
                where=where,
                next_command=f"ALTER TABLE {table} …   (move that column to a table of its own)",
            )
        size = METADATA_BYTES[Type(code)]
        bytes_ = metadata[at : at + size]
        at += size
        # A STRING's first byte says what it really is; its spare bits hold the upper part of a CHAR's length.
        real = Type(bytes_[0]) if code == Type.STRING and bytes_[0] in ENUM_OR_SET else Type(code)
        yield MapColumn(real, bytes_)


def _optional_fields(body: bytes, at: int) -> Iterator[tuple[int, bytes]]:
    while at < len(body):
        kind = body[at]
        value, at = _sized(body, at + 1)
        yield kind, value


def _described(columns: Sequence[MapColumn], fields: dict[int, bytes], texts: frozenset[Type]) -> Iterator[MapColumn]:
    names = [raw.decode() for raw in _texts(fields[_Field.COLUMN_NAME])] if _Field.COLUMN_NAME in fields else None
    signs = _bits(fields.get(_Field.SIGNEDNESS, b""))
    collations = _collations(fields, _Field.DEFAULT_CHARSET, _Field.COLUMN_CHARSET)
    member_collations = _collations(fields, _Field.ENUM_AND_SET_DEFAULT_CHARSET, _Field.ENUM_AND_SET_COLUMN_CHARSET)
    enums, sets = _members(fields.get(_Field.ENUM_VALUES, b"")), _members(fields.get(_Field.SET_VALUES, b""))
    for ordinal, column in enumerate(columns):
        kind = column.type
        members: tuple[bytes, ...] = ()
        collation = None
        if kind in ENUM_OR_SET:
            collation = next(member_collations, None)
            members = next(enums if kind == Type.ENUM else sets, ())
        elif kind in texts:
            collation = next(collations, None)
        yield MapColumn(
            kind,
            column.metadata,
            name=names[ordinal] if names else None,
            unsigned=kind in NUMERIC and next(signs, False),
            collation=collation,
            members=members,
        )


def _collations(fields: dict[int, bytes], default_field: int, column_field: int) -> Iterator[int]:
    """Collation ids of the text columns in order: either one for each, or a default and its exceptions."""
    if column_field in fields:
        yield from _numbers(fields[column_field])
    elif default_field in fields:
        default, *pairs = _numbers(fields[default_field])
        exceptions = dict(zip(pairs[::2], pairs[1::2], strict=True))
        ordinal = 0
        while True:
            yield exceptions.get(ordinal, default)
            ordinal += 1


def _bits(raw: bytes) -> Iterator[bool]:
    return (bool(byte >> bit & 1) for byte in raw for bit in range(7, -1, -1))


def _numbers(raw: bytes) -> Iterator[int]:
    at = 0
    while at < len(raw):
        number, at = lenenc(raw, at)
        yield number


def _texts(raw: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(raw):
        text, at = _sized(raw, at)
        yield text


def _members(raw: bytes) -> Iterator[tuple[bytes, ...]]:
    at = 0
    while at < len(raw):
        count, at = lenenc(raw, at)
        names = []
        for _ in range(count):
            name, at = _sized(raw, at)
            names.append(name)
        yield tuple(names)


def _sized(raw: bytes, at: int) -> tuple[bytes, int]:
    """The bytes behind the length at `at`, and where they end."""
    size, at = lenenc(raw, at)
    return raw[at : at + size], at + size


def lenenc(raw: bytes, at: int) -> tuple[int, int]:
    """A length-encoded integer of the client protocol at `at`, and where it ends."""
    first = raw[at]
    if first < 251:
        return first, at + 1
    width = {252: 2, 253: 3, 254: 8}.get(first)
    if width is None:
        raise IndexError(f"{first} begins no length-encoded integer")
    return int.from_bytes(raw[at + 1 : at + 1 + width], "little"), at + 1 + width


BLOBS = frozenset({Type.BLOB, Type.TINY_BLOB, Type.MEDIUM_BLOB, Type.LONG_BLOB, Type.BLOB_COMPRESSED})
_STRINGS = frozenset({Type.STRING, Type.VARCHAR, Type.VAR_STRING, Type.VARCHAR_COMPRESSED})
_FLOATS = frozenset({Type.FLOAT, Type.DOUBLE})
_OLD_TIMES = frozenset({Type.TIMESTAMP, Type.TIME, Type.DATETIME})
_TIMES = frozenset({Type.TIMESTAMP2, Type.TIME2, Type.DATETIME2})
ENUM_OR_SET = frozenset({Type.ENUM, Type.SET})

METADATA_BYTES = {
    **dict.fromkeys(WHOLE_NUMBERS | _OLD_TIMES | {Type.NULL, Type.DATE, Type.NEWDATE}, 0),
    **dict.fromkeys(_FLOATS | _TIMES | BLOBS | {Type.JSON, Type.GEOMETRY, Type.VECTOR}, 1),
    **dict.fromkeys(_STRINGS | ENUM_OR_SET | {Type.BIT, Type.NEWDECIMAL}, 2),
}
NUMERIC = WHOLE_NUMBERS | _FLOATS | {Type.NEWDECIMAL}
TEXT_OF_MYSQL = _STRINGS | BLOBS | {Type.VECTOR}
TEXT_OF_MARIADB = _STRINGS | BLOBS | {Type.GEOMETRY}
"""Which columns have a character set in the optional metadata: of MySQL a VECTOR is one, of MariaDB a GEOMETRY (both
binary)."""


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
