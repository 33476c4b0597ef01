"""One generator of one split over the rows of one epoch, wherever it runs (a worker, or the driver without rows)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

from tidegate.pipelines.runtime.watermark_log.passes import SplitPass, SplitsBefore
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
    """A WatermarkOutput that remembers what it was given last."""

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
    """The end of a source that has emitted `last` already: nothing that goes back passes it. `now` in ms, UTC."""
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
        """One row: `element` by column, `own` its timestamp (ms, UTC, or MIN_TIMESTAMP for none), `whole` the same with
        a part of a ms counted as a whole one, by which it is late or not."""
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
        return SplitPass(self._split, self.rows, self.late, self._last(), state, self._recorder.idle, rowtime)

    def _last(self) -> Watermark:
        return self._recorder.last or BEGINNING

    def _asked(self, ask: Callable[[], T]) -> T:
        try:
            return ask()
        except (Exception, SystemExit) as error:  # code of one's own: what it raises names its row
            raise GeneratorError(self._split, self._offset, error) from error


def _timestamp(assigned: Any) -> int:
    """What a timestamp assigner gave. Raises InvalidWatermark."""
    if isinstance(assigned, bool) or not isinstance(assigned, int):
        raise InvalidWatermark(f"a timestamp assigner gives ms, or MIN_TIMESTAMP for none, not {assigned!r}")
    return assigned
