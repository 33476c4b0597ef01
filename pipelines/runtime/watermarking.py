"""The watermark-log row of an epoch: computed from what the epoch committed and from the row before, nothing else.

The flip (the proved end of the bounded phase, FLIP-326) is apart from the watermark: a table with WATERMARK FOR emits
only (t, false), and only from its flip on; a table without emits (MIN, true), at its flip.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.clock import Clock
from pipelines.lake import SplitWatermark, WatermarkRow
from pipelines.sources.protocol import Landed, Source, StoredStep
from pipelines.sql.model import Table
from pipelines.watermarks import (
    BEGINNING,
    MIN_TIMESTAMP,
    StatusWatermarkValve,
    Watermark,
    WatermarkStrategy,
    WatermarkToDataOutput,
)


class Recorder:
    """A WatermarkOutput that remembers what it was told last."""

    def __init__(self) -> None:
        self.last: Watermark | None = None
        self.idle = False

    def emit_watermark(self, watermark: Watermark) -> None:
        self.last = watermark
        self.idle = False

    def mark_idle(self) -> None:
        self.idle = True

    def mark_active(self) -> None:
        self.idle = False


class SignalEmit:
    """The emit of a table without WATERMARK FOR: (MIN, true), handed to the source that wants to own it."""

    def __init__(self, clock: Clock) -> None:
        self.recorder = Recorder()
        self._output = WatermarkToDataOutput(self.recorder, clock)
        self._generator = WatermarkStrategy.no_watermarks().create_generator(clock)
        self.owned = False

    def offer(self, source: Source) -> None:
        """FLIP-326, SourceOperator: let the source own the periodic emit if it wants to."""
        self.owned = source.delegate_watermark_periodic_emit(self.emit)

    def emit(self) -> None:
        """WatermarkGenerator#onPeriodicEmit."""
        self._generator.on_periodic_emit(self._output)


def declared(rows: DataFrame | None, table: Table, before: Sequence[SplitWatermark]) -> list[SplitWatermark]:
    """WATERMARK FOR over the rows of one epoch: per split the greatest value so far, kept as the generator's state."""
    assert table.watermark is not None
    found = {split.split: split for split in before}
    if rows is None:
        return list(found.values())
    expression = F.expr(table.watermark.expression)
    value = expression if table.watermark.type == "BIGINT" else F.unix_millis(expression.cast("timestamp"))
    for row in rows.groupBy("_split").agg(F.max(value).alias("greatest")).collect():
        old = found.get(row["_split"])
        state = max(
            [value for value in (row["greatest"], old.state if old else None) if value is not None], default=None
        )
        emitted = MIN_TIMESTAMP if state is None else state
        found[row["_split"]] = SplitWatermark(row["_split"], emitted, False, state=state)
    return [found[name] for name in sorted(found)]


def combine(splits: Sequence[SplitWatermark], before: WatermarkRow | None) -> StatusWatermarkValve:
    """The table's watermark: FLIP-326's valve over its splits, going on from the epoch before."""
    last = Watermark(before.timestamp, before.use_processing_time) if before else BEGINNING
    valve = StatusWatermarkValve([split.split for split in splits], Recorder(), last=last)
    valve.input_all(
        {split.split: (Watermark(split.timestamp, split.use_processing_time), split.idle) for split in splits}
    )
    return valve


def watermark_row(
    table: Table,
    stored: StoredStep,
    landed: Landed,
    rows: int,
    epoch_rows: DataFrame | None,
    before: WatermarkRow | None,
    signal: SignalEmit,
    now: int,
) -> WatermarkRow:
    """The log row of one landed epoch. `before` is the row of the epoch before it, in the same generation."""
    old = [SplitWatermark(**split) for split in before.splits] if before else []
    flip_epoch = before.flip_epoch if before else None
    flipped_at = before.flipped_at if before else None
    if flip_epoch is None and stored.step.flips:
        flip_epoch, flipped_at = stored.epoch, now
    if landed.watermarks is not None:
        splits = _told(old, landed)
    elif table.watermark is not None:
        splits = declared(epoch_rows, table, old)
    else:
        if flip_epoch is not None and not signal.owned:
            signal.emit()
        told = signal.recorder.last
        splits = [SplitWatermark("table", told.timestamp, told.use_processing_time)] if told else old
    shown = combine(splits, before) if flip_epoch is not None and splits else None
    last = shown.watermark if shown else BEGINNING
    return WatermarkRow(
        owner=table.name,
        generation=stored.generation,
        epoch=stored.epoch,
        landed_at=now,
        rows=rows,
        timestamp=last.timestamp,
        use_processing_time=last.use_processing_time,
        idle=shown is not None and shown.idle,
        flip_epoch=flip_epoch,
        flipped_at=flipped_at,
        lag_ms=landed.lag_ms,
        position=landed.position,
        splits=[asdict(split) for split in splits],
    )


def _told(old: Sequence[SplitWatermark], landed: Landed) -> list[SplitWatermark]:
    found = {split.split: split for split in old}
    for name, watermark in landed.watermarks or ():
        found[name] = SplitWatermark(name, watermark.timestamp, watermark.use_processing_time)
    for name, idle in landed.idle.items():
        known = found.get(name) or SplitWatermark(name, MIN_TIMESTAMP, False)
        found[name] = SplitWatermark(name, known.timestamp, known.use_processing_time, idle)
    return [found[name] for name in sorted(found)]
