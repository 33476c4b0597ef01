"""The loop alone: when it ticks, when it leaves, and what it makes of a held epoch."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.pipelines.sources.mysql_cdc.binlog.made import COLLATIONS, FILE, START, TABLE, Log
from tidegate.pipelines.errors import (
    ConcurrentRun,
    DefinitionChanged,
    GateHeld,
    LakeError,
    LeaseHeld,
    SourceError,
    SourceUnreachable,
    TidegateError,
)
from tidegate.pipelines.process import EventTimeExtension, OneInputEventTimeStreamProcessFunction
from tidegate.pipelines.runtime.continuous import Continuous, Tick
from tidegate.pipelines.runtime.failures import StepFailed
from tidegate.pipelines.runtime.landing.advances import Advance, LandedEpoch
from tidegate.pipelines.runtime.landing.alignment import Blocked, GroupPosition
from tidegate.pipelines.runtime.runner import Released
from tidegate.pipelines.sources.mysql_cdc.binlog.decoder import Decoder
from tidegate.pipelines.sources.mysql_cdc.binlog.model import BinlogPosition
from tidegate.pipelines.sources.mysql_cdc.errors import SchemaChanged
from tidegate.pipelines.sql import compile_script
from tidegate.pipelines.testing import Harness
from tidegate.pipelines.watermarks import PROCESSING_TIME, TickScheduler, Timers, WatermarkStrategy


def insert(name: str, *builds: str, time: str = "processing", latest: tuple[str, ...] = ()) -> SimpleNamespace:
    return SimpleNamespace(id=name, inputs=("click_event", *builds), time=time, beside=builds, by_latest=latest)


class ScriptedRunner:
    """Does as the test says, and writes down what it was asked for."""

    def __init__(self, **answers: Any) -> None:
        self.asked: list[str] = []
        self.answers = answers
        self.pipeline = SimpleNamespace(
            sources=[SimpleNamespace(name="user_info"), SimpleNamespace(name="click_event")],
            inserts=[insert("first", "user_info"), insert("second")],
        )
        self.stored: list[tuple[str, str]] = []
        self.shown = 0
        self.free: list[str] = []

    def show_completeness(self) -> None:
        self.shown += 1

    def stuck(self, owner: str, error: TidegateError) -> None:
        self.stored.append((owner, error.what))

    def advance_together(self, tables: Iterable[str]) -> dict[str, Advance | TidegateError]:
        done: dict[str, Advance | TidegateError] = {}
        for table in tables:
            try:
                done[table] = self._answer(table, Advance(table, 1, (), None))
            except TidegateError as error:
                done[table] = error
        return done

    def release(self, insert: str) -> Released:
        return self._answer(insert, Released(insert))

    def held(self, insert: str) -> GateHeld | None:
        """What the lake says is held: not what is being resolved, or was."""
        answer: Any = self.answers.get(f"lake:{insert}")
        return answer() if callable(answer) else answer

    def hand_on(self, insert: str) -> None:
        self.free.append(self._answer(f"lease:{insert}", insert))

    def _answer(self, name: str, usual: Any) -> Any:
        self.asked.append(name)
        answer = self.answers.get(name, usual)
        answer = answer() if callable(answer) else answer
        if isinstance(answer, Exception):
            raise answer
        return answer


def loop(runner: ScriptedRunner, **settings: Any) -> Continuous:
    settings = {"engine_lost": lambda: False, **settings}
    return Continuous(runner, every=0.0, **settings)  # type: ignore[arg-type]


def ticks_of(runner: ScriptedRunner, count: int, **settings: Any) -> list[Tick]:
    """So many ticks of the loop, which nothing ends before."""
    ticks: list[Tick] = []
    assert loop(runner, on_tick=ticks.append, **settings).run(max_ticks=count) == "limit"
    return ticks


def landed(phase: str, flipped: bool = False) -> Advance:
    return Advance("user_info", 1, (LandedEpoch(1, 1, 10, phase, "", flipped),), None)


def test_a_tick_lands_every_source_then_releases_every_insert() -> None:
    runner = ScriptedRunner()
    assert loop(runner).run(max_ticks=2) == "limit"
    assert runner.asked == ["user_info", "click_event", "first", "second"] * 2


def test_readers_see_how_far_it_is_every_ten_seconds() -> None:
    runner, times = ScriptedRunner(), iter(range(0, 400, 4))
    loop(runner, now=lambda: next(times)).run(max_ticks=3)
    few = runner.shown
    assert few >= 1
    loop(runner, now=lambda: 7.0).run(max_ticks=50)
    assert runner.shown == few + 1


def test_stop_is_seen_between_two_steps() -> None:
    stop = threading.Event()
    runner = ScriptedRunner(click_event=lambda: stop.set() or Advance("click_event", 1, (), None))
    ticks: list[Tick] = []
    assert loop(runner, stop=stop, on_tick=ticks.append).run() == "stopped"
    assert runner.asked == ["user_info", "click_event"]
    assert [tick.number for tick in ticks] == [1]


def test_a_stop_that_is_set_beforehand_starts_nothing() -> None:
    stop = threading.Event()
    stop.set()
    runner = ScriptedRunner()
    assert loop(runner, stop=stop).run() == "stopped"
    assert runner.asked == []


def test_a_held_epoch_stops_its_own_insert_only() -> None:
    held = GateHeld("the gate holds epoch 3 of first")
    ticks = ticks_of(ScriptedRunner(first=held), 2)
    assert [tick.held for tick in ticks] == [(held,), (held,)]
    assert [[item.insert for item in tick.releases] for tick in ticks] == [["second"], ["second"]]


def test_while_an_epoch_is_held_its_lease_is_free_and_who_has_it_is_waited_for() -> None:
    """What a person decides is done by another runner: it is held, worked on, held once more, and then it is not."""
    first, second = (GateHeld(f"the gate holds epoch {number} of first") for number in (3, 4))
    of_lake = iter([first, None, second, None])
    released = iter([first, LeaseHeld("insert first", "tidegate release"), Released("first")])
    runner = ScriptedRunner(first=lambda: next(released), **{"lake:first": lambda: next(of_lake)})
    active, ticks, known = loop(runner), list[Tick](), list[list[str]]()
    active.on_tick = lambda tick: (ticks.append(tick), known.append([*active.held]))
    assert active.run(max_ticks=5) == "limit"
    assert [tick.held for tick in ticks] == [(first,), (first,), (first,), (second,), ()]
    assert known == [["first"]] * 4 + [[]]
    assert runner.free == ["first"], "it is let go once, and taken when there is something to do"
    assert runner.asked.count("first") == 3
    assert [item.insert for item in ticks[-1].releases] == ["first", "second"]


def test_a_lease_whose_end_cannot_be_written_is_let_go_by_the_next_tick(caplog: pytest.LogCaptureFixture) -> None:
    """Nobody could decide until the loop ends: it is taken again, and let go once it can be."""
    first = GateHeld("the gate holds epoch 3 of first")
    end = iter([OSError(28, "No space left on device"), "first"])
    answers = {"lake:first": first, "lease:first": lambda: next(end)}
    runner = ScriptedRunner(first=first, **answers)
    assert [tick.held for tick in ticks_of(runner, 3)] == [(first,)] * 3
    assert runner.free == ["first"]
    assert runner.asked.count("first") == 2, "it is asked without its lease once that is free"
    assert "No space left on device" in caplog.text


def test_a_held_insert_that_could_not_be_looked_at_is_held_still() -> None:
    """Who decides about it meanwhile is waited for."""
    first = GateHeld("the gate holds epoch 3 of first")
    of_lake = iter([LakeError("it cannot be read"), None, None])
    released = iter([first, LeaseHeld("insert first", "tidegate discard"), Released("first")])

    def look() -> GateHeld | None:
        found = next(of_lake)
        if isinstance(found, LakeError):
            raise found
        return found

    active = loop(
        ScriptedRunner(first=lambda: next(released), **{"lake:first": look}), now=itertools.count(0, 100).__next__
    )
    ticks: list[Tick] = []
    active.on_tick = ticks.append
    assert active.run(max_ticks=4) == "limit"
    assert [tick.held for tick in ticks] == [(first,), (), (first,), ()]
    assert not active.held


def test_a_lease_that_another_runner_has_before_anything_is_held_ends_the_loop() -> None:
    with pytest.raises(LeaseHeld):
        loop(ScriptedRunner(first=LeaseHeld("insert first", "somebody"))).run()


GONE = SourceUnreachable("the server has gone")


class Seconds:
    """A time that goes on by a second a look."""

    def __init__(self) -> None:
        self.at = 0.0

    def __call__(self) -> float:
        self.at += 1.0
        return self.at


def test_a_table_that_fails_is_tried_again_ever_more_seldom_while_the_others_go_on() -> None:
    runner, seconds = ScriptedRunner(user_info=GONE), [0.0]
    tried: list[float] = []

    def a_second_later(tick: Tick) -> None:
        tried.extend([seconds[0]] if runner.asked.count("user_info") > len(tried) else [])
        seconds[0] += 1.0

    active = loop(runner, now=lambda: seconds[0], on_tick=a_second_later)
    assert active.run(max_ticks=250) == "limit"
    assert tried == [0, 1, 3, 7, 15, 31, 63, 123, 183, 243]
    assert runner.asked.count("click_event") == 250
    assert runner.stored == [("user_info", "the server has gone")], "what is stored for alerts is stored once"
    assert active.stuck["user_info"].attempts == 10


class SharedLog:
    """A binlog that ten tables are read from, each by the decoder; in its second transaction t3 has lost its key."""

    def __init__(self) -> None:
        self.log, self.written = Log(), 0
        self.read: dict[str, list[int]] = {f"t{number}": [] for number in range(10)}

    def write(self) -> None:
        """A transaction of one row of every table."""
        self.written += 1
        self.log.gtid()
        for number, name in enumerate(self.read):
            altered = name == "t3" and self.written > 1
            column = b"\x01\x01\x00\x04\x06\x05other" if altered else b"\x01\x01\x00\x04\x03\x02id"
            self.log.table_map(number, name.encode(), column)
            self.log.rows(self.written, table_id=number)
        self.log.xid()

    def advance(self, name: str) -> Advance:
        end = BinlogPosition(FILE, self.log.position)
        decoder = Decoder(replace(TABLE, name=name), COLLATIONS, start=START, end=end)
        batches = list(decoder.feed(self.log.chunk()))
        self.read[name] = [row for batch in batches for row in batch.column("id").to_pylist()]
        return Advance(name, 1, (), None)


def test_one_table_of_ten_is_stuck_on_the_log_they_share_and_the_nine_go_on() -> None:
    shared = SharedLog()
    runner = ScriptedRunner(**{name: lambda name=name: shared.advance(name) for name in shared.read})
    runner.pipeline.sources[:] = [SimpleNamespace(name=name) for name in shared.read]
    runner.pipeline.inserts[:] = [insert(f"of_{name}", name) for name in shared.read]
    ticks: list[Tick] = []

    def goes_on(tick: Tick) -> None:
        ticks.append(tick)
        shared.write()

    shared.write()
    assert loop(runner, now=Seconds(), on_tick=goes_on).run(max_ticks=3) == "limit"
    nine = [name for name in shared.read if name != "t3"]
    assert {tuple(shared.read[name]) for name in nine} == {(1, 2, 3)}
    assert shared.read["t3"] == [1]
    assert [[item.owner for item in tick.stuck] for tick in ticks] == [[], ["t3"], ["t3"]]
    assert isinstance(ticks[1].stuck[0].error, SchemaChanged)
    assert runner.stored == [("t3", ticks[1].stuck[0].error.what)], "stored for alerts in the tick that fails"
    for tick in ticks[1:]:
        assert [item.insert for item in tick.releases] == [f"of_{name}" for name in nine]


def test_an_insert_waits_for_a_stuck_build_in_processing_time_and_for_none_in_event_time() -> None:
    runner = ScriptedRunner(user_info=GONE)
    runner.pipeline.inserts.append(insert("third", "user_info", time="event"))
    runner.pipeline.inserts.append(insert("by both", "user_info", time="event", latest=("user_info",)))
    loop(runner).run(max_ticks=1)
    assert runner.asked == ["user_info", "click_event", "second", "third"]


def test_a_process_of_several_inputs_waits_for_one_that_is_stuck_and_a_lone_one_for_none() -> None:
    runner = ScriptedRunner(click_event=GONE)
    inputs = ("user_info", "click_event")
    several = SimpleNamespace(id="p", inputs=inputs, time="processing", beside=inputs)
    lone = SimpleNamespace(id="q", inputs=("click_event",), time="processing", beside=())
    runner.pipeline.inserts[:] = [several, lone]
    loop(runner).run(max_ticks=1)
    assert runner.asked == ["user_info", "click_event", "q"]


def test_what_was_stuck_goes_on_where_it_stopped() -> None:
    answers = iter([GONE, Advance("user_info", 1, (), None)])
    runner = ScriptedRunner(user_info=lambda: next(answers))
    ticks = ticks_of(runner, 2, now=Seconds())
    assert [[item.owner for item in tick.stuck] for tick in ticks] == [["user_info"], []]
    assert runner.asked[-2:] == ["first", "second"]


def test_an_insert_that_fails_stops_no_other() -> None:
    failed = StepFailed("first: the disk is full")
    (tick,) = ticks_of(ScriptedRunner(first=failed), 1)
    assert [(item.owner, item.error) for item in tick.stuck] == [("insert first", failed)]
    assert [item.insert for item in tick.releases] == ["second"]


def test_it_gives_up_where_it_is_asked_to() -> None:
    runner, seconds = ScriptedRunner(user_info=GONE), Seconds()
    with pytest.raises(SourceUnreachable, match="has gone"):
        loop(runner, now=seconds, give_up_after=30.0).run()
    assert 30.0 <= seconds.at < 120.0
    with pytest.raises(SourceUnreachable, match="has gone"):
        loop(ScriptedRunner(user_info=GONE), give_up_after=0.0).run()


def test_a_first_tick_that_can_read_nothing_says_why_unless_its_servers_are_silent() -> None:
    wrong = SourceError("there is no such table")
    with pytest.raises(SourceError, match="no such table"):
        loop(ScriptedRunner(user_info=GONE, click_event=wrong)).run()
    assert loop(ScriptedRunner(user_info=GONE, click_event=GONE)).run(max_ticks=1) == "limit"
    assert loop(ScriptedRunner(user_info=wrong)).run(max_ticks=1) == "limit"


@pytest.mark.parametrize(
    "error",
    [
        LeaseHeld("user_info", "somebody"),
        ConcurrentRun("another runner was first"),
        DefinitionChanged("another text", where="", state="", next_command=""),
    ],
)
def test_what_no_retry_can_mend_ends_the_loop(error: TidegateError) -> None:
    runner = ScriptedRunner(user_info=error)
    with pytest.raises(type(error)):
        loop(runner).run()
    assert runner.stored == []


def test_without_an_engine_no_step_is_tried_again() -> None:
    with pytest.raises(StepFailed):
        loop(ScriptedRunner(user_info=StepFailed("connection refused")), engine_lost=lambda: True).run()


def test_a_step_whose_engine_is_taken_away_after_stop_is_abandoned() -> None:
    stop = threading.Event()
    gone = SourceError("the engine has gone")
    active = loop(ScriptedRunner(user_info=lambda: stop.set() or gone), stop=stop, engine_lost=lambda: True)
    assert active.run() == "abandoned"
    assert active.abandoned_by is gone


def test_its_workers_may_go_a_moment_before_it() -> None:
    stop, asked = threading.Event(), iter([False, True])
    runner = ScriptedRunner(user_info=lambda: stop.set() or SourceError("a worker has gone"))
    assert loop(runner, stop=stop, engine_lost=lambda: next(asked)).run() == "abandoned"


def test_a_step_that_fails_by_itself_fails_though_it_was_to_be_the_last() -> None:
    stop = threading.Event()
    runner = ScriptedRunner(user_info=lambda: stop.set() or SourceError("the binlog has been purged"))
    with pytest.raises(SourceError, match="purged"):
        loop(runner, stop=stop, engine_lost=lambda: False).run()


def unreadable() -> GateHeld | None:
    raise LakeError("the table verdicts cannot be read")


@pytest.mark.parametrize(
    ("afterwards", "still"),
    [
        (lambda: None, []),
        (lambda: GateHeld("the gate holds epoch 4 of first"), ["first"]),
        (unreadable, ["first"]),
    ],
    ids=["decided since", "held anew", "cannot be looked at"],
)
def test_what_is_held_in_the_end_is_what_the_lake_says_then(
    afterwards: Callable[[], GateHeld | None], still: list[str]
) -> None:
    """Also of an INSERT that was not asked any more, or whose release failed after somebody had decided about it."""
    answers: Iterator[Any] = iter([GateHeld("the gate holds epoch 3 of first"), SourceError("Spark ran out of memory")])
    runner = ScriptedRunner(first=lambda: next(answers))
    active = loop(runner)
    active.run(max_ticks=2)
    assert list(active.stuck) == ["insert first"]
    runner.answers["lake:first"] = afterwards
    assert active.still_held() == still


def test_a_mistake_of_the_program_is_never_an_abandoned_step() -> None:
    stop = threading.Event()
    active = loop(ScriptedRunner(user_info=lambda: stop.set() or KeyError("x")), stop=stop, engine_lost=lambda: True)
    with pytest.raises(KeyError):
        active.run()


@pytest.mark.parametrize(
    ("advance", "behind"),
    [
        (landed("bounded"), True),
        (landed("bounded", flipped=True), False),
        (landed("unbounded"), False),
        (Advance("user_info", 1, (), None), False),
    ],
)
def test_a_source_inside_its_bounded_phase_is_behind(advance: Advance, behind: bool) -> None:
    assert Tick(1, (advance,), (), (), 0.1).behind is behind


def waits_of(runner: ScriptedRunner, count: int) -> list[float]:
    """How long a loop that ticks every hour waits between ticks; it does not."""
    waits: list[float] = []
    stop = threading.Event()
    stop.wait = lambda timeout=None: waits.append(timeout or 0.0) or False  # type: ignore[method-assign]
    Continuous(runner, every=3600.0, stop=stop).run(max_ticks=count)  # type: ignore[arg-type]
    return waits


def test_it_waits_between_ticks_unless_a_source_is_behind() -> None:
    answers = iter([landed("bounded"), landed("unbounded")])
    runner = ScriptedRunner(user_info=lambda: next(answers))
    (wait,) = waits_of(runner, 2)
    assert 0.0 < wait <= 3600.0


def test_a_blocked_source_looks_again_at_its_group_s_update_interval() -> None:
    aligned = WatermarkStrategy.no_watermarks().with_watermark_alignment("g", timedelta(0), timedelta(seconds=2))
    position = GroupPosition("g", 0, 5, 5, ("b", "0"), (Blocked("0", 0, 10, ("b", "0")),))
    runner = ScriptedRunner(user_info=Advance("user_info", 1, (), None, position))
    runner.strategy = lambda table: aligned  # type: ignore[attr-defined]
    assert 0.0 < waits_of(runner, 1)[0] <= 2.0


def test_timers_of_one_s_own_look_at_the_clock_at_every_tick() -> None:
    fired: list[tuple[object, int]] = []
    now = [0]
    scheduler = TickScheduler()
    active = loop(ScriptedRunner(), on_tick=lambda tick: scheduler.tick())
    timers = Timers(lambda key, time: fired.append((key, time)), lambda: now[0], scheduler)
    timers.register("a", 5)
    timers.advance(PROCESSING_TIME)
    active.run(max_ticks=1)
    assert fired == []
    now[0] = 5
    active.run(max_ticks=1)
    assert fired == [("a", 5)]


class CountedUpkeep:
    """Always has more to do."""

    def __init__(self) -> None:
        self.pieces = 0

    def piece(self) -> bool:
        self.pieces += 1
        return True


def test_a_tick_that_is_late_already_does_one_piece_of_upkeep() -> None:
    upkeep = CountedUpkeep()
    loop(ScriptedRunner(), upkeep=upkeep).run(max_ticks=3)
    assert upkeep.pieces == 3


# --- timers by the system's time: from (t, true) on every tick looks at the clock -------------------------------------


SCRIPT = "CREATE TABLE events (k STRING, due BIGINT) WITH ('connector' = 'scripted')"


class Reminded(OneInputEventTimeStreamProcessFunction):
    """Tells each key at the `due` of its record."""

    def init_event_time_process_function(self, event_time_manager) -> None:
        self.time = event_time_manager

    def process_record(self, record, output, ctx) -> None:
        self.time.register_timer(record.due)

    def on_event_timer(self, timestamp: int, output, ctx) -> None:
        output.collect((ctx.get_state_manager().get_current_key(), timestamp))


def test_a_pending_timer_fires_at_the_tick_that_its_time_has_come_without_a_row(
    spark: SparkSession, tmp_path: Path
) -> None:
    function = EventTimeExtension.wrap_process_function(Reminded())
    pipeline = compile_script(SCRIPT).process("timed", "events", "k", function, "k STRING, at BIGINT", buckets=1)
    now = [10]
    harness = Harness(pipeline, spark, tmp_path, clock=lambda: now[0])
    harness.push("events", [{"k": "a", "due": 50}])
    harness.end_of_snapshot("events")
    clock = iter([49, 50, 50])
    seen: list[tuple[bool, list[tuple[str, int]]]] = []

    def tell(tick: Tick) -> None:
        landed = any(advance.epochs for advance in tick.advances)
        seen.append((landed, [(row["k"], row["at"]) for row in harness.published("timed")]))
        now[0] = next(clock)

    assert Continuous(harness.runner, every=0.0, on_tick=tell).run(max_ticks=3) == "limit"
    assert seen == [(True, []), (False, []), (False, [("a", 50)])]
