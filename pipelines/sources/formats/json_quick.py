"""The short way for JSON messages that are plain: Arrow reads the declared types itself, a batch at a time.

A message is plain if each value is written as its column's type is: a number for numbers, a string for text and times.
Every other goes the long way (json_text.py), which makes the best of it, exactly, and says what does not fit. Both ways
give the same rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pyarrow as pa

from tidegate.pipelines.sources.formats import literals, shape
from tidegate.pipelines.sources.formats.format import VALUE, Wanted
from tidegate.pipelines.sources.formats.json_arrow import JsonColumn, JsonRows
from tidegate.pipelines.sources.formats.json_text import QUICK, Quick
from tidegate.pipelines.spark_versions import has_arrow_udf, over_arrays
from tidegate.pipelines.syntax.dialect import parse_type
from tidegate.pipelines.syntax.types import NESTED, STRINGS, FlinkType, Kind, quoted

if TYPE_CHECKING:
    from pyspark.sql import Column

_ARROW = {
    Kind.BOOLEAN: pa.bool_(),
    Kind.TINYINT: pa.int8(),
    Kind.SMALLINT: pa.int16(),
    Kind.INT: pa.int32(),
    Kind.BIGINT: pa.int64(),
    Kind.FLOAT: pa.float32(),
    Kind.DOUBLE: pa.float64(),
}


def quick(wanted: Wanted, leaf: shape.Leaf) -> Quick | None:
    """The short way of a table; None where some column's type has none, and on a
    Spark without Arrow functions. `leaf` reads what is text in both ways."""
    types = [parse_type(column.type) for column in wanted.columns]
    if not types or any(of.kind in NESTED for of in types) or not has_arrow_udf():
        return None
    columns, values, fits, names = [], [], [f"{QUICK} IS NOT NULL"], []
    for column, of in zip(wanted.columns, types, strict=True):
        read = _arrow_type(of)
        columns.append(JsonColumn(column.name, read or pa.string(), column.nullable))
        names.append(f"{quoted(column.name)}: {of.spark if read else 'STRING'}")
        value = f"{QUICK}.{quoted(column.name)}"
        if read is None:
            text, value = value, leaf(value, of)
            fits.append(f"({text} IS NULL OR {value} IS NOT NULL)")
        values.append(f"{literals.text(column.name)}, {value}")
    row = f"IF({' AND '.join(fits)}, named_struct({', '.join(values)}), NULL)"
    return Quick(_parsed(JsonRows(tuple(columns)), f"STRUCT<{', '.join(names)}>"), row)


def _arrow_type(of: FlinkType) -> pa.DataType | None:
    """The type that Arrow is asked for; None for one that is written as text, and read from it by `leaf`."""
    if of.kind is Kind.DECIMAL:
        return pa.decimal128(of.precision or 0, of.scale or 0)
    return pa.string() if of.kind in STRINGS and of.precision is None else _ARROW.get(of.kind)


def _parsed(rows: JsonRows, struct: str) -> Callable[[], Column]:
    def parse(messages):  # without annotations: Spark would read them
        return rows(messages)

    def column() -> Column:
        return over_arrays(parse, [pa.binary()], struct)(VALUE)

    return column
