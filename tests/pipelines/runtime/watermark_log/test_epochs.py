"""tests/fixtures/watermarks/epochs.toml: what a table tells after each epoch, by its generators and by Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql import SparkSession

from tests.pipelines.runtime.watermark_log.test_builtin import frame
from tests.pipelines.sources.sources_help import table
from tests.pipelines.watermarks.tables import cases, steps
from tidegate.pipelines.connectors.protocol import Landed, Step, StoredStep
from tidegate.pipelines.lake import Lake, WatermarkRow
from tidegate.pipelines.runtime.landing.alignment import Members, group_position
from tidegate.pipelines.runtime.splits import stored_splits
from tidegate.pipelines.runtime.watermark_log import EpochTime, SignalEmit, builtin, custom, watermark_row
from tidegate.pipelines.runtime.watermark_log.builtin import SplitPass, SplitsBefore
from tidegate.pipelines.runtime.watermark_log.custom import GeneratorRun
from tidegate.pipelines.watermarks import (
    MAX_TIMESTAMP,
    MIN_TIMESTAMP,
    ExpressionWatermarks,
    Watermark,
    WatermarkAlignment,
    WatermarkStrategy,
)

CASES = cases("epochs")
TABLE = table({"value": "BIGINT"}, "scripted")


class Row(NamedTuple):
    """A row at `at` ms, None for none; `last`: its split is idle after it."""

    at: int | None
    last: bool

    @property
    def value(self) -> int | None:
        return None if self.last else self.at


Rows = Mapping[str, Sequence[Row]]


class Marks:
    """Tells each row's time; one without a value is the last for a while."""

    def on_event(self, event: Any, event_timestamp: int, output: Any) -> None:
        output.emit_watermark(Watermark(event_timestamp))
        if event["value"] is None:
            output.mark_idle()

    def on_periodic_emit(self, output: Any) -> None:
        """Tells on rows only."""


def strategy_of(case: Mapping[str, Any]) -> WatermarkStrategy:
    by_value = WatermarkStrategy.for_expression("value", "BIGINT")
    strategy = WatermarkStrategy.for_generator(Marks) if case.get("own") else by_value
    return strategy.with_idleness(timedelta(milliseconds=case["idle_ms"])) if "idle_ms" in case else strategy


def brought(words: Sequence[str]) -> tuple[Rows, Landed, tuple[str, ...]]:
    """The rows of each split, what the source says of them, and those that alignment has held back."""
    said = [word.partition("/") for word in words if "/" in word]
    given = [word.partition("=") for word in words if "/" not in word]
    rows = {
        split: [Row(None if at == "null" else int(at.strip("!")), at.endswith("!")) for at in times.split(",")]
        for split, _, times in given
        if times
    }
    landed = Landed(
        splits=frozenset(split for split, _, times in given if not times),
        ended=frozenset(split for split, _, what in said if what == "ended"),
        idle={split: True for split, _, what in said if what == "idle"},
    )
    return rows, landed, tuple(split for split, _, what in said if what == "held")


@dataclass
class Story:
    """A case, epoch by epoch."""

    case: Mapping[str, Any]
    lake: Lake
    before: WatermarkRow | None = None
    epoch: int = 0

    def __post_init__(self) -> None:
        self.name: str = self.case["name"]
        self.own: bool = self.case.get("own", False)
        self.strategy = strategy_of(self.case)
        self.steps = list(steps(dict(self.case)))

    def next(self) -> None:
        """Go on to the next epoch, and what it brings."""
        clock, words, self.expected, self.step = self.steps[self.epoch]
        self.epoch += 1
        self.now = int(clock)
        self.rows, self.landed, self.held = brought(words.split())
        self.time = EpochTime(TABLE, self.strategy, self.before, self.now)

    def lands(self, passes: Sequence[SplitPass]) -> list[str]:
        """What comes of an epoch whose rows said `passes`."""
        step = StoredStep(Step({}, flips=self.epoch == 1, blocked=self.held), 1, self.epoch, self.now)
        count = sum(map(len, self.rows.values()))
        row = watermark_row(self.time, step, self.landed, count, passes, SignalEmit(lambda: 0), self.now)
        self.before = row
        return outcome(row) + blocked(self.case, row, self.lake, self.now)


