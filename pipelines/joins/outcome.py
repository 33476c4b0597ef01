"""What becomes of a released probe row: exactly one outcome, which decides its disposition.

    matched              every build had a version for it: published
    unmatched            a build had none: quarantined, or published null-extended where the policy says so
    dropped              INNER (under the policy `publish`) or WHERE left it out: only counted
    violated             it violates a constraint of the target that keeps rows out (joins.violations): quarantined
    time-null            it has no place in event time: quarantined, whatever the policy
    discarded            a person gave up a held epoch: quarantined

WHERE may not lose an unmatched row in silence: what it says of the probe alone is tested first, the rest of it only on
rows that matched (or that are published null-extended).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pipelines.joins.query import literal
from pipelines.sql.model import Insert, Join

Disposition = Literal["publish", "quarantine", "drop"]

PREDICATE = "predicate"
BEFORE_FIRST = "before-first"
WHYS = ("key-null", "key-absent", "deleted", PREDICATE, BEFORE_FIRST)
"""Why a build gave no version: a key column is null; the key was never there; it was deleted (or its table truncated);
the chosen version fails the rest of ON; the probe's time is before the key's first version."""

MATCHED = "matched"
WHERE = "dropped:where"
DISCARDED = "discarded"
TIME_NULL = "time-null"
VIOLATED = "violated:"
"""In front of the name of the severest constraint that the row violates."""


def outcomes(insert: Insert) -> list[str]:
    """Every outcome that a row of this INSERT can have."""
    found = [MATCHED, WHERE, DISCARDED, *([TIME_NULL] if insert.time == "event" else [])]
    for join in insert.joins:
        found += [_named(kind, why, join) for kind in ("unmatched", "dropped") for why in _whys(join)]
    return [*found, *(f"{VIOLATED}{each.name}" for each in insert.constraints if each.action != "warn")]


def missed_sql(kind: Literal["unmatched", "dropped"], joins: Sequence[tuple[int, Join]]) -> str:
    """SQL: the outcome by the first of the numbered `joins` that gave no version (its `_why<number>` says why); null
    where all of them gave one.

    Every name is a constant: to put them together row by row took a seventh of a large release. The ELSE meets no row;
    without it, a reason that is missing from WHYS would pass as a match.
    """
    told = []
    for number, join in joins:
        why = f"_why{number}"
        cases = " ".join(f"WHEN {literal(name)} THEN {literal(_named(kind, name, join))}" for name in _whys(join))
        other = f"concat('{kind}:', {why}, {literal('@' + join.alias)})"
        told.append(f"IF({why} IS NULL, NULL, CASE {why} {cases} ELSE {other} END)")
    return f"coalesce({', '.join([*told, 'CAST(NULL AS STRING)'])})"


def _named(kind: Literal["unmatched", "dropped"], why: str, join: Join) -> str:
    return f"{kind}:{why}@{join.alias}"


def _whys(join: Join) -> list[str]:
    impossible = {BEFORE_FIRST} if join.time == "processing" else set()
    impossible |= {PREDICATE} if join.predicate is None else set()
    return [why for why in WHYS if why not in impossible]
