"""How a column type of MySQL or MariaDB is read: one mapping for snapshot and binlog, so that both give the same row.

Three steps, each a function here:

    server ── snapshot_expression ──> rows ── results.canonical_array ──┐
    binlog ── the decoder's columns ────────────────────────────────────┴─> canonical ── cast_to_declared ──> declared

Dates and times come from the server as whole numbers, so that no session's time zone can touch them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import pyarrow as pa

from tidegate.pipelines.commands import redeclare
from tidegate.pipelines.errors import PlanningError
from tidegate.pipelines.sources.cdc.changelog import BINARY, BOOLEAN, DATE, INSTANT, LOCAL_TIME, STRING, CanonicalType
from tidegate.pipelines.syntax.types import quoted


@dataclass(frozen=True)
class SourceColumn:
    """A column as the server describes it (information_schema.COLUMNS).

    `data_type` is the bare name ("bigint"), `column_type` the whole ("bigint(20) unsigned"). `length` is
    CHARACTER_OCTET_LENGTH, `characters` CHARACTER_MAXIMUM_LENGTH, `fraction` DATETIME_PRECISION (digits after the
    second). `generated`: it is computed of others. What a log is followed with: `dropped`: the server has it no more,
    or had not for a while; `numbered`: it became AUTO_INCREMENT, so that its zeros may have got other numbers;
    `recoded`: its character set became one in which its texts are other bytes.
    """

    name: str
    data_type: str
    column_type: str
    charset: str | None = None
    precision: int | None = None
    scale: int | None = None
    fraction: int | None = None
    length: int | None = None
    nullable: bool = True
    characters: int | None = None
    generated: bool = False
    auto_increment: bool = False
    dropped: bool = False
    numbered: bool = False
    recoded: bool = False

    @property
    def unsigned(self) -> bool:
        """Whether the type says UNSIGNED (ZEROFILL implies it)."""
        return "unsigned" in self.column_type.lower().rpartition(")")[2].split()

    @property
    def canonical(self) -> CanonicalType:
        """The type that snapshot and binlog give. Raises PlanningError for a column that neither can read."""
        kind = self.data_type
        if kind in _SIGNED:
            return canonical_integer(kind, unsigned=self.unsigned)
        if kind in _FIXED:
            return _FIXED[kind]
        if kind in TEXTS or kind in ADDRESSES:
            return STRING
        if kind in BYTES or kind in GEOMETRIES:
            return BINARY
        if kind == "decimal":
            precision, scale = self.precision or 10, self.scale or 0
            if precision > MAX_DECIMAL_DIGITS:
                return STRING
            return CanonicalType(f"DECIMAL({precision},{scale})", pa.decimal128(precision, scale))
        if kind == "bit":
            return BOOLEAN if self.precision == 1 else BINARY
        raise PlanningError(
            f"column {self.name} has the type {self.column_type}, which cannot be read",
            where=self.name,
            state="nothing was read",
            next_command=redeclare(
                "leave the column out of the CREATE TABLE, or give the table a generated column of another type"
            ),
        )

    @property
    def longest(self) -> int | None:
        """Bytes of the longest value of a binary type, characters of that of any other as text; None: no such limit."""
        kind = self.data_type
        if kind in BYTES:
            return self.length
        if kind in _INTEGER_DIGITS:
            return _INTEGER_DIGITS[kind][self.unsigned]
        if kind == "bit":
            return len("false") if self.precision == 1 else -(-(self.precision or 1) // 8)
        if kind == "decimal":  # a sign, a point, and a zero before it
            precision, scale = self.precision or 10, self.scale or 0
            return 1 + precision + (scale > 0) + (scale == precision)
        if kind in _MOMENTS:
            return _MOMENTS[kind] + (1 + self.fraction if self.fraction else 0)
        return _ADDRESS_CHARACTERS.get(kind, self.characters)

    def to_json(self) -> dict[str, Any]:
        """As a plan stores it; only what `from_json` needs."""
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {name: value for name, value in values.items() if value is not None}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> SourceColumn:
        """The reverse of `to_json`."""
        return cls(**values)


_SIGNED = {
    "tinyint": CanonicalType("TINYINT", pa.int8()),
    "smallint": CanonicalType("SMALLINT", pa.int16()),
    "mediumint": CanonicalType("INT", pa.int32()),
    "int": CanonicalType("INT", pa.int32()),
    "bigint": CanonicalType("BIGINT", pa.int64()),
}
_UNSIGNED = {
    "tinyint": CanonicalType("SMALLINT", pa.int16()),
    "smallint": CanonicalType("INT", pa.int32()),
    "mediumint": CanonicalType("INT", pa.int32()),
    "int": CanonicalType("BIGINT", pa.int64()),
    "bigint": CanonicalType("DECIMAL(20,0)", pa.decimal128(20, 0)),
}

INTEGERS = frozenset(_SIGNED)


def canonical_integer(name: str, *, unsigned: bool) -> CanonicalType:
    """The canonical type of a whole number's type, such as "bigint"."""
    return (_UNSIGNED if unsigned else _SIGNED)[name]


