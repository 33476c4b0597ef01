"""FLIP-182 in whole runs: splits of one source, and sources of one group."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.pipelines.runtime import tape
from tidegate.pipelines.lake import Lake
from tidegate.pipelines.runtime.landing.advances import Advance
from tidegate.pipelines.runtime.runner import Runner
from tidegate.pipelines.sql import compile_script
from tidegate.pipelines.watermarks import MAX_TIMESTAMP

ALIGNED = "'scan.watermark.alignment.group' = 'g', 'scan.watermark.alignment.max-drift' = '{drift}'"
SCRIPT = """
CREATE TABLE one (n BIGINT, at AS TO_TIMESTAMP_LTZ(n, 3), WATERMARK FOR at AS at) WITH ('connector' = 'tape'{one});
CREATE TABLE two (n BIGINT, at AS TO_TIMESTAMP_LTZ(n, 3), WATERMARK FOR at AS at) WITH ('connector' = 'tape'{two});
CREATE TABLE kept_one (n BIGINT) WITH ('connector' = 'delta');
CREATE TABLE kept_two (n BIGINT) WITH ('connector' = 'delta');
INSERT INTO kept_one SELECT n FROM one;
INSERT INTO kept_two SELECT n FROM two
"""


@pytest.fixture(autouse=True)
def _connector(monkeypatch: pytest.MonkeyPatch) -> None:
    tape.install(monkeypatch)


def runner(spark: SparkSession, lake: Lake, one: str = "", two: str = "", drift: str = "30 ms") -> Runner:
    options = [f", {ALIGNED.format(drift=drift)}{more}" for more in (one, two)]
    pipeline = compile_script(SCRIPT.format(one=options[0], two=options[1]))
    ticks = itertools.count()
    return Runner(pipeline, lake, spark=lambda: spark, clock=lambda: next(ticks), environment={})


def numbers(count: int, start: int = 0) -> list[dict[str, int]]:
    return [{"n": n} for n in range(start, start + count)]


def landed(lake: Lake, table: str) -> int:
    return sum(row.rows for row in lake.watermarks.rows(table))


def test_all_but_the_slow_subtask_are_blocked(spark: SparkSession, tmp_path: Path) -> None:
    """The seed's test plan: a number sequence in four splits, the first of which is slow."""
    lake = Lake(tmp_path)
    tape.write(lake, "one", {split: numbers(1000) for split in "abcd"})
    tape.write(lake, "two", {})
    steps = ", 'rows-per-epoch' = 'a=1,b=100,c=100,d=100', 'scan.watermark.idle-timeout' = '1 h'"
    script = SCRIPT.format(one=f", {ALIGNED.format(drift='30 ms')}{steps}", two="")
    with Runner(compile_script(script), lake, spark=lambda: spark, clock=lambda: 0, environment={}) as active:
        for epoch in range(1, 4):
            advance = active.advance("one", max_epochs=1)
            assert [item.split for item in advance.blocked] == ["b", "c", "d"]
            assert {item.by for item in advance.blocked} == {("one", "a")}
            last = advance.last
            assert {split["split"]: split["timestamp"] for split in last.splits} == {
                "a": epoch - 1, "b": 99, "c": 99, "d": 99,
            }  # fmt: skip
            assert last.timestamp == epoch - 1  # shown before the flip too: it is no build's snapshot
        plan = lake.epochs.last("one")
        assert plan.plan["blocked"] == ["b", "c", "d"]

    # The slow one catches up, and the others go on.
    faster = compile_script(script.replace("'a=1,", "'a=100,"))
    with Runner(faster, lake, spark=lambda: spark, clock=lambda: 0, environment={}) as active:
        assert active.advance("one", max_epochs=1).blocked == ()
        last = active.advance("one", max_epochs=1).last
        assert [split["timestamp"] for split in last.splits[1:]] == [199, 199, 199]


