"""Reads the tables of tests/fixtures/formats, and decodes their messages: one Spark job a case.

Messages of the format avro are written by a library that has nothing to do with what reads them.
"""

from __future__ import annotations

import datetime
import io
import tomllib
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

from fastavro import parse_schema, schemaless_writer
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from tidegate.pipelines.sources.formats import DECODED, VALUE, Wanted, format_named
from tidegate.pipelines.sql import compile_script

FIXTURES = Path(__file__).parents[3] / "fixtures" / "formats"
NAMES = {
    "datetime": datetime,
    "D": Decimal,
    "T": datetime.datetime,
    "Z": lambda *parts: datetime.datetime(*parts),
    "U": lambda *parts: datetime.datetime(*parts, tzinfo=datetime.UTC),
}


ONE_BY_ONE = {"spark.sql.execution.arrow.maxRecordsPerBatch": "1"}
"""Settings under which a message that does not fit takes no other with it on the long way."""


def cases(name: str) -> list[dict[str, Any]]:
    """The cases of a fixture."""
    return tomllib.loads((FIXTURES / f"{name}.toml").read_text())["case"]


def wanted(
    columns: str,
    options: dict[str, str] | None = None,
    *,
    role: Any = "probe",
    fields: dict[str, str] | None = None,
) -> Wanted:
    """What a table of these columns wants. `fields`: the names that columns have in the messages."""
    pipeline = compile_script(f"CREATE TABLE t ({columns}) WITH ('connector' = 'scripted')")
    table, named = pipeline.table("t"), fields or {}
    found = tuple(replace(column, field_name=named.get(column.name)) for column in table.physical_columns)
    return Wanted(found, options or {}, role, table.primary_key)


def pair(message: str | list[str]) -> tuple[str, str]:
    """A message and what it becomes."""
    if isinstance(message, list):
        return message[0], message[1]
    given, _, expected = message.partition(" => ")
    return given, expected


def decoded(spark: SparkSession, name: str, messages: list[bytes | None], wants: Wanted) -> list[list[dict[str, Any]]]:
    """The rows of each message, in the order of `_sub`."""
    numbered = [(number, bytearray(value) if value is not None else None) for number, value in enumerate(messages)]
    frame = spark.createDataFrame(numbered, f"n INT, {VALUE} BINARY").coalesce(1)
    result = format_named(name).decode(frame, wants)
    assert result.columns == ["n", *DECODED]
    schema = {column.name: column.spark_type for column in wants.columns}
    wide = ", ".join(f"`{column}` {of}" for column, of in schema.items())
    assert result.schema["_fields"].dataType.simpleString() == StructType.fromDDL(wide).simpleString()
    found: list[list[dict[str, Any]]] = [[] for _ in messages]
    for row in sorted(result.collect(), key=lambda row: (row["n"], row["_sub"])):
        found[row["n"]].append(row.asDict())
    return found


def values(fields: Any) -> Any:
    """A Spark row as plain tuples."""
    if isinstance(fields, tuple):
        return tuple(values(value) for value in fields)
    if isinstance(fields, list):
        return [values(value) for value in fields]
    if isinstance(fields, dict):
        return {key: values(value) for key, value in fields.items()}
    return bytes(fields) if isinstance(fields, bytearray) else fields


def python(text: str) -> Any:
    """A value of a fixture."""
    return eval(text, dict(NAMES))


def messages_become_rows_or_errors(
    spark: SparkSession, name: str, case: dict[str, Any], encoded: Callable[[str], bytes]
) -> None:
    """Decode the messages of a case as `encoded` writes them. Expected of each: a row, "! part of an error", or
    nothing at all."""
    pairs = [pair(message) for message in case["messages"]]
    messages = [encoded(given) for given, _ in pairs]
    wants = wanted(case["columns"], case.get("options"), fields=case.get("fields"))
    found = decoded(spark, name, [*messages], wants)
    for (given, expected), rows in zip(pairs, found, strict=True):
        if not expected.strip():
            assert rows == [], given
            continue
        assert [(row["_op"], row["_sub"], row["_time"], row["_marks"]) for row in rows] == [("+I", 0, None, None)], (
            given
        )
        row = rows[0]
        if expected.startswith("!"):
            assert expected[1:].strip() in (row["_error"] or f"no error: {row['_fields']}"), given
            assert row["_fields"] is None, given
        else:
            assert row["_error"] is None, (given, row["_error"])
            assert values(row["_fields"]) == python(expected), given


def written(types: list[Any], row: tuple[Any, ...]) -> bytes:
    """A record of fields of these types, without its schema."""
    names = [f"c{number}" for number in range(len(types))]
    fields = [{"name": name, "type": of} for name, of in zip(names, types, strict=True)]
    out = io.BytesIO()
    schema = parse_schema({"type": "record", "name": "row", "fields": fields})
    schemaless_writer(out, schema, dict(zip(names, row, strict=True)))
    return out.getvalue()
