"""Held epochs, and rows that pile up in quarantine: read from the lake, without Spark, whoever ran it."""

from __future__ import annotations

import logging
from collections.abc import Collection
from itertools import takewhile

import dagster as dg
import pyarrow as pa
from deltalake.exceptions import DeltaError

from tidegate.assets.watched import WatchedInsert, last_run, positions
from tidegate.orchestration.alerts.incident import Incident
from tidegate.orchestration.alerts.options import AlertOptions, in_ms
from tidegate.pipelines.commands import NextCommand, resolving
from tidegate.pipelines.joins.outcome import DISCARDED, TIME_NULL, VIOLATED
from tidegate.pipelines.lake import Lake, StagedRow, VerdictRow
from tidegate.pipelines.runtime.epochs import BackfillPlan, ReleasePlan, RequeuePlan, stored_plan
from tidegate.pipelines.runtime.epochs.history import ReleasedEpoch, history
from tidegate.pipelines.runtime.nearest import missed_keys
from tidegate.pipelines.sql.compile import MissedKey
from tidegate.pipelines.text import seconds

logger = logging.getLogger(__name__)

_REASONS = ("unmatched:", "dropped:")
_SHOW_ROWS = ("constraints", "suite")
"""Checks whose sentences hold keys or values of rows."""


def held_epoch(
    watched: WatchedInsert, instance: dg.DagsterInstance, options: AlertOptions, known: Collection[str] = ()
) -> Incident | None:
    """The incident of the epoch of this INSERT that its gate holds now. Its rows are read only for an incident that is
    not among `known`."""
    lake = Lake.found(watched.lake)
    row = lake.epochs.last(watched.owner) if lake else None
    if lake is None or row is None:
        return None
    at = {"generation": row.generation, "epoch": row.epoch}
    verdict = next((v for v in lake.verdicts.rows(watched.owner, **at) if v.plan_digest == row.digest), None)
    if verdict is None or verdict.passed:
        return None
    staged = next((s for s in lake.staged.rows(watched.owner, **at) if s.plan_digest == row.digest), None)
    rows = staged.counts.get("rows", 0) if staged else 0
    commands = watched.commands.all(resolving(watched.insert))
    plan, sentences = stored_plan(row), _said(verdict, options.keys)
    second = plan.when_discarded
    prefix = f"gate-held {watched.subject} {row.generation}/"
    key = f"{prefix}{row.epoch}"
    before = row.plan.get("supersedes")
    return Incident(
        key=key,
        replaces="" if before is None else f"{prefix}{before}",
        kind="gate-held",
        title=f"the gate holds epoch {row.epoch} of {watched.name} ({rows:,} rows)."
        + (f" {sentences[0]}" if sentences else ""),
        pipeline=watched.pipeline,
        said=(
            *sentences[1:],
            "The target is unchanged; the rows are staged. The first command joins them again against newer pins, the "
            f"second {second}.",
        ),
        counts=reasons(staged),
        keys=_keys(lake, watched, plan, staged, options) if staged and key not in known else (),
        positions=_pinned(lake, plan),
        run=last_run(instance, watched.pipeline, options.dagster_url, watched.staged),
        next=commands,
        details={
            "insert": watched.insert,
            "generation": row.generation,
            "epoch": row.epoch,
            "rows": rows,
            "reasons": sentences,
            "lake": watched.lake,
        },
        subject=f"the hold of epoch {row.epoch} of {watched.name}",
    )


def _keys(
    lake: Lake, watched: WatchedInsert, plan: ReleasePlan, staged: StagedRow, options: AlertOptions
) -> tuple[MissedKey, ...]:
    """Some keys of an epoch's rows without a match; none if the rows cannot be read, since they are only evidence and
    the alert must not wait for them."""
    try:
        return tuple(missed_keys(lake, watched.joins, watched.places.staged, plan, staged, options.keys))
    except (pa.ArrowException, DeltaError, OSError, KeyError) as error:
        logger.warning("keys of %s cannot be shown: %s", watched.name, type(error).__name__)
        return ()


def _said(verdict: VerdictRow, keys: int) -> list[str]:
    """The verdict's reasons, without values of rows if no key may be shown."""
    if keys > 0:
        return list(verdict.reasons)
    failed = [check for check in verdict.checks if not check["passed"]]
    reasons = [
        f"the check {check['name']} failed; what it shows of rows is left out"
        if check["name"] in _SHOW_ROWS
        else check["detail"]
        for check in failed
    ]
    return reasons or list(verdict.reasons)


