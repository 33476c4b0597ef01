"""Problems of INSERTs: epochs that the gate holds, quarantines that grow, rows that do not add up."""

from __future__ import annotations

import logging
from itertools import takewhile

import pyarrow as pa

from tidegate.pipelines.commands import NextCommand, resolving
from tidegate.pipelines.facts.at import At
from tidegate.pipelines.facts.problem import InsertScope, Problem, in_ms
from tidegate.pipelines.lake import StagedRow, VerdictRow, delta_log
from tidegate.pipelines.runtime.epochs import ReleasePlan, stored_plan
from tidegate.pipelines.runtime.epochs.history import ReleasedEpoch, history
from tidegate.pipelines.runtime.ledger import WhereRowsAre, newest_of
from tidegate.pipelines.text import counted, seconds

logger = logging.getLogger(__name__)

_REASONS = ("unmatched:", "dropped:")
_ELSEWHERE = ("violated:", "time-null", "discarded")
"""Outcomes and beginnings of outcomes (`joins.outcome`, which needs more than a status does)."""
_SHOW_ROWS = ("constraints", "suite")
"""Checks whose sentences hold keys or values of rows."""


def held(at: At, insert: InsertScope) -> Problem | None:
    """The epoch of this INSERT that its gate holds now."""
    row = at.lake.epochs.last(insert.owner)
    if row is None:
        return None
    numbers = {"generation": row.generation, "epoch": row.epoch}
    verdict = next((v for v in at.lake.verdicts.rows(insert.owner, **numbers) if v.plan_digest == row.digest), None)
    if verdict is None or verdict.passed:
        return None
    staged = next((s for s in at.lake.staged.rows(insert.owner, **numbers) if s.plan_digest == row.digest), None)
    rows = staged.counts.get("rows", 0) if staged else 0
    plan, reasons = stored_plan(row), _said(verdict, at.bounds.keys)
    begin, before = f"{at.key('gate-held', insert.insert)} {row.generation}/", row.plan.get("supersedes")
    key = f"{begin}{row.epoch}"
    return Problem(
        key=key,
        kind="gate-held",
        title=f"the gate holds epoch {row.epoch} of {at.name(insert.insert)} ({counted(rows, 'row')})."
        + (f" {reasons[0]}" if reasons else ""),
        subject=f"the hold of epoch {row.epoch} of {at.name(insert.insert)}",
        owner=insert.owner,
        since=verdict.decided_at,
        text=(
            *reasons[1:],
            "The target is unchanged; the rows are staged. The first command joins them again against newer pins, the "
            f"second {plan.when_discarded}.",
        ),
        counts=by_reason(staged),
        keys=_keys(at, insert, key, plan, staged),
        positions=_pinned(at, plan),
        next=resolving(insert.insert),
        details={
            "insert": insert.insert,
            **numbers,
            "rows": rows,
            "reasons": reasons,
        },
        explains=(at.key("unfinished", insert.insert),),
        replaces="" if before is None else f"{begin}{before}",
    )


def _keys(at: At, insert: InsertScope, key: str, plan: ReleasePlan, staged: StagedRow | None) -> tuple:
    """Some keys of an epoch's rows without a match; none if the rows cannot be read, since they are only evidence and
    the problem must not wait for them."""
    if staged is None or insert.staged is None or not at.bounds.keys or not at.shows_rows(key):
        return ()
    from tidegate.pipelines.runtime.nearest import missed_keys  # needs NumPy, and status does without

    try:
        return tuple(missed_keys(at.lake, insert.joins, insert.staged, plan, staged, at.bounds.keys))
    except (pa.ArrowException, KeyError, *delta_log.unreadable()) as error:
        logger.warning("keys of %s cannot be shown: %s", at.name(insert.insert), type(error).__name__)
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


def by_reason(staged: StagedRow | None) -> dict[str, int]:
    """Why rows of a staged epoch go elsewhere than to the target, the most frequent first."""
    if staged is None:
        return {}
    found = {
        next((name.removeprefix(p) for p in _REASONS if name.startswith(p)), name): count
        for name, count in staged.counts.items()
        if count and name.startswith((*_REASONS, *_ELSEWHERE))
    }
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def _inputs(plan: ReleasePlan) -> list[str]:
    return list(dict.fromkeys([*(item.table for item in plan.branches), *(pin.table for pin in plan.pins)]))


def _pinned(at: At, plan: ReleasePlan) -> dict[str, str]:
    """The epoch's position in each of its sources, and how far they are by now."""
    now = at.positions(_inputs(plan))
    found = dict[str, str]()
    for item in plan.branches:
        after, upto = plan.reads_of(item)
        found[item.table] = f"epochs {item.generation}/{after + 1} to {upto}"
    found |= {pin.table: f"pinned at epoch {pin.generation}/{pin.epoch}" for pin in plan.pins}
    return {table: f"{place}; now {now[table]}" if table in now else place for table, place in found.items()}


