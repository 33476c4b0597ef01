"""Metadata of materialisations: a sentence, the numbers that Dagster plots over time, and the rest folded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import dagster as dg

from tidegate.assets.checks import IN_DAGSTER, data_docs
from tidegate.assets.text import in_short, records, watermark
from tidegate.pipelines import pictures
from tidegate.pipelines.commands import Commands, either, resolving
from tidegate.pipelines.connectors.table import Table
from tidegate.pipelines.lake import Lake, StagedRow, VerdictRow, WatermarkRow
from tidegate.pipelines.lake.delta_log import logged_rows
from tidegate.pipelines.lake.layout import Places
from tidegate.pipelines.lake.stream import Stream
from tidegate.pipelines.location import Location
from tidegate.pipelines.runtime.epochs import Backfill, BackfillPlan, ReleasePlan, RequeuePlan
from tidegate.pipelines.runtime.epochs.history import newest_epochs
from tidegate.pipelines.runtime.gate import GateVerdict
from tidegate.pipelines.runtime.landing.advances import Advance, LandedEpoch
from tidegate.pipelines.runtime.landing.alignment import GroupPosition
from tidegate.pipelines.runtime.ledger import left_waiting
from tidegate.pipelines.runtime.missing_fields import MissingFields
from tidegate.pipelines.runtime.splits import Splits, of_a_file
from tidegate.pipelines.text import counted
from tidegate.pipelines.watermarks import MAX_TIMESTAMP, MIN_TIMESTAMP
from tidegate.pipelines.watermarks.watermark import instant
from tidegate.quality_checks.outcome_counts import asked

if TYPE_CHECKING:  # with Spark, which a look at a lake does without
    from tidegate.pipelines.runtime.epochs.position import HeldEpoch, Position, Waiting
    from tidegate.pipelines.runtime.releasing.insert_runner import InsertRunner, Published
    from tidegate.pipelines.sql.model import Insert


def of_advance(lake: Lake, table: Table, advance: Advance) -> dict[str, Any]:
    """A source table after an advance."""
    known, last, aligned = Stream(lake, table.name).generation(advance.generation).sums(), advance.last, advance.aligned
    if last is None:
        return _no_rows_yet()
    chunks, missing = _chunks(lake, table, advance.generation), MissingFields.of(last)
    news = bool(advance.epochs or advance.blocked)
    return in_short(
        _sentence(table, advance, known.rejected, chunks),
        {
            "dagster/row_count": known.rows,
            "rows landed": advance.rows,
            "flipped": int(advance.flipped),
            "watermark (ms)": _plotted(last.timestamp),
            "lag (ms)": last.lag_ms,
        },
        {
            "generation": advance.generation,
            "epoch": last.epoch,
            "epochs landed": len(advance.epochs),
            "landed at": instant(last.landed_at),
            "watermark": watermark(last.timestamp, last.use_processing_time),
            "idle": last.idle,
            **({} if last.flip_epoch is None else {"flip epoch": last.flip_epoch}),
            **({} if last.flipped_at is None else {"flipped at": instant(last.flipped_at)}),
            **({} if last.late is None else {"late rows": last.late}),
            **({"rejected messages": known.rejected} if known.rejected else {}),
            **({"columns without a field": missing.sentence(table.name)} if missing else {}),
            **({"position": last.position} if last.position else {}),
            **(_aligned(aligned) if aligned is not None else {}),
            "epochs": records(
                ("epoch", "phase", "rows", "what", "flip"),
                [(item.epoch, item.phase, item.rows, item.summary, item.flipped) for item in advance.epochs],
            ),
            **chunks,
        }
        if news
        else None,
        **{"watermarks of splits": _watermarks_of_splits(last, advance) if news else None},
    )


def _no_rows_yet() -> dict[str, Any]:
    return in_short("the source has no rows yet", {"dagster/row_count": 0, "rows landed": 0, "flipped": 0})


def of_landed(stream: Stream, row: WatermarkRow | None, since: int) -> dict[str, Any]:
    """A source table whose epochs after `since` have landed outside of Dagster; `row` is the last one of them."""
    if row is None:
        return _no_rows_yet()
    generation = stream.generation(row.generation)
    rows = generation.landed(since, row.epoch)
    epochs = counted(row.epoch - since, "epoch")
    return in_short(
        f"{'flipped; ' if row.flip_epoch else ''}{counted(rows, 'row')} landed in {epochs}, outside of Dagster",
        {
            "dagster/row_count": generation.sums().rows,
            "rows landed": rows,
            "flipped": int(row.flip_epoch is not None),
            "watermark (ms)": _plotted(row.timestamp),
            "lag (ms)": row.lag_ms,
        },
        {
            "generation": row.generation,
            "epoch": row.epoch,
            "epochs landed": row.epoch - since,
            "landed at": instant(row.landed_at),
            "watermark": watermark(row.timestamp, row.use_processing_time),
            **({"position": row.position} if row.position else {}),
        },
    )


def _sentence(table: Table, advance: Advance, rejected: int, chunks: dict[str, Any]) -> str:
    parts = []
    if table.role == "build":
        known = f", {chunks['chunks done']:,} of {counted(chunks['chunks'], 'chunk')} read" if chunks else ""
        parts.append("flipped" if advance.flipped else f"still loading{known}")
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


def of_loading(lake: Lake, table: Table, epoch: LandedEpoch) -> dict[str, Any]:
    """A source table while a step lands it: how far its bounded phase is."""
    chunks = _chunks(lake, table, epoch.generation)
    read = f", {chunks['chunks done']:,} of {counted(chunks['chunks'], 'chunk')} read" if chunks else ""
    return in_short(
        f"{'flipped' if epoch.flipped else 'loading'}{read}; "
        f"{counted(epoch.rows, 'row')} landed in epoch {epoch.epoch}",
        {
            "dagster/row_count": Stream(lake, table.name).generation(epoch.generation).sums().rows,
            "rows landed": epoch.rows,
            "flipped": int(epoch.flipped),
            "chunks": chunks.get("chunks"),
            "chunks done": chunks.get("chunks done"),
        },
        {"generation": epoch.generation, "epoch": epoch.epoch, "phase": epoch.phase, "what": epoch.summary, **chunks},
    )


def _watermarks_of_splits(last: WatermarkRow, advance: Advance) -> dg.MetadataValue | None:
    """A picture of how far each split has come."""
    drawn = pictures.watermarks(last, [item.split for item in advance.blocked])
    if drawn is None:
        return None
    return dg.MetadataValue.md(pictures.markdown(drawn, "the watermark of each split", pictures.SPLITS_KEY))


def _aligned(aligned: GroupPosition) -> dict[str, Any]:
    """A source's position in its alignment group: what is blocked, by whom and since when."""
    return {
        "alignment group": aligned.group,
        "group watermark": "none" if aligned.minimum is None else instant(aligned.minimum),
        "blocked splits": len(aligned.blocked),
        "blocked": records(
            ("split", "since", "ahead (ms)", "waits for", "next row"),
            [
                (
                    item.split,
                    instant(item.since),
                    item.ahead_ms,
                    " / ".join(item.by),
                    "" if item.next_rowtime is None else instant(item.next_rowtime),
                )
                for item in aligned.blocked
            ],
        ),
    }


