"""One release: landed probe rows in, staged rows out, every outcome counted in the same pass.

What comes out has the target's columns, then
    _op, _generation, _epoch          what a published row carries
    _probe_epoch, _split, _offset     which probe row it is; null where published
    _reason                           why it is kept out; of a published row only with 'gate.proof'
    _disposition                      publish | quarantine
    _violated                         which constraints it violates (joins.violations), where the target has any
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from pipelines.frames import as_views
from pipelines.joins.matching import Build, Side, match
from pipelines.joins.outcome import DISCARDED, MATCHED, TIME_NULL, WHERE, Disposition, Outcomes, outcomes, possible
from pipelines.joins.query import Query, aliased, flat, scoped
from pipelines.joins.violations import MASK, ask
from pipelines.joins.where import split_where
from pipelines.lake.rows import quoted
from pipelines.sql.model import Insert, OnUnmatched
from pipelines.watermarks import MAX_TIMESTAMP, MIN_TIMESTAMP

EXTENT = {
    "least-time": f"coalesce(min(_probe_time), {MAX_TIMESTAMP}L)",
    "greatest-time": f"coalesce(max(_probe_time), {MIN_TIMESTAMP + 1}L - 1L)",
}
"""The least and the greatest time of the released rows, in us, UTC; MAX and MIN where none has a time."""


@dataclass(frozen=True)
class Probe:
    """The landed rows that a plan releases, `count` of them; `columns` are the table's."""

    rows: DataFrame
    columns: Sequence[str]
    count: int


@dataclass(frozen=True)
class Release:
    """Which epoch this is: `instant` (ms, UTC) is its PROCTIME(); `discard` quarantines all that would leave.

    `late_upto` (us, UTC): in event time, a row at or below it is late; None while no row can be.
    """

    generation: int
    epoch: int
    instant: int
    on_unmatched: OnUnmatched
    discard: bool = False
    late_upto: int | None = None


def joined(
    spark: SparkSession,
    insert: Insert,
    probe: Probe,
    builds: Mapping[str, Build],
    release: Release,
    observation: Observation,
) -> DataFrame:
    """The rows that this release stages; `observation` receives the counts (see `count_names`) as they are written."""
    frames = {"probe": probe.rows, **{f"build{n}": builds[j.build].changelog for n, j in enumerate(insert.joins)}}
    heavy = {f"heavy{n}": builds[j.build].heavy for n, j in enumerate(insert.joins)}
    frames |= {name: keys for name, keys in heavy.items() if keys is not None}
    with as_views(frames) as views:
        matched = spark.sql(_match_all(insert, probe, builds, release, views).text())
    counted = matched.observe(observation, *_counts(insert, builds, release))
    observed = counted.where(f"NOT {Outcomes(insert).dropped_sql()}")
    if insert.constraints:
        return observed.selectExpr(*_staged(insert, release))
    scope = {insert.probe_alias: probe.columns, **{j.alias: builds[j.build].columns for j in insert.joins}}
    return observed.selectExpr(*scoped(scope, release.instant)).selectExpr(*_staged(insert, release))


def _match_all(
    insert: Insert, probe: Probe, builds: Mapping[str, Build], release: Release, views: Mapping[str, str]
) -> Query:
    """Every probe row, with the version of each build that it matches and its `_outcome`."""
    query = Query(release.instant)
    own = {flat(insert.probe_alias, name): quoted(name) for name in probe.columns}
    own |= {f"_probe{name}": name for name in ("_op", "_epoch", "_split", "_offset")}
    if insert.time == "event":
        own["_probe_time"] = "unix_micros(_rowtime)"
    query.step("landed", f"SELECT {aliased(own)} FROM {views['probe']}", list(own))
    query.scope[insert.probe_alias] = probe.columns
    for number, join in enumerate(insert.joins):
        side = Side(
            join, number, builds[join.build], views[f"build{number}"], views.get(f"heavy{number}"), insert.proof
        )
        match(query, side, probe.count)
    _conclude(query, insert, release)
    if insert.constraints:
        ask(query, insert, _goes(insert, release, "publish"))
    return query


def _conclude(query: Query, insert: Insert, release: Release) -> None:
    """Add `_outcome`, a number (`Outcomes`)."""
    known = Outcomes(insert)
    of_probe, of_all = split_where(insert)
    query.select("tested", {"_of_probe": f"coalesce(({of_probe}), false)", "_of_all": f"coalesce(({of_all}), false)"})
    numbered = list(enumerate(insert.joins))
    missing = known.missed_sql("unmatched", numbered)
    lost = known.missed_sql("dropped", [(number, join) for number, join in numbered if join.kind == "INNER"])
    where, matched = known.number(WHERE), known.number(MATCHED)
    left_out, rest = f"IF(_of_probe, NULL, {where})", f"IF(_of_all, NULL, {where})"
    if insert.time == "event":
        left_out += f", IF(_probe_time IS NULL, {known.number(TIME_NULL)}, NULL)"
    if release.on_unmatched == "publish":
        outcome = f"coalesce({left_out}, {lost}, {rest}, {missing}, {matched})"
    else:
        outcome = f"coalesce({left_out}, {missing}, {rest}, {matched})"
    if release.discard:
        outcome = f"IF({known.dropped_sql(outcome)}, {outcome}, {known.number(DISCARDED)})"
    query.select("concluded", {"_outcome": outcome})


