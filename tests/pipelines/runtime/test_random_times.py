"""Random interleavings of splits, epochs, crashes and restarts: the watermarks are those of a plain model, and the
rows released are those that they let go. On the way none goes back, or runs ahead of a row that is still to come.

One run carries many histories at once, each on keys and splits of its own; epochs, crashes and releases are common.
"""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import Any, Literal, NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, example, given, note, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from tests.pipelines.runtime import tape
from tests.pipelines.runtime.crashing import may_die
from tidegate.pipelines.lake import Lake, WatermarkRow
from tidegate.pipelines.runtime.runner import Runner
from tidegate.pipelines.runtime.splits import stored_splits
from tidegate.pipelines.watermarks import MIN_TIMESTAMP, Watermark, WatermarkStrategy

BOUND = 5
VERSIONS = range(80, 230, 15)
"""The times of the rates of every key in ms."""
TIMEOUT = 10
"""ms without a row until a split is idle."""
BEAT = "beat"
"""The split that has a row in every round, so that the table is never idle as a whole."""
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)
"""No shrinking: a smaller seed is no simpler story."""
STORIES = 40 if os.environ.get("TIDEGATE_SOAK") else 2
"""Drawn ones, beside those by hand."""
_numbers = itertools.count()


class Bounded:
    """A generator of one's own that does what the DDL does."""

    def __init__(self) -> None:
        self.greatest = MIN_TIMESTAMP

    def on_event(self, event: Any, event_timestamp: int, output: Any) -> None:
        if event["n"] is not None:
            self.greatest = max(self.greatest, event["n"])

    def on_periodic_emit(self, output: Any) -> None:
        if self.greatest > MIN_TIMESTAMP:
            output.emit_watermark(Watermark(self.greatest - BOUND - 1))

    def state(self) -> dict[str, int]:
        return {"greatest": self.greatest}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.greatest = state["greatest"]


class Click(NamedTuple):
    """A row of one history: it comes in a round, to a split, so many ms after the time of that round; None: no time."""

    round: int
    split: Literal["a", "b", "wild"]
    after: int | None
    key: int


class Round(NamedTuple):
    """What is done once the rows of a round are there: an epoch, which may die at a point, and a release; then it is
    finished, unless it is `left` to the next round.

    `wait`: ms since the round before. `dies`: the point. `release`: whether, and the point at which it dies.
    """

    wait: int
    dies: str | None = None
    release: bool | str = False
    left: bool = False


@dataclass(frozen=True)
class Story:
    """Histories, and what is done with all of them. The rows of the splits `a` and `b` of each are out of order by
    `BOUND` ms at most, and each of them has one in the first round; a split `wild` comes when it comes.

    `own`: by a generator of one's own. `punctuated`: a watermark after every row. `rates`: the round from which on the
    later part of the build side is there.
    """

    histories: Sequence[Sequence[Click]]
    rounds: Sequence[Round]
    own: bool = False
    punctuated: bool = False
    rates: int = 0

    @cached_property
    def clicks(self) -> dict[str, list[tuple[int, dict[str, Any]]]]:
        """(round, row) of each split, in order."""
        ids = itertools.count()
        found: dict[str, list[tuple[int, dict[str, Any]]]] = {}
        for number, history in enumerate(self.histories):
            first = [Click(0, split, 0, 0) for split in ("a", "b")]
            for click in sorted([*first, *history], key=lambda click: click.round):
                after = click.after if click.after is None or click.split == "wild" else click.after % (BOUND + 1)
                row = {
                    "id": next(ids),
                    "k": number * 3 + click.key,
                    "n": None if after is None else time_of(click.round) + after,
                }
                found.setdefault(f"{number}{click.split}", []).append((click.round, row))
        found[BEAT] = [(number, {"id": next(ids), "k": 0, "n": time_of(number)}) for number in range(len(self.rounds))]
        return found

    def tape(self, number: int) -> dict[str, list[dict[str, Any]]]:
        """What has come by round `number`. A split is there from its first row on."""
        found = {split: [row for when, row in rows if when <= number] for split, rows in self.clicks.items()}
        return {split: rows for split, rows in found.items() if rows}

    @cached_property
    def later(self) -> int:
        """The greatest time of the rates of the first part."""
        return time_of(0) + 10

    def build(self, number: int) -> list[dict[str, int]]:
        """The build side as of round `number`: two keys of three of every history have versions."""
        keys = [history * 3 + key for history in range(len(self.histories)) for key in (0, 1)]
        found = [{"k": key, "v": 1000 * key + at, "n": at} for at in VERSIONS for key in keys]
        return [rate for rate in found if number >= self.rates or rate["n"] <= self.later]

    def met(self, click: Mapping[str, int]) -> int | None:
        """The rate that holds at a click's time."""
        held = [at for at in VERSIONS if at <= click["n"]]
        return 1000 * click["k"] + held[-1] if held and click["k"] % 3 < 2 else None