def _chunks(lake: Lake, table: Table, generation: int) -> dict[str, Any]:
    """The chunks of a snapshot, and the log position that each one's read view equals."""
    splits = [row for row in Splits(lake, table.name, generation).rows() if not of_a_file(row["detail"])]
    if not splits:
        return {}
    done = [split for split in splits if split["cut"] is not None]
    return {
        "chunks": len(splits),
        "chunks done": len(done),
        "cuts": records(
            ("chunk", "bounds", "cut"),
            [(split["ordinal"], split["detail"], split["cut"]) for split in reversed(done)],
        ),
    }


def of_staged(releasing: InsertRunner, plan: ReleasePlan, staged: StagedRow) -> dict[str, Any]:
    """The epoch that is staged now."""
    position = releasing.position()
    waiting = releasing.waiting(position)
    return in_short(
        f"{_staged(plan, staged)}; {_wait(waiting)}; next: the gate's verdict",
        {**_rows_staged(staged), "waiting rows": waiting},
        {
            **_of_plan(plan),
            **_of_counts(staged),
            "state": position.state or "",
            "staged at": instant(staged.staged_at),
        },
    )


def of_staged_epoch(plan: ReleasePlan, staged: StagedRow) -> dict[str, Any]:
    """An epoch that was staged outside of Dagster."""
    return in_short(
        f"{_staged(plan, staged)}, outside of Dagster",
        _rows_staged(staged),
        {**_of_plan(plan), **_of_counts(staged), "staged at": instant(staged.staged_at)},
    )


