"""Which constraints of the target a row violates, found while the row is staged.

Only a row that would be published is asked. `_violated` holds a bit for every constraint, the severest in the highest
place: a row whose `_violated` reaches the bit of the last one that keeps rows out can not be published, and the footer
of a staged file shows whether there is any (its maximum), without the file being read.
"""

from __future__ import annotations

from collections.abc import Sequence

from pipelines.joins.outcome import VIOLATED, Outcomes
from pipelines.joins.query import Query, aliased
from pipelines.lake.rows import quoted
from pipelines.sql.model import Constraint, Insert

MASK = "_violated"


def bits(constraints: Sequence[Constraint]) -> dict[str, int]:
    """Name -> bit, of constraints that come the severest first."""
    return {each.name: 1 << place for each, place in zip(constraints, reversed(range(len(constraints))), strict=True)}


def kept_out_from(constraints: Sequence[Constraint]) -> int:
    """The least mask that keeps a row out of the target; one that no row reaches where no constraint does."""
    return 1 << sum(each.action == "warn" for each in constraints)


def ask(query: Query, insert: Insert, published: str) -> None:
    """Add what the constraints say of each row that has an outcome: the target's columns and the mask, and the outcome
    with that in mind. The columns of the tables are gone then. `published`: SQL, whether a row would be."""
    known = Outcomes(insert)
    own = [name for name in query.columns if name.startswith("_")]
    projected = {
        # What is dropped is only counted: an expression that fails on such a row fails nothing.
        quoted(item.name): f"CASE WHEN NOT {known.dropped_sql()} THEN {item.expression} END"
        for item in insert.projections
    }
    query.select("projected", {**projected, "_instant": "_instant"}, keep=own)
    query.scope.clear()
    bit, columns = bits(insert.constraints), [*own, *projected]
    # NOT NULL is NULL, and IF takes that for false: no violation.
    mask = " + ".join(f"IF(NOT {each.condition}, {bit[each.name]}L, 0L)" for each in insert.constraints)
    asked = f"IF({published}, {mask}, 0L) AS {MASK}"
    query.step("asked", f"SELECT {', '.join(columns)}, {asked} FROM {query.last}", [*columns, MASK])
    kept_out = [each for each in insert.constraints if each.action != "warn"]
    if not kept_out:
        return
    # The highest bit that is set is that of the severest constraint.
    cases = [f"WHEN {MASK} >= {bit[each.name]}L THEN {known.number(VIOLATED + each.name)}" for each in kept_out]
    told = {name: name for name in query.columns} | {"_outcome": f"CASE {' '.join(cases)} ELSE _outcome END"}
    query.step("told", f"SELECT {aliased(told)} FROM {query.last}", list(told))
