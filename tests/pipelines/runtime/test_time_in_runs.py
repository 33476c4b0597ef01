"""Strategies in whole runs, over a source of several splits: what the watermark log says, whatever is done between."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.cases import at_length
from tests.pipelines.runtime import tape
from tests.pipelines.runtime.crashing import dying
from tidegate.pipelines.errors import PlanningError, SourceError, TidegateError
from tidegate.pipelines.lake import Lake, WatermarkRow, delta_log
from tidegate.pipelines.runtime.runner import Runner
from tidegate.pipelines.runtime.watermark_log import builtin
from tidegate.pipelines.sql import compile_script
from tidegate.pipelines.watermarks import (
    MIN_TIMESTAMP,
    Watermark,
    WatermarkGenerator,
    WatermarkOutput,
    WatermarkStrategy,
)

SCRIPT = """
CREATE TABLE clicks (id BIGINT, at_ms BIGINT, at AS TO_TIMESTAMP_LTZ(at_ms, 3){label}{watermark})
WITH ('connector' = 'tape'{options});
CREATE TABLE kept (id BIGINT) WITH ('connector' = 'delta');
INSERT INTO kept SELECT id FROM clicks
"""
WATERMARK = ", WATERMARK FOR at AS at - INTERVAL '0.005' SECOND"
ON_EVENT = {"scan.watermark.emit.strategy": "on-event"}


@pytest.fixture(autouse=True)
def _connector(monkeypatch: pytest.MonkeyPatch) -> None:
    tape.install(monkeypatch)


@dataclass
class Run:
    """A lake, a tape, and a clock that the test moves."""

    spark: SparkSession
    folder: Path
    options: Mapping[str, str] = field(default_factory=dict)
    watermark: str = WATERMARK
    strategy: WatermarkStrategy | None = None
    interval: timedelta | None = None
    now: int = 1_000_000
    rows_of: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    label: str = ""

    def __post_init__(self) -> None:
        self.lake = Lake(self.folder)

    def runner(self) -> Runner:
        options = "".join(f", '{name}' = '{value}'" for name, value in self.options.items())
        pipeline = compile_script(SCRIPT.format(watermark=self.watermark, options=options, label=self.label))
        if self.strategy is not None:
            pipeline = pipeline.with_strategy("clicks", self.strategy)
        return Runner(
            pipeline,
            self.lake,
            spark=lambda: self.spark,
            clock=lambda: self.now,
            environment={},
            auto_watermark_interval=self.interval,
        )

    def push(self, split: str, *times: int | None, **more: Any) -> None:
        rows = self.rows_of.setdefault(split, [])
        for time in times:
            rows.append({"id": len(rows), "at_ms": time, **more})
        tape.write(self.lake, "clicks", self.rows_of)

    def advance(self) -> WatermarkRow:
        with self.runner() as runner:
            last = runner.advance("clicks").last
        assert last is not None
        return last

    def step(self, split: str, *times: int | None) -> WatermarkRow:
        self.push(split, *times)
        return self.advance()


def emitted(row: WatermarkRow) -> dict[str, int]:
    return {split["split"]: split["timestamp"] for split in row.splits}


def idle(row: WatermarkRow) -> list[str]:
    return [split["split"] for split in row.splits if split["idle"]]


def test_ddl_emits_the_greatest_value_of_its_expression_at_the_end_of_an_epoch(spark, tmp_path) -> None:
    run = Run(spark, tmp_path)
    first = run.step("a", 100, 120, None, 90)
    assert (first.timestamp, emitted(first), first.late, first.flip_epoch) == (115, {"a": 115}, 0, 1)
    second = run.step("a", 115, 116, 200)  # 115 <= 115 is late
    assert (second.timestamp, second.late) == (195, 1)
    third = run.step("a", 10)
    assert (third.timestamp, third.late) == (195, 1)
    run.push("b", 300)
    behind = run.step("a", 400)
    assert (behind.timestamp, emitted(behind)) == (295, {"a": 395, "b": 295})


def test_a_row_is_late_by_what_was_emitted_before_its_epoch_however_often_that_is(spark, tmp_path) -> None:
    run = Run(spark, tmp_path, ON_EVENT)
    run.step("a", 100)
    row = run.step(
        "a", 200, 195, 96, 300, 95
    )  # 95 was emitted before the epoch; what its own rows tell makes none late
    assert (row.timestamp, row.late) == (295, 1)
    run.push("b", 400)
    row = run.step("a", 295, 296, 310)
    assert (row.timestamp, emitted(row), row.late) == (305, {"a": 305, "b": 395}, 1)
    row = run.step("b", 390, 305)  # behind b's own, and not behind the table's but for one
    assert (row.timestamp, row.late) == (305, 1)


def test_an_epoch_of_one_split_is_reported_by_what_was_counted_on_the_way(spark, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(builtin, "scan", None)
    run = Run(spark, tmp_path, ON_EVENT)
    run.step("a", 100)
    row = run.step("a", 200, 95, 300)
    assert (row.timestamp, row.late) == (295, 1)


def test_an_epoch_that_a_crash_left_committed_is_reported_by_its_rows(spark, tmp_path) -> None:
    run = Run(spark, tmp_path, ON_EVENT)
    run.step("a", 100)
    run.push("a", 200, 95, 196, 300, 90)
    with dying("source.appended"):
        run.advance()
    row = run.advance()
    assert (row.timestamp, row.late) == (295, 2)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("no_such_column", "no_such_column"),
        ("no_such_column - INTERVAL '5' SECOND", "no_such_column"),
        ("at - INTERVAL '1.5' DAY", "INTERVAL"),
        ("at - INTERVAL '5' M", "M"),
        ("label - INTERVAL '5' SECOND", "CAST_INVALID_INPUT"),
    ],
)
def test_a_watermark_that_fails_does_so_before_rows_are_committed(
    spark: SparkSession, tmp_path: Path, expression: str, expected: str
) -> None:
    """However much it looks like a column less a constant."""
    run = Run(spark, tmp_path, strategy=WatermarkStrategy.for_expression(expression))
    run.label = ", label AS IF(id = 1, 'soon', CAST(at_ms AS STRING))"
    run.push("a", 100, 200)
    with pytest.raises(TidegateError, match=expected):
        run.advance()
    assert not delta_log.committed(run.lake.table_path("clicks"), run.lake.application("clicks", "data", 1)) > 0


def test_a_time_without_a_zone_is_read_as_the_session_has_it(spark: SparkSession, tmp_path: Path) -> None:
    run = Run(spark, tmp_path, strategy=OF_TEXT)
    run.label = ", label AS TIMESTAMP '2026-01-01 00:00:10'"
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        assert run.step("a", 100).timestamp == 1_767_225_605_000 - 9 * 3_600_000
    finally:
        spark.conf.set("spark.sql.session.timeZone", before or "UTC")


def test_a_gap_waits_for_so_many_rows_across_epochs(spark, tmp_path) -> None:
    options = {"scan.watermark.emit.strategy": "on-event", "scan.watermark.emit.on-event.gap": "3"}
    run = Run(spark, tmp_path, options)
    assert run.step("a", 100, 110).timestamp == MIN_TIMESTAMP
    assert run.step("a", 50, 60).timestamp == 105  # the third row emits
    assert run.step("a", 500).timestamp == 105
    assert run.step("a", 400).timestamp == 495


def test_an_auto_watermark_interval_of_zero_is_punctuated(spark, tmp_path) -> None:
    run = Run(spark, tmp_path, interval=timedelta(0))
    row = run.step("a", 100)
    assert row.splits[0]["state"] == {"greatest": 95, "since": 0}


SOURCES_OWN = ", src AS SYSTEM_ROWTIME(), WATERMARK FOR src AS SYSTEM_WATERMARK()"
DELAYED = f"{SOURCES_OWN} - INTERVAL '0.02' SECOND"
DELAYS = WatermarkStrategy.from_source(delay=timedelta(milliseconds=20))
MONOTONOUS = WatermarkStrategy.for_monotonous_timestamps()
BOUNDED = WatermarkStrategy.for_bounded_out_of_orderness(timedelta(milliseconds=10))
OF_TEXT = WatermarkStrategy.for_expression("label - INTERVAL '5' SECOND")
OF_SPARK = WatermarkStrategy.for_expression("timestampadd(MILLISECOND, -pmod(id, 3), at)", "TIMESTAMP_LTZ(3)")
ASSIGNED = MONOTONOUS.with_timestamp_assigner(lambda element, at: at + element["id"] * 1000)
TEXT = ", label AS '2026-01-01 00:00:10'"
TELLS = {"tells": "3"}


def emitting(expected: int | None, *times: int, **how: Any) -> tuple[int | None, tuple[int, ...], dict[str, Any]]:
    """Rows of these times, by a table and strategy of this kind, and what they emit; None: processing time."""
    return expected, times, how


EMITTED = {
    # An expression is the user's word, and so is a strategy; without either a table is in processing time.
    "an expression": emitting(95, 100, options=TELLS),
    "nothing": emitting(None, 100, options=TELLS, watermark=""),
    "a strategy": emitting(99, 100, options=TELLS, strategy=MONOTONOUS),
    "a strategy without": emitting(None, 140, strategy=WatermarkStrategy.no_watermarks()),
    # The source's own is asked for; it has ascending times where it emits none, and both may be delayed.
    "the source's": emitting(73, 100, options=TELLS, strategy=WatermarkStrategy.from_source()),
    "the source's, which emits none": emitting(69, 100, watermark=SOURCES_OWN),
    "the source's, delayed": emitting(53, 100, options=TELLS, watermark=DELAYED),
    "the source's time, where a row has none of its own": emitting(699, 730, watermark="", strategy=MONOTONOUS),
    # Texts and days are times for Spark alone: they are no numbers of microseconds in a file.
    "a text": emitting(1_767_225_605_000, 100, label=TEXT, strategy=OF_TEXT),
    "any expression of Spark": emitting(100, 100, 101, 102, strategy=OF_SPARK),
    "an assigner, of the element and its timestamp": emitting(2006, 5, 6, 7, strategy=ASSIGNED),
    # Two of the above at once.
    "another strategy": emitting(109, 100, 120, 90, strategy=BOUNDED),
    "the source's, by DDL": emitting(73, 100, options=TELLS, watermark=SOURCES_OWN),
    "the source's, which emits none, delayed": emitting(49, 100, watermark=DELAYED),
    "the source's, delayed by a strategy": emitting(53, 100, options=TELLS, watermark="", strategy=DELAYS),
    "a text, on event": emitting(1_767_225_605_000, 100, label=TEXT, strategy=OF_TEXT.with_emission_on_event(1)),
}


@pytest.mark.parametrize("name", at_length(EMITTED, fast=11))
def test_what_is_emitted_of_one_epoch(spark, tmp_path, name: str) -> None:
    """The source's own time of each row is 30 ms less than the row's."""
    expected, times, how = EMITTED[name]
    run = Run(spark, tmp_path, **how)
    for at in times:
        run.push("a", at, _rowtime=at - 30)
    row = run.advance()
    shown = (row.timestamp, row.use_processing_time, row.late)
    assert shown == (MIN_TIMESTAMP if expected is None else expected, expected is None, 0)


def test_without_any_time_an_assigner_gets_the_least_one(spark, tmp_path) -> None:
    strategy = MONOTONOUS.with_timestamp_assigner(lambda row, at: 8 if at == MIN_TIMESTAMP else 99)
    assert Run(spark, tmp_path, watermark="", strategy=strategy).step("a", 5).timestamp == 7


class OnFlag:
    """Emits the rowtime of every row whose id is even; remembers how many rows it saw."""

    def __init__(self) -> None:
        self.seen = 0

    def on_event(self, event: Any, event_timestamp: int, output: Any) -> None:
        self.seen += 1
        if event["at_ms"] == 666:
            raise RuntimeError("the number\nof the beast")
        if event["id"] % 2 == 0:
            output.emit_watermark(Watermark(event_timestamp))

    def on_periodic_emit(self, output: Any) -> None:
        """Emits on rows only."""

    def state(self) -> dict[str, int]:
        return {"seen": self.seen}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.seen = state["seen"]


def test_a_generator_of_ones_own_sees_every_row_in_order_and_keeps_its_state(spark, tmp_path) -> None:
    run = Run(spark, tmp_path, strategy=WatermarkStrategy.for_generator(OnFlag))
    run.push("a", 100, 110, 105)
    run.push("b", 50)
    first = run.advance()
    assert (emitted(first), first.timestamp) == ({"a": 105, "b": 50}, 50)
    row = run.step("a", 90, 120, 50)  # ids 3, 4, 5; the table has emitted 50
    assert (emitted(row), row.late) == ({"a": 120, "b": 50}, 1)
    assert {split["split"]: split["state"]["generator"]["seen"] for split in row.splits} == {"a": 6, "b": 1}


class Marks:
    """A generator of both kinds: emits on rows with an even id, and the greatest rowtime periodically; a row at 0 is
    the last for a while."""

    def __init__(self) -> None:
        self.greatest, self.ended = MIN_TIMESTAMP, False

    def on_event(self, event: Any, event_timestamp: int, output: Any) -> None:
        self.ended = event_timestamp == 0
        self.greatest = max(self.greatest, event_timestamp)
        if event["id"] % 2 == 0:
            output.emit_watermark(Watermark(event_timestamp))

    def on_periodic_emit(self, output: Any) -> None:
        output.emit_watermark(Watermark(self.greatest))
        if self.ended:
            output.mark_idle()


def test_a_mixed_generator_may_mark_its_split_idle(spark, tmp_path) -> None:
    run = Run(spark, tmp_path, strategy=WatermarkStrategy.for_generator(Marks))
    run.push("a", 100, 110)
    run.push("b", 50)
    first = run.advance()
    assert (first.timestamp, emitted(first), idle(first)) == (50, {"a": 110, "b": 50}, [])
    run.push("b", 60, 0)
    ended = run.step("a", 120, 115)
    assert (ended.timestamp, idle(ended), ended.late) == (120, ["b"], 1)  # 0 of b
    assert idle(run.step("b", 130)) == []


class TurnsToProcessingTime(WatermarkGenerator):
    """Event time first; processing time from the first small timestamp on."""

    def on_event(self, event: Any, event_timestamp: int, output: WatermarkOutput) -> None:
        output.emit_watermark(Watermark(event_timestamp - 5, event_timestamp < 10))

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        pass


def test_a_clock_that_jumped_back_is_reported(spark, tmp_path) -> None:
    run = Run(spark, tmp_path, strategy=WatermarkStrategy.for_generator(TurnsToProcessingTime))
    assert run.step("a", 2_000_000).timestamp == 1_999_995  # the clock says 1,000,000
    run.push("a", 5)
    with pytest.raises(SourceError, match="in processing time was emitted at 1000000 ms, before 1999995 ms") as failed:
        run.advance()
    assert "epoch 2" in failed.value.where
    assert "its watermark is not" in failed.value.state
    assert run.lake.watermarks.last("clicks").epoch == 1  # type: ignore[union-attr]


def test_a_rowtime_has_microseconds(spark, tmp_path) -> None:
    run = Run(
        spark, tmp_path, watermark=", us AS TIMESTAMP_MICROS(at_ms), WATERMARK FOR us AS us - INTERVAL '0.005' SECOND"
    )
    assert run.step("a", 100_900).timestamp == 95
    assert run.step("a", 95_000, 95_001).late == 1


def test_an_exception_names_split_and_offset(spark, tmp_path) -> None:
    run = Run(spark, tmp_path, strategy=WatermarkStrategy.for_generator(OnFlag))
    run.step("a", 100)
    run.push("a", 101, 666)
    with pytest.raises(
        SourceError, match="split 'a' at offset 2 failed: RuntimeError: the number of the beast"
    ) as failed:
        run.advance()
    assert "its rows" not in failed.value.what
    assert run.lake.watermarks.last("clicks").epoch == 1  # type: ignore[union-attr]
    run.strategy = WatermarkStrategy.for_monotonous_timestamps()
    with pytest.raises(PlanningError, match="defines table clicks differently"):
        run.advance()


def test_an_idle_split_is_passed_over_and_wakes_at_its_next_row(spark, tmp_path) -> None:
    run = Run(spark, tmp_path, {"scan.watermark.idle-timeout": "10 s"})
    run.push("a", 100)
    run.push("b", 50)
    assert run.advance().timestamp == 45
    run.now += 9_999
    row = run.step("a", 200)
    assert (row.timestamp, idle(row)) == (45, [])
    run.now += 1
    row = run.advance()  # an epoch without rows, which says that b is idle
    assert (row.epoch, row.rows, row.timestamp, idle(row), row.idle) == (3, 0, 195, ["b"], False)
    assert run.advance().epoch == 3
    run.now += 20_000
    row = run.advance()
    assert (row.epoch, idle(row), row.idle, row.timestamp) == (4, ["a", "b"], True, 195)
    row = run.step("b", 60)  # awake, behind the last output: late, and passed over until it has caught up
    assert (idle(row), row.idle, row.timestamp, row.late) == (["a"], False, 195, 1)
    assert run.step("b", 300).timestamp == 295


def test_a_split_that_has_said_nothing_holds_until_it_is_idle(spark, tmp_path) -> None:
    run = Run(spark, tmp_path, {"scan.watermark.idle-timeout": "10 s"})
    run.push("a", 100)
    run.push("b")
    assert run.advance().timestamp == MIN_TIMESTAMP
    run.now += 10_000
    assert run.step("a", 101).timestamp == 96


def test_the_splits_of_a_bounded_phase_do_not_hold_the_watermark_after_it(spark, tmp_path) -> None:
    run = Run(spark, tmp_path, {"bounded": "2", "chunks": "true", "rows-per-epoch": "a=2,b=1"})
    run.push("a", 900, 100)
    run.push("b", 50, 60, 300)
    row = run.advance()
    assert [item.timestamp for item in run.lake.watermarks.rows("clicks")] == [MIN_TIMESTAMP, 895, 895]
    assert (row.flip_epoch, row.late) == (2, 1)
    assert run.step("b", 1000).timestamp == 995


def log_of(run: Run) -> list[WatermarkRow]:
    """The whole log, without the clock's readings at which rows were written."""
    return [replace(row, landed_at=0, flipped_at=None) for row in run.lake.watermarks.rows("clicks")]