def _staged(plan: ReleasePlan, staged: StagedRow) -> str:
    counts = staged.counts
    goes = f"{counts.get('to:publish', 0):,} to publish, {counts.get('to:quarantine', 0):,} to quarantine"
    return f"epoch {plan.epoch} is staged: {counted(counts.get('rows', 0), 'row')} released, {goes}"


def _rows_staged(staged: StagedRow) -> dict[str, Any]:
    counts = staged.counts
    return {
        "released rows": counts.get("rows", 0),
        "matched rows": counts.get("matched", 0),
        "staged rows": counts.get("to:publish", 0),
        "staged for quarantine": counts.get("to:quarantine", 0),
    }


def _wait(rows: int) -> str:
    return f"{counted(rows, 'row')} {'waits' if rows == 1 else 'wait'}" if rows else "none waits"


def _rows_by_epoch(releasing: InsertRunner, waiting: int) -> dg.MetadataValue:
    """A picture of where the rows of the last epochs went, and of how many waited then and wait now."""
    epochs = newest_epochs(releasing.lake, releasing.insert.id, releasing.target_path, pictures.LAST_OUTCOMES)
    drawn = pictures.outcomes(epochs, left_waiting(releasing.lake, epochs), waiting)
    return dg.MetadataValue.md(pictures.markdown(drawn, "rows by epoch, and those that wait", pictures.OUTCOMES_KEY))


def of_waiting(releasing: InsertRunner, waiting: Waiting) -> dict[str, Any]:
    """Nothing could be staged."""
    position = releasing.position()
    flips, held_by = " and ".join(waiting.unflipped), " and ".join(waiting.held_by)
    then = f"what comes of {releasing.insert.probe}"
    if flips or held_by:
        then = f"they are released once {flips or held_by} {'has flipped' if flips else 'is further'}"
    return in_short(
        f"{_wait(waiting.rows)}: {waiting.reason}; next: {then}",
        {
            "waiting for": ", ".join(waiting.unflipped or waiting.held_by) or f"rows of {releasing.insert.probe}",
            "waiting rows": waiting.rows,
            "staged rows": 0,
            "epoch": position.plan.epoch if position.plan else 0,
        },
    )


def of_held(insert: Insert, held: HeldEpoch, waiting: int, commands: Commands) -> dict[str, Any]:
    """The newest epoch is held, so nothing new can be staged; `waiting` rows are not released."""
    plan, staged = held.plan, held.staged
    ways_out = commands.shown(either(*resolving(insert.id)))
    return in_short(
        f"the gate holds epoch {plan.epoch}; {_wait(waiting)}; next: {ways_out}",
        {
            "gate passed": 0,
            "waiting rows": waiting,
            "reasons": "\n".join(held.verdict.reasons),
            "next": ways_out,
            "next in Dagster": IN_DAGSTER,
        },
        {**_of_plan(plan), **_of_counts(staged), "verdict": "held", "staged at": instant(staged.staged_at)},
    )


def of_published(releasing: InsertRunner, before: Position, done: Sequence[Published]) -> dict[str, Any]:
    """The target after a step that published these epochs, the last one in detail; `before` is the INSERT's position
    when the step began."""
    published = done[-1] if done else None
    after = releasing.position()
    lake, target, insert = releasing.lake, releasing.target, releasing.insert
    waiting, rows = releasing.waiting(after), sum(epoch.rows for epoch in done)
    quarantined = sum(epoch.quarantined for epoch in done)
    facts: dict[str, Any] = {
        "dagster/row_count": logged_rows(lake.target_path(target)),
        "rows published": rows,
        "rows quarantined": quarantined,
        "waiting rows": waiting,
    }
    if published is None or before.state == "published":
        reason = f"epoch {before.plan.epoch} is planned and not staged" if before.plan else "nothing is staged"
        reason = reason if published is None else f"nothing new is staged since epoch {published.epoch}"
        epoch = published.epoch if published else 0
        return in_short(f"nothing was published: {reason}; {_wait(waiting)}", {**facts, "epoch": epoch})
    verdict = after.verdict if after.plan == published.plan else None  # the gate may hold the epoch after it
    return in_short(
        f"{_published(len(done), published.plan, rows, quarantined, waiting)}; next: "
        f"{'those' if waiting else f'what comes of {insert.probe}'}",
        {**facts, "gate passed": 1},
        _details(len(done), published.plan, published.staged, verdict, lake.quarantine_path(target, insert)),
        **{"rows by epoch": _rows_by_epoch(releasing, waiting)},
        **(data_docs(GateVerdict.of(verdict)) if verdict else {}),
    )


