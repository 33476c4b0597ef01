"""Spans of time released on their own: ahead of the stream, behind it, again and again; each row once, and the same."""

from __future__ import annotations

import random
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.cases import SEED, at_length
from tests.pipelines.runtime.crashing import dying
from tests.pipelines.runtime.plays import RATES, Play, at_ms, prove
from tests.pipelines.runtime.processes.test_processes import timed
from tests.pipelines.runtime.test_maintenance import KEPT_10_MS, maintain
from tidegate.pipelines.commands import NextCommand
from tidegate.pipelines.errors import GateHeld, PlanningError
from tidegate.pipelines.lake import upkeep
from tidegate.pipelines.runtime.epochs.position import Waiting
from tidegate.pipelines.runtime.runner import Released
from tidegate.pipelines.sql import compile_script
from tidegate.pipelines.testing import Harness


def fill(play: Play, low: int, high: int, *more: tuple[int, int]) -> Released:
    """Release the span low <= at < high (ms after the start), and `more` of them."""
    spans = [(at_ms(begin), at_ms(end)) for begin, end in ((low, high), *more)]
    return play.harness.runner.backfill("converted", *spans)


def rows(play: Play) -> Counter[tuple[int, int | None, str]]:
    """Whole rows of the target, with their op."""
    return Counter((row["id"], row["rate"], row["op"]) for row in play.harness.published("converted"))


def states(play: Play) -> list[str]:
    return [f"{epoch.plan.kind} {epoch.state}" for epoch in play.epochs]


def hours(play: Play) -> None:
    """Rates at 0, 100 and 200; orders 0 to 5 at 50, 90, 100, 150, 250 and none; all of it landed up to 300."""
    for number, at in enumerate([0, 100, 200]):
        play.rate("EUR", 100 + number, at)
    for number, at in enumerate([50, 90, 100, 150, 250]):
        play.order(number, "EUR", at)
    play.order(5, "EUR", None)
    play.land(300, 300)


ALL = [(0, 100), (1, 100), (2, 101), (3, 101), (4, 102)]


def test_spans_ahead_of_the_stream_in_any_order(play: Play) -> None:
    hours(play)
    assert [done.rows for done in fill(play, 100, 200).published] == [2]
    assert play.out == [(2, 101), (3, 101)]
    fill(play, 0, 100)
    assert play.out == ALL[:4]
    assert play.quarantined == {}
    # The stream releases what is left, and the row without a time; nothing twice.
    assert play.upto() == [(4, 102)]
    assert play.quarantined == {5: "time-null"}
    assert play.out == ALL
    assert states(play) == ["backfill published", "backfill published", "release published"]
    play.order(6, "EUR", 50)  # late, inside a span that was backfilled: it is its own row
    assert play.upto(orders=310) == [(6, 100)]
    play.prove()


def test_a_span_that_is_out_is_replaced_and_is_the_same(play: Play) -> None:
    hours(play)
    assert play.upto() == ALL
    play.order(7, "EUR", 320)
    play.upto(rates=330, orders=330)
    done = fill(play, 0, 100).published[0]  # all six rows of the first release came together
    assert (done.rows, done.quarantined) == (5, 1)
    assert done.plan.bounds is not None
    assert done.plan.first.rows == 0
    assert done.plan is not None
    assert (done.plan.replaces, done.plan.rows_again) == (((1, 1),), 6)
    assert play.out == [*ALL, (7, 102)]
    assert play.quarantined == {5: "time-null"}
    assert states(play) == ["release superseded", "release published", "backfill published"]
    fill(play, 0, 400)
    assert play.out == [*ALL, (7, 102)]
    assert states(play)[-2:] == ["backfill superseded", "backfill published"]
    prove(play.harness)
    waiting = fill(play, 340, 400).waiting
    assert isinstance(waiting, Waiting)
    assert "no row of orders from 2026-01-01" in waiting.reason


@pytest.mark.thorough  # assets/operations/test_backfill.py: days that are apart
def test_spans_that_are_apart_or_overlap_are_one_epoch(play: Play) -> None:
    hours(play)
    assert fill(play, 0, 100).published[0].rows == 2
    [epoch] = fill(play, 200, 300, (80, 95), (90, 120)).published
    assert epoch.rows == 4, "0 and 1 once more, which had been published as one, then 2 and 4"
    assert epoch.plan is not None
    assert epoch.plan.spans == ((at_ms(80), at_ms(120)), (at_ms(200), at_ms(300)))
    assert states(play) == ["backfill superseded", "backfill published"]
    assert play.out == [ALL[number] for number in (0, 1, 2, 4)]
    assert fill(play, 200, 300, (80, 120)).published[0].rows == 4
    assert play.upto() == [ALL[3]]
    assert play.out == ALL
    play.prove()


@pytest.mark.thorough
def test_a_late_version_reaches_the_span_that_is_released_again(play: Play) -> None:
    hours(play)
    fill(play, 0, 100)
    play.upto()
    play.rate("EUR", 555, 80)
    play.rate("EUR", 777, 180)
    play.upto(rates=310, orders=310)
    assert play.out == ALL  # what is out is never corrected by itself
    fill(play, 0, 100)
    assert play.out == [(0, 100), (1, 555), *ALL[2:]]
    fill(play, 100, 200)
    assert dict(play.out)[3] == 101  # at 150, before the version of 180
    play.prove()