def test_sources_of_one_group_take_turns_and_come_to_their_ends(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    tape.write(lake, "one", {"0": numbers(200)})
    tape.write(lake, "two", {"0": numbers(200)})
    pace = ", 'scan.max-rows-per-epoch' = '{rows}'"
    with runner(spark, lake, pace.format(rows=80), pace.format(rows=40)) as active:
        report = active.run()
        assert [item.blocked for item in report.advances] == [(), ()]
        assert [item.rows for item in report.advances] == [200, 200]
        assert not active.run().moved
    rows = sorted((row for t in ("one", "two") for row in lake.watermarks.rows(t)), key=lambda row: row.landed_at)
    assert [row.owner for row in rows] == ["one", "two", "two", "one", "two", "two", "one", "two"]
    stands = {"one": -1, "two": -1}
    for row in rows:  # the drift and an epoch is how far one may be ahead, where a day's backlog would be all of it
        stands[row.owner] = row.splits[0]["timestamp"]
        assert max(stands.values()) - min(stands.values()) <= 30 + 80


def waiting(spark: SparkSession, lake: Lake, aligned: str, ticks: int) -> list[tuple[int, bool]]:
    """After each tick, an epoch of each table and a release: the landed clicks that wait, as their INSERT tells it, and
    whether the clicks were held back. They are three times as fast as the rates that they are joined to."""
    options = [f"{aligned}, 'scan.max-rows-per-epoch' = '{pace}'" for pace in (10, 30)]
    pipeline = tape.compiled(*options)

    def write(rows: int) -> None:
        tape.write(lake, "rates", {"0": [{"k": 1, "v": n, "n": n} for n in range(rows)]})
        tape.write(lake, "clicks", {"0": [{"id": n, "k": 1, "n": n} for n in range(rows)]})

    def tick(active: Runner) -> Advance:
        return [active.advance(table, max_epochs=1) for table in ("rates", "clicks")][1]

    found = []
    with Runner(pipeline, lake, spark=lambda: spark, clock=lambda: 0, environment={}) as active:
        write(1)  # the flip is at the first row
        tick(active)
        write(1000)
        for _ in range(ticks):
            clicks = tick(active)
            waits = active.release("joined").waiting
            assert waits.rows == landed(lake, "clicks") - landed(lake, "rates")
            found.append((waits.rows, not clicks.epochs))
    assert tape.published(lake, pipeline) == [(n, n) for n in range(landed(lake, "rates"))]
    return found


@pytest.mark.thorough
def test_what_has_landed_and_is_not_released_stays_bounded_with_alignment_and_grows_without(
    spark: SparkSession, tmp_path: Path
) -> None:
    drift, epoch = 20, 30
    without = waiting(spark, Lake(tmp_path / "without"), "", 3)
    assert without == [(20, False), (40, False), (60, False)]
    aligned = waiting(spark, Lake(tmp_path / "aligned"), f", {ALIGNED.format(drift=f'{drift} ms')}", 4)
    assert all(rows <= drift + epoch < without[-1][0] for rows, _ in aligned)
    assert {held for _, held in aligned} == {False, True}, "it is alignment that does it"


def test_an_ended_split_holds_nobody(spark: SparkSession, tmp_path: Path) -> None:
    """Neither its own source, nor another of the group: it counts as the end of time."""
    lake = Lake(tmp_path)
    tape.write(lake, "one", {"a": numbers(5), "b": numbers(100)})
    tape.write(lake, "two", {"0": numbers(10)})
    pace = ", 'ends' = 'true', 'rows-per-epoch' = '{rows}'"

    def blocked(advance: Advance) -> list[tuple[str, tuple[str, str]]]:
        return [(item.split, item.by) for item in advance.blocked]

    def stands(table: str) -> dict[str, tuple[int, bool]]:
        last = lake.watermarks.last(table)
        return {split["split"]: (split["timestamp"], split["ended"]) for split in last.splits}

    with runner(spark, lake, pace.format(rows="a=4,b=50"), pace.format(rows="0=5")) as active:
        active.advance("two", max_epochs=1)
        one = active.advance("one", max_epochs=1)
        assert stands("one") == {"a": (3, False), "b": (49, False)}
        assert blocked(one) == [("b", ("one", "a"))]
        one = active.advance("one", max_epochs=1)
        assert stands("one") == {"a": (4, True), "b": (49, False)}
        assert blocked(one) == [("b", ("two", "0"))], "a has ended"
        assert active.advance("one").epochs == ()
        active.advance("two", max_epochs=1)
        assert stands("two") == {"0": (9, True)}
        one = active.advance("one")
        assert (one.rows, blocked(one)) == (50, []), "so has the other"
        assert stands("one") == {"a": (4, True), "b": (99, True)}
    assert [lake.watermarks.last(table).timestamp for table in ("one", "two")] == [MAX_TIMESTAMP] * 2  # type: ignore[union-attr]


def test_a_blocked_source_s_advance_ends_and_says_why(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    tape.write(lake, "one", {"0": numbers(100)})
    tape.write(lake, "two", {"0": numbers(10)})
    pace = ", 'scan.max-rows-per-epoch' = '20'"
    with runner(spark, lake, pace, pace) as active:
        alone = active.advance("one")  # two has landed nothing: the first epoch only
        assert (alone.rows, [item.split for item in alone.blocked]) == (20, ["0"])
        assert active.advance("one").epochs == ()
        report = active.run()
        assert [item.rows for item in report.advances] == [40, 10]
        [item] = report.advances[0].blocked
        assert (item.by, item.ahead_ms) == (("two", "0"), 50)
        assert report.advances[1].blocked == ()
    tape.write(lake, "two", {"0": numbers(10) + numbers(1, 90)})
    with runner(spark, lake, pace, pace) as active:
        assert [item.rows for item in active.run().advances] == [40, 1]
    assert (landed(lake, "one"), landed(lake, "two")) == (100, 11)


def test_a_bounded_phase_is_never_held_back(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    tape.write(lake, "one", {"0": numbers(100, 1000)})
    tape.write(lake, "two", {"0": numbers(1)})
    pace = ", 'scan.max-rows-per-epoch' = '20'"
    with runner(spark, lake, f"{pace}, 'bounded' = '60'", pace) as active:
        active.advance("two")
        one = active.advance("one")
        assert (one.rows, one.flipped) == (60, True)
        assert [item.split for item in one.blocked] == ["0"]


def test_only_the_slowest_gets_a_row_past_the_limit(spark: SparkSession, tmp_path: Path) -> None:
    """Where the source can tell times: the others stand, are reported as blocked, and do not fall idle."""
    lake = Lake(tmp_path)
    table = (
        "CREATE TABLE {0} (n BIGINT, at AS SYSTEM_ROWTIME(), WATERMARK FOR at AS SYSTEM_WATERMARK()) "
        "WITH ('connector' = 'tape', {1})"
    )
    aligned = ALIGNED.format(drift="10 ms")
    one = table.format("one", f"{aligned}, 'scan.watermark.idle-timeout' = '5 s'")
    kept = "CREATE TABLE kept_one (n BIGINT) WITH ('connector' = 'delta'); INSERT INTO kept_one SELECT n FROM one"
    pipeline = compile_script(f"{one}; {kept}")
    times = {"a": [0, 1, 500, 600], "b": [0, 5, 505, 700], "c": [0]}

    def tape_of(count: int) -> None:
        rows = {split: [{"n": at, "_rowtime": at} for at in found[:count]] for split, found in times.items()}
        tape.write(lake, "one", rows)

    def splits() -> dict[str, tuple[int, bool]]:
        last = lake.watermarks.last("one")
        return {split["split"]: (split["timestamp"], split["idle"]) for split in last.splits}

    now = 0
    with Runner(pipeline, lake, spark=lambda: spark, clock=lambda: now, environment={}) as active:
        tape_of(1)
        assert active.advance("one").flipped
        tape_of(4)
        advance = active.advance("one")
        assert splits() == {"a": (0, False), "b": (4, False), "c": (-1, False)}
        assert [(item.split, item.by, item.ahead_ms) for item in advance.blocked] == [
            ("a", ("one", "c"), 1),
            ("b", ("one", "c"), 5),
        ]
        now = 5_000
        advance = active.advance("one")  # c is idle: a is the slowest now, and goes past the limit by one row
        assert splits() == {"a": (599, False), "b": (699, False), "c": (-1, True)}
        assert [(item.split, item.by) for item in advance.blocked] == [("b", ("one", "a"))]  # a may go on
    stands = {"a": 0, "b": 0}
    for row in lake.watermarks.rows("one"):
        before, stands = stands, {s["split"]: s["timestamp"] for s in row.splits if s["split"] in stands}
        moved = {name for name in stands if stands[name] > before[name]}
        past = {name for name in moved if stands[name] > min(before.values()) + 10}
        assert all(before[name] == min(before.values()) for name in past)


@pytest.mark.parametrize(("delay", "stop"), [("", 310), (" - INTERVAL '0.3' SECOND", 610)])
def test_a_delay_of_the_source_s_own_watermark_has_a_step_end_so_much_later(
    spark: SparkSession, tmp_path: Path, delay: str, stop: int
) -> None:
    """From the first row on, when none has shown yet how far its watermark stays behind."""
    lake = Lake(tmp_path)
    fast = (
        f"CREATE TABLE one (n BIGINT, at AS SYSTEM_ROWTIME(), WATERMARK FOR at AS SYSTEM_WATERMARK(){delay}) "
        f"WITH ('connector' = 'tape', {ALIGNED.format(drift='10 ms')});"
    )
    script = fast + SCRIPT.partition("\n")[2].partition("\n")[2].format(two=f", {ALIGNED.format(drift='10 ms')}")
    tape.write(lake, "one", {"0": []})
    tape.write(lake, "two", {"0": [{"n": 300}]})
    with Runner(compile_script(script), lake, spark=lambda: spark, clock=lambda: 0, environment={}) as active:
        assert active.advance("one").flipped
        active.advance("two")
        tape.write(lake, "one", {"0": [{"n": at, "_rowtime": at} for at in range(0, 2000, 10)]})
        first = active.advance("one", max_epochs=1).last
        assert first.rows == stop // 10 + 1
        (split,) = first.splits
        assert (split["rowtime"], split["timestamp"]) == (stop, 309)