def by_hand(story: Story) -> list[SplitPass]:
    """Each split's generator over its rows; one of one's own is asked where there are none, too."""
    before = story.time.splits_before
    known = {name for name, split in before.splits.items() if not split.ended}
    found = []
    for name in sorted(known | story.rows.keys() if story.own else story.rows):
        run = GeneratorRun(story.strategy, name, before, story.now)
        for offset, row in enumerate(story.rows.get(name, ())):
            at = MIN_TIMESTAMP if row.at is None else row.at
            element = {"value": row.value} if story.own else row.value
            run.row(element, offset, at, at)  # type: ignore[arg-type]
        found.append(run.end())
    return found


def outcome(row: WatermarkRow) -> list[str]:
    names = {MIN_TIMESTAMP: "-", MAX_TIMESTAMP: "MAX"}
    return [
        names.get(row.timestamp, str(row.timestamp)),
        *(["idle"] if row.idle else []),
        *([f"late={row.late}"] if row.late else []),
        *(f"~{split.split}" for split in stored_splits(row) if split.idle and not split.ended),
    ]


def blocked(case: Mapping[str, Any], row: WatermarkRow, lake: Lake, now: int) -> list[str]:
    if "drift_ms" not in case:
        return []
    group = WatermarkAlignment("g", timedelta(milliseconds=case["drift_ms"]), timedelta(seconds=1))
    stands = group_position(Members(lake), row.owner, group, now, stored_splits(row))
    return [f"!{item.split}" for item in stands.blocked]


@pytest.mark.parametrize("case", CASES)
def test_the_generators_say_so(case: dict[str, Any], tmp_path: Path) -> None:
    story = Story(case, Lake(tmp_path))
    for _ in story.steps:
        story.next()
        assert story.lands(by_hand(story)) == story.expected, story.step


@pytest.mark.parametrize(
    ("strategy", "asked"),
    [
        (WatermarkStrategy.for_expression("value", "BIGINT"), False),
        (WatermarkStrategy.from_source("value", "BIGINT"), False),
        (WatermarkStrategy.for_monotonous_timestamps(), True),
    ],
    ids=["expression", "source", "monotonous"],
)
def test_an_expression_and_a_source_ask_no_assigner(strategy: WatermarkStrategy, asked: bool) -> None:
    """What was counted while rows were written is enough then; an assigner has to see each of them."""
    counts = {"rows": 1, "late": 0, "greatest": 7, "rowtime": 9, "first_split": "a", "last_split": "a"}
    time = EpochTime(TABLE, strategy.with_timestamp_assigner(lambda row, at: 0), None, 0)
    found = time.passes(lambda: None, counts, StoredStep(Step({}), 1, 1, 0))
    assert [item.watermark for item in found] == ([] if asked else [Watermark(7)])


@pytest.mark.parametrize("own", [False, True], ids=["built-in", "a generator of one's own"])
def test_spark_says_so(spark: SparkSession, tmp_path: Path, own: bool) -> None:
    """All cases side by side, a query an epoch: the splits of each under names of their own."""
    found = [Story(parameter.values[0], Lake(tmp_path)) for parameter in CASES]  # type: ignore[arg-type]
    going = [story for story in found if story.own == own]
    while going := [story for story in going if story.epoch < len(story.steps)]:
        for story in going:
            story.next()
        by_split = {(item.split.split("/")[0], item.split.split("/")[1]): item for item in scanned(spark, going)}
        for number, story in enumerate(going):
            passes = [
                replace(by_split[str(number), item.split], split=item.split, late=item.late) for item in by_hand(story)
            ]
            assert story.lands(passes) == story.expected, f"{story.name}: {story.step}"


def scanned(spark: SparkSession, going: Sequence[Story]) -> list[SplitPass]:
    """What Spark makes of an epoch of each story. Late rows are not counted: each table's own watermark says which."""
    data = [
        (f"{number}/{split}", offset, None if row.at is None else row.at * 10, row.value)
        for number, story in enumerate(going)
        for split, rows in story.rows.items()
        for offset, row in enumerate(rows)
    ]
    before = SplitsBefore(
        {
            f"{number}/{name}": split
            for number, story in enumerate(going)
            for name, split in story.time.splits_before.splits.items()
        }
    )
    rows = frame(spark, data) if data else None
    if going[0].own:
        return custom.scan(rows, going[0].strategy, before, 0, ["value"])
    return builtin.scan(rows, ExpressionWatermarks("value", "BIGINT"), None, before)
