"""What one step of a pipeline has done, as records: it has landed rows of a source, or staged or published epochs of an
INSERT. `at_once` names the facts that are shown before all others, `status` is where the table or the INSERT is now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from tidegate.pipelines import pictures
from tidegate.pipelines.commands import Advice, either, resolving
from tidegate.pipelines.connectors.table import Table
from tidegate.pipelines.lake import Lake, StagedRow, VerdictRow, WatermarkRow
from tidegate.pipelines.lake.delta_log import logged_rows
from tidegate.pipelines.lake.layout import Places
from tidegate.pipelines.lake.stream import Stream
from tidegate.pipelines.location import Location
from tidegate.pipelines.pictures import Picture
from tidegate.pipelines.records.kinds import Column, Count, Hidden, Moment
from tidegate.pipelines.runtime.epochs import ReleasePlan
from tidegate.pipelines.runtime.epochs.history import newest_epochs
from tidegate.pipelines.runtime.gate import GateVerdict
from tidegate.pipelines.runtime.landing.advances import Advance, LandedEpoch
from tidegate.pipelines.runtime.ledger import left_waiting
from tidegate.pipelines.runtime.missing_fields import MissingFields
from tidegate.pipelines.runtime.releasing.doubled import doubled_rows
from tidegate.pipelines.runtime.splits import Splits, of_a_file
from tidegate.pipelines.runtime.status import InsertStatus, SourceStatus, insert_status, source_status
from tidegate.pipelines.text import counted
from tidegate.pipelines.watermarks import MAX_TIMESTAMP, MIN_TIMESTAMP
from tidegate.pipelines.watermarks.watermark import instant
from tidegate.quality_checks.outcome_counts import asked

if TYPE_CHECKING:  # with Spark, which a look at a lake does without
    from tidegate.pipelines.runtime.epochs.position import HeldEpoch, Position, Waiting
    from tidegate.pipelines.runtime.releasing.insert_runner import InsertRunner, Published


# --- a source ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LandedStep:
    epoch: int
    phase: str
    rows: Count
    what: str
    flip: bool


@dataclass(frozen=True)
class ReadChunk:
    """A chunk of a snapshot, and the log position that its read view equals."""

    chunk: int
    bounds: Any
    cut: Any


@dataclass(frozen=True)
class BlockedSplit:
    """A split that alignment holds back, and who is waited for."""

    split: str
    since: Moment
    ahead: Annotated[int, Column("ahead (ms)")]
    waits_for: str
    next_row: Moment | None


@dataclass(frozen=True, kw_only=True)
class SourceStep:
    """A source table after a step."""

    summary: Annotated[str, Hidden()]
    at_once: Annotated[tuple[str, ...], Hidden()] = (
        "row_count", "rows_landed", "flipped", "watermark_ms", "lag_ms",
        "chunks", "chunks_done", "watermarks_of_splits",
    )  # fmt: skip
    row_count: Annotated[Count | None, Column("dagster/row_count")] = 0
    rows_landed: Count = 0
    flipped: int = 0
    watermark_ms: Annotated[int | None, Column("watermark (ms)")] = None
    lag_ms: Annotated[int | None, Column("lag (ms)")] = None
    watermarks_of_splits: Picture | None = None
    generation: int | None = None
    epoch: int | None = None
    epochs_landed: Count | None = None
    watermark: str | None = None
    flip_epoch: int | None = None
    late_rows: Count | None = None
    rejected_messages: Count | None = None
    columns_without_a_field: str | None = None
    position: str | None = None
    alignment_group: str | None = None
    group_watermark: str | None = None
    blocked_splits: Count | None = None
    blocked: tuple[BlockedSplit, ...] | None = None
    epochs: tuple[LandedStep, ...] | None = None
    phase: str | None = None
    what: str | None = None
    chunks: Count | None = None
    chunks_done: Count | None = None
    cuts: tuple[ReadChunk, ...] | None = None
    status: SourceStatus | None = None


def advanced(lake: Lake, table: Table, advance: Advance) -> SourceStep:
    """A source table after an advance."""
    last = advance.last
    if last is None:
        return SourceStep(summary="the source has no rows yet")
    known, chunks = Stream(lake, table.name).generation(advance.generation).sums(), _chunks(lake, table, advance)
    found = _of_row(last, known.rows, advance.rows)
    summary = _sentence(table, advance, known.rejected, chunks)
    if not advance.epochs and not advance.blocked:
        return SourceStep(summary=summary, **found)
    missing, aligned, drawn = MissingFields.of(last), {}, pictures.watermarks(last, [s.split for s in advance.blocked])
    if (group := advance.aligned) is not None:
        aligned = {
            "alignment_group": group.group,
            "group_watermark": "none" if group.minimum is None else instant(group.minimum),
            "blocked_splits": len(group.blocked),
            "blocked": tuple(
                BlockedSplit(item.split, item.since, item.ahead_ms, " / ".join(item.by), item.next_rowtime)
                for item in group.blocked
            ),
        }
    landed = (LandedStep(item.epoch, item.phase, item.rows, item.summary, item.flipped) for item in advance.epochs)
    return SourceStep(
        summary=summary,
        watermarks_of_splits=drawn,
        **_place(last, len(advance.epochs)),
        flip_epoch=last.flip_epoch,
        late_rows=last.late,
        rejected_messages=known.rejected or None,
        columns_without_a_field=missing.sentence(table.name) if missing else None,
        epochs=tuple(landed),
        status=source_status(lake, table.name, last.landed_at),
        **found,
        **aligned,
        **chunks,
    )


def landed(stream: Stream, row: WatermarkRow | None, since: int) -> SourceStep:
    """A source table whose epochs after `since` have landed in another process; `row` is the last one of them."""
    if row is None:
        return SourceStep(summary="the source has no rows yet")
    generation, epochs = stream.generation(row.generation), row.epoch - since
    rows = generation.landed(since, row.epoch)
    summary = f"{counted(rows, 'row')} landed in {counted(epochs, 'epoch')}, outside of Dagster"
    return SourceStep(
        summary=f"flipped; {summary}" if row.flip_epoch else summary,
        **_of_row(row, generation.sums().rows, rows),
        **_place(row, epochs),
    )


def loading(lake: Lake, table: Table, epoch: LandedEpoch) -> SourceStep:
    """A source table while a step lands it: how far its bounded phase is."""
    chunks = _chunks(lake, table, epoch)
    read = f", {_read(chunks)}" if chunks else ""
    rows = f"{counted(epoch.rows, 'row')} landed in epoch {epoch.epoch}"
    return SourceStep(
        summary=f"{'flipped' if epoch.flipped else 'loading'}{read}; {rows}",
        at_once=("row_count", "rows_landed", "flipped", "chunks", "chunks_done"),
        row_count=Stream(lake, table.name).generation(epoch.generation).sums().rows,
        rows_landed=epoch.rows,
        flipped=int(epoch.flipped),
        generation=epoch.generation,
        epoch=epoch.epoch,
        phase=epoch.phase,
        what=epoch.summary,
        **chunks,
    )


def _of_row(row: WatermarkRow, row_count: int, landed: int) -> dict[str, Any]:
    """What Dagster plots. A watermark has no number before there is one, and after the end."""
    timed = MIN_TIMESTAMP < row.timestamp < MAX_TIMESTAMP
    return {
        "row_count": row_count,
        "rows_landed": landed,
        "flipped": int(row.flip_epoch is not None),
        "watermark_ms": row.timestamp if timed else None,
        "lag_ms": row.lag_ms,
    }


def _place(row: WatermarkRow, epochs: int) -> dict[str, Any]:
    return {
        "generation": row.generation,
        "epoch": row.epoch,
        "epochs_landed": epochs,
        "watermark": f"({instant(row.timestamp)}, {str(row.use_processing_time).lower()})",
        "position": row.position or None,
    }


def _chunks(lake: Lake, table: Table, found: Advance | LandedEpoch) -> dict[str, Any]:
    splits = [row for row in Splits(lake, table.name, found.generation).rows() if not of_a_file(row["detail"])]
    done = [split for split in splits if split["cut"] is not None]
    if not splits:
        return {}
    cuts = tuple(ReadChunk(split["ordinal"], split["detail"], split["cut"]) for split in reversed(done))
    return {"chunks": len(splits), "chunks_done": len(done), "cuts": cuts}


def cuts_of(lake: Lake, table: str, generation: int) -> tuple[Mapping[str, Any], ...]:
    """The log positions that the read views of a snapshot's chunks equal."""
    return tuple(row["cut"] for row in Splits(lake, table, generation).rows() if row["cut"] is not None)


