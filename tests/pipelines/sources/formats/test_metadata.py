"""What debezium-json and canal-json say of a message beside its rows, by Flink's keys."""

from __future__ import annotations

import datetime
import json
from dataclasses import replace
from typing import Any

from tests.pipelines.sources.formats.format_tables import wanted
from tidegate.pipelines.sources.formats import FormatSpec, format_named, metadata_column
from tidegate.pipelines.sources.formats.format import VALUE

SOURCE = {
    "connector": "mysql",
    "name": "s",
    "ts_ms": 5,
    "db": "d",
    "schema": None,
    "table": "t",
    "pos": 1.50,
    "x": {"y": 2.0},
}
PROPERTIES = {
    "connector": "mysql", "name": "s", "ts_ms": "5", "db": "d", "schema": None, "table": "t", "pos": "1.5",
    "x": '{"y":2.0}',
}  # fmt: skip
SCHEMA = {"type": "struct", "fields": [{"field": "after", "fields": [{"field": "id", "type": "int32"}]}], "version": 1}


def at(ms: int) -> datetime.datetime:
    return datetime.datetime(1970, 1, 1) + datetime.timedelta(milliseconds=ms)


def decoded(
    spark: Any, name: str, messages: list[Any], keys: tuple[str, ...], options: dict[str, str] | None = None
) -> Any:
    """Per row: its op, its error, and the metadata by key; all of the format's where `keys` is empty."""
    spec: FormatSpec = format_named(name).spec
    wants = replace(wanted("id INT", options), metadata=keys or tuple(spec.metadata))
    frame = spark.createDataFrame(
        [(bytearray(json.dumps(message).encode()),) for message in messages], f"{VALUE} BINARY"
    )
    found = format_named(name).decode(frame, wants)
    columns = [f"{metadata_column(key)} AS `{key}`" for key in wants.metadata]
    rows = found.selectExpr("_op", "_error", *columns).collect()
    assert {
        name: field.dataType.simpleString()
        for name, field in zip(wants.metadata, found.selectExpr(*columns).schema, strict=True)
    } == {
        key: {"TIMESTAMP_LTZ(3)": "timestamp"}.get(of, of.replace(" ", "").lower())
        for key in wants.metadata
        for of in [spec.metadata[key].type]
    }
    return [(row["_op"], row["_error"], {key: row[key] for key in wants.metadata}) for row in rows]


def test_debezium(spark) -> None:
    message = {"op": "u", "before": {"id": 1}, "after": {"id": 2}, "ts_ms": 7, "source": SOURCE}
    expected = {
        "schema": None, "ingestion-timestamp": at(7), "source.timestamp": at(5), "source.database": "d",
        "source.schema": None, "source.table": "t", "source.properties": PROPERTIES,
    }  # fmt: skip
    nothing = dict.fromkeys(expected)
    messages = [message, {"op": "c", "after": {"id": 1}}]
    assert decoded(spark, "debezium-json", messages, ()) == [
        ("-U", None, expected),
        ("+U", None, expected),
        ("+I", None, nothing),
    ]


def test_debezium_with_its_schema_and_without_all_properties(spark) -> None:
    message = {"schema": SCHEMA, "payload": {"op": "c", "after": {"id": 1}, "ts_ms": 7, "source": SOURCE}}
    keys = ("schema", "ingestion-timestamp", "source.table", "source.timestamp")
    ((op, error, found),) = decoded(spark, "debezium-json", [message], keys, {"debezium-json.schema-include": "true"})
    assert (op, error) == ("+I", None)
    assert json.loads(found.pop("schema")) == SCHEMA
    assert found == {"ingestion-timestamp": at(7), "source.table": "t", "source.timestamp": at(5)}


def test_canal(spark) -> None:
    message = {
        "type": "INSERT", "data": [{"id": "1"}, {"id": "2"}], "database": "d", "table": "t", "es": 5, "ts": 7,
        "sqlType": {"id": 4, "v": -5, "w": None}, "pkNames": ["id", "v"],
    }  # fmt: skip
    expected = {
        "database": "d", "table": "t", "sql-type": {"id": 4, "v": -5, "w": None}, "pk-names": ["id", "v"],
        "ingestion-timestamp": at(7), "event-timestamp": at(5),
    }  # fmt: skip
    messages = [message, {"type": "DELETE", "data": [{"id": "1"}], "pkNames": None}]
    nothing = ("-D", None, dict.fromkeys(expected))
    assert decoded(spark, "canal-json", messages, ()) == [("+I", None, expected)] * 2 + [nothing]


def test_a_time_that_is_none_is_an_error(spark) -> None:
    message = {"op": "c", "after": {"id": 1}, "source": {"ts_ms": "soon"}, "ts_ms": 7}
    ((op, said, _),) = decoded(spark, "debezium-json", [message], ())
    assert (op, said) == (None, "metadata source.timestamp: 'soon' is no time in ms")
    # It is the time of the change, whether or not a column shows it.
    ((op, said, _),) = decoded(spark, "debezium-json", [message], ("ingestion-timestamp",))
    assert (op, said) == (None, "source.ts_ms: 'soon' is no time in ms")


def test_a_type_that_is_none_is_an_error_where_it_is_asked_for(spark) -> None:
    message = {"type": "INSERT", "data": [{"id": "1"}], "sqlType": {"id": "INT"}}
    ((op, said, _),) = decoded(spark, "canal-json", [message], ())
    assert (op, said) == (None, "metadata sql-type: a type is no number")
    ((op, said, _),) = decoded(spark, "canal-json", [message], ("ingestion-timestamp",))
    assert (op, said) == ("+I", None)