def reasons(staged: StagedRow | None) -> dict[str, int]:
    """Why rows of a staged epoch go elsewhere than to the target, the most frequent first."""
    if staged is None:
        return {}
    counted = {
        next((name.removeprefix(p) for p in _REASONS if name.startswith(p)), name): count
        for name, count in staged.counts.items()
        if count and (name.startswith((*_REASONS, VIOLATED)) or name in (TIME_NULL, DISCARDED))
    }
    return dict(sorted(counted.items(), key=lambda item: -item[1]))


def _pinned(lake: Lake, plan: ReleasePlan) -> dict[str, str]:
    """The epoch's position in each of its sources, and how far they are by now."""
    now = positions(lake, [plan.probe, *(pin.table for pin in plan.pins)])
    after, upto = plan.reads
    found = {plan.probe: f"epochs {plan.probe_generation}/{after + 1} to {upto}"}
    found |= {pin.table: f"pinned at epoch {pin.generation}/{pin.epoch}" for pin in plan.pins}
    return {table: f"{place}; now {now[table]}" if table in now else place for table, place in found.items()}


def _epochs(lake: Lake, watched: WatchedInsert, generation: int, since: int) -> list[ReleasedEpoch]:
    found = history(lake, watched.insert, watched.places.target, since)
    return [item for item in found if item.plan.generation == generation]


def growing_quarantine(
    watched: WatchedInsert, instance: dg.DagsterInstance, options: AlertOptions, now: int, known: Collection[str] = ()
) -> Incident | None:
    """An incident if more rows than the bound went to this INSERT's quarantine within the window. Rows that a person
    discarded do not count. The rows are read only for an incident that is not among `known`."""
    lake = Lake.found(watched.lake)
    newest = lake.epochs.last(watched.owner) if lake else None
    if lake is None or newest is None:
        return None
    generation = newest.generation
    since = now - in_ms(options.quarantine_window)
    newest_first = lake.staged.newest_first(watched.owner, generation=generation)
    late = [*takewhile(lambda row: row.staged_at >= since, newest_first)]
    if sum(row.counts.get("to:quarantine", 0) for row in late) <= options.quarantine_rows:
        return None
    first = late[-1].epoch
    epochs = _epochs(lake, watched, generation, first)
    fills = [item.plan.backfill for item in epochs if isinstance(item.plan, BackfillPlan)]
    if replaced := [low for fill in fills for low, _ in fill.replaces]:
        epochs = _epochs(lake, watched, generation, min(first, *replaced))
    had = {item.plan.epoch: item.staged.counts.get("to:quarantine", 0) for item in epochs if item.staged}
    there = [item for item in epochs if item.published and item.staged and item.staged.staged_at >= since]
    # What is released again was there before: what is left of it is no growth.
    new = [item for item in there if not isinstance(item.plan, RequeuePlan)]
    young = [item.staged for item in new if item.staged and not item.staged.counts.get("discarded")]
    # What a backfill sends to quarantine again, in the place of what it replaces, is no growth.
    fills = [item.plan.backfill for item in there if isinstance(item.plan, BackfillPlan)]
    again = sum(rows for epoch, rows in had.items() if any(fill.replaced(epoch) for fill in fills))
    again += sum(lot.rows for fill in fills for lot in fill.lots)
    # What a replaced release had put back was counted with the epoch that it came from.
    again -= sum(
        lot.rows for item in epochs if any(fill.replaced(item.plan.epoch) for fill in fills) for lot in item.plan.lots
    )
    rows = sum(row.counts.get("to:quarantine", 0) for row in young) - again
    if rows <= options.quarantine_rows:
        return None
    counts: dict[str, int] = {}
    for row in young:
        for name, count in reasons(row).items():
            counts[name] = counts.get(name, 0) + count
    last = max((row for row in young if row.counts.get("to:quarantine")), key=lambda row: row.epoch)
    plans = lake.epochs.rows(watched.owner, generation=generation, epoch=last.epoch)
    plan = stored_plan(plans[0])
    key = f"quarantine-growing {watched.subject} {generation}"
    return Incident(
        key=key,
        kind="quarantine-growing",
        title=f"the quarantine of {watched.name} grows: {rows:,} rows in {seconds(in_ms(options.quarantine_window))} "
        f"(bound {options.quarantine_rows:,}).",
        pipeline=watched.pipeline,
        said=("They are kept with their reasons, out of the target; nothing else waits for them.",),
        counts=counts,
        keys=_keys(lake, watched, plan, last, options) if key not in known else (),
        positions=positions(lake, [plan.probe, *(pin.table for pin in plan.pins)]),
        run=last_run(instance, watched.pipeline, options.dagster_url, watched.staged),
        next=watched.commands.all(NextCommand(f"quarantine {verb}", (watched.insert,)) for verb in ("list", "show")),
        details={"insert": watched.insert, "rows": rows, "lake": watched.lake},
        subject=f"the growth of the quarantine of {watched.name}",
    )
