"""The format `canal-json`: a message is the rows of one statement, as Canal and Flink write them.

{"data": [row, …], "old": [what was there of the columns that changed, …], "type": "UPDATE", "es": 1, "ts": 2,
"database": "d", "table": "t"}. Values are text. Statements that change no rows are passed over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tidegate.pipelines.connectors.spec import OptionSpec
from tidegate.pipelines.sources.formats import changes, json_text, shape
from tidegate.pipelines.sources.formats.format import (
    FormatSpec,
    Metadata,
    Wanted,
    ignore_option,
    members,
    metadata_column,
    other_columns,
    timestamp_option,
)
from tidegate.pipelines.syntax.types import quoted, spark_string

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

IGNORE = "canal-json.ignore-parse-errors"
STANDARD = timestamp_option("canal-json.timestamp-format.standard")
DATABASE = OptionSpec(
    "canal-json.database.include",
    doc="A regular expression for the whole name. Only changes of databases that match are read.",
    changes="rows",
)
TABLE = OptionSpec(
    "canal-json.table.include",
    doc="A regular expression for the whole name. Only changes of tables that match are read.",
    changes="rows",
)

_WIRE = (
    "STRUCT<data ARRAY<{}>, old ARRAY<MAP<STRING, STRING>>, type STRING, `isDdl` STRING, es STRING, ts STRING, "
    "`database` STRING, `table` STRING{}>"
)
_MORE: Mapping[str, str] = {"sql-type": "`sqlType` MAP<STRING, STRING>", "pk-names": "`pkNames` ARRAY<STRING>"}
_NO_TYPE = (
    "WHEN exists(map_values(_wire.`sqlType`), v -> v IS NOT NULL AND try_cast(v AS INT) IS NULL) "
    "THEN 'metadata sql-type: a type is no number'"
)
_TIMES = {"_wire.es": "es", "_wire.ts": "ts"}
"""The time of a statement: the first of these that the message has."""
_ROWS = "'INSERT', 'UPDATE', 'DELETE'"


class CanalFormat:
    """`'format' = 'canal-json'`."""

    spec = FormatSpec(
        "canal-json",
        (ignore_option(IGNORE), STANDARD, DATABASE, TABLE),
        "A message is the rows that one statement changed, as Canal writes them in JSON.",
        changelog=True,
        rows=lambda message: members(message, "data"),
        metadata={
            "database": Metadata("STRING", "_wire.`database`"),
            "table": Metadata("STRING", "_wire.`table`"),
            "sql-type": Metadata("MAP<STRING, INT>", "transform_values(_wire.`sqlType`, (k, v) -> try_cast(v AS INT))"),
            "pk-names": Metadata("ARRAY<STRING>", "_wire.`pkNames`"),
            "ingestion-timestamp": changes.time("_wire.ts"),
            "event-timestamp": changes.time("_wire.es"),
        },
    )

    def check(self, wanted: Wanted) -> Sequence[str]:
        return [
            f"column {column.name} is {column.type}: Canal writes scalars only"
            for column in shape.nested(wanted.columns)
        ]

    def decode(self, messages: DataFrame, wanted: Wanted) -> DataFrame:
        others = other_columns(messages)
        leaf = json_text.leaf(wanted.option(STANDARD))
        row = shape.Row(wanted.columns, lambda column: leaf, json_text.shown)
        wire = shape.wire_row(wanted.columns)
        parsed = json_text.parsed(
            messages, _WIRE.format(wire, "".join(f", {_MORE[key]}" for key in wanted.metadata if key in _MORE))
        )
        # `old` names the columns that changed, also those that were NULL; the others were as they are.
        before = ", ".join(
            f"{name}, IF(map_contains_key(o, {name}), o[{name}], d.{quoted(column.source_name)})"
            for column in wanted.columns
            for name in [spark_string(column.source_name)]
        )
        none = f"CAST(NULL AS {wire})"
        updates = (
            f"zip_with(_wire.data, _wire.old, (d, o) -> named_struct('one', d, 'other', "
            f"CAST(named_struct({before}) AS {wire})))"
        )
        plain = f"transform(_wire.data, d -> named_struct('one', d, 'other', {none}))"
        changed = parsed.selectExpr(
            *others,
            *changes.metadata_columns(self.spec, wanted),
            f"CASE WHEN {self._other(wanted)} THEN NULL WHEN _wire.type = 'INSERT' THEN 'c' "
            "WHEN _wire.type = 'UPDATE' THEN 'u' WHEN _wire.type = 'DELETE' THEN 'd' "
            "WHEN _wire.type = 'TRUNCATE' THEN 't' END AS _kind",
            f"IF(_wire.type = 'UPDATE' AND size(_wire.old) = size(_wire.data), {updates}, {plain}) AS _pairs",
            f"{self._error(wanted)} AS _error",
            f"{changes.moment(*_TIMES)} AS _time",
            "CAST(NULL AS STRING) AS _marks",
        )
        passed = [*others, *map(metadata_column, wanted.metadata)]
        return changes.landed_several(changed, passed, wanted, row, IGNORE)

    def _other(self, wanted: Wanted) -> str:
        """SQL of whether a message belongs to another table."""
        tests = [
            f"NOT coalesce(_wire.{field} RLIKE {spark_string(f'^(?:{wanted.options[option.name]})$')}, false)"
            for field, option in (("`database`", DATABASE), ("`table`", TABLE))
            if option.name in wanted.options
        ]
        return " OR ".join(tests) if tests else "false"

    def _error(self, wanted: Wanted) -> str:
        cases = [
            "WHEN _null THEN NULL",
            f"WHEN _broken THEN {json_text.blame([])}",
            "WHEN _wire.type IS NULL THEN 'the message is no change of Canal: it has no type'",
            f"WHEN {self._other(wanted)} THEN NULL",
            *([] if wanted.build else ["WHEN _wire.type = 'TRUNCATE' THEN 'a truncate: a probe takes no such change'"]),
            f"WHEN _wire.type NOT IN ({_ROWS}) THEN NULL",
            "WHEN _wire.data IS NULL THEN 'the message has no data'",
            "WHEN exists(_wire.data, d -> d IS NULL) THEN 'the message has a row that is null'",
            "WHEN _wire.type = 'UPDATE' AND NOT size(_wire.old) <=> size(_wire.data) "
            "THEN 'the message has not as many old rows as data'",
            *changes.no_times(self.spec, wanted, _TIMES),
            *([_NO_TYPE] if "sql-type" in wanted.metadata else []),
        ]
        return f"CASE {' '.join(cases)} END"


FORMAT = CanalFormat()
