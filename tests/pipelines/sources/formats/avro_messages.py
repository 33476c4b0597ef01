"""Writes messages of the format avro, by a library that has nothing to do with what reads them."""

from __future__ import annotations

import io
from typing import Any

from fastavro import parse_schema, schemaless_writer


def written(types: list[Any], row: tuple[Any, ...]) -> bytes:
    """A record of fields of these types, without its schema."""
    names = [f"c{number}" for number in range(len(types))]
    fields = [{"name": name, "type": of} for name, of in zip(names, types, strict=True)]
    out = io.BytesIO()
    schema = parse_schema({"type": "record", "name": "row", "fields": fields})
    schemaless_writer(out, schema, dict(zip(names, row, strict=True)))
    return out.getvalue()
