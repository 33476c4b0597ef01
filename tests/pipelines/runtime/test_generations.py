"""Two generations of one INSERT side by side: each is an owner of its own, until one is swapped in and the other is
refused at every attempt."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.cases import at_length
from tests.oracle.pins import rows_of
from tests.pipelines.runtime.crashing import may_die
from tests.pipelines.runtime.plays import RATES, Play, at_ms, clicks, moment
from tidegate.pipelines.clock import Clock
from tidegate.pipelines.errors import ConcurrentRun, LeaseHeld, PlanningError
from tidegate.pipelines.facts.problem import Scope
from tidegate.pipelines.generations import insert_owner
from tidegate.pipelines.lake import Lake
from tidegate.pipelines.lake import rows as lake_rows
from tidegate.pipelines.lake.layout import beside as folder_of
from tidegate.pipelines.runtime import faults
from tidegate.pipelines.runtime.epochs.generations import Generations, beside, on_lake
from tidegate.pipelines.runtime.gate import prepare
from tidegate.pipelines.runtime.releasing.swap import begin, give_up, swap
from tidegate.pipelines.runtime.runner import Runner
from tidegate.pipelines.runtime.status import status
from tidegate.pipelines.runtime.verifying.verify import verify
from tidegate.pipelines.sql import Pipeline, compile_script
from tidegate.pipelines.testing import Harness
from tidegate.quality_checks.reconcile import reconcile

INSERT_POINTS = [point for point in faults.POINTS if point.startswith("insert.")]
SWAP_POINTS = ["swap.decided", "swap.closed", "swap.made"]
TIMES = ["processing", "event"]


@dataclass
class Two:
    """A statement that runs, and the text of its second generation. `more()` lets another probe row land."""

    harness: Harness
    name: str
    text: Pipeline
    more: Callable[[int], None]

    @property
    def lake(self) -> Lake:
        return self.harness.lake

    @property
    def clock(self) -> Clock:
        return self.harness.clock

    def begin(self) -> int:
        return begin(self.lake, self.text, self.name, self.clock)

    def runner(self, pipeline: Pipeline, label: str = "second") -> Runner:
        return Runner(pipeline, self.lake, spark=lambda: self.harness.spark, clock=self.clock, label=label)

    def beside(self, number: int = 2) -> Runner:
        """A runner of the generation beside, or of the current one once that is it."""
        made = self.text.in_generation(self.text.insert(self.name), number, beside=True)
        return self.runner(on_lake(self.lake, made))

    def release(self, runner: Runner) -> list[tuple[int, int]]:
        """(generation, epoch) of what a runner publishes until nothing is left; it lets go of its leases."""
        with runner:
            return [(done.generation, done.epoch) for done in runner.release(self.name).published]

    def swap(self, number: int = 2) -> None:
        leases = self.lake.leases("swap")
        try:
            swap(self.lake, self.text, self.name, number, leases, self.clock)
        finally:
            leases.close()

    def give_up(self, number: int) -> None:
        leases = self.lake.leases("swap")
        try:
            give_up(self.lake, self.text, self.name, number, leases, self.clock)
        finally:
            leases.close()

    @property
    def target(self) -> Any:
        return self.lake.readers_path(self.text.table(self.text.insert(self.name).target))

    def rows(self, path: Any = None) -> list[tuple[int, int, str | None]]:
        """(generation, id of the probe row, what it met) of a table, the target's where none is given."""
        key, met = ("item_id", "gender") if self.name == "enriched" else ("id", "rate")
        return sorted((row["_generation"], row[key], str(row[met])) for row in rows_of(str(path or self.target)))

    def states(self) -> dict[str, tuple[int, int, str | None]]:
        """By status: the newest epoch of each generation, and its state."""
        found = status(self.lake, self.text, self.clock).inserts
        assert all(item.rows is not None and item.rows.balanced for item in found)
        return {item.insert: (item.generation, item.epoch, item.state) for item in found}

    def prove(self, pipeline: Pipeline) -> int:
        """Every epoch of a generation recomputes to what it has published, and every row is in one place; how many."""
        report = verify(pipeline, self.lake, lambda: self.harness.spark, self.name)
        assert (report.passed, report.unproved) == (True, 0), report
        assert not reconcile(self.lake, pipeline, pipeline.insert(self.name)).problems
        return len(report.epochs)


