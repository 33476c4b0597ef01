"""The step at the heart of a release: every probe row, with the one version of a build that it meets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame

from pipelines.joins.heavy import HeavyKeys
from pipelines.joins.latest import latest_sql
from pipelines.joins.outcome import (
    BEFORE_FIRST,
    BEYOND_RETENTION,
    DELETED,
    KEY_ABSENT,
    KEY_NULL,
    PREDICATE,
    why_number,
)
from pipelines.joins.query import Query, aliased, flat
from pipelines.joins.versions import versions_sql
from pipelines.lake.rows import quoted
from pipelines.sql.model import Join

SMALL_PROBE = 200_000
"""Up to so many probe rows, a build is pruned by their keys before its versions are looked at."""

TICK_PROBE = 20_000
"""Up to so many, what is left of the build is broadcast: as many rows at most, whatever their width."""

HASHED_BUILD = 50_000_000
"""Up to so many versions, they are hashed rather than sorted: a partition of them fits into memory."""


@dataclass(frozen=True)
class Build:
    """A build side at its pin: `changelog` holds generation `generation` up to `epoch`, `columns` are the table's.

    `rows`: about how many there are, for a join in event time. `truncated`: whether the table may have been truncated
    meanwhile. `heavy`: its heavy keys (joins.heavy), for a join in event time. `lookup`: where the rest of its rows is,
    if `changelog` is without some; never of one that was truncated, and only for up to SMALL_PROBE rows. `horizon`:
    retention has removed versions that ended at or before it (us, UTC), so a row before it finds nothing.
    """

    changelog: DataFrame
    columns: Sequence[str]
    generation: int
    epoch: int
    rows: int = 0
    truncated: bool = True
    heavy: DataFrame | None = None
    lookup: Lookup | None = None
    horizon: int | None = None


@dataclass(frozen=True)
class Lookup:
    """Where the rows of a build are that its `changelog` leaves out: `function` is a function of its `keys`, in this
    order, that gives those of a key (joins.lookup)."""

    function: str
    keys: tuple[str, ...]

    def sql(self, wanted: str) -> str:
        """The rows of the keys in the relation `wanted`."""
        names = [quoted(key) for key in self.keys]
        some = " AND ".join(f"{name} IS NOT NULL" for name in names)
        keys = f"SELECT DISTINCT {', '.join(names)} FROM {wanted} WHERE {some}"
        return f"SELECT inline({self.function}({', '.join(names)})) FROM ({keys})"


@dataclass(frozen=True)
class Side:
    """One join of an INSERT, as it is written down: its number, its build, the views of changelog and heavy keys.

    `proof`: the seq of the version that is met must be known, too.
    """

    join: Join
    number: int
    build: Build
    changelog: str
    heavy: str | None
    proof: bool = False

    @property
    def keys(self) -> list[str]:
        return [key.column for key in self.join.keys]

    @property
    def marks(self) -> list[str]:
        """What is asked of a version for the row's own proof."""
        return ["seq"] if self.proof else []

    @property
    def probed(self) -> list[str]:
        """The names under which the probe's side of the keys travels."""
        return [f"_key{self.number}_{index}" for index in range(len(self.join.keys))]


