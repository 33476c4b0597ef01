"""One release: landed probe rows in, staged rows out, every outcome counted in the same pass.

What comes out has the target's columns, then
    _op, _generation, _epoch          what a published row carries
    _probe_epoch, _split, _offset     which probe row it is
    _reason                           null where published and matched, else why not
    _disposition                      publish | quarantine
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from pipelines.frames import as_views
from pipelines.joins.latest import latest_sql
from pipelines.joins.outcome import BEFORE_FIRST, DISCARDED, MATCHED, TIME_NULL, WHERE, outcomes
from pipelines.joins.query import Query, flat, literal, scoped
from pipelines.joins.versions import versions_sql
from pipelines.joins.where import split_where
from pipelines.lake.rows import quoted
from pipelines.sql.model import Insert, Join, OnUnmatched, TimeAttribute

SMALL_PROBE = 200_000
"""Up to so many probe rows, a build is pruned by their keys before its versions are looked at."""

TICK_PROBE = 20_000
"""Up to so many, what is left of the build is broadcast: as many rows at most, whatever their width."""


@dataclass(frozen=True)
class Probe:
    """The landed rows that a plan releases, `count` of them; `columns` are the table's."""

    rows: DataFrame
    columns: Sequence[str]
    count: int


@dataclass(frozen=True)
class Build:
    """A build side at its pin: `changelog` holds generation `generation` up to `epoch`, `columns` are the table's.

    `truncated`: whether the table may have been truncated meanwhile.
    """

    changelog: DataFrame
    columns: Sequence[str]
    generation: int
    epoch: int
    truncated: bool = True


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
    with as_views(frames) as views:
        matched = spark.sql(_match_all(insert, probe, builds, release, views).text())
    observed = matched.observe(observation, *_counts(insert, builds, release)).where("_disposition <> 'drop'")
    scope = {insert.probe_alias: probe.columns, **{j.alias: builds[j.build].columns for j in insert.joins}}
    return observed.selectExpr(*scoped(scope, release.instant)).selectExpr(*_staged(insert, release))


def _match_all(
    insert: Insert, probe: Probe, builds: Mapping[str, Build], release: Release, views: Mapping[str, str]
) -> Query:
    """Every probe row, with the version of each build that it matches, its `_outcome` and its `_disposition`."""
    query = Query(release.instant)
    own = {flat(insert.probe_alias, name): quoted(name) for name in probe.columns}
    own |= {f"_probe{name}": name for name in ("_op", "_epoch", "_split", "_offset")}
    if insert.time == "event":
        own["_probe_time"] = "unix_micros(_rowtime)"
    query.step("landed", f"SELECT {_aliased(own)} FROM {views['probe']}", list(own))
    query.scope[insert.probe_alias] = probe.columns
    for number, join in enumerate(insert.joins):
        _match(query, join, number, builds[join.build], views[f"build{number}"], probe.count)
    _conclude(query, insert, release)
    return query


@dataclass(frozen=True)
class _Versions:
    """How the versions of a build are had (`sql`), and what a probe row `p` needs to meet one of them, `v`.

    `also`: conditions of the match beside the key's. `why`: cases of why the version met is no match. `one_a_key`:
    there are not more of them than keys. `marks`: columns of the version that the counts look at.
    """

    sql: Callable[..., str]
    also: tuple[str, ...]
    why: str
    one_a_key: bool
    marks: tuple[str, ...] = ()


VERSIONS: Mapping[TimeAttribute, _Versions] = {
    "processing": _Versions(latest_sql, (), "WHEN v._gone THEN 'deleted'", one_a_key=True),
    "event": _Versions(
        versions_sql,
        ("v._from <= p._probe_time", "p._probe_time < v._until"),
        f"WHEN p._probe_time < v._since THEN '{BEFORE_FIRST}' WHEN p._probe_time >= v._ended THEN 'deleted'",
        one_a_key=False,
        marks=("since",),
    ),
}


def _match(query: Query, join: Join, number: int, build: Build, changelog: str, probes: int) -> None:
    """Add the version of `join.build` that each row matches, under `alias$column`, and `_why<number>`: null where
    there is one. The columns of a version that was not chosen are null: LEFT null-extends."""
    keys = [key.column for key in join.keys]
    names = {key.column: f"_key{number}_{index}" for index, key in enumerate(join.keys)}
    before = list(query.columns)
    query.select(f"keyed{number}", {names[key.column]: key.probe for key in join.keys})
    keyed = query.last
    wanted = None
    if probes <= SMALL_PROBE:
        wanted = f"wanted{number}"
        as_keys = ", ".join(f"{names[key]} AS {quoted(key)}" for key in keys)
        query.steps.append((wanted, f"SELECT {as_keys} FROM {keyed}"))
    versions = f"versions{number}"
    version = VERSIONS[join.time]
    text = version.sql(changelog, keys, build.columns, wanted=wanted, truncated=build.truncated)
    query.steps.append((versions, text))

    marks = {f"_build{number}_{name}": f"v._{name}" for name in ("epoch", "generation", *version.marks)}
    payload = {flat(join.alias, name): f"v.{quoted(name)}" for name in build.columns}
    null_key = " OR ".join(f"{names[key]} IS NULL" for key in keys)
    why = f"CASE WHEN {null_key} THEN 'key-null' WHEN v._epoch IS NULL THEN 'key-absent' {version.why} END"
    found = " AND ".join([*(f"p.{names[key]} = v.{quoted(key)}" for key in keys), *version.also])
    columns = {**{name: f"p.{name}" for name in before}, **payload, **marks, f"_why{number}": why}
    hint = "/*+ BROADCAST(v) */ " if probes <= TICK_PROBE and version.one_a_key else ""
    text = f"SELECT {hint}{_aliased(columns)} FROM {keyed} p LEFT JOIN {versions} v ON {found}"
    query.step(f"found{number}", text, list(columns))
    query.scope[join.alias] = build.columns
    if join.predicate is not None:
        rest = [name for name in query.columns if name != f"_why{number}"]
        failed = f"_why{number} IS NULL AND NOT coalesce(({join.predicate}), false)"
        query.select(f"tested{number}", {f"_why{number}": f"IF({failed}, 'predicate', _why{number})"}, keep=rest)
    hidden = {name: f"IF(_why{number} IS NULL, {name}, NULL)" for name in payload}
    shown = {name: hidden.get(name, name) for name in query.columns}
    query.step(f"chosen{number}", f"SELECT {_aliased(shown)} FROM {query.last}", list(shown))


