"""The event-time part of a recomputation: when a row was due, and which version it met, as plain window SQL.

Each pin that a plan names has a timeline of its own for every key that was asked for: the build's rows as of that pin
and the probe's, in the order of their times; what a probe row meets is the last build row before it.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pyarrow as pa

from tidegate.pipelines.runtime.epochs import ReleasePlan
from tidegate.pipelines.sql.model import Join
from tidegate.pipelines.syntax.types import quoted
from tidegate.pipelines.watermarks import MAX_TIMESTAMP, MIN_TIMESTAMP

_IN_AREA = (
    "_p._epoch > a.after AND _p._epoch <= a.upto AND "
    "((a.nulls AND _p._rowtime IS NULL) OR (unix_micros(_p._rowtime) > a.low AND unix_micros(_p._rowtime) <= a.high))"
)
_IN_ANY = f"exists({{areas}}, a -> coalesce({_IN_AREA}, false))"
_IS_NEW = (
    "(_p._epoch > _r._after AND _p._epoch <= _r._upto AND (_p._rowtime IS NULL OR unix_micros(_p._rowtime) <= _r._to)) "
    "OR (_p._epoch <= _r._after AND unix_micros(_p._rowtime) > _r._from AND unix_micros(_p._rowtime) <= _r._to)"
)
IS_DUE = (
    f"((_r._line AND ({_IS_NEW}) AND NOT {_IN_ANY.format(areas='_r._ahead')}) OR "
    f"exists(_r._parts, t -> {_IN_ANY.format(areas='t.areas')} AND NOT {_IN_ANY.format(areas='t.without')}))"
)
"""Whether a release `_r` takes the landed row `_p`."""


_AREA = pa.struct([*((name, pa.int64()) for name in ("after", "upto", "low", "high")), pa.field("nulls", pa.bool_())])
SPAN = pa.schema(
    [
        ("_line", pa.bool_()),
        *((name, pa.int64()) for name in ("_after", "_upto", "_from", "_to")),
        ("_ahead", pa.list_(_AREA)),
        ("_parts", pa.list_(pa.struct([("areas", pa.list_(_AREA)), ("without", pa.list_(_AREA))]))),
    ]
)
"""What IS_DUE knows of a plan. `_line`: it goes on where the watermark stood; otherwise it takes `_parts`, whole areas
of the landed rows. Times in us."""


def span(plan: ReleasePlan) -> dict[str, Any]:
    """A row of SPAN."""
    bounds = {"_after": plan.after, "_upto": plan.upto}
    times = {"_from": plan.before, "_to": plan.watermark}
    return {
        "_line": plan.follows,
        **bounds,
        **{name: max(MIN_TIMESTAMP, min(ms * 1000, MAX_TIMESTAMP)) for name, ms in times.items()},
        "_ahead": [asdict(area) for area in plan.ahead],
        "_parts": [] if plan.follows else [asdict(part) for part in plan.parts],
    }


def met_in_time(join: Join, number: int, row: str, changelog: str, releases: str, before: str) -> dict[str, str]:
    """Steps that add the version of one build that each row of `before` meets by its `_time`.

    Args:
        row: The build's columns as a struct of the changelog's.
        changelog, releases: Relations: all rows of the build, and the plans with their pins.
    """
    alias, why = quoted(join.alias), f"_why{number}"
    pin = (f"_pin{number}_generation", f"_pin{number}_epoch")
    keys = [key.column for key in join.keys]
    names = [f"_key{number}_{index}" for index in range(len(keys))]
    probed = ", ".join(f"{key.probe} AS {name}" for key, name in zip(join.keys, names, strict=True))
    equal = " AND ".join(f"_p.{name} = _c.{quoted(key)}" for name, key in zip(names, keys, strict=True))
    group = ", ".join([*pin, *names])
    of_pair = ", ".join(f"_p.{name}" for name in [*pin, *names])
    no_key = " OR ".join(f"{name} IS NULL" for name in names)
    lane = f"PARTITION BY {group}"
    gone = (
        "_met._op = 'd' OR exists(_truncates, t -> unix_micros(t._rowtime) <= _probe._time "
        "AND t > struct(_met._rowtime, _met._seq))"
    )
    return {
        f"_keyed{number}": f"SELECT *, {probed} FROM {before}",
        f"_asked{number}": f"SELECT DISTINCT {group} FROM _keyed{number}",
        f"_line{number}": (
            f"SELECT {of_pair}, unix_micros(_c._rowtime) AS _at, 0 AS _side, _c._seq, "
            f"struct(_c._rowtime, _c._seq, _c._op, _c._epoch, {row} AS _row) AS _version, NULL AS _probe "
            f"FROM _asked{number} _p JOIN {changelog} _c ON {equal} AND _c._generation = _p.{pin[0]} "
            f"AND _c._epoch <= _p.{pin[1]} WHERE _c._op <> 't' AND _c._rowtime IS NOT NULL "
            f"UNION ALL SELECT {group}, _time, 1, NULL, NULL, struct(_k.*) FROM _keyed{number} _k"
        ),
        f"_met{number}": (
            f"SELECT {group}, _probe, count(_version) OVER ({lane}) AS _versions, "
            f"last_value(_version) IGNORE NULLS OVER ({lane} ORDER BY _at, _side, _seq "
            f"ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS _met FROM _line{number}"
        ),
        f"_truncates{number}": (
            f"SELECT _r.{pin[0]}, _r.{pin[1]}, collect_list(IF(_c._op IS NULL, NULL, struct(_c._rowtime, _c._seq))) "
            f"AS _truncates FROM (SELECT DISTINCT {pin[0]}, {pin[1]} FROM {releases}) _r LEFT JOIN {changelog} _c "
            f"ON _c._op = 't' AND _c._rowtime IS NOT NULL AND _c._generation = _r.{pin[0]} "
            f"AND _c._epoch <= _r.{pin[1]} GROUP BY _r.{pin[0]}, _r.{pin[1]}"
        ),
        f"_why_{number}": (
            f"SELECT _probe, _met, CASE WHEN {no_key} THEN 'key-null' WHEN _versions = 0 THEN 'key-absent' "
            f"WHEN _probe._time < _probe._pin{number}_horizon THEN 'beyond-retention' "
            f"WHEN _met IS NULL THEN 'before-first' WHEN {gone} THEN 'deleted' END AS {why} "
            f"FROM _met{number} JOIN _truncates{number} USING ({pin[0]}, {pin[1]}) WHERE _probe IS NOT NULL"
        ),
        f"_found{number}": (
            f"SELECT _probe.*, _met._epoch AS _epoch{number}, _met._seq AS _seq{number}, "
            f"IF({why} IS NULL, _met._row, NULL) AS {alias}, {why} FROM _why_{number}"
        ),
    }
