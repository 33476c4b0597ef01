"""The constraints' part of a recomputation: each condition by itself, on the columns that a row has in the target."""

from __future__ import annotations

from collections.abc import Sequence

from tidegate.pipelines.connectors.table import Constraint, Table
from tidegate.pipelines.lake.rows import quoted
from tidegate.pipelines.sql.model import Insert

VIOLATION = "violation"
"""The place of a row that only counts: one for every constraint that a row violates, its name as the reason."""


def constrained(insert: Insert, target: Table, before: str, also: Sequence[str]) -> dict[str, str]:
    """Steps over the rows of `before`, which have a `_place` and an `_outcome`; the last one is `_constrained`.

    They put the target's columns in place of the tables' structs, send a row that violates FAIL or QUARANTINE to the
    quarantine, and add the rows of the place VIOLATION. The columns `also` go along.
    """
    written = {item.name: item.expression for item in insert.projections}
    names = [column.name for column in target.stored_columns]
    columns = [f"CASE WHEN _place <> 'drop' THEN {written[name]} END AS {quoted(name)}" for name in names]
    blank = [f"CASE WHEN _told = '' THEN {quoted(name)} END AS {quoted(name)}" for name in names]
    own = ["_op", "_in_generation", "_in_epoch", "_probe_epoch", "_split", "_offset", *also]
    broken = [f"CASE WHEN {_broken(each)} THEN '{each.name}' END" for each in insert.constraints]
    kept_out = [
        f"WHEN {_broken(each)} THEN 'violated:{each.name}'" for each in insert.constraints if each.action != "warn"
    ]
    return {
        "_written": f"SELECT {', '.join([*columns, *own])}, _place, _outcome, _instant FROM {before}",
        "_asked": (
            f"SELECT *, IF(_place = 'publish', array_compact(array({', '.join(broken)})), array()) AS _broken, "
            f"CASE WHEN _place <> 'publish' THEN NULL {' '.join(kept_out)} END AS _kept_out FROM _written"
        ),
        "_told": "SELECT *, explode(concat(array(''), _broken)) AS _told FROM _asked",
        "_constrained": (
            f"SELECT {', '.join([*blank, *own])}, CASE WHEN _told <> '' THEN '{VIOLATION}' "
            "WHEN _kept_out IS NOT NULL THEN 'quarantine' ELSE _place END AS _place, "
            "CASE WHEN _told <> '' THEN _told ELSE coalesce(_kept_out, _outcome) END AS _outcome FROM _told"
        ),
    }


def _broken(constraint: Constraint) -> str:
    return f"coalesce({constraint.condition}, true) = false"
