"""The event-time temporal join: which version a row meets, when it leaves, and why it does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.cases import at_length
from tests.pipelines.runtime import tape
from tests.pipelines.runtime.crashing import dying
from tests.pipelines.runtime.plays import RATES, Play, at_ms, moment, prove
from tidegate.pipelines.errors import PlanningError
from tidegate.pipelines.lake import Lake
from tidegate.pipelines.runtime.epochs.position import Waiting
from tidegate.pipelines.runtime.ledger import left_waiting
from tidegate.pipelines.runtime.runner import Runner
from tidegate.pipelines.testing import Harness
from tidegate.pipelines.watermarks import MAX_TIMESTAMP

VERSIONS = {
    "EUR": [(100, 10, "+I"), (110, 20, "+U")],
    "CHF": [(100, 10, "+I"), (100, 20, "-D"), (130, 30, "+I")],
    "SEK": [(100, 10, "+I"), (101, 10, "+U")],
    "USD": [(200, 10, "+I"), (200, 10, "-D")],
    "GBP": [(300, 10, "-D"), (301, 10, "+I")],
}
MEETS: list[tuple[str | None, int | None, str, int | str]] = [
    *(("EUR", at, "+I", rate) for at, rate in [(10, 100), (15, 100), (19, 100), (20, 110), (25, 110)]),
    *(("EUR", at, op, rate) for at, op, rate in [(12, "-U", 100), (22, "+U", 110), (22, "-D", 110)]),
    ("CHF", 9, "+I", "unmatched:before-first@r"),
    ("CHF", 10, "+I", 100),
    ("CHF", 20, "+I", "unmatched:deleted@r"),
    ("CHF", 29, "+I", "unmatched:deleted@r"),
    ("CHF", 30, "+I", 130),
    ("SEK", 10, "+I", 101),
    ("USD", 10, "+I", "unmatched:deleted@r"),
    ("GBP", 10, "+I", 301),
    ("JPY", 15, "+I", "unmatched:key-absent@r"),
    (None, 15, "+I", "unmatched:key-null@r"),
    ("EUR", None, "+I", "time-null"),
    (None, None, "+I", "time-null"),
]
"""A row's currency, time and op, and the rate that it meets or why it meets none."""


def test_a_row_meets_the_last_version_of_its_own_time_and_keeps_its_op(play: Play) -> None:
    for currency, versions in VERSIONS.items():
        for rate, at, op in versions:
            play.rate(currency, rate, at, op)
    for number, (currency, at, op, _) in enumerate(MEETS):
        play.order(number, currency, at, op)
    cases = list(enumerate(MEETS))
    assert play.upto(rates=40, orders=40) == [
        (number, met, *(() if op == "+I" else (op,))) for number, (_, _, op, met) in cases if isinstance(met, int)
    ]
    assert play.quarantined == {number: met for number, (_, _, _, met) in cases if isinstance(met, str)}
    prove(play.harness)


def test_rows_leave_at_the_combined_watermark(play: Play) -> None:
    play.rate("EUR", 100, 10)
    for number, at in enumerate([11, 12, 13]):
        play.order(number, "EUR", at)
    assert play.upto(orders=13) == []  # rates has not flipped
    waiting = play.harness.runner.stage("converted")
    assert isinstance(waiting, Waiting)
    assert (waiting.rows, waiting.unflipped) == (3, ("rates",))
    assert play.upto(rates=11) == [(0, 100)]
    play.rate("EUR", 120, 12)
    assert play.upto(rates=12) == [(1, 120)]
    waiting = play.harness.runner.stage("converted")
    assert isinstance(waiting, Waiting)
    assert waiting.rows == 1
    assert "held by rates" in waiting.reason
    assert play.upto(rates=MAX_TIMESTAMP, orders=MAX_TIMESTAMP) == [(2, 120)]
    play.prove()
    assert left_waiting(play.harness.lake, play.epochs) == [2, 1, 0]


