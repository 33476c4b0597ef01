"""The operations that a person starts: what the commands do, with config in place of options."""

# No `from __future__ import annotations` here: Dagster reads the annotations of these functions as types.

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Literal

import dagster as dg

from tidegate.assets.operations.operation import Events, Started, operation
from tidegate.assets.operations.partitions import SpanConfig, fillable, judged, partitions_in, spans_of
from tidegate.assets.operations.upkeep import check_of
from tidegate.assets.text import metadata
from tidegate.pipelines.errors import PlanningError

# What these functions return are records of `pipelines.facts` and `quality_checks`, which are imported as they run: a
# code location is light.


@operation("plan_only", "Show what a run would do next. Nothing is read, stored or released.")
def dry_run(started: Started, *, resnapshot: Sequence[str] = ()) -> Any:
    """Asks every source for its next step and plans every INSERT's next epoch. Stores neither, and takes no lease.

    Args:
        resnapshot: Names of tables that are planned as if they began a new generation.
    """
    from tidegate.pipelines.facts.plan import next_steps

    return next_steps(started.runner, resnapshot)


@operation("list_quarantined", "Show quarantined rows. Choose which, and how many, in the launchpad.")
def quarantine_list(
    started: Started,
    *,
    target: str = "",
    reasons: Sequence[str] = (),
    epochs: Sequence[int] = (),
    state: Literal["open", "released", "discarded", "all"] = "open",
    limit: int = 20,
) -> Any:
    """Shows which rows are in quarantine, why and since when, and what has become of them. Changes nothing.

    Args:
        target: The INSERT: its target's name, or the target's 'insert.id'; all when empty.
        reasons: Only rows with these reasons, such as key-absent@u; all when empty.
        epochs: Only rows that these epochs have quarantined; all when empty.
        state: What has become of them.
        limit: At most so many rows of an INSERT themselves, with the nearest versions of their keys; 0 keeps all values
            out of Dagster's history.
    """
    from tidegate.pipelines.facts.quarantine import shown

    pipeline = started.runner.pipeline
    inserts = [pipeline.insert(item.id) for item in started.inserts(target)]
    return shown(started.runner.lake, pipeline, inserts, reasons, epochs, state, max(limit, 0))


def _released(started: Started, record: Any, shown: dict[str, Any]) -> Events:
    from tidegate.pipelines.lake.delta_log import logged_rows

    if record.published:
        insert = started.on.pipeline.insert(record.insert)
        rows = logged_rows(started.on.lake.target_path(started.on.pipeline.table(insert.target)))
        yield dg.AssetMaterialization(
            started.on.names.published(insert),
            description="Quarantined rows were released again.",
            metadata=shown if rows is None else {**shown, "dagster/row_count": rows},
        )


@operation(
    "release_quarantined", "Release quarantined rows again. Choose them in the launchpad.", _released
)  # fmt: skip
def quarantine_release(
    started: Started,
    *,
    target: str = "",
    reasons: Sequence[str] = (),
    epochs: Sequence[int] = (),
    on_unmatched: Literal["", "quarantine", "block", "publish"] = "",
    dry_run: bool = False,
) -> Any:
    """Joins quarantined rows again, as an epoch that goes through the gate; publishes those that match.

    Args:
        target: The INSERT: its target's name, or the target's 'insert.id'. May be left out where there is one.
        reasons: Only rows with these reasons, such as key-absent@u; all when empty.
        epochs: Only rows that these epochs have quarantined; all when empty.
        on_unmatched: What becomes of those that find no match again; they go back to quarantine when empty.
        dry_run: Only show which rows it would be.
    """
    wanted = _taking(started, target, discards=False, reasons=reasons, epochs=epochs)
    return wanted.would if dry_run else wanted.do(started.runner, on_unmatched or None)


@operation(
    "discard_quarantined",
    "Discard quarantined rows. Choose them in the launchpad, and say why. A dry run without `dry_run: false`.",
)
def quarantine_discard(
    started: Started,
    *,
    target: str = "",
    reasons: Sequence[str] = (),
    epochs: Sequence[int] = (),
    because: str = "",
    dry_run: bool = True,
) -> Any:
    """Gives quarantined rows up: they stay in the quarantine, counted as discarded.

    Args:
        target: The INSERT: its target's name, or the target's 'insert.id'. May be left out where there is one.
        reasons: Only rows with these reasons, such as key-absent@u; all when empty.
        epochs: Only rows that these epochs have quarantined; all when empty.
        because: Why; it is stored with the decision. Nothing is discarded without it.
        dry_run: Only show which rows it would be, unless it is set to false.
    """
    wanted = _taking(started, target, discards=True, reasons=reasons, epochs=epochs, because=because)
    return wanted.would if dry_run else wanted.do(started.runner)


