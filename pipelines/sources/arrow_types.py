"""Arrow types for Spark's, known without a JVM; and the source columns of a changelog as Arrow has them.

>>> arrow_type("DECIMAL(10, 2)"), arrow_type("ARRAY<INT>")
(Decimal128Type(decimal128(10, 2)), ListType(list<element: int32>))
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

import pyarrow as pa
from sqlglot import exp

from tidegate.pipelines.connectors.spec import SOURCE_COLUMNS
from tidegate.pipelines.connectors.table import Column

_PLAIN: Mapping[exp.DType, pa.DataType] = {
    exp.DType.BOOLEAN: pa.bool_(),
    exp.DType.TINYINT: pa.int8(),
    exp.DType.SMALLINT: pa.int16(),
    exp.DType.INT: pa.int32(),
    exp.DType.BIGINT: pa.int64(),
    exp.DType.FLOAT: pa.float32(),
    exp.DType.DOUBLE: pa.float64(),
    exp.DType.TEXT: pa.string(),
    exp.DType.CHAR: pa.string(),
    exp.DType.VARCHAR: pa.string(),
    exp.DType.BINARY: pa.binary(),
    exp.DType.DATE: pa.date32(),
    exp.DType.TIMESTAMPNTZ: pa.timestamp("us"),
    exp.DType.TIMESTAMP: pa.timestamp("us", tz="UTC"),
    exp.DType.TIMESTAMPTZ: pa.timestamp("us", tz="UTC"),
}


@lru_cache(maxsize=1024)
def arrow_type(spark_type: str) -> pa.DataType:
    """The Arrow type that Spark reads as `spark_type` (its DDL). Raises ValueError for a type without one."""
    return _arrow(exp.DataType.build(spark_type, dialect="spark"))


def arrow_schema(columns: Iterable[Column]) -> pa.Schema:
    """The Arrow schema of `columns`, all nullable."""
    return pa.schema([pa.field(column.name, arrow_type(column.spark_type)) for column in columns])


def _arrow(parsed: exp.DataType) -> pa.DataType:
    kind = parsed.this
    arguments = parsed.expressions
    if kind == exp.DType.DECIMAL:
        precision, scale = [int(argument.name) for argument in arguments] or [10, 0]
        return pa.decimal128(precision, scale)
    if kind == exp.DType.ARRAY:
        return pa.list_(pa.field("element", _arrow(arguments[0])))
    if kind == exp.DType.MAP:
        return pa.map_(_arrow(arguments[0]), _arrow(arguments[1]))
    if kind == exp.DType.STRUCT:
        return pa.struct([pa.field(field.name, _arrow(field.args["kind"])) for field in arguments])
    if kind in _PLAIN:
        return _PLAIN[kind]
    raise ValueError(f"no Arrow type stands for {parsed.sql(dialect='spark')}")


SOURCE_TYPES: Mapping[str, pa.DataType] = {name: arrow_type(kind) for name, kind in SOURCE_COLUMNS.items()}
"""The types of SOURCE_COLUMNS."""


def seq_array(count: int, **parts: int | pa.Array) -> pa.StructArray:
    """`_seq` of `count` rows. `parts`: each of SEQ_PARTS as one number for all rows, or as an array."""
    fields = list(SOURCE_TYPES["_seq"])
    given = [(field, parts[field.name]) for field in fields]
    arrays = [pa.repeat(pa.scalar(part, of.type), count) if isinstance(part, int) else part for of, part in given]
    return pa.StructArray.from_arrays(arrays, fields=fields)
