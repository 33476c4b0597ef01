"""A target's log of its own, by which statements read it as they read a source: a row for each published epoch, with
the watermark of what is published up to it (FLIP-326: a watermark goes through a statement).

In event time it is what the releases have reached; else the combined status of the inputs, as of the epochs up to which
the plan has read them, and never the instant: otherwise it would move at each look.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from tidegate.pipelines.commands import VERIFY
from tidegate.pipelines.errors import LakeError, PlanningError
from tidegate.pipelines.lake import Lake, WatermarkRow, delta_log
from tidegate.pipelines.lake.stream import Stream, has_order
from tidegate.pipelines.runtime.epochs import ReleasePlan, insert_owner, stored_plan
from tidegate.pipelines.runtime.epochs.history import history_of
from tidegate.pipelines.runtime.epochs.position import InsertOnLake
from tidegate.pipelines.sql.compile import Pipeline
from tidegate.pipelines.sql.model import ProcessInsert
from tidegate.pipelines.text import counted
from tidegate.pipelines.watermarks import MAX_TIMESTAMP, MIN_TIMESTAMP, CombinedWatermarkStatus, Watermark


def log_row(on: InsertOnLake, plan: ReleasePlan, rows: int) -> WatermarkRow:
    """The row of an epoch that has published `rows`. It follows from the plan, and from the logs up to it."""
    earlier = on.lake.watermarks.newest_first(on.target.log_name, generation=plan.generation, upto=plan.epoch - 1)
    before = next(iter(earlier), None)
    status, idle = _status(on, plan, before)
    flip_epoch, flipped_at = (before.flip_epoch, before.flipped_at) if before else (None, None)
    if flip_epoch is None and _flips(on, plan):
        flip_epoch, flipped_at = plan.epoch, plan.instant
    return WatermarkRow(
        owner=on.target.log_name,
        generation=plan.generation,
        epoch=plan.epoch,
        landed_at=_first_planned(on.lake, plan),
        rows=rows,
        timestamp=status.timestamp,
        use_processing_time=status.use_processing_time,
        idle=idle,
        flip_epoch=flip_epoch,
        flipped_at=flipped_at,
    )


def _flips(on: InsertOnLake, plan: ReleasePlan) -> bool:
    """Whether a target is complete up to the flip of what its INSERT takes, once a plan is published: no row that had
    landed by then waits or is held. That all builds have flipped is what any plan begins with."""
    for item, stream in zip(plan.branches, on.probes, strict=True):
        read = stream.generation(item.generation).epoch(item.upto) if item.upto else None
        if read is None or read.flip_epoch is None or plan.settled_upto(item, stream.path) < read.flip_epoch:
            return False
    return True


def log_rows(on: InsertOnLake, plan: ReleasePlan, rows: int) -> list[WatermarkRow]:
    """The row of an epoch that has published `rows`; in front of the first row of a log, those of the epochs that were
    published while no statement read the target. These tell nothing of the time, so that none of their rows is late.
    Raises LakeError if the target does not have the rows of these epochs."""
    found, log = [log_row(on, plan, rows)], Stream.of(on.lake, on.pipeline, on.target.name).generation(plan.generation)
    if log.last is not None:
        return found
    earlier = [
        replace(
            nothing_yet(on.target.log_name),
            generation=plan.generation,
            epoch=item.plan.epoch,
            landed_at=_first_planned(on.lake, item.plan),
            rows=item.staged.counts["to:publish"],
        )
        for item in history_of(on.lake, on.pipeline, on.insert)
        if item.published and item.staged and item.plan.generation == plan.generation and item.plan.epoch < plan.epoch
    ]
    published, there = sum(row.rows for row in [*earlier, *found]), log.there(plan.epoch)
    if earlier and there != published:
        raise LakeError(
            f"{on.target.name} has {counted(there or 0, 'row')} of epochs that have published {published:,}",
            where=str(on.target_path),
            state="no statement begins to read it; what is published stays",
            next_command=VERIFY,
        )
    return [*earlier, *found]


def _first_planned(lake: Lake, plan: ReleasePlan) -> int:
    """When the rows of a plan were first planned (ms, UTC): what was held for a while comes, for readers, before all
    that has landed since."""
    while plan.supersedes is not None:
        plan = stored_plan(lake.epochs.rows(plan.owner, generation=plan.generation, epoch=plan.supersedes)[0])
    return plan.instant


def tells(on: InsertOnLake, plan: ReleasePlan) -> bool:
    """Whether a plan without rows would tell readers of the target something new."""
    row, last = log_row(on, plan, 0), on.lake.watermarks.last(on.target.log_name)
    known = (MIN_TIMESTAMP, False, False, None)
    if last is not None:
        known = (last.timestamp, last.use_processing_time, last.idle, last.flip_epoch)
    return (row.timestamp, row.use_processing_time, row.idle, row.flip_epoch) != known


def _status(on: InsertOnLake, plan: ReleasePlan, before: WatermarkRow | None) -> tuple[Watermark, bool]:
    """The watermark of what is published with a plan, and whether all inputs are idle."""
    reached = before.timestamp if before else MIN_TIMESTAMP
    inputs, known = inputs_of(on.lake, plan), dict[Input, int]()
    idle = bool(inputs) and all(row.idle for row in inputs)
    if before is not None and any(row.idle for row in inputs):
        for stored in on.lake.epochs.rows(plan.owner, generation=plan.generation, epoch=before.epoch):
            known = read_by(on.lake, stored_plan(stored))
    found = plan.complete_until(combined(inputs, known, reached))
    return (found if found.use_processing_time else Watermark(max(reached, found.timestamp))), idle


def hides(on: InsertOnLake, table: str, landed: WatermarkRow) -> bool:
    """Whether a target is idle and its newest epoch is not published: it counts as active, as what the gate holds must
    not be passed over. `landed`: the last row of its log."""
    writer = on.pipeline.writer_of(table) if landed.idle else None
    planned = None if writer is None else on.lake.epochs.last(insert_owner(writer.id))
    return planned is not None and planned.epoch > landed.epoch


Input = tuple[str, int]
"""A table, and its generation."""


def _rows_of(lake: Lake, plan: ReleasePlan, *, timed: bool = True) -> Iterator[tuple[Input, WatermarkRow | None]]:
    """The watermark log's row of each input, at the epoch up to which a plan reads it; None where it is gone. `timed`:
    of those alone whose watermark counts."""
    read = [(pin.table, pin.generation, pin.epoch) for pin in plan.pins if pin.timed or not timed]
    read += [(item.table, item.generation, item.upto) for item in plan.takes]
    for table, number, epoch in dict.fromkeys(read):
        yield (table, number), Stream(lake, table).generation(number).epoch(epoch) if epoch else nothing_yet(table)


def inputs_of(lake: Lake, plan: ReleasePlan, *, timed: bool = True) -> list[WatermarkRow]:
    """Those rows."""
    return [row for _, row in _rows_of(lake, plan, timed=timed) if row is not None]


def read_by(lake: Lake, plan: ReleasePlan) -> dict[Input, int]:
    """The watermark (ms, UTC) of each input as a plan has read it. Of one whose row is gone nothing is known: nothing
    counts as emitted since."""
    return {key: MAX_TIMESTAMP if row is None else row.timestamp for key, row in _rows_of(lake, plan)}


def nothing_yet(table: str) -> WatermarkRow:
    """The status of an input of which nothing has landed: it holds those that read it."""
    return WatermarkRow(table, 1, 0, landed_at=0, rows=0, timestamp=MIN_TIMESTAMP, use_processing_time=False)


def combined(inputs: Sequence[WatermarkRow], known: Mapping[Input, int], last: int) -> Watermark:
    """The combined status of inputs (FLIP-326), which never goes back behind `last`. `known`: (table, generation) ->
    the watermark that was read before; what an idle input has emitted since counts once (FLIP-126). All ms, UTC."""
    status = CombinedWatermarkStatus([row.owner for row in inputs], last=Watermark(last))
    emitted = [row.owner for row in inputs if row.timestamp > known.get((row.owner, row.generation), MIN_TIMESTAMP)]
    status.input_all({row.owner: row.status for row in inputs}, emitted)
    return status.watermark


def refuse_turned(lake: Lake, pipeline: Pipeline) -> None:
    """Raise PlanningError where what was a target is read as a source now, or the other way round; and where a
    statement begins to join a target that has published rows without their order. Nothing was written."""
    for name in dict.fromkeys(name for insert in pipeline.inserts for name in insert.inputs):
        table, target = pipeline.table(name), pipeline.writer_of(name) is not None
        was_source, was_target = lake.epochs.last(name) is not None, lake.watermarks.last(name) is not None
        if was_source if target else was_target and not was_source:
            kinds = ("a source of its own", "the target of an INSERT")
            raise PlanningError(
                f"{name} was {kinds[not target]} in this lake, and the script has it as {kinds[target]}",
                where=f"line {table.location.line} of the script",
                state="nothing was planned or released; what is published stays",
                next_command=f"put the old declaration back; or give the table another name than {name}, and what is "
                "written a new target",
            )
    for insert in pipeline.inserts:
        readers = () if isinstance(insert, ProcessInsert) else pipeline.readers_of(insert)
        joining = [reader for reader in readers if insert.target in reader.builds]
        if not joining or lake.staged.last(insert_owner(insert.id)) is None:
            continue
        table = delta_log.opened(lake.target_path(pipeline.table(insert.target)))
        if table is not None and not has_order(table):
            names = " and ".join(reader.id for reader in joining)
            raise PlanningError(
                f"{insert.target} was published before {names} joined it: its rows have no order, and no statement can "
                "begin to join it",
                where=f"line {joining[0].location.line} of the script",
                state="nothing was planned or released; what is published stays",
                next_command="put the old declaration back; or declare a new target beside "
                f"{insert.target}, INSERT INTO that the same rows, which it gets from the first one on, and let "
                f"{names} join that",
            )