def _conclude(query: Query, insert: Insert, release: Release) -> None:
    """Add `_outcome` and `_disposition`."""
    of_probe, of_all = split_where(insert)
    query.select("tested", {"_of_probe": f"coalesce(({of_probe}), false)", "_of_all": f"coalesce(({of_all}), false)"})
    whys = [(f"_why{number}", join) for number, join in enumerate(insert.joins)]

    def first(kind: str, joins: list[tuple[str, Join]]) -> str:
        told = [f"concat('{kind}:', {why}, {literal('@' + join.alias)})" for why, join in joins]
        return f"coalesce({', '.join([*told, 'CAST(NULL AS STRING)'])})"

    missing = first("unmatched", whys)
    lost = first("dropped", [(why, join) for why, join in whys if join.kind == "INNER"])
    left_out, rest = f"IF(_of_probe, NULL, '{WHERE}')", f"IF(_of_all, NULL, '{WHERE}')"
    if insert.time == "event":
        left_out += f", IF(_probe_time IS NULL, '{TIME_NULL}', NULL)"
    if release.on_unmatched == "publish":
        outcome = f"coalesce({left_out}, {lost}, {rest}, {missing}, '{MATCHED}')"
    else:
        outcome = f"coalesce({left_out}, {missing}, {rest}, '{MATCHED}')"
    if release.discard:
        outcome = f"IF({outcome} LIKE 'dropped:%', {outcome}, '{DISCARDED}')"
    query.select("concluded", {"_outcome": outcome})
    kept_out = "false" if release.on_unmatched == "publish" else "_outcome LIKE 'unmatched:%'"
    disposition = (
        f"CASE WHEN _outcome LIKE 'dropped:%' THEN 'drop' "
        f"WHEN {kept_out} OR _outcome IN ('{DISCARDED}', '{TIME_NULL}') THEN 'quarantine' ELSE 'publish' END"
    )
    query.select("disposed", {"_disposition": disposition})


def _staged(insert: Insert, release: Release) -> list[str]:
    """The target's columns and the lake's, of what was matched."""
    items = {quoted(item.name): item.expression for item in insert.projections}
    items |= {
        "_op": "_probe_op",
        "_generation": f"CAST({release.generation} AS INT)",
        "_epoch": f"CAST({release.epoch} AS BIGINT)",
        "_probe_epoch": "_probe_epoch",
        "_split": "_probe_split",
        "_offset": "_probe_offset",
        "_reason": f"nullif(_outcome, '{MATCHED}')",
        "_disposition": "_disposition",
    }
    return [f"{expression} AS {name}" for name, expression in items.items()]


def _counts(insert: Insert, builds: Mapping[str, Build], release: Release) -> list[Column]:
    """What the gate wants to know, as aggregates over all released rows.

    `rows`; one count an outcome and a disposition; per join, its matches and how many of them are outside its pin, or
    of a version that is younger than the row; in event time, how many rows came late.
    """
    found = {"rows": "count(1)"}
    if insert.time == "event":
        late = "false" if release.late_upto is None else f"_probe_time <= {release.late_upto}L"
        found[f"late@{insert.probe_alias}"] = f"count_if({late})"
    found |= {outcome: f"count_if(_outcome = {literal(outcome)})" for outcome in outcomes(insert)}
    found |= {f"to:{kind}": f"count_if(_disposition = '{kind}')" for kind in ("publish", "quarantine", "drop")}
    for number, join in enumerate(insert.joins):
        build, match = builds[join.build], f"_why{number} IS NULL"
        inside = f"_build{number}_generation = {build.generation} AND _build{number}_epoch <= {build.epoch}"
        if join.time == "event":
            inside += f" AND _build{number}_since <= _probe_time"
        found |= {
            f"matches@{join.alias}": f"count_if({match})",
            f"outside-pin@{join.alias}": f"count_if({match} AND NOT coalesce({inside}, false))",
            f"greatest-epoch@{join.alias}": f"max(IF({match}, _build{number}_epoch, NULL))",
        }
    return [F.expr(f"{expression} AS {quoted(name)}") for name, expression in found.items()]


def _aliased(columns: Mapping[str, str]) -> str:
    return ", ".join(f"{expression} AS {name}" for name, expression in columns.items())