def in_processing_time(spark: SparkSession, directory: Path) -> Two:
    harness = Harness(clicks(policy="publish"), spark, directory)
    harness.push("user_info", [{"user_id": 1, "gender": "f"}])
    harness.end_of_snapshot("user_info")

    def more(number: int) -> None:
        harness.push("click_event", [{"user_id": 1, "item_id": number}])
        harness.runner.advance_all(["user_info", "click_event"])

    new = clicks(policy="publish").replace("c.item_id, u.gender", "c.item_id, concat('is ', u.gender)")
    return Two(harness, "enriched", compile_script(new), more)


def in_event_time(spark: SparkSession, directory: Path) -> Two:
    play = Play(spark, directory, policy="publish")
    play.rate("EUR", 100, 0)
    new = RATES.format(policy="publish", kind="LEFT", more="").replace("o.id, r.rate", "o.id, r.rate + 1")

    def more(number: int) -> None:
        play.order(number, "EUR", 10 * number)
        play.land(10 * number, 10 * number)

    return Two(play.harness, "converted", compile_script(new), more)


MADE = {"processing": in_processing_time, "event": in_event_time}


def met(two: Two, generation: int, *numbers: int) -> Sequence[tuple[int, int, str]]:
    old, new = ("f", "is f") if two.name == "enriched" else ("100", "101")
    return [(generation, number, old if generation == 1 else new) for number in numbers]


@pytest.mark.parametrize("time", at_length(TIMES, 1))
def test_a_second_generation_publishes_beside_the_first_and_takes_its_place(
    spark: SparkSession, tmp_path: Path, time: str
) -> None:
    two = MADE[time](spark, tmp_path)
    for number in (1, 2):
        two.more(number)
        two.release(two.harness.runner)
    first = two.runner(two.harness.pipeline, "first")
    assert two.begin() == 2
    apart = folder_of(two.target, 2)

    assert two.release(two.beside()) == [(2, 1)]
    two.more(3)
    assert two.release(first) == [(1, 3)]
    assert two.states() == {two.name: (1, 3, "published"), f"{two.name}~2": (2, 1, "published")}
    assert [item.insert for item in Scope.of(two.lake, two.text).inserts] == [two.name, f"{two.name}~2"]
    assert two.release(two.beside()) == [(2, 2)]
    assert two.rows() == met(two, 1, 1, 2, 3)
    assert two.rows(apart) == met(two, 2, 1, 2, 3)
    with pytest.raises(PlanningError, match="has no generation 3"):
        two.swap(3)

    # upkeep, beside each other, and by the first one alone
    second = beside(two.lake, two.text, two.name, 2)
    for pipeline in (two.harness.pipeline, second):
        with two.runner(pipeline) as runner:
            runner.leases.acquire(insert_owner(runner.pipeline.insert(two.name).id))
            upkeep = runner.maintenance().upkeep()
            while upkeep.piece():
                pass
    assert two.rows() == met(two, 1, 1, 2, 3)
    assert two.prove(second) == 2
    assert two.rows(apart) == met(two, 2, 1, 2, 3)

    # the old one is in the middle of an epoch when the new one is swapped in
    two.more(4)
    old = two.runner(two.harness.pipeline, "old")
    sleeper = two.beside()
    old.stage(two.name)
    prepare(old._gate)
    old.judge(two.name)
    sleeper.stage(two.name)
    sleeper.judge(two.name)
    with pytest.raises(LeaseHeld):
        two.swap()
    sleeper.leases.abandon()
    two.swap()
    assert Generations(two.lake, two.name).current == 2
    assert two.rows() == met(two, 2, 1, 2, 3)

    for _ in range(2):
        with pytest.raises(ConcurrentRun, match="no more: generation 2 has taken its place"):
            old.publish(two.name)
        with pytest.raises(ConcurrentRun, match="swapped into the target"):
            sleeper.publish(two.name)
    old.close()
    assert two.rows() == met(two, 2, 1, 2, 3)
    # what was staged beside is published into the target, by whoever has the text; the first text is another one
    assert two.release(two.runner(two.text)) == [(2, 3)]
    two.more(5)
    assert two.release(two.runner(two.text)) == [(2, 4)]
    assert two.rows() == met(two, 2, 1, 2, 3, 4, 5)
    assert two.states() == {two.name + "~2": (2, 4, "published")}
    assert [item.insert for item in status(two.lake, None, two.clock).inserts] == [f"{two.name}~2"]
    with two.runner(two.text) as runner:
        assert not any(item.skipped for item in runner.maintenance().run())
    assert two.prove(two.text) == 4
    assert two.begin() == 3
    two.give_up(3)
    assert two.begin() == 4


