"""One release: landed probe rows in, staged rows out, every outcome counted in the same pass.

The frame that comes out has the target's columns, then
    _op, _generation, _epoch          what a published row carries
    _probe_epoch, _split, _offset     which probe row it is
    _reason                           null where published and matched, else why not
    _disposition                      publish | quarantine
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F

from pipelines.joins.frames import evaluate, flat, flatten
from pipelines.joins.latest import GONE, latest, pruned
from pipelines.joins.outcome import DISCARDED, MATCHED, WHERE, outcomes
from pipelines.joins.where import split_where
from pipelines.lake.rows import quoted
from pipelines.sql.model import Insert, Join, OnUnmatched

SMALL_PROBE = 200_000
"""Up to so many probe rows, a build is pruned by their keys before its versions are ranked."""

PROBE_COLUMNS = ("_op", "_epoch", "_split", "_offset")


@dataclass(frozen=True)
class Build:
    """A build side at its pin: `changelog` holds generation `generation` up to `epoch`, `columns` are the table's."""

    changelog: DataFrame
    columns: Sequence[str]
    generation: int
    epoch: int


def joined(
    insert: Insert,
    probe: DataFrame,
    probe_columns: Sequence[str],
    probe_rows: int,
    builds: Mapping[str, Build],
    *,
    instant: int,
    generation: int,
    epoch: int,
    on_unmatched: OnUnmatched,
    observation: Observation,
    discard: bool = False,
) -> DataFrame:
    """The rows that this release stages; `observation` receives the counts when they are written.

    `discard`: all that would leave is quarantined as discarded instead.

    `probe`: the landed rows that the plan releases, `probe_rows` of them. `instant` in ms, UTC.
    """
    scope: dict[str, Sequence[str]] = {insert.probe_alias: list(probe_columns)}
    frame = flatten(probe, insert.probe_alias, probe_columns, {f"_probe{name}": F.col(name) for name in PROBE_COLUMNS})
    for number, join in enumerate(insert.joins):
        frame = _match(frame, scope, join, number, builds[join.build], probe_rows, instant)
        scope[join.alias] = list(builds[join.build].columns)
    frame = _outcome(frame, scope, insert, instant, on_unmatched)
    if discard:
        leaves = F.col("_disposition") != "drop"
        frame = frame.withColumns(
            {
                "_outcome": F.when(leaves, DISCARDED).otherwise(F.col("_outcome")),
                "_disposition": F.when(leaves, "quarantine").otherwise(F.col("_disposition")),
            }
        )
    frame = frame.observe(observation, *_counts(insert, builds))
    frame = frame.where("_disposition <> 'drop'")
    return evaluate(
        frame,
        scope,
        {item.name: item.expression for item in insert.projections},
        instant,
        keep=["_probe_op", "_probe_epoch", "_probe_split", "_probe_offset", "_outcome", "_disposition"],
    ).select(
        *[quoted(item.name) for item in insert.projections],
        F.col("_probe_op").alias("_op"),
        F.lit(generation).cast("int").alias("_generation"),
        F.lit(epoch).cast("bigint").alias("_epoch"),
        "_probe_epoch",
        F.col("_probe_split").alias("_split"),
        F.col("_probe_offset").alias("_offset"),
        F.when(F.col("_outcome") != MATCHED, F.col("_outcome")).alias("_reason"),
        "_disposition",
    )