@pytest.mark.parametrize(
    ("kind", "rows"), at_length([("LEFT", [(0, 100), (1, None), (2, None)]), ("INNER", [(0, 100)])])
)
def test_publish_is_sqls_own_meaning_and_a_null_time_is_quarantined_all_the_same(
    spark: SparkSession, tmp_path: Path, kind: str, rows: list[tuple[Any, ...]]
) -> None:
    play = Play(spark, tmp_path, "publish", kind)
    play.rate("EUR", 100, 10)
    play.order(0, "EUR", 11)
    play.order(1, "USD", 11)
    play.order(2, "EUR", 9)
    play.order(3, "EUR", None)
    assert play.upto(rates=40, orders=40) == rows
    assert play.quarantined == {3: "time-null"}
    play.prove()


@pytest.mark.thorough
def test_versions_may_come_out_of_order_and_late_ones_change_nothing_that_is_out(play: Play) -> None:
    play.rate("EUR", 120, 20)
    play.rate("EUR", 110, 10)
    play.order(0, "EUR", 15)
    play.order(1, "EUR", 25)
    assert play.upto(rates=30, orders=30) == [(0, 110), (1, 120)]
    play.rate("EUR", 115, 14)  # late: what was published at 15 stays
    play.order(2, "EUR", 15)  # late as well, and meets every version that is there
    assert play.upto(rates=40, orders=40) == [(2, 115)]
    assert play.epochs[-1].staged.facts["late@o"] == 1
    play.prove()


def test_a_predicate_is_tested_on_the_chosen_version_only(spark: SparkSession, tmp_path: Path) -> None:
    play = Play(spark, tmp_path, more="AND r.rate > 100")
    play.rate("EUR", 150, 10)
    play.rate("EUR", 90, 20)
    play.order(0, "EUR", 15)
    play.order(1, "EUR", 25)
    assert play.upto(rates=30, orders=30) == [(0, 150)]
    assert play.quarantined == {1: "unmatched:predicate@r"}
    play.prove()


def test_a_quiet_build_is_passed_over_but_not_before_its_flip(play: Play) -> None:
    play.rate("EUR", 100, 10)
    play.order(0, "EUR", 15)
    play.harness.idle("rates")
    assert play.upto(orders=50) == []
    assert play.upto(rates=12) == []
    play.harness.idle("rates")
    assert play.upto() == [(0, 100)]
    play.rate("EUR", 110, 20)  # active again, and behind: nothing leaves until it has caught up
    play.order(1, "EUR", 60)
    assert play.upto(orders=60) == []
    assert play.upto(rates=60) == [(1, 110)]
    play.prove()


def test_inputs_that_fall_silent_together_have_reached_what_they_emitted_before(play: Play) -> None:
    play.rate("EUR", 100, 10)
    play.order(0, "EUR", 15)
    play.order(1, "EUR", 35)
    assert play.upto(rates=12, orders=12) == []
    play.watermarks(rates=30, orders=30)
    play.harness.idle("rates")
    play.harness.idle("orders")
    assert play.upto() == [(0, 100)]
    play.harness.idle("rates")
    play.harness.idle("orders")
    assert play.upto() == []  # idleness alone lets no row out
    assert play.upto(orders=40) == [(1, 100)]  # while rates is silent
    play.prove()


@pytest.mark.thorough
def test_both_in_processing_time_make_the_plans_instant_the_watermark(play: Play) -> None:
    play.rate("EUR", 100, 10)
    play.order(0, "EUR", 15)
    play.order(1, "EUR", 2_000_000)  # after the clock
    assert play.upto(rates=10, orders=10) == []
    play.harness.end_of_snapshot("rates")
    play.harness.end_of_snapshot("orders")
    assert play.upto() == [(0, 100)]

    play.now = 500_000  # the clock goes back, the watermark does not
    play.order(2, "EUR", 700_000)
    assert play.upto() == [(2, 100)]
    last = play.epochs[-1]
    assert last.plan.watermark == at_ms(1_000_000)
    assert last.staged.facts["late@o"] == 1
    play.prove()


