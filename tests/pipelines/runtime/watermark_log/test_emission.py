"""tests/fixtures/watermarks/emission.toml, emitted by the generators themselves and by the SQL that stands for them."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, NamedTuple

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.pipelines.runtime.watermark_log.test_builtin import after, frame
from tests.pipelines.watermarks.tables import cases, steps
from tidegate.pipelines.lake import SplitWatermark
from tidegate.pipelines.runtime.watermark_log import builtin
from tidegate.pipelines.runtime.watermark_log.builtin import SplitPass, SplitsBefore
from tidegate.pipelines.runtime.watermark_log.custom import GeneratorRun
from tidegate.pipelines.watermarks import MIN_TIMESTAMP, WatermarkStrategy

CASES = cases("emission")


class Row(NamedTuple):
    """A row of a table's case. `place` counts the rows of its split. What has to be true once it was read: its split
    has emitted `emitted` so far, and `late` of the rows of this epoch were late."""

    place: int
    value: int | None
    rowtime: int | None
    emitted: int
    late: int


@dataclass
class Epoch:
    """The rows of each split, and what each of them has emitted at the end."""

    rows: dict[str, list[Row]] = field(default_factory=dict)
    emitted: dict[str, int] = field(default_factory=dict)


def number(word: str) -> int | None:
    return None if word == "null" else int(word)


def epochs(case: Mapping[str, Any]) -> list[Epoch]:
    """What a case gives and expects."""
    found, emitted, places = [Epoch()], {}, Counter[str]()
    for split, word, expected, _ in steps(dict(case)):
        if split == "*":
            emitted |= {name: int(at) for name, _, at in (end.partition("=") for end in expected)}
            found[-1].emitted = dict(emitted)
            found.append(Epoch())
            continue
        own = found[-1].rows.setdefault(split, [])
        emitted[split] = max([emitted.get(split, MIN_TIMESTAMP), *(int(at) for at in expected if at != "late")])
        value, _, rowtime = word.partition("@")
        late = ("late" in expected) + (own[-1].late if own else 0)
        own.append(Row(places[split], number(value), number(rowtime or value), emitted[split], late))
        places[split] += 1
    assert not found.pop().rows, "the last epoch has no end"
    return found


def strategy_of(case: Mapping[str, Any]) -> WatermarkStrategy:
    bounded = case.get("strategy") == "bounded"
    strategy = (
        WatermarkStrategy.for_bounded_out_of_orderness(timedelta(milliseconds=case["delay_ms"]))
        if bounded
        else WatermarkStrategy.for_expression("value", "BIGINT")
    )
    return strategy.with_emission_on_event(case["gap"]) if "gap" in case else strategy


def floor_of(case: Mapping[str, Any]) -> int | None:
    return case.get("floor", MIN_TIMESTAMP) if case.get("flipped", True) else None


def outcome(item: SplitPass) -> tuple[int, int]:
    return item.watermark.timestamp, item.late


@pytest.mark.parametrize("case", CASES)
def test_the_generator_says_so(case: dict[str, Any]) -> None:
    strategy, before = strategy_of(case), SplitsBefore(floor=floor_of(case))
    bounded = case.get("strategy") == "bounded"
    for epoch in epochs(case):
        passes = []
        for split, rows in epoch.rows.items():
            run = GeneratorRun(strategy, split, before, 0)
            for row in rows:
                at = MIN_TIMESTAMP if row.rowtime is None else row.rowtime
                run.row({} if bounded else row.value, row.place, at, at)  # type: ignore[arg-type]
                if strategy.gap is not None:  # the end of an epoch tells nothing then
                    assert outcome(run.end()) == (row.emitted, row.late), (split, row)
            passes.append(run.end())
            assert outcome(passes[-1]) == (epoch.emitted[split], rows[-1].late), split
        before = after(before, passes, before.floor)


class Cut(NamedTuple):
    """The first rows of a split in one epoch, as if the epoch had ended there: a split of its own to the SQL."""

    case: str
    split: str
    rows: tuple[Row, ...]
    expected: tuple[int, int]

    @property
    def name(self) -> str:
        return f"{self.case}/{self.split}/{len(self.rows)}"


def cuts(case: Mapping[str, Any], epoch: Epoch) -> Iterator[Cut]:
    """The whole epoch of each split; where it is punctuated, what it is after each of its rows too."""
    for split, rows in epoch.rows.items():
        for stop in range(1, len(rows)) if "gap" in case else ():
            yield Cut(case["name"], split, tuple(rows[:stop]), (rows[stop - 1].emitted, rows[stop - 1].late))
        yield Cut(case["name"], split, tuple(rows), (epoch.emitted[split], rows[-1].late))


def alike(case: Mapping[str, Any]) -> tuple[int, int, int, bool]:
    """Cases of which one query can look at all."""
    floor = floor_of(case)
    return case.get("gap", 0), case.get("delay_ms", -1), floor or 0, floor is None


GROUPS = [
    pytest.param(list(group), id="gap {} delay {} floor {} unflipped {}".format(*key))
    for key, group in itertools.groupby(sorted((item.values[0] for item in CASES), key=alike), key=alike)  # type: ignore[arg-type]
]


@pytest.mark.parametrize("group", GROUPS)
def test_the_sql_says_so(spark: SparkSession, group: list[dict[str, Any]]) -> None:
    gap, before = group[0].get("gap"), SplitsBefore(floor=floor_of(group[0]))
    generator = strategy_of(group[0]).generator_factory()
    assert isinstance(generator, builtin.BuiltIn)
    stories = {case["name"]: epochs(case) for case in group}
    reached: dict[tuple[str, str], SplitWatermark] = {}
    for turn in range(max(map(len, stories.values()))):
        chosen = [
            cut for case in group for epoch in stories[case["name"]][turn : turn + 1] for cut in cuts(case, epoch)
        ]
        known = {cut.name: reached[cut[:2]] for cut in chosen if cut[:2] in reached}
        before = SplitsBefore(known, before.floor)
        data = frame(
            spark,
            [
                (cut.name, row.place, None if row.rowtime is None else row.rowtime * 10, row.value)
                for cut in chosen
                for row in reversed(cut.rows)  # it is their offsets that order them
            ],
        )
        found = {item.split: item for item in builtin.scan(data, generator, gap, before)}
        assert {name: outcome(item) for name, item in found.items()} == {cut.name: cut.expected for cut in chosen}
        if gap is None or gap == 1:
            counts = (F.count(F.lit(1)).alias("rows"), *builtin.tally(before, gap), *builtin.ends_of_rows())
            valued = builtin.valued(data, generator)
            for row in valued.groupBy("_split").agg(*counts).collect():
                assert builtin.counted(row.asDict(), gap, before) == [found[row["_split"]]]
        for cut in chosen:  # of each split the longest is the last
            item = found[cut.name]
            reached[cut[:2]] = SplitWatermark(cut.name, item.watermark.timestamp, False, state=item.state)