def _match(
    frame: DataFrame,
    scope: Mapping[str, Sequence[str]],
    join: Join,
    number: int,
    build: Build,
    probe_rows: int,
    instant: int,
) -> DataFrame:
    """`frame` and, under `alias$column`, the version of `join.build` that each row matches; `_why<number>` is null
    where there is one."""
    names = {key.column: f"_key{number}_{index}" for index, key in enumerate(join.keys)}
    probe = evaluate(frame, scope, {names[key.column]: key.probe for key in join.keys}, instant)
    keys = [key.column for key in join.keys]
    changelog = build.changelog
    if probe_rows <= SMALL_PROBE:
        wanted = probe.select(*[F.col(names[key]).alias(key) for key in keys]).distinct()
        changelog = pruned(changelog, wanted, keys)
    versions = latest(changelog, keys)
    marks = {f"_build{number}_{name}": F.col(name) for name in ("_epoch", "_generation", GONE)}
    right = flatten(versions, join.alias, build.columns, marks)
    equal = [probe[names[key]] == right[quoted(flat(join.alias, key))] for key in keys]
    both = probe.join(right, reduce(lambda left, other: left & other, equal), "left")
    found = F.col(f"_build{number}_{GONE}")
    null_key = reduce(lambda left, other: left | other, [F.col(names[key]).isNull() for key in keys])
    why = F.when(null_key, "key-null").when(found.isNull(), "key-absent").when(found, "deleted").otherwise(F.lit(None))
    marked = both.withColumn(f"_why{number}", why)
    if join.predicate is not None:
        inner = {**scope, join.alias: list(build.columns)}
        marked = evaluate(marked, inner, {"_holds": f"coalesce(({join.predicate}), false)"}, instant)
        failed = F.col(f"_why{number}").isNull() & ~F.col("_holds")
        marked = marked.withColumn(f"_why{number}", F.when(failed, "predicate").otherwise(F.col(f"_why{number}"))).drop(
            "_holds"
        )
    # A version that was not chosen must not be seen by what follows: LEFT null-extends.
    hidden = F.col(f"_why{number}").isNotNull()
    blank = {flat(join.alias, name): F.when(~hidden, F.col(quoted(flat(join.alias, name)))) for name in build.columns}
    return marked.withColumns(blank).drop(*names.values())


def _outcome(
    frame: DataFrame, scope: Mapping[str, Sequence[str]], insert: Insert, instant: int, on_unmatched: OnUnmatched
) -> DataFrame:
    """`_outcome` and `_disposition` of every row."""
    of_probe, of_all = split_where(insert)
    tests = {"_of_probe": f"coalesce(({of_probe}), false)", "_of_all": f"coalesce(({of_all}), false)"}
    frame = evaluate(frame, scope, tests, instant)
    nothing: Column = F.lit(None).cast("string")
    missing, lost = nothing, nothing
    for number, join in reversed(list(enumerate(insert.joins))):
        why = F.col(f"_why{number}")
        missing = F.when(why.isNotNull(), F.concat(F.lit("unmatched:"), why, F.lit(f"@{join.alias}"))).otherwise(
            missing
        )
        if join.kind == "INNER":
            lost = F.when(why.isNotNull(), F.concat(F.lit("dropped:"), why, F.lit(f"@{join.alias}"))).otherwise(lost)
    left_out = F.when(~F.col("_of_probe"), F.lit(WHERE))
    if on_unmatched == "publish":
        rest = F.when(~F.col("_of_all"), F.lit(WHERE))
        outcome = F.coalesce(left_out, lost, rest, missing, F.lit(MATCHED))
    else:
        outcome = F.coalesce(left_out, missing, F.when(~F.col("_of_all"), F.lit(WHERE)), F.lit(MATCHED))
    kept_out = F.col("_outcome").startswith("unmatched:") & F.lit(on_unmatched != "publish")
    disposition = F.when(F.col("_outcome").startswith("dropped:"), "drop").when(kept_out, "quarantine")
    return frame.withColumn("_outcome", outcome).withColumn("_disposition", disposition.otherwise("publish"))


def _counts(insert: Insert, builds: Mapping[str, Build]) -> list[Column]:
    """What the gate wants to know, as aggregates over all released rows.

    `rows`; one count an outcome; per join, the matches and how many of them broke the pin.
    """
    found = [F.count(F.lit(1)).alias("rows")]
    found += [F.count_if(F.col("_outcome") == outcome).alias(outcome) for outcome in outcomes(insert)]
    found += [
        F.count_if(F.col("_disposition") == kind).alias(f"to:{kind}") for kind in ("publish", "quarantine", "drop")
    ]
    for number, join in enumerate(insert.joins):
        build = builds[join.build]
        match = F.col(f"_why{number}").isNull()
        outside = (F.col(f"_build{number}__generation") != build.generation) | (
            F.col(f"_build{number}__epoch") > build.epoch
        )
        found += [
            F.count_if(match).alias(f"matches@{join.alias}"),
            F.count_if(match & F.coalesce(outside, F.lit(True))).alias(f"outside-pin@{join.alias}"),
            F.max(F.when(match, F.col(f"_build{number}__epoch"))).alias(f"greatest-epoch@{join.alias}"),
        ]
    return found
