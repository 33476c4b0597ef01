"""The Avro schema that a table's columns have by Flink's rules (AvroSchemaConverter), as bytes have it.

In Avro's binary encoding names, logical types and the kind of a whole number leave no trace: only order, shape and what
may be null count. So the schema here names fields by their place, any column's name will do, and a scalar has the type
in which Spark's reader loses nothing of it:

- every whole number, DATE and timestamp is a `long`: a value that is too great for its column is then seen, where
  a reader of `int` cuts it;
- BOOLEAN is one byte, since readers take any byte but 01 for false;
- a DECIMAL has all 38 digits, where a reader of fewer would drop what is beyond them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import count
from typing import Any

from tidegate.pipelines.connectors.table import Column
from tidegate.pipelines.syntax.dialect import parse_type
from tidegate.pipelines.syntax.types import APPROXIMATE, BINARIES, MAX_PRECISION, STRINGS, FlinkType, Kind

END = "end"
"""The field behind the columns: what stands behind the record in the message."""


def schema(columns: Sequence[Column], end: int) -> str:
    """The record of `columns`, and `end` bytes behind it, as JSON."""
    names = (f"t{number}" for number in count())
    types = [_type(parse_type(column.type), names, nullable=column.nullable) for column in columns]
    fields = [*_fields(types), {"name": END, "type": {"type": "fixed", "name": END, "size": end}}]
    return json.dumps({"type": "record", "name": "message", "fields": fields})


def end_only(end: int) -> str:
    """The same record as a reader sees it who passes over the columns."""
    field = {"name": END, "type": {"type": "fixed", "name": END, "size": end}}
    return json.dumps({"type": "record", "name": "message", "fields": [field]})


def scalar(of: FlinkType) -> str:
    """Spark's DDL of a scalar, as it comes from the reader."""
    if of.kind in STRINGS:
        return "STRING"
    if of.kind in BINARIES or of.kind is Kind.BOOLEAN:
        return "BINARY"
    if of.kind in APPROXIMATE:
        return of.spark
    return f"DECIMAL({MAX_PRECISION}, {of.scale})" if of.kind is Kind.DECIMAL else "BIGINT"


def _type(of: FlinkType, names: Any, *, nullable: bool) -> Any:
    made = _not_null(of, names)
    return ["null", made] if nullable else made


def _not_null(of: FlinkType, names: Any) -> Any:
    if of.kind is Kind.ROW:
        fields = [_type(field.type, names, nullable=field.type.nullable) for field in of.fields]
        return {"type": "record", "name": next(names), "fields": _fields(fields)}
    if of.kind is Kind.ARRAY:
        return {"type": "array", "items": _type(of.element, names, nullable=of.element.nullable)}
    if of.kind is Kind.MAP:
        return {"type": "map", "values": _type(of.element, names, nullable=of.element.nullable)}
    if of.kind is Kind.BOOLEAN:
        return {"type": "fixed", "name": next(names), "size": 1}
    if of.kind is Kind.DECIMAL:
        return {"type": "bytes", "logicalType": "decimal", "precision": MAX_PRECISION, "scale": of.scale}
    if of.kind in STRINGS:
        return "string"
    if of.kind in BINARIES:
        return "bytes"
    return of.kind.lower() if of.kind in APPROXIMATE else "long"


def _fields(types: Sequence[Any]) -> list[dict[str, Any]]:
    return [{"name": f"f{number}", "type": of} for number, of in enumerate(types)]
