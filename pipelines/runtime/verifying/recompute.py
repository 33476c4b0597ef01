"""The rows that published epochs must have, as plain window SQL over the changelog. Shares no code with the join that
made them.

One statement computes all epochs of a batch. For each build, the latest row of a key by `_seq` is found as of the end
of every epoch that changed the key (a running maximum), so a probe row finds its version by key and by the epoch that
its plan pins. A table's columns are in a struct named by its alias, as the script's expressions name them.

In event time, each key has a timeline of its own for each pin: the build's rows as of that pin and the probe's rows, in
the order of their times. A probe row meets the last build row before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import pyarrow as pa

from tidegate.pipelines.connectors.table import Constraint, Table
from tidegate.pipelines.functions import PREFIX, all_of, called_where
from tidegate.pipelines.lake.ordinals import first_place, place_of, without_ordinals
from tidegate.pipelines.runtime.epochs import ReleasePlan, Taken
from tidegate.pipelines.sql.model import Insert, Join
from tidegate.pipelines.sql.tree import Elements
from tidegate.pipelines.syntax.types import quoted, spark_string
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
RELEASABLE = (
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
"""The columns of a plan that RELEASABLE needs. `_line`: the plan goes on from the last watermark; otherwise it takes
`_parts`, areas of the landed rows. Times in us."""


def span(plan: ReleasePlan, own: Taken) -> dict[str, Any]:
    """A row of SPAN, of what a plan takes from one table."""
    bounds = {"_after": own.after, "_upto": own.upto}
    times = {"_from": plan.before, "_to": plan.watermark}
    return {
        "_line": not plan.looks_back,
        **bounds,
        **{name: max(MIN_TIMESTAMP, min(ms * 1000, MAX_TIMESTAMP)) for name, ms in times.items()},
        "_ahead": [asdict(area) for area in own.ahead],
        "_parts": [asdict(part) for part in own.parts] if plan.looks_back else [],
    }


def met_in_time(join: Join, number: int, row: str, changelog: str, pins: str, before: str) -> dict[str, str]:
    """Steps that add the version of one build that each row of `before` meets by its `_time`. Each names the one before
    it once: what a plan names twice Spark analyses and reads twice, so that each join would double the plan.

    A key's rows have a lane for each pin at which one of its probe rows asks; a version is in those that see its epoch.

    Args:
        row: The build's columns as a struct of the changelog's.
        changelog, pins: Relations: all rows of the build, and the plans' pins of it (see `pin_rows`).
    """
    alias, why = quoted(join.alias), f"_why{number}"
    pin = (f"_pin{number}_generation", f"_pin{number}_epoch")
    names = [f"_key{number}_{index}" for index in range(len(join.keys))]
    probed = ", ".join(f"{key.probe} AS {name}" for key, name in zip(join.keys, names, strict=True))
    keyed = ", ".join(f"{quoted(key.column)} AS {name}" for key, name in zip(join.keys, names, strict=True))
    of_key, of_pin = ", ".join([pin[0], *names]), ", ".join([*pin, *names])
    no_key = " OR ".join(f"{name} IS NULL" for name in names)
    lane = f"PARTITION BY {of_pin}"
    gone = (
        "_met._op = 'd' OR exists(_truncates, t -> unix_micros(t._rowtime) <= _probe._time "
        "AND t > struct(_met._rowtime, _met._seq))"
    )
    return {
        f"_keyed{number}": f"SELECT *, {probed} FROM {before}",
        f"_line{number}": (
            f"SELECT _c._generation AS {pin[0]}, {keyed}, unix_micros(_c._rowtime) AS _at, 0 AS _side, _c._seq, "
            f"struct(_c._rowtime, _c._seq, _c._op, _c._epoch, {row} AS _row) AS _version, NULL AS _probe "
            f"FROM {changelog} _c WHERE _c._op <> 't' AND _c._rowtime IS NOT NULL "
            f"UNION ALL SELECT {of_key}, _time, 1, NULL, NULL, struct(_k.*) FROM _keyed{number} _k"
        ),
        f"_asked{number}": (
            f"SELECT *, collect_set(_probe.{pin[1]}) OVER (PARTITION BY {of_key}) AS _pins FROM _line{number}"
        ),
        f"_lanes{number}": (
            f"SELECT * EXCEPT (_pins), explode(IF(_probe IS NULL, filter(_pins, pin -> pin >= _version._epoch), "
            f"array(_probe.{pin[1]}))) AS {pin[1]} FROM _asked{number}"
        ),
        f"_met{number}": (
            f"SELECT {of_pin}, _probe, count(_version) OVER ({lane}) AS _versions, "
            f"last_value(_version) IGNORE NULLS OVER ({lane} ORDER BY _at, _side, _seq "
            f"ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS _met FROM _lanes{number}"
        ),
        f"_truncates{number}": (
            f"SELECT _r.{pin[0]}, _r.{pin[1]}, collect_list(IF(_c._op IS NULL, NULL, struct(_c._rowtime, _c._seq))) "
            f"AS _truncates FROM {pins} _r LEFT JOIN {changelog} _c "
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


VIOLATION = "violation"
"""The place of a row that is only counted: one for every constraint that a row violates, with its name as the
reason."""


def constrained(
    insert: Insert, target: Table, columns: Sequence[str], before: str, also: Sequence[str]
) -> dict[str, str]:
    """Steps over the rows of `before`, which have a `_place` and an `_outcome`; the last step is `_constrained`. They
    compute the target's `columns` from the tables' structs, send a row that violates FAIL or QUARANTINE to the
    quarantine, and add the rows of the place VIOLATION. The columns `also` are passed on."""
    names = [quoted(column.name) for column in target.stored_columns]
    blank = [f"CASE WHEN _violated = '' THEN {name} END AS {name}" for name in names]
    own = ["_op", "_in_generation", "_in_epoch", "_probe_epoch", "_split", "_offset", *also]
    broken = [f"CASE WHEN {_broken(each)} THEN '{each.name}' END" for each in insert.constraints]
    quarantined = [
        f"WHEN {_broken(each)} THEN 'violated:{each.name}'" for each in insert.constraints if each.action != "warn"
    ]
    return {
        "_written": f"SELECT {', '.join([*columns, *own])}, _place, _outcome, _instant FROM {before}",
        "_asked": (
            f"SELECT *, IF(_place = 'publish', array_compact(array({', '.join(broken)})), array()) AS _broken, "
            f"CASE WHEN _place <> 'publish' THEN NULL {' '.join(quarantined)} END AS _kept_out FROM _written"
        ),
        "_violated": "SELECT *, explode(concat(array(''), _broken)) AS _violated FROM _asked",
        "_constrained": (
            f"SELECT {', '.join([*blank, *own])}, CASE WHEN _violated <> '' THEN '{VIOLATION}' "
            "WHEN _kept_out IS NOT NULL THEN 'quarantine' ELSE _place END AS _place, "
            "CASE WHEN _violated <> '' THEN _violated ELSE coalesce(_kept_out, _outcome) END AS _outcome FROM _violated"
        ),
    }


def _broken(constraint: Constraint) -> str:
    return f"coalesce({constraint.condition}, true) = false"


FOREVER = 2**62

LEFT_OUT = "_found LIKE 'dropped:%'"
DISPOSITION = (
    f"CASE WHEN {LEFT_OUT} THEN 'drop' WHEN _discard OR _outcome = 'time-null' THEN 'quarantine' "
    "WHEN _outcome LIKE 'unmatched:%' AND _policy <> 'publish' THEN 'quarantine' ELSE 'publish' END"
)


@dataclass(frozen=True)
class Views:
    """Names of temporary views: the releases (see `release_rows`), the landed rows of each branch (without UNION ALL of
    the probe), the changelog of each join and its pins (see `pin_rows`), the quarantine and the lots (see `lot_rows`)
    that releases have taken out of it."""

    releases: str
    probes: Sequence[str]
    changelogs: Sequence[str]
    pins: Sequence[str]
    quarantine: str
    lots: str


def release_rows(insert: Insert, plans: Sequence[ReleasePlan]) -> pa.Table:
    """One row per epoch of a branch that a plan releases: which epoch of the INSERT it is in, when, and at which pins.

    In event time one row a plan and branch, with the times between which a row was releasable.
    """
    rows = []
    for plan, number, own in [(each, *taken) for each in plans for taken in enumerate(each.takes)]:
        pins = {pin.table: pin for pin in plan.pins}
        row = {
            "_branch": number,
            "_landed_generation": own.generation,
            "_in_generation": plan.generation,
            "_in_epoch": plan.epoch,
            "_ms": plan.instant,
            "_policy": plan.on_unmatched,
            "_discard": plan.kind == "discard",
        }
        for place, join in enumerate(insert.joins):
            row[f"_pin{place}_generation"] = pins[join.build].generation
            row[f"_pin{place}_epoch"] = pins[join.build].epoch
            if plan.bounds:
                horizon = pins[join.build].horizon_us
                row[f"_pin{place}_horizon"] = MIN_TIMESTAMP if horizon is None else horizon
        if plan.bounds:
            rows.append({**row, **span(plan, own)})
            continue
        landed = [None] if plan.looks_back else list(range(own.after + 1, own.upto + 1))
        rows += [{**row, "_landed_epoch": epoch} for epoch in landed]
    table = pa.Table.from_pylist([{name: row[name] for name in row if name not in SPAN.names} for row in rows])
    if "_landed_epoch" in table.column_names:  # of nothing but looks back no number is known
        place = table.column_names.index("_landed_epoch")
        table = table.set_column(place, "_landed_epoch", table["_landed_epoch"].cast(pa.int64()))
    for column in SPAN if insert.time == "event" else ():
        table = table.append_column(column, pa.array([row[column.name] for row in rows], column.type))
    return table


def pin_rows(join: Join, number: int, plans: Sequence[ReleasePlan]) -> pa.Table:
    """Each (generation, epoch) of a join's changelog that a plan pins, once."""
    pins = sorted({(pin.generation, pin.epoch) for plan in plans for pin in plan.pins if pin.table == join.build})
    columns = zip(*pins, strict=True)
    return pa.table(
        {
            f"_pin{number}_{name}": pa.array(column, pa.int64())
            for name, column in zip(("generation", "epoch"), columns, strict=True)
        }
    )