def test_what_the_watermark_has_not_reached_waits(play: Play) -> None:
    play.rate("EUR", 100, 0)
    for number, at in enumerate([10, 20, 30]):
        play.order(number, "EUR", at)
    play.land(20, 300)
    assert fill(play, 0, 100).published[0].rows == 2
    waiting = fill(play, 25, 100).waiting
    assert isinstance(waiting, Waiting)
    assert "the watermark stands at 2026-01-01T00:00:00.020" in waiting.reason
    assert "held by rates" in waiting.reason
    play.rate("EUR", 110, 25)
    play.land(300, 300)
    done = fill(play, 0, 100).published[0]  # the first two again, the third for the first time
    assert (done.rows, done.plan.bounds and done.plan.first.rows) == (3, 1)
    assert play.out == [(0, 100), (1, 100), (2, 110)]
    assert play.upto() == []
    play.prove()


def test_no_row_leaves_before_every_build_has_flipped(play: Play) -> None:
    play.order(0, "EUR", 10)
    play.land(orders=100)
    waiting = fill(play, 0, 100).waiting
    assert isinstance(waiting, Waiting)
    assert (waiting.unflipped, waiting.rows) == (("rates",), 1)


@pytest.mark.thorough
@pytest.mark.parametrize("way", at_length(["join again", "give it up"]))
def test_a_held_span_leaves_what_is_out_where_it_is(spark: SparkSession, tmp_path: Path, way: str) -> None:
    play = Play(spark, tmp_path, policy="block")
    hours(play)
    fill(play, 0, 100)
    play.rate("EUR", 100, 60, "-D")
    play.order(6, "EUR", 70)
    play.land(310, 310)
    with pytest.raises(GateHeld, match="unmatched"):
        fill(play, 0, 100)
    assert play.out == ALL[:2]
    play.harness.restart()
    with pytest.raises(GateHeld):
        play.upto()
    if way == "give it up":
        play.harness.runner.resolve_held("converted", discard=True)
        assert play.out == ALL[:2]
        assert play.quarantined == {}
        with pytest.raises(GateHeld):
            play.upto()  # the new row waits on, and is met by the stream
        assert states(play) == ["backfill published", "backfill superseded", "discard published", "release held"]
    else:
        play.rate("EUR", 333, 60)
        play.land(320, 320)
        play.harness.runner.resolve_held("converted")
        assert play.out == [(0, 100), (1, 333), (6, 333)]
        assert states(play) == ["backfill superseded", "backfill superseded", "re-release published"]
    play.prove()


@pytest.mark.parametrize(
    "point", at_length(["insert.staged", "insert.planned", "insert.quarantined", "insert.published"])
)
@pytest.mark.thorough
def test_an_abort_anywhere_changes_nothing(play: Play, point: str) -> None:
    hours(play)
    fill(play, 0, 200)

    with dying(point):
        fill(play, 0, 300)
    play.harness.restart()
    if point == "insert.staged":
        play.upto()  # a run of the stream takes up what was begun
    fill(play, 0, 300)
    assert play.out == ALL
    play.prove()


@pytest.mark.thorough
def test_rows_that_were_put_together_come_apart_again(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "SMALL_FILES", 2)
    play.rate("EUR", 100, 0)
    for number in range(5):
        play.order(number, "EUR" if number % 2 else "USD", number)
    play.land(30, 30)
    for number in range(5):
        fill(play, number, number + 1)
    tidied = maintain(play.harness)["converted"]
    assert tidied.files_after < tidied.files_before
    before, quarantined = play.out, play.quarantined
    fill(play, 1, 3)
    assert (play.out, play.quarantined) == (before, quarantined)
    assert quarantined == dict.fromkeys((0, 2, 4), "unmatched:key-absent@r")
    play.prove()


def test_another_text_of_the_insert_makes_its_span_anew(play: Play, spark: SparkSession, tmp_path: Path) -> None:
    hours(play)
    fill(play, 0, 100)
    fill(play, 100, 300)
    play.harness.runner.close()
    other = RATES.replace("r.rate FROM", "-r.rate FROM").format(policy="quarantine", kind="LEFT", more="")
    play.harness = Harness(other, spark, tmp_path, clock=lambda: at_ms(1_000_000))
    fill(play, 0, 100)
    assert play.out == [(0, -100), (1, -100), *ALL[2:]]


def test_versions_that_retention_has_let_go_are_never_missed_silently(spark: SparkSession, tmp_path: Path) -> None:
    play = Play(spark, tmp_path, script=KEPT_10_MS)
    hours(play)
    assert play.upto() == ALL
    fill(play, 0, 300)  # all versions are still there
    assert maintain(play.harness)["rates"].retained is not None
    with pytest.raises(PlanningError, match=r"versions of rates that were valid before .* are gone") as caught:
        fill(play, 0, 300)
    assert "--from 2026-01-01T00:00:00.290" in caught.value.next_command
    assert play.out == ALL