def _read(chunks: Mapping[str, Any]) -> str:
    return f"{chunks['chunks_done']:,} of {counted(chunks['chunks'], 'chunk')} read"


def _sentence(table: Table, advance: Advance, rejected: int, chunks: Mapping[str, Any]) -> str:
    parts = []
    if table.role == "build":
        parts.append("flipped" if advance.flipped else f"still loading{f', {_read(chunks)}' if chunks else ''}")
    new = f"{counted(advance.rows, 'row')} landed in {counted(len(advance.epochs), 'epoch')}"
    parts.append(new if advance.epochs else "nothing new at the source")
    if rejected:
        parts.append(f"{counted(rejected, 'message')} could not be read as rows")
    if advance.blocked:
        others = ", ".join(sorted({" / ".join(item.by) for item in advance.blocked}))
        parts.append(f"next: {counted(len(advance.blocked), 'split')} once {others} has caught up (alignment)")
    elif table.role == "build" and not advance.flipped:
        parts.append("next: the rest of it; rows that join it wait until it has flipped")
    return "; ".join(parts)


# --- an INSERT --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PinnedBuild:
    build: str
    generation: int
    epoch: int
    flip_epoch: int


@dataclass(frozen=True, kw_only=True)
class InsertStep:
    """An INSERT after a step. `judged`: the verdict that is shown with it."""

    summary: Annotated[str, Hidden()]
    at_once: Annotated[tuple[str, ...], Hidden()]
    judged: Annotated[GateVerdict | None, Hidden()] = None
    row_count: Annotated[Count | None, Column("dagster/row_count")] = None
    rows_published: Count | None = None
    rows_quarantined: Count | None = None
    gate_passed: int | None = None
    waiting_for: str | None = None
    released_rows: Count | None = None
    matched_rows: Count | None = None
    staged_rows: Count | None = None
    staged_for_quarantine: Count | None = None
    waiting_rows: Count | None = None
    reasons: str | None = None
    next: Advice | None = None
    rows_by_epoch: Picture | None = None
    epochs_published: Count | None = None
    quarantine_rows: Count | None = None
    epoch: int | None = None
    generation: int | None = None
    kind: str | None = None
    plan: str | None = None
    instant: Moment | None = None
    probe_epochs: str | None = None
    released_by: str | None = None
    rows_may_still_come: str | None = None
    rows_released_again: Count | None = None
    replaces_epochs: str | None = None
    rows_out_of_quarantine: Count | None = None
    watermark: Moment | None = None
    pins: tuple[PinnedBuild, ...] | None = None
    dropped_rows: Count | None = None
    rows_of_a_key_that_came_twice: Count | None = None
    unmatched_ratio: float | None = None
    late_rows: Count | None = None
    outcomes: Mapping[str, int] | None = None
    state: str | None = None
    staged_at: Moment | None = None
    verdict: str | None = None
    decided_at: Moment | None = None
    status: InsertStatus | None = None