def of_epochs(
    plan: ReleasePlan,
    staged: Sequence[StagedRow],
    verdict: VerdictRow,
    waiting: int,
    places: Places,
) -> dict[str, Any]:
    """The target after epochs that were published outside of Dagster: what they `staged`, the newest first, of which
    `plan` and `verdict` are."""
    rows, quarantined = (sum(row.counts.get(f"to:{place}", 0) for row in staged) for place in ("publish", "quarantine"))
    return in_short(
        f"{_published(len(staged), plan, rows, quarantined, waiting)}, outside of Dagster",
        {
            "dagster/row_count": logged_rows(places.target),
            "rows published": rows,
            "rows quarantined": quarantined,
            "waiting rows": waiting,
            "gate passed": 1,
        },
        _details(len(staged), plan, staged[0], verdict, places.quarantine),
        **data_docs(GateVerdict.of(verdict)),
    )


def _details(
    epochs: int, plan: ReleasePlan, staged: StagedRow, verdict: VerdictRow | None, quarantine: Location
) -> dict[str, Any]:
    """Of so many published epochs: the last one at length."""
    return {
        "epochs published": epochs,
        "quarantine rows": logged_rows(quarantine),
        **_of_plan(plan),
        **_of_counts(staged),
        "verdict": "passed",
        **({"decided at": instant(verdict.decided_at)} if verdict else {}),
    }


def _published(epochs: int, plan: ReleasePlan, rows: int, quarantined: int, waiting: int) -> str:
    number = f"epoch {plan.epoch} is" if epochs == 1 else f"{counted(epochs, 'epoch')} up to {plan.epoch} are"
    return f"{number} published: {counted(rows, 'row')}, {quarantined:,} more to quarantine; {_wait(waiting)}"


def _of_plan(plan: ReleasePlan) -> dict[str, Any]:
    time = {"watermark": instant(plan.watermark)} if plan.in_event_time else {}
    return {
        "epoch": plan.epoch,
        "generation": plan.generation,
        "kind": plan.kind,
        "plan": plan.digest,
        "instant": instant(plan.instant),
        "probe epochs": f"{plan.probe} {plan.reads[0] + 1} to {plan.reads[1]}",
        **(_of_backfill(plan.backfill) if isinstance(plan, BackfillPlan) else {}),
        **({"rows out of quarantine": plan.from_quarantine.rows} if isinstance(plan, RequeuePlan) else {}),
        **time,
        "pins": records(
            ("build", "generation", "epoch", "flip epoch"),
            [(pin.table, pin.generation, pin.epoch, pin.flip_epoch) for pin in plan.pins],
        ),
    }


def _plotted(timestamp: int) -> int | None:
    """A watermark as a number (ms, UTC): Dagster plots nothing else. None before there is one, and after the end."""
    return timestamp if MIN_TIMESTAMP < timestamp < MAX_TIMESTAMP else None


def _of_backfill(backfill: Backfill) -> dict[str, Any]:
    """What a backfill replaced."""
    spans = [str(first) if first == last else f"{first} to {last}" for first, last in backfill.replaces]
    return {"rows released again": backfill.rows_again, "replaces epochs": ", ".join(spans) or "none"}


def _of_counts(staged: StagedRow) -> dict[str, Any]:
    """How many released rows had which outcome."""
    counts = staged.counts
    outcomes = {name: n for name, n in counts.items() if n and name != "rows" and not name.startswith("to:")}
    rows, unmatched = asked(counts)
    return {
        "released rows": counts.get("rows", 0),
        "matched rows": counts.get("matched", 0),
        "dropped rows": counts.get("to:drop", 0),
        "unmatched ratio": sum(unmatched.values()) / rows if rows else 0.0,
        **({} if staged.late is None else {"late rows": staged.late}),
        "outcomes": dict(sorted(outcomes.items(), key=lambda item: -item[1])),
    }