def time_of(number: int) -> int:
    """The time of the rows of a round in ms."""
    return 100 + 25 * number


ROUNDS = 4
HISTORIES = 20
DIES = ("source.planned", "source.written", "source.appended", "source.landed", "source.watermarked")
RELEASE_DIES = ("insert.planned", "insert.staged", "insert.judged", "insert.quarantined", "insert.published")


def drawn(seed: int) -> Story:
    """A story by chance."""
    chance = random.Random(seed)

    def click() -> Click:
        split: Any = chance.choice(("a", "b", "wild"))
        after = chance.choice((None, *range(-40, 20))) if split == "wild" else chance.randrange(BOUND + 1)
        return Click(chance.randrange(ROUNDS), split, after, chance.randrange(3))

    return Story(
        [[click() for _ in range(chance.randrange(9))] for _ in range(HISTORIES)],
        [
            Round(
                chance.choice((1, 6, TIMEOUT)),
                chance.choice((None, *DIES)),
                chance.choice((False, False, True, chance.choice(RELEASE_DIES))),
                chance.random() < 0.3,
            )
            for _ in range(ROUNDS)
        ],
        own=chance.random() < 0.5,
        punctuated=chance.random() < 0.5,
        rates=chance.randrange(ROUNDS),
    )


def rows(split: Literal["a", "b", "wild"], *places: tuple[int, int | None], key: int = 0) -> list[Click]:
    return [Click(number, split, after, key) for number, after in places]


TYPICAL = (
    # Both splits in every round, in and out of order.
    rows("a", (0, 3), (0, 1), (1, 0), (2, 5), (2, 2), (3, 0)) + rows("b", (1, 4), (1, 0), (2, 0), (3, 5), key=1),
    # One is idle after the first round, and comes back in the last.
    rows("a", (1, 0), (2, 0), (3, 0)) + rows("b", (3, 0), key=1),
    # Both are idle for a while.
    rows("a", (3, 1)) + rows("b", (3, 4), key=2),
    # A third split, which has rows that are late, and one without a time.
    rows("a", (1, 0), (2, 0)) + rows("wild", (1, 10), (2, -40), (2, None), (3, -30), (3, 19), key=1),
    # A split that comes in the end, with nothing but late rows.
    rows("a", (2, 0), (3, 5), (3, 0)) + rows("wild", (3, -40), (3, -35)),
    # A split that is far ahead, then silent, then behind.
    rows("b", (1, 2), (2, 2), (3, 2)) + rows("wild", (0, 19), (1, 19), (3, -40), key=1),
    # Rows of a round that all come at the same time.
    rows("a", *[(1, 0)] * 4) + rows("b", *[(1, 0)] * 4, key=1),
    # Nothing after the first round.
    [],
)
BY_HAND = (
    Story(  # every epoch dies elsewhere, and rows are released between, some of which wait for the build side
        TYPICAL,
        [
            Round(1, "source.planned", True),
            Round(TIMEOUT, "source.appended", True),
            Round(6, "source.landed", "insert.staged", left=True),
            Round(TIMEOUT, "source.watermarked"),
        ],
        punctuated=True,
        rates=2,
    ),
    Story(  # a generator of one's own, which has its state from the run that died
        TYPICAL,
        [
            Round(1),
            Round(TIMEOUT, "source.landed", "insert.planned"),
            Round(6, "source.appended"),
            Round(6, None, True),
        ],
        own=True,
        rates=1,
    ),
)


class Outcome(NamedTuple):
    """What a row of the log says: the table's watermark; of each split its own, whether it is idle, its late rows."""

    timestamp: int
    splits: dict[str, tuple[int, bool, int]]

    @classmethod
    def of(cls, row: WatermarkRow) -> Outcome:
        assert row.late == sum(split.late for split in stored_splits(row))
        return cls(row.timestamp, {s.split: (s.timestamp, s.idle, s.late) for s in stored_splits(row)})