def lot_rows(plans: Sequence[ReleasePlan]) -> pa.Table:
    """One row per lot that a plan joins again: the epoch of the INSERT that takes it, and which rows it is."""
    numbers = ("_in_generation", "_in_epoch", "first", "last")
    rows = [
        {**dict(zip(numbers, (plan.generation, plan.epoch, lot.first, lot.last), strict=True)), "reason": lot.reason}
        for plan in plans
        for lot in plan.joined
    ]
    return pa.Table.from_pylist(rows, pa.schema([*((name, pa.int64()) for name in numbers), ("reason", pa.string())]))


def recompute_sql(
    insert: Insert, target: Table, tables: Mapping[str, Table], plans: Sequence[ReleasePlan], views: Views
) -> str:
    """Every row that `plans` release, with its place (publish, quarantine, drop): the columns of `compared`. Where the
    target has constraints, also a row of the place VIOLATION for each that a row violates."""
    again = any(plan.joined for plan in plans)
    steps = _united(insert, tables, views, again) if insert.branches else {}
    steps = steps or {"_landed": _landed(insert.probe_alias, tables[insert.probe], insert, views, again)}
    last = "_landed"
    for number, join in enumerate(insert.joins):
        pins = [pin.epoch for plan in plans for pin in plan.pins if pin.table == join.build]
        steps |= _matched(_guarded(insert, join), number, tables[join.build], views, last, min(pins), max(pins))
        last = f"_chosen{number}"
    steps["_joined"] = f"SELECT *, {_outcome(insert)} AS _found FROM {last}"
    steps["_outcomes"] = f"SELECT *, IF(_discard AND NOT {LEFT_OUT}, 'discarded', _found) AS _outcome FROM _joined"
    steps["_places"] = f"SELECT *, {DISPOSITION} AS _place FROM _outcomes"
    projected = {item.name: item.expression for item in insert.projections}
    kept = "_place <> 'drop'"
    # What is dropped has no row anywhere: its expressions are not evaluated, only its reason is counted.
    columns = [
        f"CASE WHEN {kept} THEN {called_where(kept, projected[column.name])} END AS {quoted(column.name)}"
        for column in target.stored_columns
    ]
    last = "_places"
    if insert.constraints:
        steps |= constrained(insert, target, columns, last, [column for pair in _met(insert) for column in pair])
        columns, last = [quoted(column.name) for column in target.stored_columns], "_constrained"
    marks = [
        "_place",
        *columns,
        f"CASE WHEN _place NOT IN ('drop', '{VIOLATION}') THEN _op END AS _op",
        "CAST(_in_generation AS INT) AS _generation",
        "_in_epoch AS _epoch",
        *(
            f"CASE WHEN _place = 'quarantine' THEN {name} END AS {name}"
            for name in ("_probe_epoch", "_split", "_offset")
        ),
        *_proved(insert),
    ]
    ordered = ",\n".join(f"{name} AS (\n  {text}\n)" for name, text in steps.items())
    return f"WITH {ordered}\nSELECT {', '.join(marks)} FROM {last}"


