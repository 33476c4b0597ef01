"""Flink SQL's types as this dialect has them, in both spellings: Flink's for people, Spark's for the work.

>>> str(FlinkType(Kind.TIMESTAMP, 3)), FlinkType(Kind.TIMESTAMP, 3).spark
('TIMESTAMP(3)', 'TIMESTAMP_NTZ')
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

MAX_PRECISION = 38
"""Digits of a DECIMAL, in Flink and in Spark."""

MAX_FRACTION = 6
"""Digits after a timestamp's second: Spark keeps microseconds."""


class Kind(StrEnum):
    """The root of a type. INTERVALs and NULL exist in expressions only."""

    BOOLEAN = "BOOLEAN"
    TINYINT = "TINYINT"
    SMALLINT = "SMALLINT"
    INT = "INT"
    BIGINT = "BIGINT"
    DECIMAL = "DECIMAL"
    FLOAT = "FLOAT"
    DOUBLE = "DOUBLE"
    CHAR = "CHAR"
    VARCHAR = "VARCHAR"
    STRING = "STRING"
    BINARY = "BINARY"
    VARBINARY = "VARBINARY"
    BYTES = "BYTES"
    DATE = "DATE"
    TIMESTAMP = "TIMESTAMP"
    TIMESTAMP_LTZ = "TIMESTAMP_LTZ"
    ARRAY = "ARRAY"
    MAP = "MAP"
    ROW = "ROW"
    DAY_INTERVAL = "INTERVAL DAY TO SECOND"
    MONTH_INTERVAL = "INTERVAL YEAR TO MONTH"
    NULL = "NULL"


INTEGERS: dict[Kind, int] = {Kind.TINYINT: 3, Kind.SMALLINT: 5, Kind.INT: 10, Kind.BIGINT: 19}
"""Integer kinds, narrow to wide, and how many decimal digits each may have."""

APPROXIMATE = frozenset({Kind.FLOAT, Kind.DOUBLE})
NUMERIC = frozenset({*INTEGERS, Kind.DECIMAL, *APPROXIMATE})
STRINGS = frozenset({Kind.CHAR, Kind.VARCHAR, Kind.STRING})
BINARIES = frozenset({Kind.BINARY, Kind.VARBINARY, Kind.BYTES})
TIMESTAMPS = frozenset({Kind.TIMESTAMP, Kind.TIMESTAMP_LTZ})
MOMENTS = TIMESTAMPS | {Kind.DATE}
INTERVALS = frozenset({Kind.DAY_INTERVAL, Kind.MONTH_INTERVAL})
NESTED = frozenset({Kind.ARRAY, Kind.MAP, Kind.ROW})

_SPARK = {
    **{kind: "STRING" for kind in STRINGS},
    **{kind: "BINARY" for kind in BINARIES},
    Kind.TIMESTAMP: "TIMESTAMP_NTZ",
    Kind.TIMESTAMP_LTZ: "TIMESTAMP",
    Kind.DAY_INTERVAL: "INTERVAL DAY TO SECOND",
    Kind.MONTH_INTERVAL: "INTERVAL YEAR TO MONTH",
    Kind.NULL: "VOID",
}


def folded(name: str) -> str:
    """The same for names that Spark and Delta Lake take for one: Java compares them letter by letter, each in capitals
    and then in small ones, so that `I`, `ı` and `İ` are an `i`."""
    capitals = (letter.upper() if len(letter.upper()) == 1 else letter for letter in name)
    return "".join(letter.lower()[0] for letter in capitals).casefold()


def quoted(name: str) -> str:
    """A backquoted identifier, in Flink SQL and in Spark SQL."""
    return "`" + name.replace("`", "``") + "`"


def quoted_string(text: str) -> str:
    """A string literal of Flink SQL."""
    return "'" + text.replace("'", "''") + "'"


def spark_string(text: str) -> str:
    """A string literal of Spark SQL.

    Backslashes are escapes there, and `${…}` is replaced by Spark's own settings, whichever string it is in.
    """
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("${", "\\u0024{")
    return f"'{escaped}'"


@dataclass(frozen=True)
class Field:
    """A field of a ROW."""

    name: str
    type: FlinkType
    comment: str | None = None

    def __str__(self) -> str:
        return f"{quoted(self.name)} {self.type}" + ("" if self.comment is None else f" {quoted_string(self.comment)}")


@dataclass(frozen=True)
class FlinkType:
    """A type.

    `precision`: digits of a DECIMAL, fraction digits of a timestamp, length of a CHAR, VARCHAR, BINARY or VARBINARY.
    `arguments`: the element of an ARRAY, key and value of a MAP. `fields`: of a ROW.
    """

    kind: Kind
    precision: int | None = None
    scale: int | None = None
    arguments: tuple[FlinkType, ...] = ()
    fields: tuple[Field, ...] = ()
    nullable: bool = True

    def __str__(self) -> str:
        """Flink's spelling, which compiles to the same type again."""
        name = self.kind.value
        if self.kind is Kind.DECIMAL:
            name = f"DECIMAL({self.precision}, {self.scale})"
        elif self.kind is Kind.ROW:
            name = f"ROW<{', '.join(map(str, self.fields))}>"
        elif self.arguments:
            name = f"{name}<{', '.join(map(str, self.arguments))}>"
        elif self.precision is not None:
            name = f"{name}({self.precision})"
        return name if self.nullable else f"{name} NOT NULL"

    @property
    def spark(self) -> str:
        """Spark's DDL. A NOT NULL inside is not kept: Spark cannot hold it everywhere, the gate tests it."""
        if self.kind is Kind.DECIMAL:
            return f"DECIMAL({self.precision}, {self.scale})"
        if self.kind is Kind.ROW:
            return f"STRUCT<{', '.join(f'{quoted(field.name)}: {field.type.spark}' for field in self.fields)}>"
        if self.arguments:
            return f"{self.kind.value}<{', '.join(argument.spark for argument in self.arguments)}>"
        return _SPARK.get(self.kind, self.kind.value)

    @property
    def element(self) -> FlinkType:
        """What an ARRAY holds, or a MAP's values."""
        return self.arguments[-1]

    @property
    def parts(self) -> tuple[FlinkType, ...]:
        """The types inside of an ARRAY, a MAP or a ROW."""
        return self.arguments or tuple(field.type for field in self.fields)

    def not_null(self) -> FlinkType:
        return replace(self, nullable=False)

    def null(self) -> FlinkType:
        """This type, nullable."""
        return self if self.nullable else replace(self, nullable=True)

    def field(self, name: str) -> Field | None:
        """The field of a ROW called `name`."""
        return next((field for field in self.fields if field.name == name), None)


BOOLEAN = FlinkType(Kind.BOOLEAN)
INT = FlinkType(Kind.INT)
BIGINT = FlinkType(Kind.BIGINT)
FLOAT = FlinkType(Kind.FLOAT)
DOUBLE = FlinkType(Kind.DOUBLE)
STRING = FlinkType(Kind.STRING)
BYTES = FlinkType(Kind.BYTES)
DATE = FlinkType(Kind.DATE)
NULL = FlinkType(Kind.NULL)
INSTANT = FlinkType(Kind.TIMESTAMP_LTZ, 3)
"""The type of PROCTIME() and CURRENT_TIMESTAMP."""


def decimal(precision: int, scale: int) -> FlinkType:
    return FlinkType(Kind.DECIMAL, precision, scale)


def array_of(element: FlinkType) -> FlinkType:
    return FlinkType(Kind.ARRAY, arguments=(element,))