TWO_BUILDS = """
CREATE TABLE rates (currency STRING, region INT, rate INT, valid_from TIMESTAMP(3),
    WATERMARK FOR valid_from AS valid_from, PRIMARY KEY (currency, region) NOT ENFORCED
) WITH ('connector' = 'scripted');
CREATE TABLE shops (shop INT, region INT, since STRING, valid_from AS TO_TIMESTAMP(since),
    WATERMARK FOR valid_from AS valid_from - INTERVAL '1' SECOND, PRIMARY KEY (shop) NOT ENFORCED)
    WITH ('connector' = 'scripted');
CREATE TABLE orders (id INT, shop INT, currency STRING, event ROW<at TIMESTAMP(3)>,
    WATERMARK FOR event.at AS event.at) WITH ('connector' = 'scripted');
CREATE TABLE converted (id INT, region INT, rate INT) WITH ('connector' = 'scripted');
INSERT INTO converted SELECT o.id, s.region, r.rate FROM orders AS o
JOIN shops FOR SYSTEM_TIME AS OF o.event.at AS s ON o.shop = s.shop
LEFT JOIN rates FOR SYSTEM_TIME AS OF o.event.at AS r ON o.currency = r.currency AND s.region = r.region
WHERE o.id < 100 AND coalesce(r.rate, 0) < 900
"""


@pytest.mark.thorough
def test_a_chain_of_builds_on_keys_of_several_columns_with_computed_and_nested_times(
    spark: SparkSession, tmp_path: Path
) -> None:
    harness = Harness(TWO_BUILDS, spark, tmp_path)

    def order(number: int, shop: int, at: int) -> None:
        harness.push("orders", [{"id": number, "shop": shop, "currency": "EUR", "event": {"at": moment(at)}}])

    def rate(region: int, value: int, at: int) -> None:
        harness.push("rates", [{"currency": "EUR", "region": region, "rate": value, "valid_from": moment(at)}])

    def shop(number: int, region: int, at: str) -> None:
        harness.push("shops", [{"shop": number, "region": region, "since": at}])

    shop(1, 10, "2026-01-01 00:00:00")
    shop(1, 20, "2026-01-01 00:00:01")
    rate(10, 100, 0)
    rate(20, 200, 0)
    rate(20, 950, 1500)
    order(0, 1, 500)
    order(1, 1, 1000)
    order(2, 1, 1600)  # WHERE leaves it out
    order(3, 2, 500)  # no such shop
    order(100, 1, 500)  # WHERE, by the probe alone
    harness.watermark("orders", at_ms(5000))
    harness.watermark("rates", at_ms(5000))
    assert harness.advance() == []  # shops has not flipped
    harness.watermark("shops", at_ms(700))
    assert [(row["id"], row["region"], row["rate"]) for row in harness.advance()] == [(0, 10, 100)]
    harness.watermark("shops", at_ms(5000))
    assert [(row["id"], row["region"], row["rate"]) for row in harness.advance()] == [(1, 20, 200)]
    assert {row["id"]: row["_reason"] for row in harness.quarantined("converted")} == {3: "unmatched:key-absent@s"}
    assert harness.verify("converted").passed


@pytest.mark.parametrize(
    "point", at_length(["insert.written", "source.appended", "insert.planned", "insert.quarantined"])
)
@pytest.mark.thorough
def test_an_abort_anywhere_changes_nothing(play: Play, point: str) -> None:
    play.rate("EUR", 100, 10)
    play.order(0, "EUR", 12)
    play.order(1, "USD", 12)
    play.order(2, "EUR", 99)
    play.watermarks(rates=50, orders=50)
    with dying(point):
        play.harness.run()
    play.harness.restart()
    assert play.upto() == [(0, 100)]
    assert play.upto(rates=100, orders=100) == [(2, 100)]
    assert play.quarantined == {1: "unmatched:key-absent@r"}
    play.prove()