def model(story: Story, lake: Lake) -> Iterator[Outcome]:
    """What the log has to say of the epochs as they were planned."""
    table = MIN_TIMESTAMP
    greatest: dict[str, int] = {}
    last_row: dict[str, int] = {}
    idle: dict[str, bool] = {}
    for number, plan in enumerate(lake.epochs.rows("clicks")):
        late: dict[str, int] = {}
        for split, (start, stop) in plan.plan["ranges"]["splits"].items():
            greatest.setdefault(split, MIN_TIMESTAMP)
            stop = start if plan.plan.get("quiet") else stop
            for _, row in story.clicks[split][start:stop]:
                if row["n"] is not None:
                    late[split] = late.get(split, 0) + (number > 0 and row["n"] <= table)
                    greatest[split] = max(greatest[split], row["n"] - BOUND - 1)
            if stop > start or split not in last_row:
                last_row[split], idle[split] = plan.planned_at, False
            idle[split] = idle[split] or plan.planned_at - last_row[split] >= TIMEOUT
        heard = [at for split, at in greatest.items() if not idle[split] and at >= table]
        table = max(table, min(heard, default=table))
        yield Outcome(table, {name: (at, idle[name], late.get(name, 0)) for name, at in greatest.items()})


@pytest.mark.thorough
@pytest.mark.soak
@settings(max_examples=STORIES, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True, phases=PHASES)
@example(story=BY_HAND[0])
@example(story=BY_HAND[1])
@given(story=st.integers(0, 2**32).map(drawn))
def test_interleavings_change_nothing(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, story: Story
) -> None:
    tape.install(monkeypatch)
    lake = Lake(tmp_path_factory.mktemp(f"times{next(_numbers)}"))
    note(f"lake in {lake.root}")
    pipeline = tape.compiled(clicks=f", 'scan.watermark.idle-timeout' = '{TIMEOUT} ms'")
    if story.own:
        strategy = WatermarkStrategy.for_generator(Bounded).with_idleness(timedelta(milliseconds=TIMEOUT))
        pipeline = pipeline.with_strategy("clicks", strategy)
    now = 0

    def runner() -> Runner:
        interval = timedelta(0) if story.punctuated else None
        return Runner(
            pipeline, lake, spark=lambda: spark, clock=lambda: now, environment={}, auto_watermark_interval=interval
        )

    def release(number: int, dies: str | None = None) -> None:
        """Publish all that the watermarks let go, unless it dies on the way; no row comes early in any case."""
        with may_die(dies) as died, runner() as active:
            active.advance("rates")
            active.release("joined")
        found = tape.published(lake, pipeline)
        rates = max(rate["n"] for rate in story.build(number))
        log = lake.watermarks.last("clicks")
        watermark = MIN_TIMESTAMP if log is None else min(log.timestamp, rates)
        landed = [row for split, count in landed_rows(lake).items() for _, row in story.clicks[split][:count]]
        due = [row for row in landed if row["n"] is not None and row["n"] <= watermark]
        expected = sorted((row["id"], story.met(row)) for row in due)
        assert (set(found) <= set(expected) and len(set(found)) == len(found)) if died else found == expected

    for number, item in enumerate(story.rounds):
        now += item.wait
        tape.write(lake, "clicks", story.tape(number))
        tape.write(lake, "rates", {"0": story.build(number)})
        with may_die(item.dies) as died, runner() as active:
            active.advance("clicks", max_epochs=1)
        if item.release:
            release(number, item.release if isinstance(item.release, str) else None)
        if died and not item.left:
            with runner() as active:
                active.advance("clicks", max_epochs=1)
    with runner() as active:
        active.advance("clicks")

    log = lake.watermarks.rows("clicks")
    assert landed_rows(lake) == {split: len(split_rows) for split, split_rows in story.clicks.items()}
    assert [Outcome.of(row) for row in log] == list(model(story, lake))
    never_goes_back_or_ahead(story, lake)
    release(len(story.rounds))


def landed_rows(lake: Lake) -> dict[str, int]:
    """How many rows of each split are in epochs that have landed."""
    epochs = {row.epoch for row in lake.watermarks.rows("clicks")}
    found: dict[str, int] = {}
    for plan in lake.epochs.rows("clicks"):
        if plan.epoch in epochs:
            found |= {split: stop for split, (_, stop) in plan.plan["ranges"]["splits"].items()}
    return found


def never_goes_back_or_ahead(story: Story, lake: Lake) -> None:
    """Of the splits whose rows are in order by `BOUND`, as long as they have not been idle."""
    plans = {plan.epoch: plan.plan["ranges"]["splits"] for plan in lake.epochs.rows("clicks")}
    steady = {split for split in story.clicks if not split.endswith("wild")}
    last = MIN_TIMESTAMP
    for row in lake.watermarks.rows("clicks"):
        splits = {split.split: split for split in stored_splits(row)}
        steady -= {name for name, split in splits.items() if split.idle}
        to_come = [item["n"] for name in steady for _, item in story.clicks[name][plans[row.epoch][name][1] :]]
        assert last <= row.timestamp
        assert all(row.timestamp < at for at in to_come)
        assert not any(splits[name].late for name in steady)
        last = row.timestamp
    assert BEAT in steady
