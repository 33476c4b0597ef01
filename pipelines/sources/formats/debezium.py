"""The format `debezium-json`: a message is a change as Debezium's JSON converter writes it.

{"before": row, "after": row, "op": "u", "ts_ms": 1, "source": {"snapshot": "false", "ts_ms": 1, …}}; with its schema,
as {"schema": …, "payload": that}. What is no change of a row is passed over: heartbeats, changes of the schema, borders
of transactions, messages of the log (op m) and the tombstone after a delete.

Times are numbers since 1970, decimals text or the bytes of a number: the encoding follows from the message's schema
where it comes with one, else from the declared type. Source: Debezium's documentation of its connectors, "Data type
mappings".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from tidegate.pipelines.connectors.spec import OptionSpec
from tidegate.pipelines.connectors.table import Column
from tidegate.pipelines.sources.formats import changes, json_text, shape
from tidegate.pipelines.sources.formats.format import (
    FormatSpec,
    Metadata,
    Wanted,
    ignore_option,
    map_keys,
    member,
    metadata_column,
    other_columns,
    timestamp_option,
)
from tidegate.pipelines.syntax.types import STRINGS, TIMESTAMPS, FlinkType, Kind, spark_string

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DECIMALS = OptionSpec(
    "debezium-json.decimal.handling.mode",
    "choice",
    default="string",
    choices=("string", "double", "precise"),
    doc="How Debezium's connector writes decimals: the value of its own decimal.handling.mode. Set it if messages come "
    "without a schema, because nothing else shows it. `precise` writes the number's bytes.",
    changes="rows",
)

UNAVAILABLE = "__debezium_unavailable_value"
"""What Debezium writes where the database did not give the value (an unchanged TOAST column)."""

_DIGITS: Mapping[str, int] = {
    "io.debezium.time.Timestamp": 3,
    "io.debezium.time.MicroTimestamp": 6,
    "io.debezium.time.NanoTimestamp": 9,
    "org.apache.kafka.connect.data.Timestamp": 3,
}
_DECIMAL = "org.apache.kafka.connect.data.Decimal"
_VARIABLE = "io.debezium.data.VariableScaleDecimal"
"""A decimal of a column without a scale: {"scale": 2, "value": the bytes of the unscaled number}."""


@dataclass(frozen=True)
class Encoding:
    """Reads scalars. `plain` reads those that Debezium writes as any JSON; `decimals` is the option's value."""

    plain: shape.Leaf
    decimals: str

    def leaf(self, schema: str | None, column: str) -> shape.Leaf:
        """The reader of a column's scalars. `schema`: SQL of the ARRAY of the row's fields in the message's schema."""
        field = None
        if schema is not None:
            field = f"get(filter({schema}, f -> f.field = {spark_string(column)}), 0)"
        return lambda sql, of: self.read(sql, of, field)

    def read(self, sql: str, of: FlinkType, field: str | None) -> str:
        """A scalar; `field` is SQL of its field in the schema."""
        if of.kind in STRINGS:
            return self.plain(f"nullif({sql}, {spark_string(UNAVAILABLE)})", of)
        number = json_text.plain(sql)
        if of.kind is Kind.BOOLEAN:
            return f"CASE {number} WHEN '1' THEN true WHEN '0' THEN false ELSE {self.plain(sql, of)} END"
        if of.kind is Kind.DATE:
            days = shape.matched(number, r"^-?\d{1,7}$", f"date_from_unix_date(CAST({number} AS INT))")
            return f"coalesce({days}, {self.plain(sql, of)})"
        if of.kind in TIMESTAMPS:
            return f"coalesce({self._number(number, of, field)}, {self.plain(sql, of)})"
        if of.kind is Kind.DECIMAL:
            return self._decimal(number, of, field)
        return self.plain(sql, of)

    def _number(self, sql: str, of: FlinkType, field: str | None) -> str:
        """A timestamp that is a number: ms up to three digits of a second, else us, unless the schema says so."""
        usual = shape.since_epoch(sql, of, 3 if shape.precision(of) <= 3 else 6)
        if field is None:
            return usual
        cases = " ".join(
            f"WHEN {spark_string(name)} THEN {shape.since_epoch(sql, of, digits)}" for name, digits in _DIGITS.items()
        )
        return f"CASE {field}.name {cases} ELSE {usual} END"

    def _decimal(self, sql: str, of: FlinkType, field: str | None) -> str:
        if field is not None:
            fixed = unscaled(sql, of, f"{field}.parameters['scale']")
            value, scale = (f"get_json_object({sql}, '$.{name}')" for name in ("value", "scale"))
            cases = f"WHEN '{_DECIMAL}' THEN {fixed} WHEN '{_VARIABLE}' THEN {unscaled(value, of, scale)}"
            return f"CASE {field}.name {cases} ELSE {shape.decimal(sql, of)} END"
        if self.decimals == "precise":
            return unscaled(sql, of, str(of.scale or 0))
        return shape.decimal(sql, of)


def unscaled(sql: str, of: FlinkType, scale: str) -> str:
    """SQL of a DECIMAL whose unscaled number's bytes (two's complement, the greatest first) are base64 in `sql`.

    `scale` is SQL of the digits after its point; those that the type has not must be zero.
    """
    digits = f"hex(try_to_binary({sql}, 'base64'))"
    # 16 bytes hold 38 digits, in two halves. A negative number n has the bytes of -n - 1, each bit turned over.
    negative = f"{digits} >= '8'"
    size = f"lpad(IF({negative}, translate({digits}, '0123456789ABCDEF', 'FEDCBA9876543210'), {digits}), 32, '0')"
    upper, lower = (f"CAST(conv(substring({size}, {start}, 16), 16, 10) AS DECIMAL(20, 0))" for start in (1, 17))
    number = f"try_add(try_multiply({upper}, CAST('{2**64}' AS DECIMAL(20, 0))), {lower})"
    # The sign as text: Spark's unary minus rounds to 34 digits.
    number = f"try_add({number}, CAST(IF({negative}, 1, 0) AS DECIMAL(38, 0)))"
    exponent = f"CAST(-try_cast({scale} AS INT) AS STRING)"  # a scale may be negative
    written = f"concat(IF({negative}, '-', ''), CAST({number} AS STRING), 'E', {exponent})"
    return f"IF(length({digits}) BETWEEN 2 AND 32, {shape.decimal(written, of)}, NULL)"


