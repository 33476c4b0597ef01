"""What a materialisation tells: numbers that Dagster plots over time, and tables that a person reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dagster as dg
from deltalake import DeltaTable

from tidegate.assets.checks import IN_DAGSTER, data_docs
from tidegate.assets.text import markdown_table, watermark
from tidegate.pipelines import pictures
from tidegate.pipelines.commands import Commands
from tidegate.pipelines.lake import Lake, StagedRow
from tidegate.pipelines.runtime.accounting import left_waiting
from tidegate.pipelines.runtime.gate import GateVerdict
from tidegate.pipelines.runtime.history import history_of
from tidegate.pipelines.runtime.landing.advances import Advance, LandedEpoch
from tidegate.pipelines.runtime.landing.alignment import GroupStanding
from tidegate.pipelines.runtime.landing.split_store import Splits, of_a_file
from tidegate.pipelines.runtime.plans import Backfill, ReleasePlan
from tidegate.pipelines.runtime.releasing import Position, Published, Releasing, Waiting
from tidegate.pipelines.sql.model import Table
from tidegate.pipelines.watermarks import MAX_TIMESTAMP, MIN_TIMESTAMP
from tidegate.pipelines.watermarks.watermark import instant
from tidegate.quality_checks.statistics import asked

SHOWN_ROWS = 20
"""Rows of a markdown table before the rest is only counted."""


def of_advance(lake: Lake, table: Table, advance: Advance) -> dict[str, Any]:
    """A source table after an advance."""
    log = lake.watermarks.rows(table.name, generation=advance.generation)
    metadata: dict[str, Any] = {
        "dagster/row_count": sum(row.rows for row in log),
        "rows landed": advance.rows,
        "epochs landed": len(advance.epochs),
        "generation": advance.generation,
        "flip": advance.flipped,
        "flipped": int(advance.flipped),
    }
    last = advance.last
    if last is None:
        return {**metadata, "epoch": 0, "waiting": "the source has no rows yet"}
    metadata |= {
        "epoch": last.epoch,
        "landed at": instant(last.landed_at),
        "watermark": watermark(last.timestamp, last.use_processing_time),
        "idle": last.idle,
        **_plotted_watermark(last.timestamp),
    }
    if last.late is not None:
        metadata["late rows"] = last.late
    if any(row.rejected is not None for row in log):
        metadata["rejected messages"] = sum(row.rejected or 0 for row in log)
    if advance.aligned is not None:
        metadata |= _aligned(advance.aligned)
    if last.lag_ms is not None:
        metadata["lag (ms)"] = last.lag_ms
    held_back = [item.split for item in advance.aligned.blocked] if advance.aligned else []
    if (drawn := pictures.watermarks(last, held_back)) is not None:
        metadata["watermarks of splits"] = dg.MetadataValue.md(
            pictures.markdown(drawn, "the watermark of each split", pictures.SPLITS_KEY)
        )
    if last.position:
        metadata["position"] = last.position
    if last.flip_epoch is not None:
        metadata |= {"flip epoch": last.flip_epoch, "flipped at": instant(last.flipped_at or 0)}
    if advance.epochs:
        metadata["epochs"] = dg.MetadataValue.md(
            _table(
                ("epoch", "phase", "rows", "what", "flip"),
                [(item.epoch, item.phase, item.rows, item.summary, item.flipped) for item in advance.epochs],
            )
        )
    return metadata | _cuts(lake, table, advance.generation)


def of_loading(lake: Lake, table: Table, epoch: LandedEpoch) -> dict[str, Any]:
    """A source table while a step lands it: how far its bounded phase is."""
    log = lake.watermarks.rows(table.name, generation=epoch.generation)
    return {
        "generation": epoch.generation,
        "epoch": epoch.epoch,
        "phase": epoch.phase,
        "what": epoch.summary,
        "rows landed": epoch.rows,
        "dagster/row_count": sum(row.rows for row in log),
        "flipped": int(epoch.flipped),
        **_cuts(lake, table, epoch.generation),
    }


def _aligned(aligned: GroupStanding) -> dict[str, Any]:
    """Where a source stands in its alignment group: what is blocked, by whom and since when."""
    return {
        "alignment group": aligned.group,
        "group watermark": "none" if aligned.minimum is None else instant(aligned.minimum),
        "blocked splits": len(aligned.blocked),
        "blocked": dg.MetadataValue.md(
            _table(
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
            )
        ),
    }


def _cuts(lake: Lake, table: Table, generation: int) -> dict[str, Any]:
    """The chunks of a snapshot, and the log position that each one's read view equals."""
    splits = [row for row in Splits(lake, table.name, generation).rows() if not of_a_file(row["detail"])]
    if not splits:
        return {}
    done = [split for split in splits if split["cut"] is not None]
    return {
        "chunks": len(splits),
        "chunks done": len(done),
        "cuts": dg.MetadataValue.md(
            _table(
                ("chunk", "bounds", "cut"),
                [(split["ordinal"], split["detail"], split["cut"]) for split in reversed(done)],
            )
        ),
    }