def staged(releasing: InsertRunner, plan: ReleasePlan, row: StagedRow) -> InsertStep:
    """The epoch that is staged now."""
    position = releasing.position()
    waiting = releasing.waiting(position)
    return InsertStep(
        summary=f"{_staged(plan, row)}; {_wait(waiting)}; next: the gate's verdict",
        at_once=(*_STAGED, "waiting_rows"),
        waiting_rows=waiting,
        state=position.state or "",
        status=_status(releasing),
        **_of_staged(plan, row),
    )


def staged_elsewhere(plan: ReleasePlan, row: StagedRow) -> InsertStep:
    """An epoch that another process has staged."""
    return InsertStep(
        summary=f"{_staged(plan, row)}, outside of Dagster", at_once=_STAGED, **_of_staged(plan, row)
    )  # fmt: skip


_STAGED = ("released_rows", "matched_rows", "staged_rows", "staged_for_quarantine")


def _staged(plan: ReleasePlan, row: StagedRow) -> str:
    counts = row.counts
    goes = f"{counts.get('to:publish', 0):,} to publish, {counts.get('to:quarantine', 0):,} to quarantine"
    return f"epoch {plan.epoch} is staged: {counted(counts.get('rows', 0), 'row')} released, {goes}"


def _of_staged(plan: ReleasePlan, row: StagedRow) -> dict[str, Any]:
    places = {"staged_rows": "to:publish", "staged_for_quarantine": "to:quarantine"}
    found = {name: row.counts.get(place, 0) for name, place in places.items()}
    return {**_of_plan(plan), **_of_counts(row), **found, "staged_at": row.staged_at}