def match(query: Query, side: Side, probes: int) -> None:
    """Add the version of the build that each row meets, under `alias$column`, and `_why<number>`: null where it is a
    match, else the number of the reason. The columns of a version that is none are null: LEFT null-extends."""
    join, number, build = side.join, side.number, side.build
    before = list(query.columns)
    query.select(f"keyed{number}", dict(zip(side.probed, [key.probe for key in join.keys], strict=True)))
    wanted = None
    if probes <= SMALL_PROBE:
        wanted = f"wanted{number}"
        as_keys = ", ".join(f"{name} AS {quoted(key)}" for name, key in zip(side.probed, side.keys, strict=True))
        query.aside(wanted, f"SELECT {as_keys} FROM {query.last}")
    how = _at_row_time if join.time == "event" else _latest
    also, why, hint, marks = how(query, side, wanted, probes)
    payload = {flat(join.alias, name): f"v.{quoted(name)}" for name in build.columns}
    found = {f"_build{number}_{name}": f"v._{name}" for name in ("epoch", "generation", *marks, *side.marks)}
    no_key = " OR ".join(f"p.{name} IS NULL" for name in side.probed)
    why = (
        f"CASE WHEN {no_key} THEN {why_number(KEY_NULL)} WHEN v._epoch IS NULL THEN {why_number(KEY_ABSENT)} {why} END"
    )
    equal = " AND ".join(
        [*(f"p.{name} = v.{quoted(key)}" for name, key in zip(side.probed, side.keys, strict=True)), *also]
    )
    columns = {**{name: f"p.{name}" for name in before}, **payload, **found, f"_why{number}": why}
    probe = query.last
    text = f"SELECT {hint} {aliased(columns)} FROM {probe} p LEFT JOIN versions{number} v ON {equal}"
    query.step(f"found{number}", text, list(columns))
    query.scope[join.alias] = build.columns
    if join.predicate is not None:
        rest = [name for name in query.columns if name != f"_why{number}"]
        failed = f"_why{number} IS NULL AND NOT coalesce(({join.predicate}), false)"
        query.select(
            f"tested{number}", {f"_why{number}": f"IF({failed}, {why_number(PREDICATE)}, _why{number})"}, keep=rest
        )
    hidden = {name: f"IF(_why{number} IS NULL, {name}, NULL)" for name in payload}
    shown = {name: hidden.get(name, name) for name in query.columns}
    query.step(f"chosen{number}", f"SELECT {aliased(shown)} FROM {query.last}", list(shown))


Met = tuple[Sequence[str], str, str, Sequence[str]]
"""Conditions of the match beside the key's, cases of why the version met is no match, a hint, columns to be counted."""


def _versions(sql: Callable[..., str], side: Side, wanted: str | None) -> str:
    """What `sql` (latest_sql, versions_sql) makes of a build's rows, wherever they are."""
    build, looked = side.build, None
    if build.lookup is not None:
        if wanted is None:  # the rows that the changelog is without would be lost
            raise ValueError("rows are looked up for small releases only")
        looked = build.lookup.sql(wanted)
    return sql(
        side.changelog,
        side.keys,
        build.columns,
        wanted=wanted,
        looked=looked,
        truncated=build.truncated,
        seq=side.proof,
    )


def _latest(query: Query, side: Side, wanted: str | None, probes: int) -> Met:
    """By processing time: one version a key."""
    text = _versions(latest_sql, side, wanted)
    query.aside(f"versions{side.number}", text)
    hint = "/*+ BROADCAST(v) */" if probes <= TICK_PROBE else ""
    return (), f"WHEN v._gone THEN {why_number(DELETED)}", hint, ()


def _at_row_time(query: Query, side: Side, wanted: str | None, probes: int) -> Met:
    """By event time: the intervals of a key, of which a row meets one."""
    build, number = side.build, side.number
    text = _versions(versions_sql, side, wanted)
    also = ["v._from <= p._probe_time", "p._probe_time < v._until"]
    if side.heavy is not None:
        heavy = HeavyKeys(side.heavy, tuple(side.keys))
        own = heavy.joined(f"({text})", [quoted(key) for key in side.keys])
        text = f"SELECT /*+ BROADCAST(h) */ r.*, explode({heavy.slots('r._from', 'r._until')}) AS _slot FROM {own}"
        probe = heavy.joined(query.last, side.probed)
        slot = f"{heavy.slot('r._probe_time')} AS _slot{number}"
        query.step(f"slotted{number}", f"SELECT /*+ BROADCAST(h) */ r.*, {slot} FROM {probe}")
        also.append(f"v._slot = p._slot{number}")
    query.aside(f"versions{number}", text)
    beyond = f"WHEN p._probe_time < {build.horizon}L THEN {why_number(BEYOND_RETENTION)} "
    why = (
        f"{'' if build.horizon is None else beyond}"
        f"WHEN p._probe_time < v._since THEN {why_number(BEFORE_FIRST)} "
        f"WHEN p._probe_time >= v._ended THEN {why_number(DELETED)}"
    )
    hint = "/*+ SHUFFLE_HASH(v) */" if build.rows <= HASHED_BUILD else ""
    return also, why, hint, ("since",)