def of_staged(releasing: Releasing) -> dict[str, Any]:
    """The epoch that is staged now."""
    position = releasing.position()
    assert position.plan is not None
    assert position.staged is not None
    return {
        **_of_plan(position.plan),
        **_of_counts(position.staged),
        "state": position.state or "",
        "waiting rows": releasing.waiting(position),
        "staged at": instant(position.staged.staged_at),
    }


def _rows_by_epoch(releasing: Releasing, waiting: int) -> dg.MetadataValue:
    """A picture of where the rows of the last epochs went, and of how many waited then and wait now."""
    epochs = history_of(releasing.lake, releasing.pipeline, releasing.insert)[-pictures.LAST_OUTCOMES :]
    drawn = pictures.outcomes(epochs, left_waiting(releasing.lake, epochs), waiting)
    return dg.MetadataValue.md(pictures.markdown(drawn, "rows by epoch, and those that wait", pictures.OUTCOMES_KEY))


def of_waiting(releasing: Releasing, waiting: Waiting) -> dict[str, Any]:
    """Nothing could be staged."""
    position = releasing.position()
    return {
        "waiting": waiting.reason,
        "waiting for": ", ".join(waiting.unflipped) or f"rows of {releasing.insert.probe}",
        "waiting rows": waiting.rows,
        "rows by epoch": _rows_by_epoch(releasing, waiting.rows),
        "staged rows": 0,
        "epoch": position.plan.epoch if position.plan else 0,
        "state": position.state or "nothing planned yet",
    }


def of_held(releasing: Releasing, commands: Commands) -> dict[str, Any]:
    """The newest epoch is held, so nothing new can be staged."""
    position = releasing.position()
    assert position.verdict is not None
    return {
        **of_staged(releasing),
        "rows by epoch": _rows_by_epoch(releasing, releasing.waiting(position)),
        "verdict": "held",
        "gate passed": 0,
        "reasons": commands.filled("\n".join(position.verdict.reasons)),
        "next": commands.resolving(releasing.insert.id),
        "next in Dagster": IN_DAGSTER,
    }


