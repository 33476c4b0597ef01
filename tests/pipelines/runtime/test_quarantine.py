"""Quarantined rows released again or discarded: each row in one place all the time, whatever is done and aborted."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests import cases
from tests.cases import SEED, at_length
from tests.pipelines.runtime.crashing import dying
from tests.pipelines.runtime.plays import Play, clicks, epochs_of, places_of, taken_up
from tests.pipelines.runtime.plays import prove as prove_epochs
from tests.pipelines.runtime.test_backfill import fill
from tidegate.pipelines.errors import GateHeld, LeaseHeld, PlanningError
from tidegate.pipelines.runtime import faults
from tidegate.pipelines.runtime.epochs import Asked
from tidegate.pipelines.runtime.ledger import WhereRowsAre
from tidegate.pipelines.runtime.quarantine import quarantined_in
from tidegate.pipelines.runtime.releasing.insert_runner import Published
from tidegate.pipelines.runtime.runner import Runner
from tidegate.pipelines.testing import Harness
from tidegate.quality_checks.reconcile import reconcile_all

pytestmark = pytest.mark.long

KNOWN = ", CONSTRAINT known EXPECT (gender IN ({})) ON VIOLATION {}"
RELEASE, DISCARD = Asked(), Asked(discards=True, by="ada", because="a test")


@pytest.fixture
def harness(spark: SparkSession, tmp_path: Path) -> Harness:
    """User 1 is known, and her table has flipped."""
    found = Harness(clicks(), spark, tmp_path)
    users(found, 1)
    found.end_of_snapshot("user_info")
    return found


def users(harness: Harness, *numbers: int, gender: str = "f") -> None:
    harness.push("user_info", [{"user_id": number, "gender": gender} for number in numbers])


def click(harness: Harness, *numbers: int) -> None:
    """A click of each of these users; its item is ten times that."""
    harness.push("click_event", [{"user_id": number, "item_id": number * 10} for number in numbers])
    harness.advance()


def take(harness: Harness, request=RELEASE) -> tuple[Published, ...]:
    return harness.runner.out_of_quarantine(harness.pipeline.inserts[0].id, request)


def out(harness: Harness) -> list[tuple[Any, ...]]:
    return sorted((row["user_id"], row["gender"]) for row in harness.published("enriched"))


def in_quarantine(harness: Harness) -> dict[int, str]:
    return {row["user_id"]: row["_reason"] for row in harness.quarantined("enriched")}


def states(harness: Harness) -> list[tuple[int, str, int, str]]:
    return [(item.epoch, item.short, item.rows, item.state) for item in quarantined_in(epochs_of(harness))]


def prove(harness: Harness) -> WhereRowsAre:
    """Every landed row is in one place, and the tables hold as much; in `make test-all` every epoch recomputes to what
    was published."""
    assert [item.problems for item in reconcile_all(harness.lake, harness.pipeline)] == [()]
    return (prove_epochs if cases.AT_LENGTH else places_of)(harness)


def test_rows_leave_quarantine_once_they_match(harness: Harness) -> None:
    click(harness, 1, 2, 3)
    click(harness, 4)
    users(harness, 2, 4, gender="m")
    harness.advance()
    assert in_quarantine(harness) == dict.fromkeys((2, 3, 4), "unmatched:key-absent@u")
    [done] = take(harness, Asked(epochs=(1,)))
    assert (done.epoch, done.rows, done.quarantined) == (3, 1, 1)
    assert out(harness) == [(1, "f"), (2, "m")]
    assert in_quarantine(harness) == dict.fromkeys((3, 4), "unmatched:key-absent@u")
    assert states(harness) == [
        (1, "key-absent@u", 2, "released"),
        (2, "key-absent@u", 1, "open"),
        (3, "key-absent@u", 1, "open"),
    ]
    assert take(harness, Asked(epochs=(1,))) == ()  # nothing of it is left to take
    places = places_of(harness)
    assert (places.matched, places.quarantined, places.waiting) == (2, {"key-absent@u": 2}, 0)
    # The stream goes on where it stood; a release of everything takes what is open, in one epoch.
    users(harness, 5)
    click(harness, 5)
    [done] = take(harness)
    assert done.plan.lots[0].rows == 2
    assert out(harness) == [(1, "f"), (2, "m"), (4, "m"), (5, "f")]
    assert in_quarantine(harness) == {3: "unmatched:key-absent@u"}
    users(harness, 3)
    click(harness, 6)
    take(harness, Asked(reasons=("key-absent",)))
    assert out(harness) == [(1, "f"), (2, "m"), (3, "f"), (4, "m"), (5, "f")]
    assert prove_epochs(harness).quarantined == {"key-absent@u": 1}
    with pytest.raises(PlanningError, match=r"no row of enriched was ever quarantined for the reason deleted"):
        take(harness, Asked(reasons=("deleted",)))
    with pytest.raises(PlanningError, match=r"no row of enriched was ever quarantined in epoch 4"):
        take(harness, Asked(discards=True, epochs=(4,)))


def test_what_is_discarded_stays_counted_and_goes_nowhere(harness: Harness) -> None:
    click(harness, 1, 2, 3)
    click(harness, 4)
    [done] = take(harness, Asked(discards=True, epochs=(1,), by="ada", because="test users"))
    assert (done.rows, done.quarantined, done.staged.files) == (0, 0, [])
    harness.restart()
    users(harness, 2, 3, 4)
    harness.advance()
    places = places_of(harness)
    assert (places.matched, places.quarantined) == (1, {"discarded": 2, "key-absent@u": 1})
    assert take(harness, Asked(discards=True, epochs=(1,))) == ()
    assert take(harness, Asked(epochs=(1,))) == ()
    take(harness)
    assert out(harness) == [(1, "f"), (4, "f")]
    assert in_quarantine(harness) == dict.fromkeys((2, 3), "unmatched:key-absent@u")
    taken = quarantined_in(epochs_of(harness))[0].taken
    assert taken is not None
    assert taken.asked is not None
    assert (taken.asked.by, taken.asked.because) == ("ada", "test users")
    assert prove(harness).quarantined == {"discarded": 2}
    with pytest.raises(LeaseHeld):
        Runner(harness.pipeline, harness.lake, label="another").out_of_quarantine("enriched", DISCARD)


POINTS = [point for point in faults.POINTS if point.startswith("insert.")]


@pytest.mark.parametrize(
    ("request_", "points"), at_length([(DISCARD, ["insert.planned", "insert.quarantined"]), (RELEASE, POINTS)])
)
def test_an_abort_at_any_point_is_recovered_from(harness: Harness, request_, points: list[str]) -> None:
    number = 1
    expected = [(1, "f")]
    click(harness, 1)
    for point in points:
        number += 2
        click(harness, number, number + 1)
        users(harness, number)
        harness.advance()
        with dying(point):
            take(harness, request_)
        harness.restart()
        inside = Counter(row for row, _ in out(harness))
        inside.update(row["user_id"] for row in harness.quarantined("enriched"))
        assert inside == Counter([1, *range(3, number + 2)]), point
        if point == "insert.staged":
            harness.advance()  # a run of the stream takes up what was begun
        take(harness, request_)
        expected += [(number, "f")] if not request_.discards else []
        assert out(harness) == expected, point
        assert len(in_quarantine(harness)) == (number - 1 if request_.discards else (number - 1) // 2), point
    places = prove(harness)
    reason = "discarded" if request_.discards else "key-absent@u"
    assert places.quarantined == {reason: 2 * len(points) - len(expected) + 1}


@pytest.mark.thorough
def test_what_a_constraint_has_refused_is_asked_again(spark: SparkSession, tmp_path: Path) -> None:
    harness = Harness(clicks(constraints=KNOWN.format("'f'", "QUARANTINE")), spark, tmp_path)
    users(harness, 1)
    users(harness, 2, gender="m")
    users(harness, 3, gender="x")
    harness.end_of_snapshot("user_info")
    click(harness, 1, 2, 3, 4)
    assert in_quarantine(harness) == {2: "violated:known", 3: "violated:known", 4: "unmatched:key-absent@u"}
    # The script may be mended meanwhile: rows are joined by what it says now.
    harness = taken_up(harness, clicks(constraints=KNOWN.format("'f', 'm'", "QUARANTINE")))
    take(harness, Asked(reasons=("violated:known",)))
    assert out(harness) == [(1, "f"), (2, "m")]
    assert in_quarantine(harness) == {3: "violated:known", 4: "unmatched:key-absent@u"}
    harness = taken_up(harness, clicks(constraints=KNOWN.format("'f'", "FAIL")))
    with pytest.raises(GateHeld, match="constraint known") as caught:
        take(harness)
    assert "the rows stay in quarantine" in caught.value.next_command
    places = places_of(harness)
    assert (places.quarantined, places.held) == ({"key-absent@u": 1, "violated:known": 1}, 0)
    with pytest.raises(GateHeld):
        take(harness)
    harness.runner.resolve_held("enriched", discard=True)
    assert out(harness) == [(1, "f"), (2, "m")]
    assert in_quarantine(harness) == {3: "violated:known", 4: "unmatched:key-absent@u"}
    users(harness, 3, gender="f")
    users(harness, 4, gender="x")
    harness.advance()
    with pytest.raises(GateHeld):
        take(harness)
    users(harness, 4, gender="f")
    harness.runner.advance("user_info")
    harness.runner.resolve_held("enriched")
    assert out(harness) == [(1, "f"), (2, "m"), (3, "f"), (4, "f")]
    assert in_quarantine(harness) == {}


def test_rows_of_a_discarded_epoch_are_released_where_they_are_named(spark: SparkSession, tmp_path: Path) -> None:
    harness = Harness(clicks(policy="block"), spark, tmp_path)
    users(harness, 1)
    harness.end_of_snapshot("user_info")
    with pytest.raises(GateHeld):
        click(harness, 1, 2)
    harness.runner.resolve_held("enriched", discard=True)
    assert in_quarantine(harness) == {1: "discarded", 2: "discarded"}
    assert take(harness) == take(harness, DISCARD) == ()
    # A row that still has no match goes back: it is no reason to hold the INSERT.
    [done] = take(harness, Asked(reasons=("discarded",)))
    assert (done.rows, done.quarantined, done.plan.on_unmatched) == (1, 1, "quarantine")
    assert (out(harness), in_quarantine(harness)) == ([(1, "f")], {2: "unmatched:key-absent@u"})
    prove(harness)


def test_rows_of_another_probe_are_refused(harness: Harness) -> None:
    click(harness, 2)
    harness = taken_up(harness, clicks().replace("click_event", "presses"))
    harness.push("presses", [{"user_id": 1, "item_id": 1}])
    with pytest.raises(PlanningError, match="defines insert enriched differently"):
        harness.runner.advance("presses")
    with pytest.raises(PlanningError, match="defines insert enriched differently"):
        take(harness)


@pytest.mark.thorough
def test_a_row_is_released_at_its_own_time(play: Play) -> None:
    play.rate("EUR", 100, 10)
    for number, at in enumerate([5, 15, 25, None]):
        play.order(number, "EUR" if at == 15 else "USD", at)
    play.upto(rates=30, orders=30)
    play.rate("USD", 500, 20)
    play.rate("USD", 600, 28)
    play.order(4, "USD", 31)
    play.land(40, 40)
    [waiting_first, done] = (*play.harness.runner.release("converted").published, *take(play.harness))
    assert waiting_first.rows == 1
    assert (done.rows, done.quarantined) == (1, 1), "a row without a time is not asked again"
    assert play.out == [(1, 100), (2, 500), (4, 600)]
    assert play.quarantined == {0: "unmatched:before-first@r", 3: "time-null"}
    play.order(5, "EUR", 35)
    assert play.upto(orders=50, rates=50) == [(5, 100)]
    play.prove()


@pytest.mark.thorough
def test_a_backfill_takes_what_was_released_of_its_span_with_it(play: Play) -> None:
    play.rate("EUR", 100, 0)
    for turn in range(3):  # epochs 1 to 3, each with a row that has no match
        play.order(turn * 2, "EUR", turn * 100 + 10)
        play.order(turn * 2 + 1, "USD", turn * 100 + 20)
        play.upto(rates=turn * 100 + 100, orders=turn * 100 + 100)
    take(play.harness, Asked(discards=True, epochs=(3,)))
    play.rate("USD", 500, 120)
    play.land(300, 300)
    [done] = take(play.harness)  # rows 1 and 3, of epochs 1 and 2; only 3 finds its version
    assert (done.rows, done.quarantined) == (1, 1)
    assert play.quarantined == {1: "unmatched:before-first@r", 5: "unmatched:key-absent@r"}
    play.rate("USD", 400, 15)
    play.land(300, 300)
    filled = fill(play, 100, 200).published[0]
    assert filled.plan is not None
    # Epoch 2 and what it became; row 1, which came with it, is taken out of the quarantine of epoch 1 again.
    assert filled.plan.replaces == ((2, 2), (5, 5))
    assert (filled.plan.rows_again, filled.rows, filled.quarantined) == (3, 3, 0)
    assert play.quarantined == {5: "unmatched:key-absent@r"}
    assert play.out == [(0, 100), (1, 400), (2, 100), (3, 500), (4, 100)]
    prove(play.harness)
    fill(play, 0, 300)  # all of it anew: what was discarded as well
    assert [row["id"] for row in play.harness.published("converted")].count(5) == 1
    assert play.quarantined == {}
    assert prove(play.harness).quarantined == {}


@pytest.mark.thorough
def test_any_order_of_releases_discards_spans_and_streaming_keeps_each_row_in_one_place(play: Play) -> None:
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    harness, number = play.harness, 0
    for turn in range(1, 6):
        low, high = 100 * turn, 100 * turn + 100
        for _ in range(chance.randrange(3)):
            play.rate(chance.choice(["EUR", "USD"]), chance.randrange(1000), chance.randrange(low - 100, high))
        for _ in range(chance.randrange(1, 5)):
            at = None if chance.random() < 0.1 else chance.randrange(max(0, low - 250), high)
            play.order(number, chance.choice(["EUR", "USD", "GBP"]), at)
            number += 1
        play.upto(rates=high, orders=high)
        for _ in range(chance.randrange(1, 3)):
            kinds = [(item.epoch, item.reason) for item in quarantined_in(epochs_of(harness))]
            epoch, reason = chance.choice(kinds or [(0, "")])
            discards = chance.random() < 0.2
            if chance.random() < 0.35:
                begin = chance.randrange(0, high)
                fill(play, begin, begin + chance.randrange(1, 300))
            elif kinds and chance.random() < 0.5:
                take(harness, Asked(discards=discards, reasons=(reason,)))
            elif kinds:
                take(harness, Asked(discards=discards, epochs=(epoch,)))
        rows = Counter(row["id"] for row in harness.published("converted"))
        rows += Counter(row["id"] for row in harness.quarantined("converted"))
        assert rows == Counter(range(number)), turn
        if chance.random() < 0.3:
            harness.restart()
    prove(harness)
