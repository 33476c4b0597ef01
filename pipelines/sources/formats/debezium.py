"""The format `debezium-json`: a message is a change as Debezium's JSON converter writes it.

{"before": row, "after": row, "op": "u", "ts_ms": 1, "source": {"snapshot": "false", "ts_ms": 1, …}}; with its schema,
as {"schema": …, "payload": that}. What is no change of a row is passed over: heartbeats, changes of the schema, borders
of transactions, messages of the log (op m) and the tombstone after a delete.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tidegate.pipelines.connectors.spec import OptionSpec
from tidegate.pipelines.connectors.table import Column
from tidegate.pipelines.sources.formats import changes, json_text, shape
from tidegate.pipelines.sources.formats.checks import ignore_option, map_keys, timestamp_option
from tidegate.pipelines.sources.formats.debezium_values import DECIMALS, Encoding
from tidegate.pipelines.sources.formats.format import FormatSpec, Wanted, metadata_column
from tidegate.pipelines.sources.formats.result import kept

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SCHEMA = OptionSpec(
    "debezium-json.schema-include",
    "boolean",
    default="false",
    doc="Messages come with their schema (value.converter.schemas.enable): {schema, payload}. It then decides how "
    "times and decimals are read.",
    changes="rows",
)
IGNORE = "debezium-json.ignore-parse-errors"
STANDARD = timestamp_option("debezium-json.timestamp-format.standard", "ISO-8601")

_SOURCE = "STRUCT<snapshot STRING, ts_ms STRING, db STRING, schema STRING, `table` STRING>"
OF = " of "
"""In `_marks`: between `source.snapshot` and the table that the change is of, where the message names one."""
_TABLE = "nullif(concat_ws('.', _m.source.db, _m.source.schema, _m.source.`table`), '')"
_ANY_SOURCE = "MAP<STRING, STRING>"
_ENVELOPE = (
    "STRUCT<before {row}, after {row}, op STRING, ts_ms STRING, source {source}, "
    "status STRING, id STRING, ddl STRING, `databaseName` STRING, `tableChanges` STRING{more}>"
)
_FIELDS = "ARRAY<STRUCT<field STRING, fields ARRAY<STRUCT<field STRING, name STRING, parameters MAP<STRING, STRING>>>>>"
_WITH_SCHEMA = f"STRUCT<schema STRUCT<fields {_FIELDS}>, payload {{}}>"


_METADATA: Mapping[str, str] = {
    # Numbers are put in quotes before they are parsed, whoever reads them (json_text.py).
    "schema": json_text.document(f"get_json_object({json_text.TEXT}, '$.schema')"),
    "ingestion-timestamp": changes.moment("_m.ts_ms"),
    "source.timestamp": changes.moment("_m.source.ts_ms"),
    "source.database": "_m.source.db",
    "source.schema": "_m.source.schema",
    "source.table": "_m.source.`table`",
    "source.properties": f"transform_values(_m.source, (k, v) -> {json_text.document('v')})",
}
_NUMBERS: Mapping[str, str] = {"ingestion-timestamp": "_m.ts_ms", "source.timestamp": "_m.source.ts_ms"}


class DebeziumFormat:
    """`'format' = 'debezium-json'`."""

    spec = FormatSpec(
        "debezium-json",
        (SCHEMA, DECIMALS, ignore_option(IGNORE), STANDARD),
        "A message is a change as Debezium writes it in JSON.",
        changelog=True,
        metadata={
            "schema": "STRING",
            "ingestion-timestamp": "TIMESTAMP_LTZ(3)",
            "source.timestamp": "TIMESTAMP_LTZ(3)",
            "source.database": "STRING",
            "source.schema": "STRING",
            "source.table": "STRING",
            "source.properties": "MAP<STRING, STRING>",
        },
    )

    def check(self, wanted: Wanted) -> Sequence[str]:
        return map_keys(wanted.columns)

    def decode(self, messages: DataFrame, wanted: Wanted) -> DataFrame:
        others, with_schema = kept(messages), wanted.flag(SCHEMA.name)
        encoding = Encoding(json_text.leaf(wanted.option(STANDARD)), wanted.option(STANDARD), wanted.option(DECIMALS))
        row = shape.Row(
            wanted.columns,
            lambda column: encoding.leaf("_schema" if with_schema else None, column.name),
            json_text.shown,
        )
        parsed = json_text.parsed(messages, _around(wanted.columns, wanted, with_schema=with_schema))
        envelope = "_wire.payload" if with_schema else "_wire"
        # Where a message has its schema, the fields of `after` stand for both images: they are the same.
        after = "get(filter(_wire.schema.fields, f -> f.field = 'after'), 0).fields"
        read = parsed.selectExpr(
            *others,
            "_null",
            "_broken",
            json_text.TEXT,
            f"{envelope} AS _m",
            f"_wire.payload IS {'' if with_schema else 'NOT '}NULL AS _other",
            *([f"{after} AS _schema"] if with_schema else []),
        )
        schema = ["_schema"] if with_schema else []
        told = [f"{_METADATA[key]} AS {metadata_column(key)}" for key in wanted.metadata]
        changed = read.selectExpr(
            *others,
            *told,
            *schema,
            "IF(_m.op = 'm', NULL, _m.op) AS _kind",
            "IF(_m.op = 'd', _m.before, _m.after) AS _one",
            "_m.before AS _other",
            f"{_error(wanted, with_schema=with_schema)} AS _error",
            f"{changes.moment('_m.source.ts_ms', '_m.ts_ms')} AS _time",
            f"IF(_m.source.snapshot IS NULL, NULL, concat_ws('{OF}', _m.source.snapshot, {_TABLE})) AS _marks",
        )
        passed = [*others, *map(metadata_column, wanted.metadata)]
        return changes.landed_one(changed, passed, wanted, row, IGNORE, beside=schema)


def _around(columns: Sequence[Column], wanted: Wanted, *, with_schema: bool) -> str:
    """The DDL of a message."""
    source = _ANY_SOURCE if "source.properties" in wanted.metadata else _SOURCE
    more = "" if with_schema else ", payload STRING"
    envelope = _ENVELOPE.format(row=shape.wire_row(columns), source=source, more=more)
    return _WITH_SCHEMA.format(envelope) if with_schema else envelope


def _error(wanted: Wanted, *, with_schema: bool) -> str:
    """SQL of the sentence about a message that is no change that can be told, or NULL."""
    suspects = [
        (f"column {column.name} does not fit {column.type}", _around([column], wanted, with_schema=with_schema))
        for column in shape.nested(wanted.columns)
    ]
    flag, other = ("true", "has no payload") if with_schema else ("false", "has a schema and a payload")
    needs_before = "_m.op = 'd'" if wanted.build else "_m.op IN ('u', 'd')"
    cases = [
        "WHEN _null THEN NULL",
        f"WHEN _broken THEN {json_text.blame(suspects)}",
        f"WHEN _other THEN \"the message {other}: '{SCHEMA.name}' is {flag}\"",
        "WHEN _m.op IS NULL AND (_m.ddl IS NOT NULL OR _m.`databaseName` IS NOT NULL OR _m.`tableChanges` IS NOT NULL) "
        "THEN NULL",
        "WHEN _m.op IS NULL AND _m.status IN ('BEGIN', 'END') AND _m.id IS NOT NULL THEN NULL",
        "WHEN _m.op IS NULL AND _m.ts_ms IS NOT NULL AND coalesce(_m.before, _m.after) IS NULL THEN NULL",
        "WHEN _m.op IS NULL THEN 'the message is no change of Debezium: it has no op'",
        "WHEN _m.op = 'm' THEN NULL",
        "WHEN _m.op NOT IN ('c', 'r', 'u', 'd', 't') THEN concat(\"there is no op '\", _m.op, \"'\")",
        "WHEN _m.op IN ('c', 'r', 'u') AND _m.after IS NULL THEN 'the message has no after'",
        f"WHEN {needs_before} AND _m.before IS NULL THEN 'the message has no before: have the database log whole rows "
        "(REPLICA IDENTITY FULL, binlog_row_image = FULL)'",
        *([] if wanted.build else ["WHEN _m.op = 't' THEN 'a truncate: a probe side takes no such change'"]),
        *(changes.no_moment(key, _NUMBERS[key]) for key in wanted.metadata if key in _NUMBERS),
    ]
    return f"CASE {' '.join(cases)} END"


FORMAT = DebeziumFormat()
