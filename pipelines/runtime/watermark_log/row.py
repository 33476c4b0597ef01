"""The watermark-log row of an epoch: computed only from what the epoch committed and from the row before.

The flip (the proved end of the bounded phase, FLIP-326) is separate from the watermark, and gates build sides alone. A
table with WATERMARK FOR emits only (t, false): from its first epoch on if its source has no phases; from its flip on if
it has, since a snapshot is read in the order of keys. A table without emits (MIN, true), at its flip.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import asdict, replace
from typing import Any

from tidegate.pipelines.clock import Clock
from tidegate.pipelines.connectors.protocol import Landed, Source, StoredStep
from tidegate.pipelines.errors import SourceError
from tidegate.pipelines.lake import SplitWatermark, WatermarkRow
from tidegate.pipelines.runtime.splits import BOUNDED, counting, folded, stored_splits
from tidegate.pipelines.runtime.watermark_log.builtin import SplitPass
from tidegate.pipelines.runtime.watermark_log.custom import Recorder, guarded
from tidegate.pipelines.runtime.watermark_log.epoch import EpochTime
from tidegate.pipelines.watermarks import (
    BEGINNING,
    MAX_TIMESTAMP,
    MIN_TIMESTAMP,
    StatusWatermarkValve,
    Watermark,
    WatermarkError,
    WatermarkStrategy,
    WatermarkToDataOutput,
)
from tidegate.pipelines.watermarks.watermark import milliseconds


class SignalEmit:
    """FLIP-326's periodic emit of a source, made once an epoch. Its watermark becomes visible at the table's flip, not
    before. A source that owns the emit calls it when its bounded phase is over. Any other emits nothing here that
    moves, so it is called once, before the table's first record.

    Args:
        clock: The system's time in ms, UTC.
        before: The log row of the epoch before: a clock behind what the table has emitted raises ProcessingTimeBehind.
    """

    def __init__(self, clock: Clock, before: WatermarkRow | None = None) -> None:
        self._recorder = Recorder()
        self._output = WatermarkToDataOutput(self._recorder, clock)
        if before is not None:
            self._output.emit_watermark(Watermark(max(before.timestamp, MIN_TIMESTAMP)))
            self._recorder.last = None
        self._generator = WatermarkStrategy.no_watermarks().create_generator(clock)
        self._first = before is None or not any(split["use_processing_time"] for split in before.splits)
        self.owned = False

    @property
    def emitted(self) -> Watermark | None:
        """What was emitted in this epoch."""
        return self._recorder.last

    def offer(self, source: Source) -> None:
        """Let the source own the periodic emit if it wants to."""
        self.owned = source.delegate_watermark_periodic_emit(self.emit)

    def before_first_record(self) -> None:
        """Called before an epoch is read: emits before the first one of all, unless the source owns the emit."""
        if self._first and not self.owned:
            self.emit()

    def emit(self) -> None:
        """WatermarkGenerator#onPeriodicEmit. Raises ProcessingTimeBehind."""
        self._generator.on_periodic_emit(self._output)


def watermark_row(
    time: EpochTime,
    step: StoredStep,
    landed: Landed,
    rows: int,
    passes: Sequence[SplitPass],
    signal: SignalEmit,
    landed_at: int,
) -> WatermarkRow:
    """The log row of one landed epoch.

    Args:
        time: The table's strategy, and its time as the epoch before left it.
        rows: How many the epoch committed.
        passes: The results for their splits.
        landed_at: The clock (ms, UTC): a source's own watermark in processing time must not be ahead of it.

    Raises SourceError if the source's own watermarks break FLIP-326's rules; the epoch is retried then.
    """
    before = time.before
    flip_epoch = before.flip_epoch if before else None
    flipped_at = before.flipped_at if before else None
    if flip_epoch is None and step.step.flips:
        flip_epoch, flipped_at = step.epoch, landed_at
    splits = splits_after(time, step, landed, passes, signal, landed_at)
    shows = flip_epoch is not None or (step.step.phase == "unbounded" and time.shows_before_flip)
    shown = combine(splits, before) if shows and splits else None
    last = shown.watermark if shown else BEGINNING
    idle = shown is not None and shown.idle
    if shown is not None and not last.use_processing_time and all(split.ended for split in splits):
        last, idle = Watermark(MAX_TIMESTAMP), False  # the end of input, as Flink emits it: nothing waits for more
    kept = asdict(landed.kept) if landed.kept else None
    return WatermarkRow(
        owner=time.table.name,
        generation=step.generation,
        epoch=step.epoch,
        landed_at=landed_at,
        rows=rows,
        timestamp=last.timestamp,
        use_processing_time=last.use_processing_time,
        idle=idle,
        flip_epoch=flip_epoch,
        flipped_at=flipped_at,
        lag_ms=_still_behind(before, landed_at) if step.step.quiet and before else landed.lag_ms,
        position=landed.position,
        splits=[asdict(split) for split in splits],
        late=sum(item.late for item in passes),
        kept=before.kept if step.step.quiet and before else kept,
        truncated=before is not None and before.truncated,
    )


def _still_behind(before: WatermarkRow, now: int) -> int | None:
    """The lag of a source after a step that has read nothing: as before, plus the time since then."""
    return before.lag_ms and before.lag_ms + max(now - before.landed_at, 0)


