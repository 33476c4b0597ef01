"""The format `json`: a message is one object, and adds one row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tidegate.pipelines.connectors.spec import OptionSpec
from tidegate.pipelines.sources.formats import json_text, shape
from tidegate.pipelines.sources.formats.format import (
    FormatSpec,
    Wanted,
    added,
    ignore_option,
    map_keys,
    other_columns,
    timestamp_option,
)
from tidegate.pipelines.syntax.types import spark_string

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MISSING = "json.fail-on-missing-field"
IGNORE = "json.ignore-parse-errors"
STANDARD = timestamp_option("json.timestamp-format.standard")


class JsonFormat:
    """`'format' = 'json'`."""

    spec = FormatSpec(
        "json",
        (
            OptionSpec(
                MISSING,
                "boolean",
                default="false",
                doc="A column that a message does not name is an error, not NULL.",
                changes="rows",
            ),
            ignore_option(IGNORE),
            STANDARD,
        ),
        "A message is one JSON object.",
    )

    def check(self, wanted: Wanted) -> Sequence[str]:
        problems = map_keys(wanted.columns)
        if wanted.flag(MISSING) and wanted.flag(IGNORE):
            problems.append(f"'{MISSING}' and '{IGNORE}' cannot both be true")
        return problems

    def decode(self, messages: DataFrame, wanted: Wanted) -> DataFrame:
        from tidegate.pipelines.sources.formats.json_arrow import quick

        others = other_columns(messages)
        leaf = json_text.leaf(wanted.option(STANDARD))
        row = shape.Row(wanted.columns, lambda column: leaf, json_text.shown)
        # Which columns a message names is seen on the long way only.
        short = None if wanted.flag(MISSING) else quick(wanted, leaf)
        beside, done, fields = [], "_null", f"IF(_null OR _broken, NULL, {row.fields('_wire')})"
        if short is not None:
            beside, done = [json_text.QUICK], f"_null OR {json_text.QUICK} IS NOT NULL"
            fields = f"coalesce({json_text.QUICK}, {fields})"
        parsed = json_text.parsed(messages, shape.wire_row(wanted.columns), short)
        read = parsed.selectExpr(*others, *beside, "_null", "_broken", json_text.TEXT, "_wire", f"{fields} AS _fields")
        error = (
            f"CASE WHEN {done} THEN NULL WHEN _broken THEN {json_text.blame(json_text.suspects(wanted.columns))} "
            f"ELSE coalesce({_missing(wanted)}, {row.error('_wire', '_fields')}) END AS _error"
        )
        return added(read.selectExpr(*others, "_null", "_fields", error), others, wanted, IGNORE)


def _missing(wanted: Wanted) -> str:
    """SQL of the sentence about a column that the message does not name."""
    if not wanted.flag(MISSING):
        return "NULL"
    names = ", ".join(spark_string(column.name) for column in wanted.columns)
    absent = f"get(array_except(array({names}), json_object_keys({json_text.TEXT})), 0)"
    return f"concat('the message has no column ', {absent})"


FORMAT = JsonFormat()