def _taking(started: Started, target: str, **chosen: Any) -> Any:
    """Rows that are to leave the quarantine."""
    from tidegate.pipelines.facts.quarantine import taking

    runner, insert = started.runner, started.insert(target).id
    return taking(runner.lake, runner.pipeline, runner.pipeline.insert(insert), by=started.who, **chosen)


def _kept_up(started: Started, record: Any, shown: dict[str, Any]) -> Events:
    yield dg.AssetMaterialization(started.on.names.maintenance, metadata=shown)


@operation("maintain", "Retention, OPTIMIZE and VACUUM of a pipeline's tables.", _kept_up)
def maintenance(started: Started, *, keep_hours: int = 7 * 24) -> Any:
    """Its result is the newest materialisation of the pipeline's asset `maintenance`.

    Args:
        keep_hours: Files that a version younger than this names stay on the disk: somebody may be reading it.
    """
    from tidegate.pipelines.facts.maintenance import maintain

    return maintain(started.runner, timedelta(hours=keep_hours))


def _compared(started: Started, record: Any, shown: dict[str, Any]) -> Events:
    key = started.on.names.reconcile
    for item in record.tables:
        check = check_of(key, started.on.pipeline.table(item.table))
        of = metadata(item, started.on.commands)
        yield dg.AssetCheckEvaluation(asset_key=key, check_name=check.name, passed=item.passed, metadata=of)
    yield dg.AssetMaterialization(key, metadata=shown)


@operation("reconcile", "Build tables of a pipeline against their sources.", _compared)
def reconcile(started: Started, *, tables: Sequence[str] = (), wait_seconds: float = 300.0) -> Any:
    """Its result is the newest materialisation of the pipeline's asset `reconcile`, and its checks'. Fails where a key
    differs.

    Args:
        tables: Only these; all that can be compared when empty.
        wait_seconds: How long another runner may take to bring the changelog past the cut.
    """
    from tidegate.quality_checks.against_source import reconcile as compared

    known = [table.name for table in started.on.parts.comparable]
    if unknown := [name for name in tables if name not in known]:
        raise PlanningError(
            f"{', '.join(unknown)} cannot be compared with a source",
            where="the config of the run",
            state="nothing was read",
            next_command=f"set `tables` to some of {', '.join(known)}",
        )
    return compared(started.runner, tables or known, wait_seconds)


def _filled(started: Started, record: Any, shown: dict[str, Any]) -> Events:
    from tidegate.assets.metadata import of_step

    on = started.on
    for done in record.inserts:
        insert, of = on.pipeline.insert(done.insert), of_step(done.step) if done.step else {}
        key = on.names.by_time(insert)
        reached = [name for name, end in partitions_in(done.spans, on) if end <= done.reached]
        yield from judged(key, done.verdict, on.commands, reached)
        for name in () if done.is_held else reached:
            yield dg.AssetMaterialization(key, partition=name, metadata=of)
        if done.step and done.step.rows_published is not None and on.look.partitions is None:
            description = "Spans of time were released anew, or ahead of the stream."
            yield dg.AssetMaterialization(on.names.published(insert), description=description, metadata=of)


@operation(
    "release_spans", "Release spans of time again, or ahead of the stream. Choose them in the launchpad.", _filled
)  # fmt: skip
def backfill(started: Started, *, spans: Sequence[SpanConfig], target: str = "") -> Any:
    """Releases what has landed of these spans, through the gate, and replaces what was released of them before. If rows
    of them wait, it fails and names what they wait for.

    Args:
        spans: The spans of time, in one epoch of each INSERT.
        target: The INSERT: its target's name, or the target's 'insert.id'. All event-time INSERTs when empty.
    """
    from tidegate.quality_checks.backfills import backfills

    inserts = started.inserts(target, fillable(started.on), "event-time INSERT")
    found, began = spans_of(spans, started.on.look.timezone), 0
    run = started.context.instance.get_run_record_by_id(started.context.run.run_id)
    if started.context.retry_number and run is not None:  # what this run has done before its step was tried again
        began = int((run.start_time or run.create_timestamp.timestamp()) * 1000)
    return backfills(started.runner, [insert.id for insert in inserts], found, began)
