"""The format `changelog-json`: a message is a row and what becomes of it: {"data": {…}, "op": "+I"}."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tidegate.pipelines.sources.formats import changes, json_text, shape
from tidegate.pipelines.sources.formats.checks import ignore_option, map_keys, timestamp_option
from tidegate.pipelines.sources.formats.format import FormatSpec, Wanted
from tidegate.pipelines.sources.formats.result import kept

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

IGNORE = "changelog-json.ignore-parse-errors"
STANDARD = timestamp_option("changelog-json.timestamp-format.standard")


class ChangelogFormat:
    """`'format' = 'changelog-json'`."""

    spec = FormatSpec(
        "changelog-json",
        (ignore_option(IGNORE), STANDARD),
        'A message is a JSON object {"data": row, "op": "+I"}, where op is one of +I -U +U -D.',
        changelog=True,
    )

    def check(self, wanted: Wanted) -> Sequence[str]:
        return map_keys(wanted.columns)

    def decode(self, messages: DataFrame, wanted: Wanted) -> DataFrame:
        others = kept(messages)
        leaf = json_text.leaf(wanted.option(STANDARD))
        row = shape.Row(wanted.columns, lambda column: leaf, json_text.shown)
        around = "STRUCT<data {}, op STRING>"
        wire = shape.wire_row(wanted.columns)
        parsed = json_text.parsed(messages, around.format(wire))
        blame = json_text.blame(json_text.suspects(wanted.columns, around))
        error = (
            f"CASE WHEN _null THEN NULL WHEN _broken THEN {blame} "
            "WHEN _wire.op IS NULL THEN 'the message has no op' "
            "WHEN _wire.op NOT IN ('+I', '-U', '+U', '-D') THEN concat(\"there is no op '\", _wire.op, \"'\") "
            "WHEN _wire.data IS NULL THEN 'the message has no data' END AS _error"
        )
        kind = "CASE _wire.op WHEN '+I' THEN 'c' WHEN '+U' THEN 'u' WHEN '-U' THEN '-U' WHEN '-D' THEN 'd' END AS _kind"
        pair = ("_wire.data AS _one", f"CAST(NULL AS {wire}) AS _other")
        none = ("CAST(NULL AS TIMESTAMP) AS _time", "CAST(NULL AS STRING) AS _marks")
        return changes.landed_one(parsed.selectExpr(*others, kind, *pair, error, *none), others, wanted, row, IGNORE)


FORMAT = ChangelogFormat()