_INTEGER_DIGITS = {"tinyint": (4, 3), "smallint": (6, 5), "mediumint": (8, 8), "int": (11, 10), "bigint": (20, 20)}
"""Characters of the longest number, its sign included; and of the longest one that is UNSIGNED."""
_MOMENTS = {
    "year": len("1970"),
    "date": len("1970-01-01"),
    "time": len("-838:59:59"),
    "datetime": len("1970-01-01 00:00:00"),
}
_ADDRESS_CHARACTERS = {"inet4": len("255.255.255.255"), "inet6": 8 * len("ffff:") - 1, "uuid": 36}

TEXTS = frozenset({"char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum", "set", "json"})
BYTES = frozenset({"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"})
GEOMETRIES = frozenset(
    {
        "geometry",
        "point",
        "linestring",
        "polygon",
        "multipoint",
        "multilinestring",
        "multipolygon",
        "geometrycollection",
        "geomcollection",
    }
)
ADDRESSES = frozenset({"inet4", "inet6", "uuid"})

_FIXED = {
    "float": CanonicalType("FLOAT", pa.float32()),
    "double": CanonicalType("DOUBLE", pa.float64()),
    "year": CanonicalType("INT", pa.int32()),
    "date": DATE,
    "datetime": LOCAL_TIME,
    "timestamp": INSTANT,
    "time": STRING,
}

MAX_DECIMAL_DIGITS = 38
"""What Spark's DECIMAL holds; a wider DECIMAL of the server is read as its digits, a STRING."""


def snapshot_expression(column: SourceColumn) -> str:
    """The server's SQL for one column of the snapshot's SELECT list; alias it with the column's own name.

    `results.canonical_array` makes the canonical value of what comes for it.
    """
    name, kind = quoted(column.name), column.data_type
    if kind == "bit" and column.precision == 1:
        return f"{name} + 0"
    if kind == "date":
        return f"TO_DAYS({name}) - {_EPOCH_DAY}"
    if kind == "datetime":
        return f"TIMESTAMPDIFF(MICROSECOND, '1970-01-01', {name})"
    if kind == "timestamp":
        return f"CAST(UNIX_TIMESTAMP({name}) * 1000000 AS SIGNED)"  # the stored instant: no time zone takes part
    if kind == "bit":
        return f"CAST({name} AS BINARY)"  # else the server takes the bits for text
    if kind == "decimal" and column.canonical is STRING:
        return f"CAST({name} + 0 AS CHAR)"  # + 0 drops ZEROFILL's zeros
    if kind in ("time", "enum", "set", "json") or kind in ADDRESSES:
        return f"CAST({name} AS CHAR)"
    if kind in GEOMETRIES:
        return f"SUBSTR({name}, 5)"  # past the SRID; ST_AsWKB swaps the axes of some on MySQL 8
    return name


def exact_expression(column: SourceColumn, expression: str) -> str:
    """As `expression`, that of the snapshot, but NULL for what is none of its own as part of a key: a date that does
    not exist, a text that its character set would write in another way (of a code that is no character, or of two that
    are one), and the error value of an ENUM with a member ''."""
    name = quoted(column.name)
    if column.data_type == "enum" and _EMPTY_MEMBER.search(column.column_type):
        return f"IF({name} + 0 = 0, NULL, {expression})"
    if column.data_type in TEXTS - {"enum", "set"} and column.charset not in _UNICODE:
        again = f"CONVERT(CONVERT({name} USING utf8mb4) USING {column.charset})"
        return f"IF(HEX({again}) = HEX({name}), {expression}, NULL)"
    if column.data_type in ("date", "datetime"):
        return f"IF(FROM_DAYS(TO_DAYS({name})) = DATE({name}), {expression}, NULL)"
    return expression


_EPOCH_DAY = 719_528
_EMPTY_MEMBER = re.compile(r"[(,]''[,)]")
_UNICODE = frozenset({None, "binary", "utf8mb4", "utf8mb3", "utf8", "ucs2", "utf16", "utf16le", "utf32"})
"""Character sets whose texts are each another one in UTF-8."""


class Type(IntEnum):
    """MySQL's `field_types.h`; 140 and 141 are MariaDB's."""

    DECIMAL = 0
    TINY = 1
    SHORT = 2
    LONG = 3
    FLOAT = 4
    DOUBLE = 5
    NULL = 6
    TIMESTAMP = 7
    LONGLONG = 8
    INT24 = 9
    DATE = 10
    TIME = 11
    DATETIME = 12
    YEAR = 13
    NEWDATE = 14
    VARCHAR = 15
    BIT = 16
    TIMESTAMP2 = 17
    DATETIME2 = 18
    TIME2 = 19
    BLOB_COMPRESSED = 140
    VARCHAR_COMPRESSED = 141
    VECTOR = 242
    JSON = 245
    NEWDECIMAL = 246
    ENUM = 247
    SET = 248
    TINY_BLOB = 249
    MEDIUM_BLOB = 250
    LONG_BLOB = 251
    BLOB = 252
    VAR_STRING = 253
    STRING = 254
    GEOMETRY = 255


WHOLE_NUMBERS = frozenset({Type.TINY, Type.SHORT, Type.INT24, Type.LONG, Type.LONGLONG, Type.YEAR})
