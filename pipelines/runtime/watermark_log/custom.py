"""A user's generator over an epoch's rows: one pass on the executors, a split's rows in their order; on the driver for
splits without rows.

The rows come in Arrow batches, sorted by Spark; a split's generator resumes the state that the epoch before stored and
returns its new one. The driver gets one row a split.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidegate.pipelines.lake.records import restored
from tidegate.pipelines.runtime.watermark_log.builtin import SplitPass, SplitsBefore, rowtime_ms
from tidegate.pipelines.syntax.types import quoted
from tidegate.pipelines.watermarks import (
    BEGINNING,
    MAX_TIMESTAMP,
    MIN_TIMESTAMP,
    GeneratorError,
    InvalidWatermark,
    StatefulGenerator,
    Watermark,
    WatermarkStrategy,
    WatermarkToDataOutput,
)

T = TypeVar("T")
_IDLE, _KIND = "idle", "generator"


class Recorder:
    """A WatermarkOutput that remembers the last watermark and idleness."""

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


def guarded(recorder: Recorder, last: Watermark, now: int) -> WatermarkToDataOutput:
    """The output of a source that has emitted `last` already: it lets no watermark go back. `now` in ms, UTC."""
    clock = [MAX_TIMESTAMP]
    output = WatermarkToDataOutput(recorder, lambda: clock[0])
    output.emit_watermark(Watermark(last.timestamp))
    if last.use_processing_time:
        output.emit_watermark(last)
    clock[0] = now
    return output


class GeneratorRun:
    """Feeds a generator the rows of `split`, in order. What it raises becomes a GeneratorError that names the place.

    Args:
        strategy: Its factory makes the generator, its assigner gives each row its timestamp.
        splits_before: Where the epoch before left the splits.
        now: The epoch's time in ms, UTC, for watermarks in processing time.
    """

    def __init__(self, strategy: WatermarkStrategy, split: str, splits_before: SplitsBefore, now: int) -> None:
        self._assign = strategy.timestamp_assigner
        self._gap = strategy.gap
        self._split = split
        self._floor = splits_before.floor
        self._offset: int | None = None
        self._recorder = Recorder()
        self._output = guarded(self._recorder, splits_before.emitted(split), now)
        stored = splits_before.state(split)
        known = stored if isinstance(stored, dict) and _IDLE in stored else {}  # else that of a built-in strategy
        self._since = known.get("since", 0)
        if known.get(_IDLE):
            self._output.mark_idle()
        self._generator = self._asked(strategy.generator_factory)
        if _KIND in known and isinstance(self._generator, StatefulGenerator):
            generator = self._generator
            self._asked(lambda: generator.restore(known[_KIND]))
        self.rows = self.late = 0
        self._rowtime = MIN_TIMESTAMP

    def row(self, element: dict[str, Any], offset: int, own: int, whole: int) -> None:
        """One row: `element` by column; `own` its timestamp (ms, UTC; MIN_TIMESTAMP for none); `whole` the same,
        rounded up to a whole ms, by which it is late or not."""
        self._offset = offset
        timestamp = self._asked(lambda: _timestamp(self._assign(element, own)))
        self.rows += 1
        self._rowtime = max(self._rowtime, own)
        time = whole if timestamp == own else timestamp
        if self._floor is not None and MIN_TIMESTAMP < time <= self._floor:
            self.late += 1
        self._asked(lambda: self._generator.on_event(element, timestamp, self._output))
        if self._gap is not None:
            self._since += 1
            if self._since >= self._gap:
                self._since = 0
                self._asked(lambda: self._generator.on_periodic_emit(self._output))

    def end(self) -> SplitPass:
        """The end of the epoch, which is a periodic emit unless emission is punctuated."""
        if self._gap is None:
            self._asked(lambda: self._generator.on_periodic_emit(self._output))
        state: dict[str, Any] = {"since": self._since, _IDLE: self._recorder.idle}
        if isinstance(self._generator, StatefulGenerator):
            generator = self._generator
            state[_KIND] = self._asked(lambda: json.loads(json.dumps(generator.state())))
        rowtime = None if self._rowtime == MIN_TIMESTAMP else self._rowtime
        last = self._recorder.last or BEGINNING
        return SplitPass(self._split, self.rows, self.late, last, state, self._recorder.idle, rowtime)

    def _asked(self, ask: Callable[[], T]) -> T:
        try:
            return ask()
        except (Exception, SystemExit) as error:  # code of one's own: what it raises names its row
            raise GeneratorError(self._split, self._offset, error) from error


def _timestamp(assigned: Any) -> int:
    """A checked result of a timestamp assigner. Raises InvalidWatermark."""
    if isinstance(assigned, bool) or not isinstance(assigned, int):
        raise InvalidWatermark(f"a timestamp assigner gives ms, or MIN_TIMESTAMP for none, not {assigned!r}")
    return assigned


def scan(
    rows: DataFrame | None, strategy: WatermarkStrategy, splits_before: SplitsBefore, now: int, columns: Sequence[str]
) -> list[SplitPass]:
    """The pass of the generators of `strategy` over `rows`. With periodic emission, generators of splits without rows
    are called, too.

    Args:
        rows: With `columns`, which make an element, and _split, _offset, _seq, _rowtime.
        now: The epoch's time in ms, UTC.

    Raises GeneratorError; from a worker inside of what Spark raises.
    """
    found: list[SplitPass] = []
    if rows is not None:
        own = F.coalesce(F.unix_millis("_rowtime"), F.lit(MIN_TIMESTAMP)).alias("_own")
        whole = F.coalesce(rowtime_ms(), F.lit(MIN_TIMESTAMP)).alias("_whole")
        ordered = (
            rows.select("_split", "_offset", "_seq", own, whole, *map(quoted, columns))
            .repartition("_split")
            .sortWithinPartitions("_split", "_offset", "_seq")
            .drop("_seq")
        )
        passes = ordered.mapInArrow(_worker(strategy, splits_before, now, tuple(columns)), "pass STRING")
        found = [restored(SplitPass, json.loads(row["pass"])) for row in passes.collect()]  # one row a split
    seen = {item.split for item in found}
    quiet = [name for name, split in splits_before.splits.items() if name not in seen and not split.ended]
    return found + [GeneratorRun(strategy, name, splits_before, now).end() for name in quiet]


def _worker(
    strategy: WatermarkStrategy, splits_before: SplitsBefore, now: int, columns: tuple[str, ...]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        split: str | None = None
        active: GeneratorRun | None = None
        for batch in batches:
            splits = batch.column("_split").to_pylist()
            offsets = batch.column("_offset").to_pylist()
            times = zip(batch.column("_own").to_pylist(), batch.column("_whole").to_pylist(), strict=True)
            elements = batch.select(list(columns)).to_pylist()
            for name, offset, (own, whole), element in zip(splits, offsets, times, elements, strict=True):
                if active is None or name != split:
                    if active is not None:
                        yield _described(active.end())
                    split, active = name, GeneratorRun(strategy, name, splits_before, now)
                active.row(element, offset, own, whole)
        if active is not None:
            yield _described(active.end())

    return run


def _described(item: SplitPass) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"pass": [json.dumps(asdict(item))]})
