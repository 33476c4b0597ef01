"""Formats whose messages are changes: what they have in common; and the simplest, `changelog-json`.

A message is one change, or several. One is the common case, and needs no higher-order function, which Spark does not
compile. `changelog-json` has a row and its op: {"data": {…}, "op": "+I"}.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidegate.pipelines.connectors.table import Column
from tidegate.pipelines.sources.formats import json_text, shape
from tidegate.pipelines.sources.formats.format import (
    FormatSpec,
    Metadata,
    Wanted,
    fitting,
    ignore_option,
    map_keys,
    member,
    metadata_column,
    other_columns,
    timestamp_option,
)
from tidegate.pipelines.syntax.types import quoted, spark_string

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_BUILD = {"c": "c", "r": "r", "u": "u", "d": "d"}
_PROBE = {"c": "+I", "r": "+I", "u": "+U", "-U": "-U", "d": "-D"}
_REST = ("_kind", "_error", "_time", "_marks")


@dataclass(frozen=True)
class Change:
    """SQL of one change: wire rows `one` (after the change; before it for a delete) and `other` (before an update, null
    if that is not known), the rows of values that they become, and the number of the change in its message."""

    wanted: Wanted
    row: shape.Row
    one: str
    other: str
    fields: str
    before: str
    number: str

    @property
    def is_two(self) -> str:
        """Whether the change is two rows: an update of a probe; for a build side one that changes the key, as the old
        row goes."""
        known = f"_kind = 'u' AND {self.other} IS NOT NULL"
        if not self.wanted.build:
            return known
        columns = [quoted(each.source_name) for each in self.wanted.columns if each.name in self.wanted.primary_key]
        moved = " OR ".join(f"NOT {self.one}.{name} <=> {self.other}.{name}" for name in columns)
        return f"{known} AND ({moved})" if moved else "false"

    @property
    def fields_value(self) -> str:
        return f"IF({self.one} IS NULL, NULL, {self.row.fields(self.one)})"

    @property
    def before_value(self) -> str:
        return f"IF({self.is_two}, {self.row.fields(self.other)}, NULL)"

    @property
    def misfit(self) -> str:
        """The sentence about what does not fit, or NULL."""
        # A build side's delete, and what was before its update, may come with the key alone.
        needed = self.wanted.primary_key if self.wanted.build else None
        gone, there = self.row.error(self.one, self.fields, needed), self.row.error(self.one, self.fields)
        before = f"IF({self.before} IS NULL, NULL, {self.row.error(self.other, self.before, needed)})"
        if needed is not None:
            there = f"IF(_kind IN ('d', '-U'), {gone}, {there})"
        return f"coalesce(IF({self.one} IS NULL, NULL, {there}), {before})"

    @property
    def rows(self) -> str:
        """The ARRAY of its rows."""
        gone, there = ("'d'", "'c'") if self.wanted.build else ("'-U'", "'+U'")
        first, second = f"2 * {self.number}", f"2 * {self.number} + 1"
        pair = f"array({_row(gone, self.before, first)}, {_row(there, self.fields, second)})"
        return f"IF({self.before} IS NULL, array({_row(_op(self.wanted), self.fields, first)}), {pair})"


def landed_one(
    changes: DataFrame, others: list[str], wanted: Wanted, row: shape.Row, ignore: str, beside: Sequence[str] = ()
) -> DataFrame:
    """DECODED of messages of one change each: they have `others`, `_kind` (c r u d, -U for a row that is only
    retracted, t for a truncate, null if there is no change), the wire rows `_one` and `_other` (see Change), `_error`
    (what is wrong with the message), `_time` and `_marks`. `beside`: columns that `row` reads.

    A message is decoded whole, or is an error whole. For a build side -U is ignored: an update is one replacement.
    """
    change = Change(wanted, row, "_one", "_other", "_fields", "_before", "0")
    values = (f"{change.fields_value} AS _fields", f"{change.before_value} AS _before")
    valued = changes.selectExpr(*others, *_REST, *beside, "_one", "_other", *values)
    return _decoded(valued, others, wanted, ignore, change.misfit, change.rows, ("_fields", "_before"))


def landed_several(changes: DataFrame, others: list[str], wanted: Wanted, row: shape.Row, ignore: str) -> DataFrame:
    """The same of messages of several changes each: `_pairs`, an ARRAY<STRUCT<one, other>>, in place of `_one` and
    `_other`."""
    change = Change(wanted, row, "p.one", "p.other", "p.fields", "p.before", "i")
    values = (
        "transform(_pairs, p -> named_struct('one', p.one, 'other', p.other, "
        f"'fields', {change.fields_value}, 'before', {change.before_value})) AS _valued"
    )
    valued = changes.selectExpr(*others, *_REST, values)
    misfit = f"get(filter(transform(_valued, p -> {change.misfit}), e -> e IS NOT NULL), 0)"
    rows = f"flatten(transform(_valued, (p, i) -> {change.rows}))"
    return _decoded(valued, others, wanted, ignore, misfit, rows, ("_valued",))


def _decoded(
    valued: DataFrame,
    others: list[str],
    wanted: Wanted,
    ignore: str,
    misfit: str,
    rows: str,
    values: Sequence[str],
) -> DataFrame:
    error = f"IF(_kind IS NULL, _error, coalesce(_error, {misfit})) AS _error"
    checked = valued.selectExpr(*others, "_kind", *values, "_time", "_marks", error)
    columns = ", ".join(f"{quoted(column.name)}: {column.spark_type}" for column in wanted.columns)
    none = f"CAST(NULL AS STRUCT<{columns}>)"
    found = (
        f"CASE WHEN _error IS NOT NULL THEN array({_row('NULL', none, '0', error='_error')}) "
        f"WHEN _kind = 't' THEN array({_row(spark_string('t'), none, '0')}) "
        f"WHEN {_op(wanted)} IS NOT NULL THEN {rows} END"
    )
    decoded = checked.selectExpr(*others, "_time", "_marks", f"inline({found})")
    return fitting(decoded.selectExpr(*others, "_op", "_fields", "_error", "_sub", "_time", "_marks"), wanted, ignore)


def _op(wanted: Wanted) -> str:
    """SQL of the op for `_kind`; NULL for one without a row."""
    ops = _BUILD if wanted.build else _PROBE
    return (
        f"CASE _kind {' '.join(f'WHEN {spark_string(kind)} THEN {spark_string(op)}' for kind, op in ops.items())} END"
    )


def _row(op: str, fields: str, sub: str, *, error: str = "NULL") -> str:
    return (
        f"named_struct('_op', CAST({op} AS STRING), '_fields', {fields}, '_error', CAST({error} AS STRING), "
        f"'_sub', {sub})"
    )


def moment(*texts: str) -> str:
    """SQL of the first of these texts that is a number of ms since 1970, as TIMESTAMP."""
    numbers = ", ".join(f"CASE WHEN length({text}) <= 15 THEN try_cast({text} AS BIGINT) END" for text in texts)
    return f"timestamp_millis(coalesce({numbers}))"


def time(text: str) -> Metadata:
    """The metadata of a time whose text this is."""
    return Metadata("TIMESTAMP_LTZ(3)", moment(text), text)


def metadata_columns(spec: FormatSpec, wanted: Wanted) -> list[str]:
    """SQL of the metadata that the table names."""
    return [f"{spec.metadata[key].sql} AS {metadata_column(key)}" for key in wanted.metadata]


def no_times(spec: FormatSpec, wanted: Wanted, times: Mapping[str, str]) -> list[str]:
    """WHENs of a CASE of errors: the message has a text for a time that is no number of ms: one that the table names,
    or one of `times` (what to call it, by its text), from which the time of the change is taken."""
    metadata = {spec.metadata[key].ms: f"metadata {key}" for key in wanted.metadata if spec.metadata[key].ms}
    cases = []
    for text, name in {**times, **metadata}.items():
        start, shown = spark_string(f"{name}: '"), json_text.plain(f"substring({text}, 1, {shape.SHOWN})")
        error = f"concat({start}, {shown}, '\\' is no time in ms')"
        cases.append(f"WHEN {text} IS NOT NULL AND {moment(text)} IS NULL THEN {error}")
    return cases


def _message(columns: Sequence[Column]) -> str:
    """The DDL of a message."""
    return f"STRUCT<data {shape.wire_row(columns)}, op STRING>"


IGNORE = "changelog-json.ignore-parse-errors"
STANDARD = timestamp_option("changelog-json.timestamp-format.standard")


class ChangelogFormat:
    """`'format' = 'changelog-json'`."""

    spec = FormatSpec(
        "changelog-json",
        (ignore_option(IGNORE), STANDARD),
        'A message is a JSON object {"data": row, "op": "+I"}, where op is one of +I -U +U -D.',
        changelog=True,
        rows=lambda message: [member(message, "data")],
    )

    def check(self, wanted: Wanted) -> Sequence[str]:
        return map_keys(wanted.columns)

    def decode(self, messages: DataFrame, wanted: Wanted) -> DataFrame:
        others = other_columns(messages)
        leaf = json_text.leaf(wanted.option(STANDARD))
        row = shape.Row(wanted.columns, lambda column: leaf, json_text.shown)
        wire = shape.wire_row(wanted.columns)
        parsed = json_text.parsed(messages, _message(wanted.columns))
        blame = json_text.blame(json_text.suspects(wanted.columns, _message))
        error = (
            f"CASE WHEN _null THEN NULL WHEN _broken THEN {blame} "
            "WHEN _wire.op IS NULL THEN 'the message has no op' "
            "WHEN _wire.op NOT IN ('+I', '-U', '+U', '-D') THEN concat(\"there is no op '\", _wire.op, \"'\") "
            "WHEN _wire.data IS NULL THEN 'the message has no data' END AS _error"
        )
        kind = "CASE _wire.op WHEN '+I' THEN 'c' WHEN '+U' THEN 'u' WHEN '-U' THEN '-U' WHEN '-D' THEN 'd' END AS _kind"
        pair = ("_wire.data AS _one", f"CAST(NULL AS {wire}) AS _other")
        none = ("CAST(NULL AS TIMESTAMP) AS _time", "CAST(NULL AS STRING) AS _marks")
        return landed_one(parsed.selectExpr(*others, kind, *pair, error, *none), others, wanted, row, IGNORE)


FORMAT = ChangelogFormat()