def compared(target: Table, insert: Insert) -> list[str]:
    """The columns that are compared, quoted; those of the lake's own after the target's."""
    own = [quoted(column.name) for column in target.stored_columns]
    marks = ["_op", "_generation", "_epoch", "_probe_epoch", "_split", "_offset", "_reason"]
    return ["_place", *own, *marks, *proof_names(insert)]


def proof_names(insert: Insert) -> list[str]:
    """The columns of the target that only a match proof has, quoted."""
    return [*(quoted(name) for pair in insert.proofs for name in pair), "_matched"] if insert.proof else []


def _met(insert: Insert) -> list[tuple[str, str, str]]:
    """For each join the parts of its proof: the version's epoch, its seq, and why there is no match."""
    return [(f"_epoch{number}", f"_seq{number}", f"_why{number}") for number in range(len(insert.joins))]


def _proved(insert: Insert) -> list[str]:
    """The reason of a row, and the proof of a published one."""
    if not insert.proof:
        return ["CASE WHEN _place <> 'publish' THEN _outcome END AS _reason"]
    found = []
    for (epoch, seq, why), names in zip(_met(insert), insert.proofs, strict=True):
        met = f"_place = 'publish' AND {why} IS NULL"
        found += [
            f"CASE WHEN {met} THEN {value} END AS {quoted(name)}"
            for value, name in zip((epoch, seq), names, strict=True)
        ]
    matched = " AND ".join(f"{why} IS NULL" for _, _, why in _met(insert)) or "true"
    return [
        "CASE WHEN _place <> 'publish' OR _outcome <> 'matched' THEN _outcome END AS _reason",
        *found,
        f"CASE WHEN _place = 'publish' THEN {matched} END AS _matched",
    ]


