"""Arrow types for Spark's, known without a JVM.

>>> arrow_type("DECIMAL(10, 2)"), arrow_type("ARRAY<INT>")
(Decimal128Type(decimal128(10, 2)), ListType(list<element: int32>))
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

import pyarrow as pa
from sqlglot import exp

from pipelines.sql.model import Column

_PLAIN: Mapping[exp.DataType.Type, pa.DataType] = {
    exp.DataType.Type.BOOLEAN: pa.bool_(),
    exp.DataType.Type.TINYINT: pa.int8(),
    exp.DataType.Type.SMALLINT: pa.int16(),
    exp.DataType.Type.INT: pa.int32(),
    exp.DataType.Type.BIGINT: pa.int64(),
    exp.DataType.Type.FLOAT: pa.float32(),
    exp.DataType.Type.DOUBLE: pa.float64(),
    exp.DataType.Type.TEXT: pa.string(),
    exp.DataType.Type.CHAR: pa.string(),
    exp.DataType.Type.VARCHAR: pa.string(),
    exp.DataType.Type.BINARY: pa.binary(),
    exp.DataType.Type.DATE: pa.date32(),
    exp.DataType.Type.TIMESTAMPNTZ: pa.timestamp("us"),
    exp.DataType.Type.TIMESTAMP: pa.timestamp("us", tz="UTC"),
    exp.DataType.Type.TIMESTAMPTZ: pa.timestamp("us", tz="UTC"),
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
    if kind == exp.DataType.Type.DECIMAL:
        precision, scale = [int(argument.name) for argument in arguments] or [10, 0]
        return pa.decimal128(precision, scale)
    if kind == exp.DataType.Type.ARRAY:
        return pa.list_(pa.field("element", _arrow(arguments[0])))
    if kind == exp.DataType.Type.MAP:
        return pa.map_(_arrow(arguments[0]), _arrow(arguments[1]))
    if kind == exp.DataType.Type.STRUCT:
        return pa.struct([pa.field(field.name, _arrow(field.args["kind"])) for field in arguments])
    if kind in _PLAIN:
        return _PLAIN[kind]
    raise ValueError(f"no Arrow type stands for {parsed.sql(dialect='spark')}")