def test_rows_without_a_time_of_their_own_have_no_spans(spark: SparkSession, tmp_path: Path) -> None:
    script = """
        CREATE TABLE users (id INT PRIMARY KEY NOT ENFORCED) WITH ('connector' = 'scripted');
        CREATE TABLE clicks (id INT, p AS PROCTIME()) WITH ('connector' = 'scripted');
        CREATE TABLE sink (id INT) WITH ('connector' = 'scripted');
        CREATE TABLE plain (id INT) WITH ('connector' = 'scripted');
        INSERT INTO sink SELECT c.id FROM clicks c JOIN users FOR SYSTEM_TIME AS OF c.p AS u ON c.id = u.id;
        INSERT INTO plain SELECT id FROM clicks;
    """
    harness = Harness(compile_script(script), spark, tmp_path)
    for insert, why in (("sink", "sink joins by processing time"), ("plain", "plain joins nothing")):
        with pytest.raises(PlanningError, match=why):
            harness.runner.backfill(insert, (at_ms(0), at_ms(100)))


def test_a_process_has_no_spans(spark: SparkSession, tmp_path: Path) -> None:
    harness = Harness(timed(), spark, tmp_path)
    with pytest.raises(PlanningError, match="takes the rows of its inputs in the order in which they landed"):
        harness.runner.backfill("timed", (at_ms(0), at_ms(100)))


@pytest.mark.thorough
@pytest.mark.parametrize(("kind", "policy"), [("LEFT", "quarantine"), ("INNER", "quarantine"), ("LEFT", "publish")])
def test_any_order_of_spans_and_streaming_gives_the_streams_rows(
    spark: SparkSession, tmp_path: Path, kind: str, policy: str
) -> None:
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    streamed, filled = (Play(spark, tmp_path / name, policy, kind) for name in ("streamed", "filled"))
    number = 0
    for turn in range(1, 5):
        low, high = 100 * turn, 100 * turn + 100
        for _ in range(4):
            at, rate, key = chance.randrange(low, high), chance.randrange(1000), chance.choice(["EUR", "USD"])
            op = "-D" if chance.random() < 0.2 else "+I"
            for play in (streamed, filled):
                play.rate(key, rate, at, op)
        for _ in range(chance.randrange(1, 8)):
            # Some are late: in a span that may have been released before.
            at = None if chance.random() < 0.05 else chance.randrange(max(0, low - 250), high)
            key, op = chance.choice(["EUR", "USD", "GBP"]), chance.choice(["+I", "+I", "-U", "+U", "-D"])
            for play in (streamed, filled):
                play.order(number, key, at, op)
            number += 1
        filled.land(high, high)
        for _ in range(chance.randrange(3)):
            begin = chance.randrange(0, high)
            fill(filled, begin, begin + chance.randrange(1, 300))
        if chance.random() < 0.4:
            filled.upto()
        if chance.random() < 0.3:
            filled.harness.restart()
        streamed.upto(rates=high, orders=high)
    filled.upto()
    assert rows(filled) == rows(streamed)
    assert filled.quarantined.keys() == streamed.quarantined.keys()
    reasons = {(reason, filled.quarantined[row]) for row, reason in streamed.quarantined.items()}
    # A span pins as much of the build as the stream did, or more: a key that was absent then may have a version by now,
    # of a later time.
    others = {(was, now) for was, now in reasons if was != now}
    assert others <= {("unmatched:key-absent@r", "unmatched:before-first@r")}
    filled.prove()


@pytest.mark.thorough
def test_what_is_kept_for_readers_of_older_versions_is_still_there(play: Play, spark: SparkSession) -> None:
    hours(play)
    fill(play, 0, 300)
    path = play.harness.lake.target_path(play.harness.pipeline.table("converted"))
    version = spark.sql(f"DESCRIBE HISTORY delta.`{path}`").agg({"version": "max"}).collect()[0][0]
    fill(play, 0, 300)
    play.harness.runner.maintenance(timedelta(days=7)).run()
    rows = spark.read.format("delta").option("versionAsOf", version).load(str(path))
    assert sorted((row["id"], row["rate"]) for row in rows.collect()) == ALL


def test_a_new_snapshot_never_takes_the_history_of_what_is_out(spark: SparkSession, tmp_path: Path) -> None:
    script = RATES.replace("ENFORCED) WITH (", "ENFORCED) WITH ('phases' = 'true', 'signals' = 'true', ")
    play = Play(spark, tmp_path, script=script)
    hours(play)
    assert play.upto() == ALL
    play.harness.runner.advance("rates", resnapshot=True)
    play.upto(rates=310, orders=310)
    with pytest.raises(
        PlanningError, match="rates was read from a new snapshot since this span was released"
    ) as caught:
        fill(play, 0, 300)
    assert play.out == ALL
    command = caught.value.advice.parts[0]
    assert isinstance(command, NextCommand)
    since = datetime.fromisoformat(command.arguments[1])
    play.harness.runner.backfill("converted", (round(since.timestamp() * 1000), at_ms(400)))
    assert play.out == ALL
