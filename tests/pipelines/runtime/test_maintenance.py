"""Retention, OPTIMIZE and VACUUM: the disk gets room, and no answer changes."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from tests.oracle.pins import rows_of
from tests.pipelines.runtime.crashing import dying
from tests.pipelines.runtime.plays import RATES, Play, at_ms, clicks, epochs_of
from tidegate.pipelines.lake.upkeep import SMALL_FILES, live_files
from tidegate.pipelines.runtime.epochs import Asked
from tidegate.pipelines.runtime.maintenance import Maintained
from tidegate.pipelines.runtime.retention import Retained
from tidegate.pipelines.runtime.runner import Runner
from tidegate.pipelines.testing import Harness
from tidegate.pipelines.watermarks import MAX_TIMESTAMP

pytestmark = pytest.mark.long

KEPT_10_MS = RATES.replace("ENFORCED) WITH (", "ENFORCED) WITH ('changelog.retention' = '10 ms', ")


def maintain(harness: Harness) -> dict[str, Maintained]:
    """Upkeep that keeps nothing for readers of old versions."""
    return {item.name: item for item in harness.runner.maintenance(timedelta(0)).run()}


def retained(harness: Harness, table: str = "rates") -> Retained:
    """What such upkeep says of a table's retention."""
    found = maintain(harness)[table].retained
    assert found is not None
    return found


def versions(harness: Harness) -> list[tuple[str, int]]:
    return sorted((row["currency"], row["rate"]) for row in rows_of(str(harness.lake.table_path("rates"))))


@pytest.fixture
def playing(spark: SparkSession, tmp_path: Path) -> Play:
    return Play(spark, tmp_path, script=KEPT_10_MS)


def test_old_versions_go_and_the_newest_old_one_of_every_key_stays(playing: Play) -> None:
    for number, at in enumerate([10, 20, 30, 40]):
        playing.rate("EUR", 100 + number, at)
    playing.rate("USD", 200, 5)
    playing.order(0, "EUR", 15)
    playing.order(1, "EUR", 60)
    assert playing.upto(rates=50, orders=50) == [(0, 100)]
    found = retained(playing.harness)  # released up to 50: what ended by 40 may go
    assert (found.examined, found.removed) == (5, 3)
    assert versions(playing.harness) == [("EUR", 103), ("USD", 200)]
    playing.order(2, "EUR", 45)  # late, and its version is there
    playing.order(3, "EUR", 12)  # late beyond retention: reported as such, never joined to another version
    playing.rate("EUR", 999, 5)  # late: of the rows that it was valid for, those of before 10 alone
    playing.order(4, "USD", 70)
    playing.order(5, "EUR", 25)
    assert playing.upto(rates=80, orders=80) == [(1, 103), (2, 103), (4, 200)]
    assert playing.quarantined == dict.fromkeys((3, 5), "unmatched:beyond-retention@r")
    report = playing.harness.verify("converted")
    assert report.passed
    assert [(epoch.state, epoch.beyond_retention) for epoch in report.epochs] == [("beyond retention", 0), ("equal", 2)]
    playing.rate("EUR", 104, 82)
    playing.order(6, "EUR", 85)
    assert playing.upto(rates=MAX_TIMESTAMP, orders=MAX_TIMESTAMP) == [(6, 104)]
    assert retained(playing.harness).removed == 2  # all inputs have ended
    assert versions(playing.harness) == [("EUR", 104), ("USD", 200)]
    lost = DeltaTable(playing.harness.lake.table_path("rates"))
    lost.delete("rate = 200")  # what retention has not removed is lost, and not beyond retention
    report = playing.harness.verify("converted")
    assert [epoch.state for epoch in report.epochs] == ["rows lost"] * 3
    assert not report.passed


def test_before_1970_versions_go_up_to_the_horizon_and_no_further(playing: Play) -> None:
    long_ago = -2 * at_ms(0)
    for number, at in enumerate([0, 10, 20, 30]):
        playing.rate("EUR", 100 + number, long_ago + at)
    playing.order(0, "EUR", long_ago + 35)
    playing.order(1, "EUR", long_ago + 200)
    assert playing.upto(rates=long_ago + 100, orders=long_ago + 100) == [(0, 103)]
    assert retained(playing.harness).removed == 3
    assert playing.upto(rates=long_ago + 300, orders=long_ago + 300) == [(1, 103)]
    (pin,) = epochs_of(playing.harness)[-1].plan.pins
    assert pin.horizon == at_ms(long_ago + 90)


