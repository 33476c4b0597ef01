"""How far every table and target of a lake is complete, published as a small Delta table for readers without Tidegate.

One row for each source table, and for each INSERT of a target: what `tidegate status` says of it, in columns. It is
written after the commits that it describes, at the end of a run and every few seconds of a longer one, so it may be
behind and is never ahead. Tidegate itself does not read it.

FLIP-326: a watermark is a time, or "now" (`use_processing_time`); before the flip there is none.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction

from tidegate.pipelines.clock import Clock, system_clock
from tidegate.pipelines.errors import LakeError
from tidegate.pipelines.lake import Lake, WatermarkRow, delta_log
from tidegate.pipelines.lake.commits import Removal, commit, create, until_committed
from tidegate.pipelines.lake.releasable import micros
from tidegate.pipelines.location import Address, Location
from tidegate.pipelines.runtime.epochs import ReleasePlan, insert_owner, stored_plan
from tidegate.pipelines.runtime.epochs.generations import on_lake
from tidegate.pipelines.runtime.epochs.target_log import inputs_of
from tidegate.pipelines.runtime.status import InsertStatus, SourceStatus, status
from tidegate.pipelines.sinks.protocol import sink_of
from tidegate.pipelines.sql.compile import Pipeline
from tidegate.pipelines.watermarks import MIN_TIMESTAMP, CombinedWatermarkStatus, Watermark

log = logging.getLogger(__name__)

_TIME = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema(
    {
        "name": pa.string(),
        "insert": pa.string(),
        "generation": pa.int32(),
        "flipped_at": _TIME,
        "complete_until": _TIME,
        "complete_until_now": pa.bool_(),
        "epoch": pa.int64(),
        "verdict": pa.string(),
        "waiting": pa.int64(),
        "quarantined": pa.int64(),
        "as_of": _TIME,
    }
)


@dataclass(frozen=True)
class Complete:
    """One row; times in us, UTC.

    Attributes:
        name: the source table, or the target.
        insert: of a target: the INSERT that publishes into it.
        flipped_at: when the end of a table's snapshot was proved; of a target: when that of its last input was, once an
            epoch is published. None before.
        complete_until: no row up to this time is missing, but for late ones; of a target as of its last published
            epoch. None before the flip, before there is a watermark, and where `complete_until_now` is true.
        complete_until_now: the table has all that its source had when it was last read (FLIP-326's
            `use_processing_time`); of a target: no landed row waits for its INSERT either, whatever keeps it from
            being released.
        epoch: the last landed one of a table; the last one of an INSERT, whatever its verdict.
        verdict: of that epoch: `passed` or `held`; None before there is one, and of a table.
        waiting, quarantined: of a target: rows of the INSERT's probe that are not released, and that were quarantined;
            of a process's target: waiting rows of all its inputs, quarantined rows of this output. Of a table:
            `quarantined` are rows that its source could not read.
    """

    name: str
    insert: str | None
    generation: int
    flipped_at: int | None
    complete_until: int | None
    complete_until_now: bool
    epoch: int
    verdict: str | None
    waiting: int
    quarantined: int


def completeness(lake: Lake, pipeline: Pipeline, clock: Clock, moved: Collection[str] | None = None) -> list[Complete]:
    """The rows of one script, by what is committed now. `moved`: only the rows of these owners, and of the INSERTs that
    read one of them (their waiting rows have changed)."""
    pipeline = on_lake(lake, pipeline)
    if moved is not None:
        reading = (item for item in pipeline.inserts if not set(item.inputs).isdisjoint(moved))
        moved = {*moved, *(insert_owner(item.id) for item in reading)}
    found = status(lake, pipeline, clock, moved)
    rows = [_of_source(source) for source in found.sources]
    shown = {insert.id: insert for insert in pipeline.inserts}  # nobody reads what is beside a target
    for insert in (item for item in found.inserts if item.insert in shown):
        rows += [_of_target(lake, pipeline, insert, target) for target in shown[insert.insert].outputs]
    return rows


def publish(lake: Lake, pipeline: Pipeline, clock: Clock, moved: Collection[str] | None = None) -> bool:
    """Update the rows of one script (of what has `moved`) in `<lake>/completeness`; returns whether that took a
    commit. Other rows, of other scripts too, stay. A disk that cannot be written is only logged: the run itself has
    succeeded."""

    def rows() -> list[Complete]:
        return completeness(lake, pipeline, clock, moved)

    try:
        given = lake.completeness_path, rows, micros(clock())
        return until_committed(_published, *given, attempts=50, wait=0.001, most=0.2)
    except (DeltaError, LakeError, OSError, pa.ArrowException) as error:
        log.warning("%s was not brought up to date: %s", lake.completeness_path, error)
        return False


def _published(path: Address, rows: Callable[[], list[Complete]], at: int) -> bool:
    """`rows` are looked up after the table: what another process has published meanwhile, from more that is committed,
    is then a later version, and these are looked up again."""
    table = delta_log.opened(path)
    if table is None:
        create(path, schema=SCHEMA, configuration=delta_log.OWN | delta_log.BRIEF)
        return _published(path, rows, at)
    given = {(row.name, row.insert): asdict(row) for row in rows()}
    before = {(row["name"], row["insert"]): row for row in _stored(table.paths())}
    if all(key in before and before[key] | row == before[key] for key, row in given.items()):
        return False
    after = before | {key: {**row, "as_of": at} for key, row in given.items()}
    made = pa.Table.from_pylist([after[key] for key in sorted(after, key=lambda key: (key[0], key[1] or ""))], SCHEMA)
    name = f"{uuid.uuid4().hex}.parquet"
    size = (Location(path) / name).write_parquet(made)
    stats = json.dumps({"numRecords": made.num_rows})
    added = AddAction(name, size, {}, system_clock(), True, stats)
    try:
        commit(table, [added, *map(Removal, table.files.values())])
    except CommitFailedError:
        (Location(path) / name).delete()
        raise
    return True


def _stored(files: Sequence[str]) -> list[dict[str, Any]]:
    """The rows that files of the table have, their times in us, UTC."""
    numbers = pa.schema([field.with_type(pa.int64()) if field.type == _TIME else field for field in SCHEMA])
    return [row for file in files for row in Location(file).parquet().read().cast(numbers).to_pylist()]


def _of_source(source: SourceStatus) -> Complete:
    until = source.watermark if source.watermark not in (None, MIN_TIMESTAMP) else None
    now = source.watermark is not None and source.use_processing_time
    return Complete(
        name=source.table,
        insert=None,
        generation=source.generation,
        flipped_at=micros(source.flip.at) if source.flip and source.flip.at is not None else None,
        complete_until=None if until is None or now else micros(until),
        complete_until_now=now,
        epoch=source.epochs,
        verdict=None,
        waiting=0,
        quarantined=source.rejected,
    )


def _of_target(lake: Lake, pipeline: Pipeline, insert: InsertStatus, target: str) -> Complete:
    owner = insert_owner(insert.insert)
    application = lake.application(owner, "publish", insert.generation)
    table = pipeline.table(target)
    published = sink_of(table, lake.target_path(table)).committed(application)
    stored = lake.epochs.rows(owner, generation=insert.generation, epoch=published) if published > 0 else []
    plan = stored_plan(stored[-1]) if stored else None
    inputs = inputs_of(lake, plan) if plan else []
    watermark = _watermark(plan, inputs) if plan else Watermark(MIN_TIMESTAMP)
    read = inputs_of(lake, plan, timed=False) if plan else []
    flips = [row.flipped_at for row in read if row.flipped_at is not None]
    timed = not watermark.use_processing_time and watermark.timestamp > MIN_TIMESTAMP
    rows = insert.rows
    return Complete(
        name=target,
        insert=insert.insert,
        generation=insert.generation,
        flipped_at=micros(max(flips)) if flips else None,
        complete_until=micros(watermark.timestamp) if timed else None,
        complete_until_now=watermark.use_processing_time and rows is not None and rows.waiting == 0,
        epoch=insert.epoch,
        verdict={"held": "held", "passed": "passed", "published": "passed"}.get(insert.state or ""),
        waiting=rows.waiting if rows else 0,
        quarantined=rows.into(pipeline.insert(insert.insert).outputs.index(target)).quarantined if rows else 0,
    )


def _watermark(plan: ReleasePlan, inputs: list[WatermarkRow]) -> Watermark:
    """The watermark of what is published with a plan: FLIP-326's combination of its inputs, and in event time no
    further than the plan has released."""
    if not inputs:  # a power cut has taken the last row of each log: a run writes them again
        return plan.complete_until(Watermark(MIN_TIMESTAMP))
    combined = CombinedWatermarkStatus([row.owner for row in inputs])
    combined.input_all({row.owner: row.status for row in inputs})
    return plan.complete_until(combined.watermark)