def _united(insert: Insert, tables: Mapping[str, Table], views: Views, again: bool) -> dict[str, str]:
    """Steps up to `_landed`, of a UNION ALL: each branch through its queries, as a struct of the union's columns."""
    steps, ends, united = dict[str, str](), list[str](), insert.united
    assert united is not None
    for number, branch in enumerate(insert.branches):
        aliases = [*(step.alias for step in branch.steps), insert.probe_alias]
        landed = _landed(aliases[0], tables[branch.table], insert, views, again, number)
        last = f"_landed{number}"
        steps[last] = f"SELECT *, true AS _in FROM ({landed})"
        for place, step in enumerate(branch.steps):
            before, last = last, f"_step{number}_{place}"
            own = quoted(aliases[place])
            kept = called_where("_in", step.kept or "true")
            steps[f"{last}_in"] = f"SELECT * EXCEPT (_in), _in AND coalesce(({kept}), false) AS _in FROM {before}"
            if (of := step.elements) is not None:
                steps |= _unnested(of, last)
            types = {column.name: column.spark_type for column in united.stored_columns if step is branch.steps[-1]}
            guarded = [(name, f"CASE WHEN _in THEN {sql} END") for name, sql in step.columns]
            fields = [
                (name, f"CAST({text} AS {types[name]})" if name in types else text)
                for name, text in ((name, called_where("_in", sql)) for name, sql in guarded)
            ]
            fields += [(name, "_in") for name in types if name not in dict(fields)]
            made = ", ".join(f"{spark_string(name)}, {text}" for name, text in fields)
            own = ", ".join([own, *(["_position", *of.names] if of else [])])
            end = f"{last}_of" if of else f"{last}_in"
            steps[last] = f"SELECT named_struct({made}) AS {quoted(aliases[place + 1])}, * EXCEPT ({own}) FROM {end}"
        first = [quoted(aliases[-1]), "_split", "_offset"]
        wanted = " WHERE _wanted IS NULL OR array_contains(_wanted, _offset)" if branch.unnests else ""
        ends.append(
            f"SELECT {', '.join(first)}, * EXCEPT ({', '.join([*first, '_in', *(['_wanted'] if wanted else [])])}) "
            f"FROM {last}{wanted}"
        )
    entered = {
        alias: ", ".join(
            f"{spark_string(each.column)}, {quoted(insert.probe_alias)}.{quoted(each.stored)}"
            for each in insert.entries
            if each.alias == alias
        )
        for alias in dict.fromkeys(each.alias for each in insert.entries)
    }
    structs = [f"named_struct({fields}) AS {quoted(alias)}" for alias, fields in entered.items()]
    return {
        **steps,
        "_united": " UNION ALL ".join(ends),
        "_landed": f"SELECT {', '.join(['*', *structs])} FROM _united",
    }