SCHEMA = OptionSpec(
    "debezium-json.schema-include",
    "boolean",
    default="false",
    doc="Messages come with their schema (value.converter.schemas.enable): {schema, payload}. The schema then decides "
    "how times and decimals are read.",
    changes="rows",
)
IGNORE = "debezium-json.ignore-parse-errors"
STANDARD = timestamp_option("debezium-json.timestamp-format.standard", "ISO-8601")

_SOURCE = "STRUCT<snapshot STRING, ts_ms STRING, db STRING, schema STRING, `table` STRING>"
OF = " of "
"""In `_marks`: separates `source.snapshot` from the table of the change, if the message names one."""
_TIMES = {"_m.source.ts_ms": "source.ts_ms", "_m.ts_ms": "ts_ms"}
"""The time of a change: the first of these that the message has."""
_TABLE = "nullif(concat_ws('.', _m.source.db, _m.source.schema, _m.source.`table`), '')"
_ANY_SOURCE = "MAP<STRING, STRING>"
_ENVELOPE = (
    "STRUCT<before {row}, after {row}, op STRING, ts_ms STRING, source {source}, "
    "status STRING, id STRING, ddl STRING, `databaseName` STRING, `tableChanges` STRING{more}>"
)
_FIELDS = "ARRAY<STRUCT<field STRING, fields ARRAY<STRUCT<field STRING, name STRING, parameters MAP<STRING, STRING>>>>>"
_WITH_SCHEMA = f"STRUCT<schema STRUCT<fields {_FIELDS}>, payload {{}}>"


def _rows(message: Any) -> list[Any]:
    envelope = member(message, "payload") or message
    return [member(envelope, "before"), member(envelope, "after")]


class DebeziumFormat:
    """`'format' = 'debezium-json'`."""

    spec = FormatSpec(
        "debezium-json",
        (SCHEMA, DECIMALS, ignore_option(IGNORE), STANDARD),
        "A message is a change as Debezium writes it in JSON.",
        changelog=True,
        rows=_rows,
        metadata={
            # Numbers are put in quotes before they are parsed, whoever reads them (json_text.py).
            "schema": Metadata("STRING", json_text.document(f"get_json_object({json_text.TEXT}, '$.schema')")),
            "ingestion-timestamp": changes.time("_m.ts_ms"),
            "source.timestamp": changes.time("_m.source.ts_ms"),
            "source.database": Metadata("STRING", "_m.source.db"),
            "source.schema": Metadata("STRING", "_m.source.schema"),
            "source.table": Metadata("STRING", "_m.source.`table`"),
            "source.properties": Metadata(
                "MAP<STRING, STRING>", f"transform_values(_m.source, (k, v) -> {json_text.document('v')})"
            ),
        },
    )

    def check(self, wanted: Wanted) -> Sequence[str]:
        return map_keys(wanted.columns)

    def decode(self, messages: DataFrame, wanted: Wanted) -> DataFrame:
        others, with_schema = other_columns(messages), wanted.flag(SCHEMA.name)
        encoding = Encoding(json_text.leaf(wanted.option(STANDARD)), wanted.option(DECIMALS))
        row = shape.Row(
            wanted.columns,
            lambda column: encoding.leaf("_schema" if with_schema else None, column.source_name),
            json_text.shown,
        )
        parsed = json_text.parsed(messages, _message(wanted.columns, wanted, with_schema=with_schema))
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
        changed = read.selectExpr(
            *others,
            *changes.metadata_columns(self.spec, wanted),
            *schema,
            "IF(_m.op = 'm', NULL, _m.op) AS _kind",
            "IF(_m.op = 'd', _m.before, _m.after) AS _one",
            "_m.before AS _other",
            f"{_error(wanted, with_schema=with_schema)} AS _error",
            f"{changes.moment(*_TIMES)} AS _time",
            f"IF(_m.source.snapshot IS NULL, NULL, concat_ws('{OF}', _m.source.snapshot, {_TABLE})) AS _marks",
        )
        passed = [*others, *map(metadata_column, wanted.metadata)]
        return changes.landed_one(changed, passed, wanted, row, IGNORE, beside=schema)


def _message(columns: Sequence[Column], wanted: Wanted, *, with_schema: bool) -> str:
    """The DDL of a message."""
    source = _ANY_SOURCE if "source.properties" in wanted.metadata else _SOURCE
    more = "" if with_schema else ", payload STRING"
    envelope = _ENVELOPE.format(row=shape.wire_row(columns), source=source, more=more)
    return _WITH_SCHEMA.format(envelope) if with_schema else envelope


def _error(wanted: Wanted, *, with_schema: bool) -> str:
    """SQL of the sentence about a message that is no change of a row, or NULL."""
    suspects = json_text.suspects(wanted.columns, partial(_message, wanted=wanted, with_schema=with_schema))
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
        *changes.no_times(DebeziumFormat.spec, wanted, _TIMES),
    ]
    return f"CASE {' '.join(cases)} END"


FORMAT = DebeziumFormat()
