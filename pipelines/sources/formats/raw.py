"""The format `raw`: a message is the bytes of one value, and adds one row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tidegate.pipelines.connectors.spec import OptionSpec
from tidegate.pipelines.sources.formats import shape
from tidegate.pipelines.sources.formats.format import VALUE, FormatSpec, Wanted, added, other_columns
from tidegate.pipelines.syntax.dialect import parse_type
from tidegate.pipelines.syntax.types import BINARIES, STRINGS, FlinkType, Kind, spark_string

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CHARSET = OptionSpec(
    "raw.charset",
    "choice",
    default="UTF-8",
    choices=("UTF-8", "US-ASCII", "ISO-8859-1"),
    doc="The character set of a STRING.",
    changes="rows",
)
ENDIANNESS = OptionSpec(
    "raw.endianness",
    "choice",
    default="big-endian",
    choices=("big-endian", "little-endian"),
    doc="The byte order of a number.",
    changes="rows",
)

_BYTES = {
    Kind.BOOLEAN: 1,
    Kind.TINYINT: 1,
    Kind.SMALLINT: 2,
    Kind.INT: 4,
    Kind.BIGINT: 8,
    Kind.FLOAT: 4,
    Kind.DOUBLE: 8,
}


class RawFormat:
    """`'format' = 'raw'`."""

    spec = FormatSpec("raw", (CHARSET, ENDIANNESS), "A message is the bytes of the table's one column.")

    def check(self, wanted: Wanted) -> Sequence[str]:
        if len(wanted.columns) != 1:
            return [f"raw is the bytes of one column, and the table has {len(wanted.columns)}"]
        column = wanted.columns[0]
        if parse_type(column.type).kind in (*STRINGS, *BINARIES, *_BYTES):
            return []
        return [f"column {column.name} is {column.type}: raw is a string, bytes, a BOOLEAN or a number, but no DECIMAL"]

    def decode(self, messages: DataFrame, wanted: Wanted) -> DataFrame:
        others, column = other_columns(messages), wanted.columns[0]
        of = parse_type(column.type)
        value = f"CAST({shape.within(_value(of, wanted), of)} AS {column.spark_type})"
        read = messages.selectExpr(
            *others, f"{VALUE} IS NULL AS _null", f"length({VALUE}) AS _length", f"{value} AS _read"
        )
        start, end = spark_string(f"column {column.name}: "), spark_string(f" bytes are no {column.type}")
        sentence = f"concat({start}, _length, {end})"
        fields = f"named_struct({spark_string(column.name)}, _read)"
        error = f"IF(_null OR _read IS NOT NULL, NULL, {sentence}) AS _error"
        return added(
            read.selectExpr(*others, "_null", f"IF(_null, NULL, {fields}) AS _fields", error), others, wanted, None
        )


def _value(of: FlinkType, wanted: Wanted) -> str:
    """SQL of the value; NULL where the bytes are none."""
    if of.kind in BINARIES:
        return VALUE
    if of.kind in STRINGS:
        return _string(wanted.option(CHARSET))
    size = _BYTES[of.kind]
    ordered = f"reverse({VALUE})" if wanted.option(ENDIANNESS) == "little-endian" else VALUE
    digits = f"hex({ordered})"
    # Sign extension: conv reads 64 bits.
    wide = f"concat(repeat(IF({digits} >= '8', 'F', '0'), {16 - 2 * size}), {digits})"
    number = f"CAST(conv({wide}, 16, -10) AS BIGINT)"
    if of.kind is Kind.BOOLEAN:
        number = f"({number} <> 0)"
    elif of.kind is Kind.FLOAT:
        number = _float(number, fraction=23, bias=127)
    elif of.kind is Kind.DOUBLE:
        number = _float(number, fraction=52, bias=1023)
    return f"IF(length({VALUE}) = {size}, {number}, NULL)"


def _string(charset: str) -> str:
    valid = {"UTF-8": f"is_valid_utf8(CAST({VALUE} AS STRING))", "US-ASCII": f"NOT hex({VALUE}) RLIKE '^(..)*[89A-F]'"}
    if charset == "ISO-8859-1":
        return f"decode({VALUE}, 'ISO-8859-1')"
    return f"IF({valid[charset]}, CAST({VALUE} AS STRING), NULL)"


def _float(bits: str, *, fraction: int, bias: int) -> str:
    """SQL of the IEEE 754 number whose bits are those of the BIGINT `bits`. Powers of two are exact."""
    exponent = f"(shiftright({bits}, {fraction}) & {2 * bias + 1}L)"
    rest = f"({bits} & {2**fraction - 1}L)"
    sign = f"IF({bits} < 0, -1D, 1D)"
    normal = f"(1D + {rest} / {float(2**fraction)!r}D) * power(2D, {exponent} - {bias})"
    tiny = f"({rest} / {float(2**fraction)!r}D) * power(2D, {1 - bias})"
    special = f"IF({rest} = 0, CAST('Infinity' AS DOUBLE), CAST('NaN' AS DOUBLE))"
    size = f"CASE {exponent} WHEN {2 * bias + 1} THEN {special} WHEN 0 THEN {tiny} ELSE {normal} END"
    return f"{sign} * {size}"


FORMAT = RawFormat()
