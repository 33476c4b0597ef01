"""Which constraints of the target a row violates, found while the row is staged.

Only a row that would be published is asked. `_violated` holds a bit for every constraint, the severest in the highest
place: a row whose `_violated` reaches the bit of the last one that keeps rows out can not be published, and the footer
of a staged file shows whether there is any (its maximum), without the file being read.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegate.pipelines.joins.outcome import VIOLATED, Outcomes
from tidegate.pipelines.joins.query import Query
from tidegate.pipelines.sql.model import Constraint, Insert

MASK = "_violated"


def bits(constraints: Sequence[Constraint]) -> dict[str, int]:
    """Name -> bit, of constraints that come the severest first."""
    return {each.name: 1 << place for each, place in zip(constraints, reversed(range(len(constraints))), strict=True)}


def kept_out_from(constraints: Sequence[Constraint]) -> int:
    """The least mask that keeps a row out of the target; one that no row reaches where no constraint does."""
    return 1 << sum(each.action == "warn" for each in constraints)


def ask(query: Query, insert: Insert, published: str) -> None:
    """Add what the constraints say of each row that has an outcome and the target's columns: the mask, and the outcome
    with that in mind. `published`: SQL, whether a row would be."""
    known, bit = Outcomes(insert), bits(insert.constraints)
    same = {name: name for name in query.columns}
    # NOT NULL is NULL, and IF takes that for false: no violation.
    mask = " + ".join(f"IF(NOT {each.condition}, {bit[each.name]}L, 0L)" for each in insert.constraints)
    query.step("asked", {**same, MASK: f"IF({published}, {mask}, 0L)"})
    kept_out = [each for each in insert.constraints if each.action != "warn"]
    if kept_out:
        # The highest bit that is set is that of the severest constraint.
        cases = [f"WHEN {MASK} >= {bit[each.name]}L THEN {known.number(VIOLATED + each.name)}" for each in kept_out]
        query.step("told", {**same, MASK: MASK, "_outcome": f"CASE {' '.join(cases)} ELSE _outcome END"})