CASES = [(time, point) for point in reversed(INSERT_POINTS) for time in reversed(TIMES)]


@pytest.mark.parametrize(("time", "point"), at_length(CASES, 1))
def test_a_kill_at_each_commit_point_loses_no_row_of_either_generation(
    spark: SparkSession, tmp_path: Path, time: str, point: str
) -> None:
    two = MADE[time](spark, tmp_path)
    two.more(1)
    two.release(two.harness._runner())
    two.begin()
    for own, runner in ((two.name, two.harness._runner), (f"{two.name}~2", two.beside)):
        died = runner()
        two.more(2 if own == two.name else 3)
        with may_die(point, owner=own) as at:
            died.release(two.name)
        assert at == [point]
        died.leases.abandon()
        two.release(runner())
    two.release(two.harness._runner())
    assert two.rows() == met(two, 1, 1, 2, 3)
    assert two.rows(folder_of(two.target, 2)) == met(two, 2, 1, 2, 3)

    for killed_at in SWAP_POINTS:
        with may_die(killed_at) as at:
            two.swap()
        assert at == [killed_at]
        current = 2 if killed_at == "swap.made" else 1
        # by the script, and where only the lake is known
        assert [Generations(two.lake, two.name, place).current for place in (two.target, None)] == [current, current]
        if killed_at == "swap.closed":  # the old one still goes on; the new one cannot until it is swapped in
            two.more(4)
            two.release(two.harness._runner())
            with pytest.raises(ConcurrentRun, match="swapped into the target"):
                two.release(two.beside())
            with pytest.raises(PlanningError, match="is being swapped in"):
                two.give_up(2)
    assert two.rows() == met(two, 2, 1, 2, 3)
    two.swap()  # stores that it was made, and does nothing else
    assert Generations(two.lake, two.name).pending is None
    assert two.release(two.runner(two.text)) == [(2, 2)]
    assert two.rows() == met(two, 2, 1, 2, 3, 4)
    assert two.prove(two.text) == 2


COUNTED = """
CREATE TABLE clicks (item STRING, at TIMESTAMP(3), WATERMARK FOR at AS at) WITH ('connector' = 'scripted');
CREATE TABLE counted (item STRING, clicks BIGINT) WITH ('connector' = 'scripted');
INSERT INTO counted SELECT item, COUNT(*) FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(at), INTERVAL '10' SECONDS))
GROUP BY window_start, window_end, item
"""


def test_a_generation_of_a_process_has_its_own_state_and_log_and_is_not_swapped_in(
    spark: SparkSession, tmp_path: Path
) -> None:
    harness = Harness(COUNTED, spark, tmp_path)
    new = compile_script(COUNTED.replace("COUNT(*)", "COUNT(*) * 10"))
    two = Two(harness, "counted", new, lambda number: None)
    harness.push("clicks", [{"item": "a", "at": moment(1)}, {"item": "a", "at": moment(20_000)}])
    harness.watermark("clicks", at_ms(20_000))
    harness.run()
    harness.restart()
    assert two.begin() == 2
    assert two.release(two.beside()) == [(2, 1)]
    apart = folder_of(two.target, 2)
    found = {place: lake_rows.read(spark, place).collect() for place in (two.target, apart)}
    assert [[row["clicks"] for row in rows] for rows in found.values()] == [[1], [10]]
    assert {owner: two.lake.watermarks.rows(owner)[-1].generation for owner in ("counted", "counted~2")} == {
        "counted": 1,
        "counted~2": 2,
    }
    with pytest.raises(PlanningError, match="is a process: readers of its outputs would meet"):
        two.swap()
    two.give_up(2)
    assert [item.insert for item in status(two.lake, new, two.clock).inserts] == ["counted"]
    with pytest.raises(PlanningError, match="generation 2 of counted is over"):
        two.beside()
