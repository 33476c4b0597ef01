"""The row of an epoch, from what its rows said: random epochs of random splits, without Spark."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pipelines.sources.sources_help import table
from tidegate.pipelines.connectors.protocol import Landed, Step, StoredStep
from tidegate.pipelines.connectors.table import Table
from tidegate.pipelines.errors import SourceError
from tidegate.pipelines.lake import SplitWatermark, WatermarkRow
from tidegate.pipelines.runtime.splits import BOUNDED, counting, folded
from tidegate.pipelines.runtime.watermark_log import EpochTime, SignalEmit, watermark_row
from tidegate.pipelines.runtime.watermark_log.builtin import SplitPass
from tidegate.pipelines.watermarks import (
    MAX_TIMESTAMP,
    MIN_TIMESTAMP,
    PROCESSING_TIME,
    ProcessingTimeBehind,
    ProcessingTimeRevoked,
    Watermark,
    WatermarkStrategy,
)

TABLE = table({"at": "TIMESTAMP(3)"}, "scripted", rowtime="at")
SNAPSHOT = table({"at": "TIMESTAMP(3)"}, "scripted", options={"phases": "true"}, rowtime="at")
STRATEGY = WatermarkStrategy.for_expression("`at`")


def land(
    before: WatermarkRow | None,
    said: dict[str, int],
    *,
    now: int = 0,
    phase: str = "unbounded",
    flips: bool = False,
    strategy: WatermarkStrategy = STRATEGY,
    landed: Landed | None = None,
    blocked: tuple[str, ...] = (),
    of: Table = TABLE,
    quiet: bool = False,
) -> WatermarkRow:
    """The row of the next epoch, in which the rows of each split in `said` give this watermark."""
    epoch = before.epoch + 1 if before else 1
    step = StoredStep(Step({}, phase, flips, blocked=blocked, quiet=quiet), 1, epoch, now)  # type: ignore[arg-type]
    time = EpochTime(of, strategy, before, now)
    passes = [
        SplitPass(name, 1, 0, Watermark(max(value, time.splits_before.emitted(name).timestamp)), {"greatest": value})
        for name, value in said.items()
    ]
    return watermark_row(time, step, landed or Landed(), len(said), passes, SignalEmit(lambda: now), now)


@pytest.mark.parametrize(("lag_ms", "later"), [(None, None), (0, 0), (7_000, 12_000)])
def test_a_step_that_reads_nothing_leaves_a_source_behind_by_the_time_since(
    lag_ms: int | None, later: int | None
) -> None:
    before = land(None, {"a": 1}, now=1_000, landed=Landed(lag_ms=lag_ms, position="here"))
    row = land(before, {}, now=6_000, landed=Landed(position="here"), quiet=True)
    assert (row.lag_ms, row.position) == (later, "here")


@pytest.mark.parametrize("quiet", [False, True])
def test_what_was_truncated_once_is_known_to_be_from_then_on(quiet: bool) -> None:
    before = replace(land(None, {"a": 1}, now=1_000), truncated=True)
    assert land(before, {}, now=6_000, quiet=quiet).truncated
    assert not land(None, {"a": 1}, now=1_000).truncated


def heard(row: WatermarkRow) -> dict[str, tuple[int, bool]]:
    return {split["split"]: (split["timestamp"], split["idle"]) for split in row.splits}


def test_what_a_source_emits_is_delayed_as_the_table_asks_for_it() -> None:
    own = [
        ("a", Watermark(100)),
        ("b", Watermark(MIN_TIMESTAMP)),
        ("c", Watermark(MAX_TIMESTAMP)),
        ("d", Watermark(7, True)),
    ]
    strategy = WatermarkStrategy.from_source(delay=timedelta(milliseconds=30))
    found = EpochTime(TABLE, strategy, None, 0).with_own_watermarks(Landed(watermarks=own, splits=frozenset("abcd")))
    assert found == Landed(watermarks=[("a", Watermark(70)), *own[1:]], splits=frozenset("abcd"))
    assert EpochTime(TABLE, strategy, None, 0).with_own_watermarks(Landed()) == Landed()
    # Scripted tables tell their time by the test's word alone: it is not what another strategy delays.
    assert EpochTime(TABLE, STRATEGY, None, 0).with_own_watermarks(Landed(watermarks=own)).watermarks == own


_said = st.dictionaries(st.sampled_from("abc"), st.integers(-100, 100), max_size=3)


@given(
    st.lists(st.tuples(_said, st.integers(0, 30), st.booleans()), min_size=1, max_size=8),
    st.one_of(st.none(), st.integers(1, 40)),
    st.sampled_from([TABLE, SNAPSHOT]),
)
def test_a_watermark_never_decreases_and_never_passes_a_split_that_counts(epochs, timeout, of) -> None:
    strategy = STRATEGY if timeout is None else STRATEGY.with_idleness(timedelta(milliseconds=timeout))
    row: WatermarkRow | None = None
    now = 0
    for said, wait, flips in epochs:
        now += wait
        before = row
        row = land(before, said, now=now, flips=flips, strategy=strategy, of=of)
        assert not row.use_processing_time
        if row.flip_epoch is None and of is SNAPSHOT:
            assert row.timestamp == MIN_TIMESTAMP
        if before is not None:
            assert row.timestamp >= before.timestamp
            if row.timestamp > before.timestamp:
                aligned = [at for at, idle in heard(row).values() if not idle and at >= before.timestamp]
                assert row.timestamp <= min(aligned)


def test_a_split_that_its_generator_has_marked_idle_after_a_row_is_not_waited_for() -> None:
    before = land(None, {"a": 10, "b": 10}, flips=True)
    step = StoredStep(Step({}, "unbounded", False), 1, 2, 0)
    passes = [SplitPass("a", 1, 0, Watermark(50), {}), SplitPass("b", 1, 0, Watermark(20), {}, idle=True)]
    time = EpochTime(TABLE, STRATEGY, before, 0)
    row = watermark_row(time, step, Landed(), 2, passes, SignalEmit(lambda: 0), 0)
    assert (row.timestamp, heard(row)) == (50, {"a": (50, False), "b": (20, True)})
    assert heard(land(row, {"b": 60}))["b"] == (60, False)


def test_what_splits_emit_before_they_fall_silent_in_one_epoch_counts() -> None:
    """And nothing of one that was silent before: idleness alone moves no watermark (FLIP-126, FLIP-326)."""

    def silent(**emitted: int) -> Landed:
        own = [(name, Watermark(at)) for name, at in emitted.items()]
        return Landed(watermarks=own, idle=dict.fromkeys(emitted, True), splits=frozenset("ab"))

    first = land(None, {}, landed=silent(a=10, b=30), flips=True)
    assert (first.timestamp, first.idle) == (10, True)
    second = land(first, {}, landed=silent(b=50))
    assert (second.timestamp, second.idle) == (50, True)  # a was silent already, and is passed over
    third = land(second, {}, landed=silent(a=20))
    assert (third.timestamp, heard(third)) == (50, {"a": (20, True), "b": (50, True)})
    assert land(third, {}, landed=Landed(idle={"a": True, "b": True})).timestamp == 50


def test_an_idle_split_is_measured_across_epochs_by_the_plan_s_clock() -> None:
    strategy = STRATEGY.with_idleness(timedelta(milliseconds=10))
    first = land(None, {"a": 5, "b": 1}, now=100, flips=True, strategy=strategy)
    assert (first.timestamp, heard(first)) == (1, {"a": (5, False), "b": (1, False)})
    second = land(first, {"a": 7}, now=109, strategy=strategy)
    assert second.timestamp == 1
    third = land(second, {"a": 8}, now=110, strategy=strategy)
    assert (third.timestamp, heard(third)) == (8, {"a": (8, False), "b": (1, True)})
    held = land(second, {"a": 8}, now=110, strategy=strategy, blocked=("b",))
    assert (held.timestamp, heard(held)) == (1, {"a": (8, False), "b": (1, False)})  # it could not get a row


def test_idle_beside_processing_time_never_opens_the_gate() -> None:
    landed = Landed(watermarks=[("a", Watermark(MIN_TIMESTAMP, True)), ("b", Watermark(5))], idle={"b": True})
    row = land(None, {}, flips=True, landed=landed)
    assert (row.timestamp, row.use_processing_time, row.idle) == (5, False, False)
    row = land(row, {}, now=5, landed=Landed(watermarks=[("b", Watermark(MIN_TIMESTAMP, True))]))
    assert (row.timestamp, row.use_processing_time) == (MIN_TIMESTAMP, True)


def test_splits_without_rows_are_registered_and_hold() -> None:
    row = land(None, {"a": 5}, flips=True, landed=Landed(splits=frozenset("ab")))
    assert (row.timestamp, heard(row)) == (MIN_TIMESTAMP, {"a": (5, False), "b": (MIN_TIMESTAMP, False)})


def test_an_empty_table_is_idle_by_the_split_that_it_goes_on_with() -> None:
    """And one whose snapshot had rows goes on by these, until that split has a row."""
    log, idle = Landed(sole_split="log"), STRATEGY.with_idleness(timedelta(milliseconds=10))
    empty = land(None, {}, flips=True, landed=log, strategy=idle)
    assert (empty.timestamp, empty.idle, heard(empty)) == (MIN_TIMESTAMP, False, {"log": (MIN_TIMESTAMP, False)})
    empty = land(empty, {}, now=10, landed=log, strategy=idle)
    assert (empty.timestamp, empty.idle) == (MIN_TIMESTAMP, True)
    assert land(empty, {"log": 7}, now=11, landed=log, strategy=idle).timestamp == 7
    loaded = land(None, {"chunk": 5}, flips=True, landed=log)
    assert (loaded.timestamp, heard(loaded)) == (5, {"chunk": (5, False)})


def test_without_phases_a_watermark_is_shown_before_the_flip_and_stays_at_it() -> None:
    first = land(None, {"a": 5})
    assert (first.timestamp, first.flip_epoch) == (5, None)
    blocked = land(first, {}, blocked=("a",))
    assert (blocked.timestamp, blocked.flip_epoch) == (5, None)
    flipped = land(blocked, {"a": 7}, flips=True)
    assert (flipped.timestamp, flipped.flip_epoch) == (7, 3)


def test_with_phases_a_watermark_is_hidden_until_the_flip() -> None:
    first = land(None, {"a": 5}, of=SNAPSHOT)
    assert (first.timestamp, first.flip_epoch) == (MIN_TIMESTAMP, None)
    assert land(first, {}, flips=True, of=SNAPSHOT).timestamp == 5


def test_a_row_is_late_by_a_watermark_that_was_shown_before_the_flip() -> None:
    assert EpochTime(TABLE, STRATEGY, land(None, {"a": 5}), 0).splits_before.floor == 5
    assert EpochTime(SNAPSHOT, STRATEGY, land(None, {"a": 5}, of=SNAPSHOT), 0).splits_before.floor is None


def test_chunks_that_are_read_are_put_together() -> None:
    row: WatermarkRow | None = None
    for number in range(5):
        row = land(row, {f"chunk-{number}": number}, phase="bounded", of=SNAPSHOT)
    assert row.timestamp == MIN_TIMESTAMP
    assert sorted(heard(row)) == [BOUNDED, "chunk-4"]
    row = land(row, {}, flips=True, of=SNAPSHOT)
    assert (row.timestamp, heard(row)) == (4, {BOUNDED: (4, False)})
    row = land(row, {"binlog": 2})
    assert row.timestamp == 4
    assert land(row, {"binlog": 9}).timestamp == 9


def test_a_snapshot_s_only_split_goes_on_under_its_name() -> None:
    row = land(None, {"0": 5}, phase="bounded", flips=True)
    assert row.timestamp == 5
    assert land(row, {"0": 7}).timestamp == 7


def test_the_end_of_input_is_the_end_of_time() -> None:
    row = land(None, {"a": 5, "b": 1}, flips=True, landed=Landed(ended=frozenset("a")))
    assert (row.timestamp, row.idle) == (1, False)
    row = land(row, {"b": 3}, landed=Landed(ended=frozenset("b")))
    assert (row.timestamp, row.idle) == (MAX_TIMESTAMP, False)
    assert heard(row) == {"a": (5, False), "b": (3, False)}  # what each of them has emitted stays


def test_what_counts() -> None:
    done, going = SplitWatermark("a", 5, False, ended=True), SplitWatermark("b", 3, False)
    assert counting([done, going]) == [going]
    assert [(split.timestamp, split.idle) for split in counting([done])] == [(5, True)]
    assert counting([]) == []
    assert folded([done, going], set()) == [done, going]
    assert asdict(going)["late"] == 0


def test_a_build_that_does_not_delegate_emits_before_its_first_record_and_shows_it_at_its_flip() -> None:
    def land_one(before: WatermarkRow | None, flips: bool) -> WatermarkRow:
        time = EpochTime(table({"n": "INT"}, "datagen"), WatermarkStrategy.no_watermarks(), before, 0)
        signal = SignalEmit(lambda: 0, before)
        signal.before_first_record()
        step = StoredStep(Step({}, flips=flips), 1, before.epoch + 1 if before else 1, 0)
        return watermark_row(time, step, Landed(), 1, (), signal, 0)

    first = land_one(None, False)
    assert [split["use_processing_time"] for split in first.splits] == [True]
    assert (first.use_processing_time, first.flip_epoch) == (False, None)
    second = land_one(first, True)
    assert (second.timestamp, second.use_processing_time, second.flip_epoch) == (MIN_TIMESTAMP, True, 2)
    assert second.splits == first.splits


def emitting(*words: tuple[str, Watermark]) -> Landed:
    return Landed(watermarks=words)


def test_a_source_s_own_watermarks_never_go_back() -> None:
    row = land(None, {"a": 10, "b": 20}, flips=True)
    row = land(row, {}, landed=emitting(("a", Watermark(5))))
    assert (row.timestamp, heard(row)) == (10, {"a": (10, False), "b": (20, False)})
    row = land(None, {}, flips=True, landed=emitting(("a", Watermark(10)), ("a", Watermark(5))))
    assert (row.timestamp, heard(row)) == (10, {"a": (10, False)})


NOW = Watermark(10_000, True)


@pytest.mark.parametrize(
    ("before", "words", "cause"),
    [
        pytest.param((), (NOW,), ProcessingTimeBehind, id="its timestamp is in the future"),
        pytest.param(
            (Watermark(5000),), (PROCESSING_TIME,), ProcessingTimeBehind, id="what it emitted is in the future"
        ),
        pytest.param((PROCESSING_TIME,), (Watermark(25),), ProcessingTimeRevoked, id="true, then false"),
        pytest.param((), (PROCESSING_TIME, Watermark(25)), ProcessingTimeRevoked, id="the same in one epoch"),
    ],
)
def test_what_a_source_must_not_emit_names_its_split(
    before: tuple[Watermark, ...], words: tuple[Watermark, ...], cause: type[Exception]
) -> None:
    first = land(None, {}, flips=True, now=100, landed=emitting(("b", Watermark(1)), *(("a", word) for word in before)))
    with pytest.raises(SourceError, match=r"the source's watermark of split 'a'") as caught:
        land(first, {}, now=100, landed=emitting(("b", Watermark(2)), *(("a", word) for word in words)))
    assert isinstance(caught.value.__cause__, cause)
    assert "generation 1, epoch 2" in caught.value.where
    if cause is ProcessingTimeBehind:  # an epoch that waits for its watermark gets it once the clock is right
        later = land(first, {}, now=10_000, landed=emitting(*(("a", word) for word in words)))
        assert [split["use_processing_time"] for split in later.splits] == [True, False]


def test_a_source_s_own_watermark_ends_its_split_s_idleness() -> None:
    row = land(None, {}, flips=True, landed=Landed(watermarks=[("a", Watermark(5))], idle={"a": True}))
    assert heard(row) == {"a": (5, True)}
    assert heard(land(row, {}, landed=emitting(("a", Watermark(3))))) == {"a": (5, False)}


class Delegates:
    """A source that owns the emit, or does not."""

    def __init__(self, owns: bool) -> None:
        self.owns = owns
        self.emit: Callable[[], None] = lambda: None

    def delegate_watermark_periodic_emit(self, on_watermark_emit: Callable[[], None]) -> bool:
        self.emit = on_watermark_emit
        return self.owns


def signal(source: Delegates, before: WatermarkRow | None = None, now: int = 100) -> SignalEmit:
    made = SignalEmit(lambda: now, before)
    made.offer(source)  # type: ignore[arg-type]
    return made


def row(timestamp: int, **split: Any) -> WatermarkRow:
    splits = [{"split": "table", "timestamp": timestamp, "use_processing_time": False, **split}]
    return WatermarkRow("t", 1, 1, 0, 0, timestamp, bool(split.get("use_processing_time")), splits=splits)


def test_a_source_that_does_not_delegate_is_called_once_before_the_first_record() -> None:
    first = signal(Delegates(False))
    assert first.emitted is None
    first.before_first_record()
    assert first.emitted == PROCESSING_TIME
    later = signal(Delegates(False), row(MIN_TIMESTAMP, use_processing_time=True))
    later.before_first_record()
    assert later.emitted is None


def test_a_source_that_delegates_calls_it_itself() -> None:
    source = Delegates(True)
    made = signal(source)
    made.before_first_record()
    assert made.emitted is None
    source.emit()
    assert made.emitted == PROCESSING_TIME


def test_a_table_that_emitted_a_time_in_the_future_cannot_turn_to_processing_time() -> None:
    made = signal(Delegates(False), row(500), now=499)
    with pytest.raises(ProcessingTimeBehind):
        made.before_first_record()
    made = signal(Delegates(False), row(500), now=500)
    made.before_first_record()
    assert made.emitted == PROCESSING_TIME