def splits_after(
    time: EpochTime,
    step: StoredStep,
    landed: Landed,
    passes: Sequence[SplitPass],
    signal: SignalEmit,
    now: int,
) -> list[SplitWatermark]:
    """The state of every split once the epoch has landed; `now` is `landed_at` of `watermark_row`. Raises as
    `watermark_row` does."""
    if time.processing_time and landed.watermarks is None:
        emitted = signal.emitted
        return [SplitWatermark("table", **_emitted(emitted))] if emitted else stored_splits(time.before)
    found = {split.split: replace(split, late=0) for split in stored_splits(time.before)}

    def known(name: str) -> SplitWatermark:
        return found.get(name) or SplitWatermark(name, MIN_TIMESTAMP, False, last_row=time.now)

    sole = [] if found or passes or landed.sole_split is None else [landed.sole_split]
    found |= {name: known(name) for name in sorted([*landed.splits, *sole])}
    own_only = landed.watermarks is not None
    for item in passes:
        before = known(item.split)
        rowtime = max((at for at in (before.rowtime, item.rowtime) if at is not None), default=None)
        after = replace(before, late=item.late, rowtime=rowtime)
        if not own_only:
            after = replace(after, state=item.state, idle=item.idle, **_emitted(item.watermark))
        found[item.split] = after
    own: dict[str, list[Watermark]] = {}
    for name, watermark in landed.watermarks or ():
        own.setdefault(name, []).append(watermark)
    for name, emitted in own.items():
        watermark = _own(time, step, emitted, known(name), now)
        found[name] = replace(known(name), idle=False, **_emitted(watermark))
    for name, idle in landed.idle.items():
        found[name] = replace(known(name), idle=idle)
    seen = {item.split for item in passes if item.rows}
    quiet = {split for split, idle in landed.idle.items() if idle}
    quiet |= {item.split for item in passes if item.idle and not own_only}
    marked = [_marked(split, time, step, landed, seen, quiet) for split in found.values()]
    return sorted(folded(marked, seen), key=lambda split: split.split)


def _own(time: EpochTime, step: StoredStep, emitted: Sequence[Watermark], known: SplitWatermark, now: int) -> Watermark:
    """The source's own watermark for a split (`emitted`), as it leaves the source (FLIP-326, change 5): one that goes
    back is not sent. Raises SourceError."""
    recorder = Recorder()
    output = guarded(recorder, known.watermark, now)
    for watermark in emitted:
        try:
            output.emit_watermark(watermark)
        except WatermarkError as error:
            raise SourceError(
                f"{time.table.name}: the source's watermark of split {known.split!r} cannot be taken: {error.what}",
                where=step.place,
                state="the epoch's rows are committed and its watermark is not, so nothing reads them yet",
                next_command=error.advice + "; then run the same command again: it goes on at this epoch",
            ) from error
    return recorder.last or known.watermark


def _emitted(watermark: Watermark) -> dict[str, Any]:
    """The fields of a split that hold its watermark."""
    return {"timestamp": watermark.timestamp, "use_processing_time": watermark.use_processing_time}


def _marked(
    split: SplitWatermark, time: EpochTime, step: StoredStep, landed: Landed, seen: set[str], quiet: set[str]
) -> SplitWatermark:
    """The split with its idle, ended and bounded flags. `seen` splits had rows; the source, or a user's generator, has
    marked `quiet` ones as idle from their last row on."""
    if split.split in seen:
        # One that the source goes on reading is named by it, whatever the phase.
        bounded = step.step.phase == "bounded" and landed.watermarks is None and split.split not in landed.splits
        split = replace(split, last_row=time.now, ended=False, bounded=bounded)
        split = split if split.split in quiet else replace(split, idle=False)
    elif split.split in step.step.blocked or split.last_row is None:
        # Alignment holds it back: no row could come, so its idle timeout does not run.
        split = replace(split, last_row=time.now)
    if timed_out(split, time):
        split = replace(split, idle=True)
    return replace(split, ended=True) if split.split in landed.ended else split


def timed_out(split: SplitWatermark, time: EpochTime) -> bool:
    """Whether the idle timeout has passed since the split's last row."""
    timeout = time.strategy.idle_timeout
    if timeout is None or split.last_row is None:
        return False
    return time.now - split.last_row >= milliseconds(timeout, "the idle timeout")


def combine(splits: Sequence[SplitWatermark], before: WatermarkRow | None) -> StatusWatermarkValve:
    """The table's watermark: FLIP-326's valve over its splits, going on from the epoch before. The last watermark of a
    split that has become idle in this epoch counts, as it was emitted before (FLIP-126)."""
    last = before.watermark if before else BEGINNING
    counted = counting(splits)
    valve = StatusWatermarkValve([split.split for split in counted], Recorder(), last=last)
    states: dict[Hashable, tuple[Watermark, bool]] = {split.split: split.status for split in counted}
    known = {split["split"]: split["timestamp"] for split in before.splits} if before else {}
    # What was combined into one had emitted its watermark under other names.
    known.setdefault(BOUNDED, max(known.values(), default=MIN_TIMESTAMP))
    ended = all(split.ended for split in counted)  # what they emitted last stays, and then nobody waits for them
    emitted = [split.split for split in counted if ended or split.timestamp > known.get(split.split, MIN_TIMESTAMP)]
    valve.input_all(states, emitted)
    return valve