def growing(at: At, insert: InsertScope) -> Problem | None:
    """More rows than the bound went to this INSERT's quarantine within the window. Rows that a person discarded do not
    count, nor do those that were there before."""
    newest = at.lake.epochs.last(insert.owner)
    if newest is None:
        return None
    generation, since = newest.generation, at.now - in_ms(at.bounds.quarantine_window)
    newest_first = at.lake.staged.newest_first(insert.owner, generation=generation)
    late = [*takewhile(lambda row: row.staged_at >= since, newest_first)]
    if sum(row.counts.get("to:quarantine", 0) for row in late) <= at.bounds.quarantine_rows:
        return None
    young, rows = _new_in_quarantine(at, insert, generation, since, late[-1].epoch)
    if rows <= at.bounds.quarantine_rows:
        return None
    counts: dict[str, int] = {}
    for row in young:
        for name, count in by_reason(row).items():
            counts[name] = counts.get(name, 0) + count
    last = max((row for row in young if row.counts.get("to:quarantine")), key=lambda row: row.epoch)
    plan = stored_plan(at.lake.epochs.rows(insert.owner, generation=generation, epoch=last.epoch)[0])
    key = f"{at.key('quarantine-growing', insert.insert)} {generation}"
    return Problem(
        key=key,
        kind="quarantine-growing",
        title=f"the quarantine of {at.name(insert.insert)} grows: {counted(rows, 'row')} in "
        f"{seconds(in_ms(at.bounds.quarantine_window))} (bound {at.bounds.quarantine_rows:,}).",
        subject=f"the growth of the quarantine of {at.name(insert.insert)}",
        owner=insert.owner,
        since=min(row.staged_at for row in young),
        text=("They are kept with their reasons, out of the target; nothing else waits for them.",),
        counts=counts,
        keys=_keys(at, insert, key, plan, last),
        positions=at.positions(_inputs(plan)),
        next=tuple(NextCommand(f"quarantine {verb}", (insert.insert,)) for verb in ("list", "show")),
        details={"insert": insert.insert, "rows": rows},
    )


def _new_in_quarantine(
    at: At, insert: InsertScope, generation: int, since: int, first: int
) -> tuple[list[StagedRow], int]:
    """The epochs since a moment that have quarantined rows, from epoch `first` on, and how many rows are new."""
    epochs = _epochs(at, insert, generation, first)
    fills = [item.plan for item in epochs if item.plan.spans]
    if replaced := [low for fill in fills for low, _ in fill.replaces]:
        epochs = _epochs(at, insert, generation, min(first, *replaced))
    there = [item for item in epochs if item.published and item.staged and item.staged.staged_at >= since]
    # What is released again was there before: what is left of it is no growth.
    new = [item for item in there if not item.plan.out_of_quarantine]
    young = [item.staged for item in new if item.staged and not item.staged.counts.get("discarded")]
    # What a backfill sends to quarantine again, in the place of what it replaces, is no growth.
    fills = [item.plan for item in there if item.plan.spans]
    undone = [item for item in epochs if any(fill.takes_the_place_of(item.plan) for fill in fills)]
    again = sum(item.staged.counts.get("to:quarantine", 0) for item in undone if item.staged)
    again += sum(fill.rows_claimed for fill in fills)
    # What a replaced release had put back was counted with the epoch that it came from.
    again -= sum(lot.rows for item in undone for lot in item.plan.joined)
    return young, sum(row.counts.get("to:quarantine", 0) for row in young) - again


def _epochs(at: At, insert: InsertScope, generation: int, since: int) -> list[ReleasedEpoch]:
    found = history(at.lake, insert.insert, insert.target, since)
    return [item for item in found if item.plan.generation == generation]


def imbalanced(at: At, insert: InsertScope) -> Problem | None:
    """Landed rows of an INSERT that nobody works on are in no place, or in two. It is counted twice, since an epoch may
    be published in between."""
    newest, rows = newest_of(at.lake, insert.insert, insert.target)
    if newest is None or rows is None or rows.balanced or at.is_worked_on(insert.owner):
        return None
    rows = newest_of(at.lake, insert.insert, insert.target)[1]
    if rows is None or rows.balanced or At(at.lake, at.now, at.scope).is_worked_on(insert.owner):
        return None
    process = newest.plan.state is not None
    verb = "status" if process else "verify"  # what functions gave is not computed anew
    return Problem(
        key=f"{at.key('imbalanced', insert.insert)} {newest.plan.generation}",
        kind="imbalanced",
        title=f"{at.name(insert.insert)}: {_nowhere(rows, process)}.",
        subject=f"the rows of {at.name(insert.insert)} that did not add up",
        owner=insert.owner,
        since=newest.plan.instant,
        text=("Some landed rows are in no place, or in two.",),
        counts={"landed": rows.landed, "accounted": rows.accounted},
        positions=at.positions([item.table for item in newest.plan.takes]),
        next=(NextCommand(verb, does="says where they are"),),
        details={"insert": insert.insert},
    )


def _nowhere(rows: WhereRowsAre, process: bool) -> str:
    more = rows.accounted - rows.landed - rows.further
    places = "handled, left out, waiting" if process else "published, quarantined, dropped, waiting"
    unnested = f" and {rows.further:,} more by UNNEST" if rows.further else ""
    text = f"of {counted(rows.landed, 'row')} of {rows.probe} that landed{unnested}, {rows.accounted:,} are in a place"
    return f"{text} ({places}): {abs(more):,} too {'few' if more < 0 else 'many'}"