def waits(releasing: InsertRunner, waiting: Waiting) -> InsertStep:
    """Nothing could be staged."""
    position, probe, status = releasing.position(), releasing.insert.probe, _status(releasing)
    above = status.waits_for_inserts
    flips, held_by = " and ".join(waiting.unflipped), " and ".join(waiting.held_by)
    then = f"what {' and '.join(above)} publishes" if above else f"what comes of {probe}"
    if flips or held_by:
        then = f"they are released once {flips or held_by} {'has flipped' if flips else 'is further'}"
    return InsertStep(
        summary=f"{_wait(waiting.rows)}: {waiting.reason}; next: {then}",
        at_once=("waiting_for", "waiting_rows", "staged_rows", "epoch"),
        waiting_for=", ".join(waiting.unflipped or above or waiting.held_by) or f"rows of {probe}",
        waiting_rows=waiting.rows,
        staged_rows=0,
        epoch=position.plan.epoch if position.plan else 0,
        status=status,
    )


def held(insert: str, found: HeldEpoch, waiting: int) -> InsertStep:
    """The newest epoch is held, so nothing new can be staged; `waiting` rows are not released."""
    plan, row, ways_out = found.plan, found.staged, either(*resolving(insert))
    return InsertStep(
        summary=f"the gate holds epoch {plan.epoch}; {_wait(waiting)}; next: {ways_out}",
        at_once=("gate_passed", "waiting_rows", "reasons", "next"),
        gate_passed=0,
        waiting_rows=waiting,
        reasons="\n".join(found.verdict.reasons),
        next=ways_out,
        verdict="held",
        staged_at=row.staged_at,
        **_of_plan(plan),
        **_of_counts(row),
    )


_PUBLISHED = ("row_count", "rows_published", "rows_quarantined", "waiting_rows")


def published(releasing: InsertRunner, before: Position, done: Sequence[Published]) -> InsertStep:
    """The target after a step that published these epochs, the last one in detail; `before` is the INSERT's position
    when the step began."""
    last, after = (done[-1] if done else None), releasing.position()
    lake, target, insert = releasing.lake, releasing.target, releasing.insert
    waiting, rows = releasing.waiting(after), sum(epoch.rows for epoch in done)
    quarantined = sum(epoch.quarantined for epoch in done)
    found = {
        "row_count": logged_rows(lake.target_path(target)),
        "rows_published": rows,
        "rows_quarantined": quarantined,
        "waiting_rows": waiting,
    }
    if last is None or before.state == "published":
        reason = f"epoch {before.plan.epoch} is planned and not staged" if before.plan else "nothing is staged"
        reason = reason if last is None else f"nothing new is staged since epoch {last.epoch}"
        return InsertStep(
            summary=f"nothing was published: {reason}; {_wait(waiting)}",
            at_once=(*_PUBLISHED, "epoch"),
            epoch=last.epoch if last else 0,
            **found,
        )
    verdict = after.verdict if after.plan == last.plan else None  # the gate may hold the epoch after it
    then = "what waits" if waiting else f"what comes of {insert.probe}"
    epochs = newest_epochs(lake, insert.id, releasing.target_path, pictures.LAST_OUTCOMES)
    return InsertStep(
        summary=f"{_published(len(done), last.plan, rows, quarantined, waiting)}; next: {then}",
        at_once=(*_PUBLISHED, "gate_passed", "rows_by_epoch"),
        gate_passed=1,
        rows_by_epoch=pictures.outcomes(epochs, left_waiting(lake, epochs), waiting),
        status=_status(releasing),
        **found,
        **_details(len(done), last.plan, last.staged, verdict, lake.quarantine_path(target, insert)),
    )