def _unnested(of: Elements, last: str) -> dict[str, str]:
    """The steps from `<last>_in` to `<last>_of`: a row for each element, with a place of its own."""
    inside = "_now" if of.outer else "_now AND _position IS NOT NULL"
    place = ", ".join(
        f"{text} AS {name}" for name, text in place_of("_split", "_offset", "coalesce(_position, 0)").items()
    )
    return {
        f"{last}_each": f"SELECT *, {called_where('_now', of.exploded)} FROM (SELECT *, _in AS _now FROM {last}_in)",
        f"{last}_of": f"SELECT * EXCEPT (_in, _now, _split, _offset), {inside} AS _in, {place} FROM {last}_each",
    }


def _landed(alias: str, probe: Table, insert: Insert, views: Views, again: bool, number: int = 0) -> str:
    """The landed rows of a branch that each release takes; with `again`, also those that some of them take out of
    quarantine."""
    released = "_p._epoch = _r._landed_epoch" if insert.time == "processing" else RELEASABLE
    begin = insert.splits_of(number)
    split = f"concat({spark_string(begin)}, _p._split)" if begin else "_p._split"
    unnests = insert.branches[number].unnests if insert.branches else 0
    landed = (
        f"SELECT /*+ BROADCAST(_r) */ {_struct(probe, '_p')} AS {quoted(alias)}, _p._op, "
        f"_p._epoch AS _probe_epoch, {split} AS _split, _p._offset, unix_micros(_p._rowtime) AS _time, _r.*, "
        f"timestamp_millis(_r._ms) AS _instant{', CAST(NULL AS ARRAY<BIGINT>) AS _wanted' if unnests else ''} "
        f"FROM {views.probes[number]} _p JOIN {views.releases} _r "
        f"ON _r._branch = {number} AND _p._generation = _r._landed_generation AND ({released})"
    )
    return f"{landed} UNION ALL {_landed_again(probe, views, split, number, unnests)}" if again else landed


