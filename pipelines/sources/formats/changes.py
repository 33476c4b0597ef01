"""Messages of a changelog become rows: what the formats that say what they do to a row have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pipelines.sources.formats import literals, shape
from pipelines.sources.formats.format import Wanted
from pipelines.sources.formats.result import fitting
from pipelines.sql.types import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CHANGE = ("_kind", "_pairs", "_error", "_time", "_marks")
"""What such a format gives. `_kind`: c r u d, -U for a row that is only taken back, t for a truncate, null where there
is no change to tell. `_pairs`: ARRAY<STRUCT<one, other>> of wire rows: `one` after the change (before it where it takes
a row away), `other` before a u, null where that is not known. `_error`: what is wrong with the message."""

_BUILD = {"c": "c", "r": "r", "u": "u", "d": "d"}
_PROBE = {"c": "+I", "r": "+I", "u": "+U", "-U": "-U", "d": "-D"}


def landed(
    changes: DataFrame, others: list[str], wanted: Wanted, row: shape.Row, ignore: str, beside: Sequence[str] = ()
) -> DataFrame:
    """DECODED of `changes`, which have `others` and CHANGE. A message is told whole, or is an error whole.

    A probe's update is two rows where the one before is known. So is a build side's where the key changes: the old row
    goes. As a build side, -U says nothing: an update is one replacement. `beside`: columns that `row` looks at.
    """
    # A build side's delete, and what was before its update, may come with the key alone.
    needed = wanted.primary_key if wanted.build else None
    values = (
        f"transform(_pairs, p -> named_struct('one', p.one, 'other', p.other, "
        f"'fields', IF(p.one IS NULL, NULL, {row.fields('p.one')}), "
        f"'before', IF({_two(wanted)}, {row.fields('p.other')}, NULL)))"
    )
    one, gone = row.error("p.one", "p.fields"), row.error("p.one", "p.fields", needed)
    before = f"IF(p.before IS NULL, NULL, {row.error('p.other', 'p.before', needed)})"
    each = f"coalesce(IF(p.one IS NULL, NULL, IF(_kind IN ('d', '-U'), {gone}, {one})), {before})"
    wrong = f"get(filter(transform(_valued, p -> {each}), e -> e IS NOT NULL), 0)"
    valued = changes.selectExpr(*others, *beside, "_kind", "_error", "_time", "_marks", f"{values} AS _valued")
    checked = valued.selectExpr(
        *others,
        "_kind",
        "_valued",
        "_time",
        "_marks",
        f"IF(_kind IS NULL, _error, coalesce(_error, {wrong})) AS _error",
    )
    rows = checked.selectExpr(*others, "_time", "_marks", f"inline({_rows(wanted)})")
    decoded = rows.selectExpr(*others, "_op", "_fields", "_error", "_sub", "_time", "_marks")
    return fitting(decoded, wanted, ignore)


def _two(wanted: Wanted) -> str:
    """SQL of whether the change `p` is two rows."""
    known = "_kind = 'u' AND p.other IS NOT NULL"
    if not wanted.build:
        return known
    moved = " OR ".join(f"NOT p.one.{quoted(name)} <=> p.other.{quoted(name)}" for name in wanted.primary_key)
    return f"{known} AND ({moved})" if moved else "false"


def _rows(wanted: Wanted) -> str:
    """SQL of the ARRAY of rows of a message."""
    none = (
        f"CAST(NULL AS STRUCT<{', '.join(f'{quoted(column.name)}: {column.spark_type}' for column in wanted.columns)}>)"
    )
    ops = _BUILD if wanted.build else _PROBE
    op = (
        f"CASE _kind {' '.join(f'WHEN {literals.text(kind)} THEN {literals.text(op)}' for kind, op in ops.items())} END"
    )
    gone, there = ("'d'", "'c'") if wanted.build else ("'-U'", "'+U'")
    pair = f"array({_row(gone, 'p.before', '2 * i')}, {_row(there, 'p.fields', '2 * i + 1')})"
    single = f"array({_row(op, 'p.fields', '2 * i')})"
    changes = f"flatten(transform(_valued, (p, i) -> IF(p.before IS NULL, {single}, {pair})))"
    return (
        f"CASE WHEN _error IS NOT NULL THEN array({_row('NULL', none, '0', error='_error')}) "
        f"WHEN _kind = 't' THEN array({_row(literals.text('t'), none, '0')}) "
        f"WHEN {op} IS NOT NULL THEN {changes} END"
    )


def _row(op: str, fields: str, sub: str, *, error: str = "NULL") -> str:
    return (
        f"named_struct('_op', CAST({op} AS STRING), '_fields', {fields}, '_error', CAST({error} AS STRING), "
        f"'_sub', {sub})"
    )


def moment(*texts: str) -> str:
    """SQL of the first of these texts that is a number of ms since 1970, as TIMESTAMP."""
    numbers = ", ".join(f"CASE WHEN {text} RLIKE {literals.text('^[0-9]{1,15}$')} THEN {text} END" for text in texts)
    return f"timestamp_millis(CAST(coalesce({numbers}) AS BIGINT))"
