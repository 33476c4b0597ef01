"""Aborts at every commit point on a warm session: what is published is what an uninterrupted run publishes."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.cases import SEED, at_length
from tests.oracle.proctime import Oracle
from tests.pipelines.runtime.crashing import Abort, dying
from tests.pipelines.runtime.plays import clicks
from tidegate.pipelines.clock import system_clock
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


@pytest.mark.parametrize(("point", "owner"), at_length([*ONCE, *(one for one in PLACES if one not in ONCE)], len(ONCE)))
def test_an_abort_at_each_point_is_recovered_from(spark: SparkSession, tmp_path: Path, point: str, owner: str) -> None:
    harness = Harness(clicks(), spark, tmp_path)
    harness.push("user_info", [{"user_id": 1, "gender": "f"}])
    harness.end_of_snapshot("user_info")
    harness.push("click_event", [{"user_id": 1, "item_id": 7}, {"user_id": 2, "item_id": 8}])

    def claims_no_more_than_is_out(_: str) -> None:
        lake, pipeline = harness.runner.lake, harness.runner.pipeline
        (target,) = (row for row in completeness(lake, pipeline, system_clock) if row.insert)
        if target.complete_until_now:
            assert len(harness.published("enriched")) + len(harness.quarantined("enriched")) == 2

    disarm = faults.arm(claims_no_more_than_is_out)
    with dying(point, owner=owner):
        harness.run()
    harness.restart()
    harness.advance()
    disarm()

    assert [(row["item_id"], row["gender"]) for row in harness.published("enriched")] == [(7, "f")]
    assert [(row["item_id"], row["_reason"]) for row in harness.quarantined("enriched")] == [
        (8, "unmatched:key-absent@u")
    ]