def _landed_again(probe: Table, views: Views, split: str, number: int, unnests: int) -> str:
    """SQL of the landed rows that a release out of quarantine took: a quarantined row names its landed row, or one of
    the elements of it (`_wanted`) after so many UNNEST."""
    own = ["_q._probe_epoch", "_q._op", "_q._split", "_q._offset", "_l._in_generation", "_l._in_epoch"]
    wanted, group = "", ""
    if unnests:
        whole = without_ordinals("_q._offset", unnests)
        wanted, group = ", collect_set(_q._offset) AS _wanted", f" GROUP BY {', '.join([*own[:3], whole, *own[4:]])}"
        own[3] = f"{whole} AS _offset"
    taken = (
        f"SELECT {'' if unnests else 'DISTINCT '}{', '.join(own)}{wanted} "
        f"FROM {views.quarantine} _q JOIN {views.lots} _l ON _q._generation = _l._in_generation "
        f"AND _q._reason = _l.reason AND _q._epoch BETWEEN _l.first AND _l.last{group}"
    )
    also = "_wanted" if unnests else ""
    placed = (
        f"SELECT _t._probe_epoch, _t._op, _t._split, _t._offset, {also and f'_t.{also}, '}_o.* "
        f"FROM ({taken}) _t JOIN {views.releases} _o "
        f"ON _o._in_epoch = _t._in_epoch AND _o._in_generation = _t._in_generation AND _o._branch = {number}"
    )
    at_split, at_offset = first_place(split, "_p._offset", unnests)
    return (
        f"SELECT {_struct(probe, '_p')}, _p._op, _p._epoch, {split}, _p._offset, unix_micros(_p._rowtime), "
        f"_r.* EXCEPT (_probe_epoch, _op, _split, _offset{also and f', {also}'}), "
        f"timestamp_millis(_r._ms){also and f', _r.{also}'} "
        f"FROM {views.probes[number]} _p JOIN ({placed}) _r ON _p._generation = _r._landed_generation "
        f"AND _p._epoch = _r._probe_epoch AND _p._op = _r._op AND {at_split} = _r._split AND {at_offset} = _r._offset"
    )


def _matched(
    join: Join, number: int, build: Table, views: Views, before: str, least: int, greatest: int
) -> dict[str, str]:
    """Steps that add the version of one build: `alias` (a struct, null without a match) and `_why<number>`."""
    changelog, alias, why = views.changelogs[number], quoted(join.alias), f"_why{number}"
    if join.time == "event":
        steps = met_in_time(join, number, _struct(build, "_c"), changelog, views.pins[number], before)
    else:
        steps = _latest(join, number, build, views, before, least, greatest)
    last = f"_found{number}"
    if join.of is not None:
        last = f"_own{number}"
        # Rows of another branch meet nothing, even where a key of theirs is in the build.
        own = [alias, f"_epoch{number}", f"_seq{number}", why]
        only = ", ".join(f"IF({join.asked}, {name}, NULL) AS {name}" for name in own)
        steps[last] = f"SELECT * EXCEPT ({', '.join(own)}), {only} FROM _found{number}"
    if join.predicate is None:
        return {**steps, f"_chosen{number}": f"SELECT * FROM {last}"}
    predicate = called_where(f"{why} IS NULL", join.predicate)
    tested = f"CASE WHEN {why} IS NOT NULL THEN {why} WHEN NOT coalesce(({predicate}), false) THEN 'predicate' END"
    shown = f"IF({why} IS NULL, {alias}, NULL)"
    return {
        **steps,
        f"_tested{number}": f"SELECT * EXCEPT ({why}), {tested} AS {why} FROM {last}",
        f"_chosen{number}": f"SELECT * EXCEPT ({alias}), {shown} AS {alias} FROM _tested{number}",
    }


def _guarded(insert: Insert, join: Join) -> Join:
    """The join, whose keys call functions only for rows that WHERE does not leave out."""
    taken = all_of(term for term in insert.terms[0] if PREFIX not in term)
    return replace(join, keys=tuple(replace(key, probe=called_where(taken, key.probe)) for key in join.keys))