def published_elsewhere(
    plan: ReleasePlan, rows: Sequence[StagedRow], verdict: VerdictRow, waiting: int, places: Places
) -> InsertStep:
    """The target after epochs that another process has published: what they staged, the newest first, of which `plan`
    and `verdict` are."""
    added, quarantined = (sum(row.counts.get(f"to:{place}", 0) for row in rows) for place in ("publish", "quarantine"))
    return InsertStep(
        summary=f"{_published(len(rows), plan, added, quarantined, waiting)}, outside of Dagster",
        at_once=(*_PUBLISHED, "gate_passed"),
        row_count=logged_rows(places.target),
        rows_published=added,
        rows_quarantined=quarantined,
        waiting_rows=waiting,
        gate_passed=1,
        **_details(len(rows), plan, rows[0], verdict, places.quarantine),
    )


def _details(
    epochs: int, plan: ReleasePlan, row: StagedRow, verdict: VerdictRow | None, quarantine: Location
) -> dict[str, Any]:
    """Of so many published epochs: the last one at length."""
    return {
        **_of_plan(plan),
        **_of_counts(row),
        "epochs_published": epochs,
        "quarantine_rows": logged_rows(quarantine),
        "verdict": "passed",
        "decided_at": verdict.decided_at if verdict else None,
        "judged": GateVerdict.of(verdict) if verdict else None,
    }


def _published(epochs: int, plan: ReleasePlan, rows: int, quarantined: int, waiting: int) -> str:
    number = f"epoch {plan.epoch} is" if epochs == 1 else f"{counted(epochs, 'epoch')} up to {plan.epoch} are"
    return f"{number} published: {counted(rows, 'row')}, {quarantined:,} more to quarantine; {_wait(waiting)}"


def _wait(rows: int) -> str:
    return f"{counted(rows, 'row')} {'waits' if rows == 1 else 'wait'}" if rows else "none waits"


def _status(releasing: InsertRunner) -> InsertStatus:
    return insert_status(releasing.lake, releasing.pipeline, releasing.insert.id)


def _of_plan(plan: ReleasePlan) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if plan.spans:
        spans = [str(first) if first == last else f"{first} to {last}" for first, last in plan.replaces]
        found = {"rows_released_again": plan.rows_again, "replaces_epochs": ", ".join(spans) or "none"}
    if plan.out_of_quarantine:
        found["rows_out_of_quarantine"] = plan.rows_claimed
    return {
        **found,
        "epoch": plan.epoch,
        "generation": plan.generation,
        "kind": plan.kind,
        "plan": plan.digest,
        "instant": plan.instant,
        "probe_epochs": f"{plan.probe} {plan.reads[0] + 1} to {plan.reads[1]}",
        "watermark": plan.watermark if plan.bounds else None,
        "pins": tuple(PinnedBuild(pin.table, pin.generation, pin.epoch, pin.flip_epoch) for pin in plan.pins),
    }


def _of_counts(row: StagedRow) -> dict[str, Any]:
    """How many released rows had which outcome."""
    counts = row.counts
    outcomes = {name: n for name, n in counts.items() if n and name != "rows" and not name.startswith("to:")}
    rows, unmatched = asked(counts)
    return {
        "released_rows": counts.get("rows", 0),
        "matched_rows": counts.get("matched", 0),
        "dropped_rows": counts.get("to:drop", 0),
        "rows_of_a_key_that_came_twice": doubled_rows(row.facts),
        "unmatched_ratio": sum(unmatched.values()) / rows if rows else 0.0,
        "late_rows": row.late,
        "outcomes": dict(sorted(outcomes.items(), key=lambda item: -item[1])),
    }