@pytest.mark.thorough
def test_a_release_looks_at_the_files_that_may_hold_a_releasable_row_and_at_no_others(
    play: Play, spark: SparkSession
) -> None:
    play.rate("EUR", 100, 0)
    for epoch in range(12):
        play.order(2 * epoch, "EUR", 10 * epoch)
        play.order(2 * epoch + 1, "EUR", 1000 if epoch == 3 else 10 * epoch)  # one waits, from the fourth epoch on
        play.upto(rates=10 * epoch + 5, orders=10 * epoch + 5)
    plan = play.plan
    assert (plan.first.upto, plan.first.since) == (12, 3)  # nothing of the first three epochs waits
    files = plan.first.releasable.rows(spark, play.harness.lake.table_path("orders")).inputFiles()
    assert {Path(file).parent.name.rpartition("-")[0] for file in files} <= {"g1-e4", "g1-e12"}
    assert play.upto(rates=2000, orders=2000) == [(7, 100)]
    play.prove()


def test_another_kind_of_join_under_the_same_id_is_refused(play: Play, spark: SparkSession, tmp_path: Path) -> None:
    play.rate("EUR", 100, 10)
    play.order(0, "EUR", 12)
    play.order(1, "EUR", 90)  # waits
    assert play.upto(rates=20, orders=20) == [(0, 100)]
    play.harness.restart()
    by_now = RATES.replace("WATERMARK FOR at AS at)", "WATERMARK FOR at AS at, now AS PROCTIME())")
    by_now = by_now.replace("AS OF o.at", "AS OF o.now")
    harness = Harness(by_now.format(policy="quarantine", kind="LEFT", more=""), spark, tmp_path)
    harness.push("orders", [{"id": 2, "currency": "EUR", "at": moment(30)}])
    with pytest.raises(PlanningError, match="defines insert converted differently"):
        harness.advance()


def test_rows_leave_while_their_probe_is_still_catching_up_and_never_before_a_build_s_flip(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tape.install(monkeypatch)
    lake, pipeline = Lake(tmp_path), tape.compiled(", 'rows-per-epoch' = '0=2'", ", 'rows-per-epoch' = '0=10'")
    tape.write(lake, "rates", {"0": [{"k": 1, "v": n, "n": n} for n in (0, 5, 20, 90)]})
    tape.write(lake, "clicks", {"0": [{"id": n, "k": 1, "n": n} for n in range(40)]})
    with Runner(pipeline, lake, spark=lambda: spark, environment={}) as active:
        active.advance("clicks", max_epochs=1)
        assert not active.advance("rates", max_epochs=1).flipped
        waits = active.release("joined").waiting
        assert waits.unflipped == ("rates",)
        assert active.advance("rates", max_epochs=1).flipped
        active.release("joined")
        clicks = lake.watermarks.last("clicks")
        assert (clicks.flip_epoch, clicks.timestamp) == (None, 3)
        assert tape.published(lake, pipeline) == [(0, 0), (1, 0), (2, 0), (3, 0)]
        active.run()
        assert [number for number, _ in tape.published(lake, pipeline)] == list(range(34))


CUT = RATES.replace("'gate.on-unmatched'", "'release.max-rows' = '2', 'gate.on-unmatched'")


def test_a_large_release_is_cut_at_times_and_nothing_leaves_twice(spark: SparkSession, tmp_path: Path) -> None:
    play = Play(spark, tmp_path, script=CUT)
    play.rate("EUR", 100, 10)
    for number, at in enumerate([15, 12, 15, 11, 15, 13, 30]):
        play.order(number, "EUR", at)
    assert play.upto(rates=20, orders=20) == [(number, 100) for number in range(6)]
    # Three rows of one millisecond stay together.
    assert [epoch.plan.first.rows for epoch in play.epochs if epoch.plan.bounds] == [2, 4]
    play.order(7, "EUR", 12)  # late, and in a release that is cut again
    assert play.upto(rates=40, orders=40) == [(6, 100), (7, 100)]
    play.prove()