def _latest(
    join: Join, number: int, build: Table, views: Views, before: str, least: int, greatest: int
) -> dict[str, str]:
    """The same by processing time, up to `_found<number>`: the latest version by seq as of the pin."""
    changelog, alias = views.changelogs[number], quoted(join.alias)
    keys = ", ".join(quoted(key.column) for key in join.keys)
    pin, why = f"_pin{number}", f"_why{number}"
    by_key = f"PARTITION BY _generation, {keys} ORDER BY _epoch"
    names = [f"_key{number}_{index}" for index in range(len(join.keys))]
    probed = ", ".join(f"{key.probe} AS {name}" for key, name in zip(join.keys, names, strict=True))
    equal = " AND ".join(f"_p.{name} = _v.{quoted(key.column)}" for key, name in zip(join.keys, names, strict=True))
    no_key = " OR ".join(f"_p.{name} IS NULL" for name in names)
    gone = "(_v._op = 'd' OR coalesce(_v._seq < _t._truncated, false))"
    return {
        f"_touched{number}": (
            f"SELECT _generation, {keys}, _epoch, max(_seq) AS _seq, max_by(_op, _seq) AS _op, "
            f"max_by({_struct(build)}, _seq) AS _row FROM (SELECT /*+ REPARTITION(_generation, {keys}) */ * "
            f"FROM {changelog} WHERE _op <> 't') GROUP BY _generation, {keys}, _epoch"
        ),
        f"_states{number}": (
            f"SELECT _generation, {keys}, _epoch AS _since, "
            f"lead(_epoch, 1, {FOREVER}) OVER ({by_key}) AS _until, "
            f"max(_seq) OVER ({by_key}) AS _seq, max_by(_epoch, _seq) OVER ({by_key}) AS _at, "
            f"max_by(_op, _seq) OVER ({by_key}) AS _op, "
            f"max_by(_row, _seq) OVER ({by_key}) AS _row FROM _touched{number}"
        ),
        f"_alive{number}": f"SELECT * FROM _states{number} WHERE _since <= {greatest} AND _until > {least}",
        f"_truncates{number}": (
            f"SELECT _r.{pin}_generation, _r.{pin}_epoch, max(_c._seq) AS _truncated "
            f"FROM {views.pins[number]} _r "
            f"LEFT JOIN {changelog} _c ON _c._op = 't' AND _c._generation = _r.{pin}_generation "
            f"AND _c._epoch <= _r.{pin}_epoch GROUP BY _r.{pin}_generation, _r.{pin}_epoch"
        ),
        f"_keyed{number}": f"SELECT *, {probed} FROM {before}",
        f"_found{number}": (
            f"SELECT _p.*, _v._at AS _epoch{number}, _v._seq AS _seq{number}, "
            f"IF({gone}, NULL, _v._row) AS {alias}, CASE WHEN {no_key} THEN 'key-null' "
            f"WHEN _v._since IS NULL THEN 'key-absent' WHEN {gone} THEN 'deleted' END AS {why} "
            f"FROM _keyed{number} _p "
            f"JOIN _truncates{number} _t "
            f"ON _t.{pin}_generation = _p.{pin}_generation AND _t.{pin}_epoch = _p.{pin}_epoch "
            f"LEFT JOIN _alive{number} _v ON {equal} AND _v._generation = _p.{pin}_generation "
            f"AND _v._since <= _p.{pin}_epoch AND _p.{pin}_epoch < _v._until"
        ),
    }


def _outcome(insert: Insert) -> str:
    """The outcome of a row, by its epoch's policy. The part of WHERE that reads the probe alone decides first, the rest
    of it last."""
    event, (of_probe, rest) = insert.time == "event", insert.terms
    of_probe, met = all_of(of_probe), ["_time IS NOT NULL"] if event else []
    for number, join in enumerate(insert.joins):
        found = f"_why{number} IS NULL"
        met.append(found if join.kind == "INNER" else f"({found} OR _policy = 'publish')")
    of_all = all_of(rest, " AND ".join([f"({of_probe})", *met]))

    def when(condition: str, kind: str, number: int, join: Join) -> str:
        reason = f"concat('{kind}:', _why{number}, {spark_string('@' + join.alias)})"
        return f"WHEN {condition} AND _why{number} IS NOT NULL THEN {reason}"

    joins = list(enumerate(insert.joins))
    lost = [when("_policy = 'publish'", "dropped", n, join) for n, join in joins if join.kind == "INNER"]
    quarantined = [when("_policy <> 'publish'", "unmatched", n, join) for n, join in joins]
    unmatched = [when("true", "unmatched", n, join) for n, join in joins]
    cases = [
        f"WHEN NOT coalesce({of_probe}, false) THEN 'dropped:where'",
        *(["WHEN _time IS NULL THEN 'time-null'"] if event else []),
        *lost,
        *quarantined,
        f"WHEN NOT coalesce({of_all}, false) THEN 'dropped:where'",
        *unmatched,
    ]
    return f"CASE {' '.join(cases)} ELSE 'matched' END"


def _struct(table: Table, alias: str = "") -> str:
    of = f"{alias}." if alias else ""
    fields = ", ".join(f"{spark_string(column.name)}, {of}{quoted(column.name)}" for column in table.stored_columns)
    return f"named_struct({fields})"
