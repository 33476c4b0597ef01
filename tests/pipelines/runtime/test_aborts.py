"""Aborts at every commit point on a warm session: what is published is what an uninterrupted run publishes."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.cases import SEED, at_length
from tests.oracle.pins import rows_of
from tests.oracle.proctime import Oracle
from tests.pipelines.runtime.crashing import Abort, dying
from tests.pipelines.runtime.plays import clicks
from tidegate.pipelines.clock import system_clock
from tidegate.pipelines.errors import ConcurrentRun, LeaseHeld
from tidegate.pipelines.lake import leases
from tidegate.pipelines.runtime import faults
from tidegate.pipelines.runtime.completeness import completeness
from tidegate.pipelines.testing import Harness

pytestmark = pytest.mark.long

ABORTS = 60
PLACES = [
    (point, owner)
    for point in faults.POINTS
    for owner in (("user_info", "click_event") if point.startswith("source.") else ("enriched",))
]
"""Every commit point, of each whose it is."""


@pytest.mark.thorough
def test_sixty_aborts_lose_no_row_and_repeat_none(spark: SparkSession, tmp_path: Path) -> None:
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    harness = Harness(clicks(), spark, tmp_path)
    oracle = Oracle("user_id")
    aborts: Counter[tuple[str, str]] = Counter()
    items = 0
    flipped = False
    while sum(aborts.values()) < ABORTS:
        changes = [{"user_id": chance.randrange(40), "gender": chance.choice("fmx")} for _ in range(10)]
        op = chance.choice(["+I", "+U", "-D"])
        harness.push("user_info", changes, op)
        for change in changes:
            oracle.change(op, change)
        probes: list[dict[str, Any]] = [{"user_id": chance.randrange(50), "item_id": items + n} for n in range(10)]
        items += len(probes)
        harness.push("click_event", probes)
        for probe in probes:
            oracle.probe(probe)
        if not flipped and sum(aborts.values()) > 5:
            harness.end_of_snapshot("user_info")
            oracle.flipped = flipped = True
        for _ in range(chance.choice((1, 2, 3))):  # the run that goes on may die as well
            wanted, owner = chance.choice(PLACES)

            def abort(point: str, wanted: str = wanted, owner: str = owner) -> None:
                if point == wanted:
                    aborts[point, owner] += 1
                    raise Abort(point)

            disarm = faults.arm(abort, owner)
            try:
                harness.run()
            except Abort:
                harness.restart()
            else:
                break
            finally:
                disarm()
        harness.advance()
        oracle.release()

    expected = Counter((row["item_id"], match["gender"]) for row, match in oracle.published if match)
    assert Counter((row["item_id"], row["gender"]) for row in harness.published("enriched")) == expected
    quarantined = Counter((row["item_id"], f"unmatched:{why}@u") for row, why in oracle.quarantined)
    assert Counter((row["item_id"], row["_reason"]) for row in harness.quarantined("enriched")) == quarantined
    print(dict(aborts))


ONCE = {point: (point, owner) for point, owner in PLACES}.values()


EACH = at_length([[*ONCE], [one for one in PLACES if one not in ONCE]], 1)
"""The places that are passed in one lake; at length, the others in another."""


class Rounds:
    """One lake, round by round: each brings a change, a click that has a match, and one that has none."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.harness = Harness(clicks(), spark, folder)
        self.harness.push("user_info", [{"user_id": 1, "gender": "f"}])
        self.harness.end_of_snapshot("user_info")
        self.number = 0
        target, insert = self.harness.pipeline.table("enriched"), self.harness.pipeline.insert("enriched")
        self.target = self.harness.lake.target_path(target)
        self.quarantine = self.harness.lake.quarantine_path(target, insert)

    def news(self) -> None:
        self.number += 1
        self.harness.push("user_info", [{"user_id": 1, "gender": "f"}])
        items = [{"user_id": user, "item_id": 2 * self.number + user} for user in (1, 2)]
        self.harness.push("click_event", items)

    def ended(self) -> None:
        """Another runner goes on to the end; every row of the rounds is there once."""
        self.harness.restart()
        self.harness.advance()
        rounds = range(1, self.number + 1)
        published = Counter((row["item_id"], row["gender"]) for row in rows_of(str(self.target)))
        assert published == Counter((2 * number + 1, "f") for number in rounds)
        quarantined = Counter((row["item_id"], row["_reason"]) for row in rows_of(str(self.quarantine)))
        assert quarantined == Counter((2 * number + 2, "unmatched:key-absent@u") for number in rounds)


@pytest.mark.parametrize("places", EACH, ids=len)
def test_an_abort_at_each_point_is_recovered_from(
    spark: SparkSession, tmp_path: Path, places: list[tuple[str, str]]
) -> None:
    rounds = Rounds(spark, tmp_path)
    harness = rounds.harness

    def claims_no_more_than_is_out(_: str) -> None:
        lake, pipeline = harness.runner.lake, harness.runner.pipeline
        (target,) = (row for row in completeness(lake, pipeline, system_clock) if row.insert)
        if target.complete_until_now:
            out = len(rows_of(str(rounds.target))) + len(rows_of(str(rounds.quarantine)))
            assert out == 2 * rounds.number

    disarm = faults.arm(claims_no_more_than_is_out)
    for point, owner in places:
        rounds.news()
        with dying(point, owner=owner):
            harness.run()
        rounds.ended()
    disarm()


@pytest.mark.parametrize("places", EACH, ids=len)
def test_a_runner_that_sleeps_at_a_point_while_another_goes_on_changes_nothing_when_it_wakes(
    spark: SparkSession, tmp_path: Path, places: list[tuple[str, str]]
) -> None:
    """Its leases are dead meanwhile, as those of a machine that was suspended; the other one has ended before."""
    rounds = Rounds(spark, tmp_path)
    for point, owner in places:
        rounds.news()
        slept: list[str] = []

        def sleep(passed: str, point: str = point, slept: list[str] = slept) -> None:
            if passed == point and not slept:
                slept.append(passed)
                leases._live.pop(rounds.harness.runner.leases.holder)
                other = Harness(rounds.harness.pipeline, spark, tmp_path)
                other.advance()
                other.runner.close()

        disarm = faults.arm(sleep, owner)
        try:
            rounds.harness.run()
        except (LeaseHeld, ConcurrentRun):
            pass  # it has found that another one went on
        finally:
            disarm()
        assert slept == [point]
        rounds.ended()