def of_published(releasing: Releasing, before: Position, done: Sequence[Published]) -> dict[str, Any]:
    """The target after a step that published these epochs, the last one at length; `before` is where the INSERT stood
    when it began."""
    published = done[-1] if done else None
    after = releasing.position()
    lake, target, insert = releasing.lake, releasing.target, releasing.insert
    metadata: dict[str, Any] = {
        "dagster/row_count": table_rows(str(lake.target_path(target))),
        "quarantine rows": table_rows(str(lake.quarantine_path(target, insert))),
        "waiting rows": releasing.waiting(after),
        "rows by epoch": _rows_by_epoch(releasing, releasing.waiting(after)),
        "rows published": sum(epoch.rows for epoch in done),
        "rows quarantined": sum(epoch.quarantined for epoch in done),
    }
    if published is None:
        told = "nothing is staged" if before.plan is None else f"epoch {before.plan.epoch} is planned and not staged"
        return {**metadata, "epoch": 0, "waiting": f"{told}, so nothing was published"}
    if before.state == "published":
        told = f"nothing new is staged: epoch {published.epoch} was published before"
        return {**metadata, "epoch": published.epoch, "generation": published.generation, "waiting": told}
    verdict = after.verdict if after.plan == published.plan else None  # the gate may hold the epoch after it
    return {
        **metadata,
        **_of_plan(published.plan),
        **_of_counts(published.staged),
        "verdict": "passed",
        "gate passed": 1,
        "decided at": instant(verdict.decided_at) if verdict else "",
        **({"epochs published": len(done)} if len(done) > 1 else {}),
        **(data_docs(GateVerdict.of(verdict)) if verdict else {}),
    }


def table_rows(path: str) -> int:
    """Rows of a Delta table, by the statistics of its log; no data is read."""
    if not DeltaTable.is_deltatable(path):
        return 0
    counts = DeltaTable(path).get_add_actions(flatten=True).column("num_records").to_pylist()
    return sum(count or 0 for count in counts)


def _of_plan(plan: ReleasePlan) -> dict[str, Any]:
    return {
        "epoch": plan.epoch,
        "generation": plan.generation,
        "kind": plan.kind,
        "plan": plan.digest,
        "instant": instant(plan.instant),
        "probe epochs": f"{plan.probe} {plan.reads[0] + 1} to {plan.reads[1]}",
        **(_of_backfill(plan.backfill) if plan.backfill else {}),
        **({"rows out of quarantine": plan.from_quarantine.rows} if plan.from_quarantine else {}),
        **({"watermark": instant(plan.time.watermark)} if plan.time else {}),
        **(_plotted_watermark(plan.time.watermark) if plan.time else {}),
        "pins": dg.MetadataValue.md(
            _table(
                ("build", "generation", "epoch", "flip epoch"),
                [(pin.table, pin.generation, pin.epoch, pin.flip_epoch) for pin in plan.pins],
            )
        ),
    }


def _plotted_watermark(timestamp: int) -> dict[str, Any]:
    """A watermark as a number (ms, UTC): Dagster plots nothing else. None before there is one, and after the end."""
    return {"watermark (ms)": timestamp} if MIN_TIMESTAMP < timestamp < MAX_TIMESTAMP else {}


def _of_backfill(backfill: Backfill) -> dict[str, Any]:
    """What a backfill took the place of."""
    spans = [str(first) if first == last else f"{first} to {last}" for first, last in backfill.replaces]
    return {"rows released again": backfill.rows_again, "replaces epochs": ", ".join(spans) or "none"}


def _of_counts(staged: StagedRow) -> dict[str, Any]:
    """How many released rows had which outcome; the places are numbers of their own, to be plotted."""
    counts = staged.counts
    outcomes = {name: n for name, n in counts.items() if n and name != "rows" and not name.startswith("to:")}
    rows, unmatched = asked(counts)
    return {
        "released rows": counts.get("rows", 0),
        "matched rows": counts.get("matched", 0),
        "staged rows": counts.get("to:publish", 0),
        "staged for quarantine": counts.get("to:quarantine", 0),
        "dropped rows": counts.get("to:drop", 0),
        "unmatched ratio": sum(unmatched.values()) / rows if rows else 0.0,
        **({} if staged.late is None else {"late rows": staged.late}),
        "outcomes": dg.MetadataValue.md(
            _table(("outcome", "rows"), sorted(outcomes.items(), key=lambda item: -item[1]))
        ),
    }


def _table(headers: tuple[str, ...], rows: list[tuple[Any, ...]]) -> str:
    text = markdown_table(headers, rows[:SHOWN_ROWS])
    return text if len(rows) <= SHOWN_ROWS else f"{text}\n\n… and {len(rows) - SHOWN_ROWS:,} more"