def test_nothing_goes_that_a_planned_epoch_or_a_waiting_row_needs(playing: Play) -> None:
    playing.rate("EUR", 100, 10)
    playing.rate("EUR", 101, 60)
    playing.order(0, "EUR", 15)
    assert playing.upto(rates=100, orders=12) == []  # 0 waits for its own table's watermark
    assert retained(playing.harness).reason == "converted has not released anything yet"
    playing.order(1, "EUR", 11)
    assert playing.upto(orders=13) == [(1, 100)]
    assert retained(playing.harness).removed == 0
    assert playing.upto(orders=90) == [(0, 100)]
    assert retained(playing.harness).removed == 1
    playing.harness.restart()
    playing.order(2, "EUR", 95)
    assert playing.upto(orders=100) == [(2, 101)]


@pytest.mark.thorough
def test_an_unfinished_backfill_ahead_takes_nothing_from_rows_that_wait(playing: Play) -> None:
    for number, at in enumerate([0, 100, 200]):
        playing.rate("EUR", 100 + number, at)
    for number, at in enumerate([50, 90, 150, 250]):
        playing.order(number, "EUR", at)
    assert playing.upto(rates=60, orders=60) == [(0, 100)]
    playing.land(300, 300)

    with dying("insert.staged"):
        playing.harness.runner.backfill("converted", (at_ms(250), at_ms(300)))
    maintain(playing.harness)
    assert versions(playing.harness) == [("EUR", 100), ("EUR", 101), ("EUR", 102)]
    playing.harness.restart()
    assert playing.upto() == [(1, 100), (2, 101), (3, 102)]
    playing.prove()


@pytest.mark.thorough
def test_a_version_that_came_late_does_not_make_a_good_epoch_look_wrong(playing: Play) -> None:
    playing.rate("EUR", 100, 10)
    playing.rate("EUR", 101, 20)
    assert playing.upto(rates=50, orders=50) == []
    playing.order(0, "EUR", 51)
    assert playing.upto(rates=55, orders=55) == [(0, 101)]
    playing.rate("EUR", 999, 30)  # late: what is out stays as it is
    playing.order(1, "EUR", 56)
    assert playing.upto(rates=58, orders=58) == [(1, 999)]
    assert (
        retained(playing.harness).removed == 2
    )  # both versions before the late one, of which the first order had met one
    report = playing.harness.verify("converted")
    assert report.passed
    assert [epoch.state for epoch in report.epochs][-2:] == ["beyond retention", "equal"]


def test_what_quarantined_rows_may_ask_for_stays_until_somebody_decides(playing: Play) -> None:
    for number, at in enumerate([10, 20, 30]):
        playing.rate("EUR", 100 + number, at)
    playing.order(0, "USD", 15)
    playing.order(1, "EUR", 15)
    assert playing.upto(rates=50, orders=50) == [(1, 100)]
    assert playing.quarantined == {0: "unmatched:key-absent@r"}
    found = retained(playing.harness)
    assert (found.removed, found.reason) == (
        0,
        "no row may go; rows that epoch 1 of converted has quarantined may still be released "
        "(tidegate quarantine list SCRIPT)",
    )
    playing.rate("USD", 200, 12)  # it comes late
    playing.upto(rates=60, orders=60)
    assert len(playing.harness.runner.out_of_quarantine("converted", Asked())) == 1
    assert playing.out == [(0, 200), (1, 100)]
    playing.order(2, "EUR", 65)
    assert playing.upto(rates=70, orders=70) == [(2, 102)]
    assert retained(playing.harness).removed == 2
    assert playing.harness.verify("converted").passed


def test_by_processing_time_what_was_replaced_long_ago_goes(spark: SparkSession, tmp_path: Path) -> None:
    now = [at_ms(0)]
    more = "'changelog.retention' = '1 s'"
    harness = Harness(
        clicks().replace("'signals' = 'true'", f"'signals' = 'true', {more}", 1), spark, tmp_path, clock=lambda: now[0]
    )
    for gender in "fmx":
        harness.push("user_info", [{"user_id": 1, "gender": gender}, {"user_id": 2, "gender": gender}], "+U")
    harness.push("user_info", [{"user_id": 2, "gender": "x"}], "-D")
    harness.end_of_snapshot("user_info")
    harness.push("click_event", [{"user_id": 1, "item_id": 0}])
    assert [row["gender"] for row in harness.advance()] == ["x"]
    now[0] += 500
    assert retained(harness, "user_info").reason == "nothing is old enough"
    now[0] += 1000
    done = maintain(harness)["user_info"]
    assert done.retained is not None
    assert done.retained.removed == 5
    harness.push("click_event", [{"user_id": 1, "item_id": 1}, {"user_id": 2, "item_id": 2}])
    assert [row["gender"] for row in harness.advance()] == ["x"]
    assert [row["_reason"] for row in harness.quarantined("enriched")] == ["unmatched:deleted@u"]
    report = harness.verify("enriched")
    assert [epoch.state for epoch in report.epochs] == ["equal", "equal"]