@pytest.fixture(scope="module")
def calm() -> dict[str, list[WatermarkRow]]:
    """The log of each way without a crash, once a run has made it."""
    return {}


GENERATOR: dict[str, Any] = {"strategy": WatermarkStrategy.for_generator(OnFlag)}


@pytest.mark.parametrize(
    ("point", "how"),
    [
        pytest.param("source.planned", {}, id="planned"),
        pytest.param("source.appended", {}, id="appended", marks=pytest.mark.thorough),
        pytest.param("source.landed", {}, id="landed", marks=pytest.mark.thorough),
        pytest.param("source.appended", GENERATOR, id="appended, a generator of one's own"),
        pytest.param("source.landed", {"interval": timedelta(0)}, id="landed, punctuated", marks=pytest.mark.thorough),
        pytest.param(
            "source.appended",
            {"watermark": DELAYED},
            id="appended, the source's own, delayed",
            marks=pytest.mark.thorough,
        ),
        pytest.param(
            "source.landed",
            {"watermark": DELAYED, "options": {"tells": "3"}},
            id="landed, emitted, delayed",
            marks=pytest.mark.thorough,
        ),
    ],
)
def test_a_crash_before_the_log_row_gives_the_same_row(
    spark, tmp_path, calm: dict[str, list[WatermarkRow]], point: str, how: dict[str, Any]
) -> None:
    def story(folder: Path, crash: bool) -> list[WatermarkRow]:
        run = Run(spark, folder, **how | {"options": {"scan.watermark.idle-timeout": "10 s"} | how.get("options", {})})
        for split, at in (("a", 100), ("a", 110), ("b", 50)):
            run.push(split, at, _rowtime=at)
        run.advance()
        run.now += 6_000
        for at in (90, 300, 200):
            run.push("a", at, _rowtime=at)
        if crash:
            with dying(point):
                run.advance()
            run.now += 3_600_000  # the run that finishes it comes an hour later
            with run.runner() as runner:
                runner.advance("clicks", max_epochs=1)
        run.advance()
        return log_of(run)[:2]

    crashed = story(tmp_path / "crash", True)
    if repr(how) not in calm:
        calm[repr(how)] = story(tmp_path / "calm", False)
    assert crashed == calm[repr(how)]
    if how.get("watermark") == DELAYED:
        ahead = 3 if "options" in how else -1
        assert [emitted(row) for row in crashed] == [
            {"a": 110 + ahead - 20, "b": 50 + ahead - 20},
            {"a": 300 + ahead - 20, "b": 50 + ahead - 20},
        ]


def test_a_backlog_shows_its_watermark_from_its_first_epoch_on(spark, tmp_path) -> None:
    run = Run(spark, tmp_path, {"rows-per-epoch": "a=1"})
    run.push("a", 100, 200, 150, 300)
    row = run.advance()
    log = run.lake.watermarks.rows("clicks")
    assert [(item.timestamp, item.late, item.flip_epoch) for item in log] == [
        (95, 0, None), (195, 0, None), (195, 1, None), (295, 0, 4),
    ]  # fmt: skip
    assert row.flip_epoch == 4