def _goes(insert: Insert, release: Release, kind: Disposition) -> str:
    """SQL: whether this is the disposition of a row that has its `_outcome`."""
    return Outcomes(insert).disposition_sql(kind, publish_unmatched=release.on_unmatched == "publish")


def _staged(insert: Insert, release: Release) -> list[str]:
    """The target's columns and the lake's, of what was matched.

    Which probe row it was and why it did not match is told of what is kept out only: of a published row nobody asks for
    it (but for the proof), and four columns of nulls are written in no time.
    """
    kept_out, asked = _goes(insert, release, "quarantine"), bool(insert.constraints)
    known = Outcomes(insert)
    told = f"_outcome <> {known.number(MATCHED)}" if insert.proof else kept_out
    items = {quoted(item.name): quoted(item.name) if asked else item.expression for item in insert.projections}
    items |= {
        "_op": "_probe_op",
        "_generation": f"CAST({release.generation} AS INT)",
        "_epoch": f"CAST({release.epoch} AS BIGINT)",
        "_probe_epoch": f"IF({kept_out}, _probe_epoch, NULL)",
        "_split": f"IF({kept_out}, _probe_split, NULL)",
        "_offset": f"IF({kept_out}, _probe_offset, NULL)",
        "_reason": f"IF({told}, {known.named_sql()}, NULL)",
        "_disposition": f"IF({kept_out}, 'quarantine', 'publish')",
        **({MASK: MASK} if asked else {}),
        **(_proof(insert) if insert.proof else {}),
    }
    return [f"{expression} AS {name}" for name, expression in items.items()]


def _proof(insert: Insert) -> dict[str, str]:
    """The match proof of one row: the versions that it met, and whether every build had one."""
    found = {}
    for number, (epoch, seq) in enumerate(insert.proofs):
        found[quoted(epoch)] = f"IF(_why{number} IS NULL, _build{number}_epoch, NULL)"
        found[quoted(seq)] = f"IF(_why{number} IS NULL, _build{number}_seq, NULL)"
    matched = " AND ".join(f"_why{number} IS NULL" for number in range(len(insert.joins))) or "true"
    return {**found, "_matched": matched}


def _counts(insert: Insert, builds: Mapping[str, Build], release: Release) -> list[Column]:
    """What the gate wants to know, as aggregates over all released rows.

    `rows`; one count an outcome and a disposition; per join, its matches and how many of them are outside its pin, or
    of a version that is younger than the row; in event time, how many rows came late, the least and the greatest time
    (us).
    """
    found = {"rows": "count(1)"}
    if insert.time == "event":
        late = "false" if release.late_upto is None else f"_probe_time <= {release.late_upto}L"
        found[f"late@{insert.probe_alias}"] = _count_if(late)
        found |= {f"{name}@{insert.probe_alias}": expression for name, expression in EXTENT.items()}
    known = Outcomes(insert)
    publish, retained = release.on_unmatched == "publish", any(build.horizon is not None for build in builds.values())
    had = possible(insert, publish_unmatched=publish, discard=release.discard, retained=retained)
    found |= {
        name: _count_if(f"_outcome = {known.number(name)}" if name in had else "false")
        for name in outcomes(insert, retained=retained)
    }
    found |= {f"to:{kind}": _count_if(_goes(insert, release, kind)) for kind in get_args(Disposition)}
    for number, join in enumerate(insert.joins):
        build, match = builds[join.build], f"_why{number} IS NULL"
        inside = f"_build{number}_generation = {build.generation} AND _build{number}_epoch <= {build.epoch}"
        if join.time == "event":
            inside += f" AND _build{number}_since <= _probe_time"
            inside += "" if build.horizon is None else f" AND _probe_time >= {build.horizon}L"
        found |= {
            f"matches@{join.alias}": _count_if(match),
            f"outside-pin@{join.alias}": _count_if(f"{match} AND NOT coalesce({inside}, false)"),
            f"greatest-epoch@{join.alias}": f"max(IF({match}, _build{number}_epoch, NULL))",
        }
    return [F.expr(f"{expression} AS {quoted(name)}") for name, expression in found.items()]


def _count_if(condition: str) -> str:
    """`count_if` makes a column of its condition, which each row then carries to where it is counted."""
    return f"count(IF({condition}, 1, NULL))"