@pytest.mark.thorough
def test_files_are_put_together_and_dead_ones_leave_the_disk(spark: SparkSession, tmp_path: Path) -> None:
    harness = Harness(clicks(), spark, tmp_path)
    harness.push("user_info", [{"user_id": 1, "gender": "f"}])
    harness.end_of_snapshot("user_info")
    for number in range(18):
        harness.push("click_event", [{"user_id": 1, "item_id": number}])
        assert len(harness.advance()) == 1
    target = harness.lake.target_path(harness.pipeline.table("enriched"))
    before = len(live_files(target))
    found = maintain(harness)
    assert before == 18
    assert len(live_files(target)) == 1
    assert found["enriched"].freed > 0
    there = set(Path(target).rglob("*.parquet")) - set(Path(target / "_quarantine").glob("enriched/*.parquet"))
    assert there == set(map(Path, live_files(target)))
    assert sorted(row["item_id"] for row in harness.published("enriched")) == list(range(18))
    harness.push("click_event", [{"user_id": 1, "item_id": 18}])
    assert len(harness.advance()) == 1
    report = harness.verify("enriched")
    assert report.passed
    assert not report.unproved
    assert len(epochs_of(harness)) == 19


def test_what_a_run_works_on_is_passed_over(spark: SparkSession, tmp_path: Path) -> None:
    harness = Harness(clicks(), spark, tmp_path)
    harness.push("user_info", [{"user_id": 1, "gender": "f"}])
    harness.run()
    other = Runner(harness.pipeline, harness.lake, spark=lambda: spark, label="other")
    found = {item.name: item.skipped for item in other.maintenance().run()}
    assert "harness" in found["user_info"]


@pytest.mark.thorough
def test_files_with_rows_that_wait_are_left_alone(playing: Play) -> None:
    playing.rate("EUR", 100, 10)
    for number in range(SMALL_FILES):
        playing.order(number, "EUR", 11 + number)
        playing.harness.runner.advance("orders")
    playing.harness.push("orders", [{"id": 200, "currency": "EUR", "at": None}])
    playing.order(100, "EUR", 500)
    assert len(playing.upto(rates=100, orders=100)) == SMALL_FILES
    playing.order(201, "EUR", 50)  # late, and in no release yet
    assert len(playing.upto(rates=101, orders=101)) == 1
    landed = playing.harness.lake.table_path("orders")
    before = sorted(row["id"] for row in rows_of(str(landed)))

    maintain(playing.harness)

    files = sorted(sorted(pq.read_table(file)["id"].to_pylist()) for file in live_files(landed))
    assert files == [[*range(SMALL_FILES)], [100, 200], [201]]
    assert sorted(row["id"] for row in rows_of(str(landed))) == before
    assert maintain(playing.harness)["orders"].files_after == 3  # there is nothing to do any more
    assert playing.upto(orders=MAX_TIMESTAMP, rates=MAX_TIMESTAMP) == [(100, 100)]
    playing.prove()


def test_no_version_goes_while_an_insert_that_joins_it_is_worked_on(playing: Play, spark: SparkSession) -> None:
    playing.rate("EUR", 100, 10)
    playing.rate("EUR", 101, 20)
    playing.order(0, "EUR", 30)
    assert playing.upto(rates=50, orders=50) == [(0, 101)]
    playing.harness.runner.close()
    harness = playing.harness
    releasing = Runner(harness.pipeline, harness.lake, spark=lambda: spark, label="backfill")
    releasing.releasing("converted").plan()
    other = Runner(harness.pipeline, harness.lake, spark=lambda: spark, label="upkeep")
    found = {item.name: item for item in other.maintenance().run()}
    assert found["rates"].retained is not None
    assert re.fullmatch(r"insert converted is being worked on by backfill.*", found["rates"].retained.reason)
    assert found["rates"].skipped == found["orders"].skipped == ""
    assert len(versions(harness)) == 2
    releasing.close()
    found = other.maintenance().run()[0].retained
    assert found is not None
    assert (found.reason, found.examined, found.removed) == ("", 2, 1)
