"""Two inputs, two outputs, broadcast state, plain functions and their watermarks, and what is used wrongly."""

from __future__ import annotations

import gc
import sys
from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.pipelines.runtime.processes import functions as fn
from tidegate.pipelines import process
from tidegate.pipelines.process import (
    Arrived,
    EventTimeExtension,
    FunctionRaised,
    InvalidDeclaration,
    LocalRun,
    LongWatermark,
    NotWrapped,
    OneInputEventTimeStreamProcessFunction,
    OneInputStreamProcessFunction,
    StateDeclarations,
    TwoInputBroadcastEventTimeStreamProcessFunction,
    TwoOutputEventTimeStreamProcessFunction,
    UndeclaredWatermark,
    WatermarkDeclarations,
    WatermarkHandlingResult,
)
from tidegate.pipelines.process.engine.binding import shape_of
from tidegate.pipelines.process.engine.epoch import TaskRun
from tidegate.pipelines.process.engine.steps import LandedStep, Steps, steps_of
from tidegate.pipelines.watermarks import MAX_TIMESTAMP, MIN_TIMESTAMP, Watermark

TIME, IDLE = "BUILTIN_API_EVENT_TIME", "BUILTIN_API_EVENT_TIME_IDLE"


class Row(NamedTuple):
    key: str
    value: int


def by_key(row: Row) -> str:
    return row.key


def wrapped(function: Any) -> LocalRun:
    return LocalRun(EventTimeExtension.wrap_process_function(function), by_key)


# --- two inputs -----------------------------------------------------------------------------------------------------

RULES = StateDeclarations.broadcast_state("rules", "STRING", "BIGINT")
COUNT = StateDeclarations.value_state("count", "BIGINT")


class Rules(TwoInputBroadcastEventTimeStreamProcessFunction):
    """Tells each value with the rule of its key as it is now; a rule 'all' asks every key for its count."""

    def uses_states(self):
        return (RULES, COUNT)

    def init_event_time_process_function(self, event_time_manager) -> None:
        self.time = event_time_manager

    def process_record_from_non_broadcast_input(self, record: Row, output, ctx) -> None:
        states = ctx.get_state_manager()
        states.get_state(COUNT).update((states.get_state(COUNT).value() or 0) + 1)
        self.time.register_timer(record.value)
        output.collect((record.key, record.value, states.get_state(RULES).get(record.key)))

    def process_record_from_broadcast_input(self, record: Row, ctx) -> None:
        ctx.get_state_manager().get_state(RULES).put(record.key, record.value)
        if record.key == "all":
            ctx.apply_to_all_partitions(self.tell_count)

    def tell_count(self, output, ctx) -> None:
        states = ctx.get_state_manager()
        rule = states.get_state(RULES).get("all")
        output.collect((states.get_current_key(), "count", states.get_state(COUNT).value(), rule))

    def on_event_timer(self, timestamp: int, output, ctx) -> None:
        states = ctx.get_state_manager()
        output.collect((states.get_current_key(), "timer", timestamp, states.get_state(RULES).get("a")))


ARRIVALS = [
    Arrived([Row("a", 4), Row("b", 6)]),
    Arrived([Row("a", 100)], input=1),
    Arrived([Row("a", 9)], Watermark(5)),
    Arrived([], Watermark(7), input=1),
    Arrived([Row("all", 1), Row("a", 200)], input=1),
    Arrived([Row("a", 8)], Watermark(6)),
    Arrived([], Watermark(MAX_TIMESTAMP), input=1),
    Arrived([], Watermark(MAX_TIMESTAMP)),
]
EMITTED = {
    "a": [
        ("a", 4, None),
        ("a", 9, 100),
        ("a", "timer", 4, 100),
        ("a", "count", 2, 1),
        ("a", 8, 200),
        ("a", "timer", 8, 200),
        ("a", "timer", 9, 200),
    ],
    "b": [("b", 6, None), ("b", "count", 1, 1), ("b", "timer", 6, 200)],
}


@pytest.mark.parametrize("cuts", [[8], [1] * 8, [2, 2, 1, 3], [4, 4]])
def test_every_key_meets_the_broadcast_state_of_its_step(cuts: list[int]) -> None:
    run, emitted, rest = wrapped(Rules()), {"a": [], "b": []}, list(ARRIVALS)
    for cut in cuts:
        for item in run.epoch(rest[:cut])[0]:
            emitted[item[0]].append(item)
        rest = rest[cut:]
    assert emitted == EMITTED
    assert run.broadcast == {"rules": {"a": 200, "all": 1}}
    assert run.emitted == {TIME: MAX_TIMESTAMP}


class Moments(Rules):
    """Tells, of each key, when what is asked of it landed."""

    def process_record_from_non_broadcast_input(self, record: Row, output, ctx) -> None:
        ctx.get_state_manager().get_state(COUNT).update(1)
        output.collect((record.key, self.time.processed_at()))

    def process_record_from_broadcast_input(self, record: Row, ctx) -> None:
        landed_at = self.time.processed_at()
        ctx.apply_to_all_partitions(lambda output, ctx: self.tell(landed_at, output, ctx))

    def tell(self, landed_at: int, output, ctx) -> None:
        output.collect((ctx.get_state_manager().get_current_key(), landed_at, self.time.processed_at()))


@pytest.mark.parametrize("cuts", [[4], [1] * 4, [3, 1]])
def test_before_any_watermark_a_broadcast_record_has_the_moment_at_which_it_landed(cuts: list[int]) -> None:
    rest = [
        Arrived([Row("a", 1)], at=100),
        Arrived([Row("x", 1)], input=1, at=110),
        Arrived([Row("b", 1)], at=120),
        Arrived([Row("x", 1)], input=1, at=130),
    ]
    run, emitted = wrapped(Moments()), []
    for cut in cuts:
        emitted += run.epoch(rest[:cut])[0]
        rest = rest[cut:]
    assert sorted(emitted) == [("a", 100), ("a", 110, 110), ("a", 130, 130), ("b", 120), ("b", 130, 130)]


def test_broadcast_state_is_copied_once_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    copies = []
    monkeypatch.setattr(
        "tidegate.pipelines.process.state.stores.dict", lambda entries: copies.append(1) or {**entries}, raising=False
    )
    run = wrapped(Rules())
    rows = [Row(f"k{number}", number) for number in range(50)]
    run.epoch([Arrived(rows, input=1), Arrived(rows, input=1)])
    assert (len(copies), len(run.broadcast["rules"])) == (2, 50)
    run.epoch([Arrived([Row("all", 1), Row("a", 2), Row("all", 3)], input=1)])
    assert (len(copies), run.broadcast["rules"]["all"]) == (4, 3)


class Pair(NamedTuple):
    k: str
    number: int
    rule: int = 0


def test_two_inputs_are_driven_by_the_lesser_watermark() -> None:
    run = LocalRun(EventTimeExtension.wrap_process_function(fn.Paired()), lambda pair: pair.k)
    waiting = [Pair("a", 1), Pair("b", 2), Pair("c", 90)]
    joined = run.epoch([Arrived(waiting, Watermark(50)), Arrived([Pair("a", 0, 3)], input=1)])
    assert joined == ([{"k": "a", "number": 1, "rule": 3}],)
    assert run.epoch([Arrived([], Watermark(12), input=1)]) == ([("b", 2, None)],)
    assert run.epoch([Arrived([], Watermark(200)), Arrived([], None, input=1, idle=True)]) == ([("c", 90, None)],)
    assert run.state == {}


class Split(TwoOutputEventTimeStreamProcessFunction):
    """Values to the first output; what the watermark does, to the second."""

    def init_event_time_process_function(self, event_time_manager) -> None:
        self.time = event_time_manager

    def process_record(self, record: Row, output1, output2, ctx) -> None:
        output1.collect(record)
        self.time.register_timer(record.value)

    def on_event_time_watermark(self, watermark_timestamp: int, output1, output2, ctx) -> None:
        output2.collect(("watermark", watermark_timestamp))

    def on_event_timer(self, timestamp: int, output1, output2, ctx) -> None:
        output2.collect((ctx.get_state_manager().get_current_key(), timestamp))


def test_two_outputs() -> None:
    run = wrapped(Split())
    rows = [Row("a", 5), Row("b", 6)]
    values, marks = run.epoch([Arrived(rows, Watermark(5)), Arrived([], Watermark(8))])
    assert values == rows
    assert sorted(map(str, marks)) == sorted(map(str, [("watermark", 5), ("watermark", 8), ("a", 5), ("b", 6)]))


# --- plain functions ------------------------------------------------------------------------------------------------

PROGRESS = WatermarkDeclarations.new_builder("progress").type_long().combine_function_max().build()
DONE = WatermarkDeclarations.new_builder("done").type_bool().build()


class Plainly(OneInputStreamProcessFunction):
    """Keeps idleness for itself, and tells its own progress."""

    def __init__(self, answer: object = WatermarkHandlingResult.PEEK) -> None:
        self.answer = answer

    def watermark_declarations(self):
        return (PROGRESS,)

    def process_record(self, record: Row, output, ctx) -> None:
        manager = ctx.get_non_partitioned_context().get_watermark_manager()
        manager.emit_watermark(PROGRESS.new_watermark(record.value))

    def on_watermark(self, watermark, output, ctx):
        output.collect((watermark.identifier, watermark.value))
        return WatermarkHandlingResult.POP if EventTimeExtension.is_idle_status_watermark(watermark) else self.answer


def test_a_plain_function_handles_and_emits_watermarks() -> None:
    run = LocalRun(Plainly(), by_key)
    (emitted,) = run.epoch([Arrived([Row("a", 3), Row("b", 8), Row("a", 5)], Watermark(7)), Arrived([], idle=True)])
    assert emitted == [(TIME, 7), (IDLE, True)]
    assert run.emitted == {"progress": 8, TIME: 7}  # MAX over the keys, idleness was popped
    popped = LocalRun(Plainly(WatermarkHandlingResult.POP), by_key)
    popped.epoch([Arrived([Row("a", 3)], Watermark(7))])
    assert popped.emitted == {"progress": 3}


def test_of_many_keys_one_watermark_is_stored() -> None:
    def watermarks() -> int:
        return sum(isinstance(item, LongWatermark) for item in gc.get_objects())

    run, before = LocalRun(Plainly(), by_key), watermarks()
    rows = [Row(f"k{number}", number) for number in range(1_000)]
    task = TaskRun(Plainly(), Steps(0, (0,), 0, (0,)))
    for row in rows:
        task.key(row.key, None, [(0, row), (0, Row(row.key, row.value // 2))])
    assert task.emitted() == {"progress": 499}  # of each key its last
    assert watermarks() - before < 10
    run.epoch([Arrived(rows)])
    assert run.emitted == {"progress": 999}


def test_declared_watermarks_of_inputs_are_combined_and_handed_on() -> None:
    landed = [
        LandedStep("x", Watermark(1), declared=(PROGRESS.new_watermark(4),)),
        LandedStep("y", Watermark(1), declared=(PROGRESS.new_watermark(2), DONE.new_watermark(True))),
        LandedStep("y", Watermark(2), declared=(PROGRESS.new_watermark(9),)),
    ]
    whole, _ = steps_of(["x", "y"], landed, declarations=[PROGRESS, DONE])
    assert whole.handed_on == (
        (),
        (PROGRESS.new_watermark(4),),
        (DONE.new_watermark(True),),
        (PROGRESS.new_watermark(9),),
    )
    later, _ = steps_of(["x", "y"], landed[2:], before=landed[:2], declarations=[PROGRESS, DONE])
    assert later.handed_on == ((), (PROGRESS.new_watermark(9),))


class Hears(OneInputStreamProcessFunction):
    """Emits every watermark that it is handed, and returns the results that it was made with."""

    def __init__(self, answer: WatermarkHandlingResult = WatermarkHandlingResult.PEEK) -> None:
        self.answer = answer

    def process_record(self, record: Row, output, ctx) -> None:
        output.collect(record)

    def on_watermark(self, watermark, output, ctx):
        output.collect((watermark.identifier, watermark.value))
        return self.answer


QUIET = WatermarkDeclarations.new_builder("quiet").type_long().default_handling_strategy_ignore().build()


@pytest.mark.parametrize("cuts", [[4], [1, 1, 1, 1], [2, 2]])
def test_on_watermark_gets_every_declared_watermark(cuts: list[int]) -> None:
    arrived = [
        Arrived([Row("a", 1)], told=(PROGRESS.new_watermark(4), DONE.new_watermark(False))),
        Arrived([Row("a", 2)], Watermark(3)),
        Arrived([], told=(PROGRESS.new_watermark(2), QUIET.new_watermark(1))),
        Arrived([], told=(QUIET.new_watermark(1), DONE.new_watermark(True))),
    ]
    run, emitted, sent = LocalRun(Hears(), by_key, (PROGRESS, DONE, QUIET)), [], {}
    for cut in cuts:
        emitted += run.epoch(arrived[:cut])[0]
        sent |= run.emitted
        arrived = arrived[cut:]
    heard = [("progress", 4), ("done", False), (TIME, 3), ("progress", 2), ("quiet", 1), ("done", True)]
    assert [item for item in emitted if not isinstance(item, Row)] == heard
    assert sent == {"progress": 2, "done": True, TIME: 3}  # `quiet` is ignored unless it is sent again
    kept = LocalRun(Hears(WatermarkHandlingResult.POP), by_key, (PROGRESS,))
    kept.epoch([Arrived([], Watermark(3), told=(PROGRESS.new_watermark(4),))])
    assert kept.emitted == {}
    with pytest.raises(UndeclaredWatermark, match="'progress' is not declared"):
        LocalRun(Hears(), by_key).epoch([Arrived([], told=(PROGRESS.new_watermark(4),))])


class TellsTime(OneInputStreamProcessFunction):
    """The seed's CustomProcessFunction: event time out of its own records."""

    def watermark_declarations(self):
        return (EventTimeExtension.EVENT_TIME_WATERMARK_DECLARATION,)

    def process_record(self, record: Row, output, ctx) -> None:
        watermark = EventTimeExtension.EVENT_TIME_WATERMARK_DECLARATION.new_watermark(record.value)
        ctx.get_non_partitioned_context().get_watermark_manager().emit_watermark(watermark)
        output.collect(record)


def test_the_systems_time_is_no_watermark_that_goes_on() -> None:
    now = Watermark(MIN_TIMESTAMP, True)
    run = LocalRun(TellsTime(), by_key)
    run.epoch([Arrived([Row("a", 5)], now, at=1_000)], now=1_001)
    assert run.emitted == {TIME: 5}
    run.epoch([Arrived([], now, at=1_002)], now=1_003)
    assert run.emitted == {}
    assert shape_of(TellsTime()).tells_time
    assert not shape_of(Plainly()).tells_time


# --- used wrongly ---------------------------------------------------------------------------------------------------


class Misused(OneInputEventTimeStreamProcessFunction):
    """Does one wrong thing."""

    def __init__(self, wrong: Any, at: str = "record") -> None:
        self.wrong, self.at = wrong, at

    def uses_states(self):
        return (COUNT,)

    def init_event_time_process_function(self, event_time_manager) -> None:
        self.time = event_time_manager
        if self.at == "init":
            self.wrong(self, None)

    def open(self, ctx) -> None:
        if self.at == "open":
            self.wrong(self, ctx)

    def process_record(self, record: Row, output, ctx) -> None:
        if self.at == "record":
            self.wrong(self, ctx)
        self.time.register_timer(record.value)

    def on_event_time_watermark(self, watermark_timestamp: int, output, ctx) -> None:
        if self.at == "watermark":
            self.wrong(self, ctx)

    def on_event_timer(self, timestamp: int, output, ctx) -> None:
        if self.at == "timer":
            self.wrong(self, ctx)


class Unprintable(Exception):
    """Its text cannot be made."""

    def __str__(self) -> str:
        raise ValueError


def silent() -> None:
    raise Unprintable


OTHER = StateDeclarations.value_state("other", "INT")
AS_LIST = StateDeclarations.list_state("count", "BIGINT")


@pytest.mark.parametrize(
    ("wrong", "at", "expected"),
    [
        (lambda f, ctx: f.time.register_timer(1), "watermark", r"at watermark 7: NotKeyed: a timer needs a key"),
        (lambda f, ctx: f.time.delete_timer(1), "open", r"at open: NotKeyed: a timer needs a key"),
        (
            lambda f, ctx: f.nothing,
            "init",
            r"Misused failed at init_event_time_process_function: AttributeError: .* \(test_functions.py:\d+\)",
        ),
        (lambda f, ctx: f.time.register_timer("soon"), "record", r"InvalidDeclaration: a timer's time"),
        (lambda f, ctx: f.time.register_timer(True), "record", r"InvalidDeclaration: a timer's time"),
        (lambda f, ctx: f.time.register_timer(2**63), "record", r"InvalidDeclaration: a timer's time"),
        (lambda f, ctx: f.time.delete_timer("soon"), "record", r"InvalidDeclaration: a timer's time .* not 'soon'"),
        (lambda f, ctx: sys.exit(3), "record", r"failed at key 'a', record Row\(key='a', value=5\): SystemExit: 3"),
        (lambda f, ctx: sys.exit(3), "timer", r"failed at key 'a', timer 5: SystemExit: 3"),
        (
            lambda f, ctx: silent(),
            "record",
            r"failed at key 'a', record .*: Unprintable: <exception str\(\) failed> \(test_functions.py:\d+\)",
        ),
        (
            lambda f, ctx: ctx.get_state_manager().get_state(OTHER),
            "record",
            r"key 'a', record Row\(key='a', value=5\): UndeclaredState: state 'other' .*\(declared are count\)",
        ),
        (
            lambda f, ctx: ctx.get_state_manager().get_state("nope"),
            "record",
            r"UndeclaredState: state 'nope' .*\(declared are count\)",
        ),
        (
            lambda f, ctx: ctx.get_state_manager().get_state("count"),
            "record",
            "InvalidDeclaration: state 'count' is declared as a value state, BIGINT, and asked for as 'count', which",
        ),
        (
            lambda f, ctx: ctx.get_state_manager().get_state(AS_LIST),
            "record",
            "declared as a value state, BIGINT, and asked for as a list state, ARRAY<BIGINT>",
        ),
        (
            lambda f, ctx: ctx.get_watermark_manager().emit_watermark(5),
            "watermark",
            "InvalidDeclaration: 5 is no watermark",
        ),
        (lambda f, ctx: ctx.get_state_manager().get_state(COUNT).value(), "watermark", "NotKeyed: state 'count'"),
        (lambda f, ctx: ctx.get_state_manager().get_current_key(), "watermark", "NotKeyed: the current key"),
        (
            lambda f, ctx: ctx.get_non_partitioned_context().apply_to_all_partitions(print),
            "record",
            "NotKeyed: apply_to_all_partitions",
        ),
        (
            lambda f, ctx: ctx.get_watermark_manager().emit_watermark(PROGRESS.new_watermark(1)),
            "open",
            "UndeclaredWatermark: watermark 'progress' is not declared",
        ),
        (lambda f, ctx: 1 / 0, "record", r"failed at key 'a', record .*ZeroDivisionError.*\(test_functions.py:\d+\)"),
        (lambda f, ctx: 1 / 0, "timer", r"process function Misused failed at key 'a', timer 5: ZeroDivisionError"),
    ],
)
def test_wrong_use_names_key_and_record(wrong: Any, at: str, expected: str) -> None:
    with pytest.raises(FunctionRaised, match=expected) as raised:
        wrapped(Misused(wrong, at)).epoch([Arrived([Row("a", 5)], Watermark(7))])
    assert "\n" not in str(raised.value)


def test_an_error_is_short_however_long_the_record_is() -> None:
    def shout(function: Any, ctx: Any) -> None:
        raise ValueError("y" * 1_000_000)

    with pytest.raises(FunctionRaised) as raised:
        wrapped(Misused(shout)).epoch([Arrived([Row("a" * 1_000_000, 5)])])
    text = str(raised.value)
    assert len(text) < 2_000
    assert "key 'aaaa" in text
    assert "record Row(key='aaaa" in text
    assert "ValueError: yyyy" in text
    assert "(1,000,002 characters)" in text


def test_a_watermark_is_declared_once_and_in_one_way() -> None:
    least = WatermarkDeclarations.new_builder("progress").type_long().build()
    with pytest.raises(InvalidDeclaration, match=r"in two ways \(a long, MAX, FORWARD and a long, MIN, FORWARD\)"):
        LocalRun(Plainly(), by_key, [least]).epoch([])
    for wrong, message in [((PROGRESS, least), "in two ways"), ((5,), "5 is no watermark declaration")]:
        function = Plainly()
        function.watermark_declarations = lambda wrong=wrong: wrong  # type: ignore[method-assign]
        with pytest.raises(InvalidDeclaration, match=message):
            shape_of(function)


def test_a_timer_may_be_a_number_of_another_library() -> None:
    def both(function: Any, ctx: Any) -> None:
        function.time.register_timer(np.int64(3))
        function.time.register_timer(np.int64(4))
        function.time.delete_timer(np.int64(4))

    run = wrapped(Misused(both))
    run.epoch([Arrived([Row("a", 5)])])
    assert run.state == {"a": {"timers": [3, 5]}}
    assert {type(timer) for timer in run.state["a"]["timers"]} == {int}


class Periodic(Split):
    """Sets its timer again whenever it fires."""

    def on_event_timer(self, timestamp: int, output1, output2, ctx) -> None:
        self.time.register_timer(timestamp + 10)
        output2.collect(timestamp)


def test_a_timer_that_is_always_set_again_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.pipelines.process.engine.epoch.MOST_FIRINGS", 5)
    run = wrapped(Periodic())
    assert run.epoch([Arrived([Row("a", 10)], Watermark(50)), Arrived([], Watermark(90))])[1][2:] == [
        *range(10, 100, 10)
    ]
    with pytest.raises(
        FunctionRaised, match=r"Periodic failed at key 'a', timer 150: 5 timers have fired as .* end of"
    ):
        run.epoch([Arrived([], Watermark(MAX_TIMESTAMP))])


def test_broadcast_state_is_not_written_from_the_other_input() -> None:
    class Writes(Rules):
        def process_record_from_non_broadcast_input(self, record: Row, output, ctx) -> None:
            ctx.get_state_manager().get_state(RULES).put(record.key, 1)

    with pytest.raises(FunctionRaised, match=r"key 'a', .*BroadcastReadOnly: broadcast state 'rules'"):
        wrapped(Writes()).epoch([Arrived([Row("a", 5)])])


def test_functions_that_cannot_be_run() -> None:
    with pytest.raises(NotWrapped, match=r"wrap_process_function\(Split\(\)\)"):
        shape_of(Split())
    with pytest.raises(InvalidDeclaration, match="no process function"):
        shape_of(print)
    with pytest.raises(InvalidDeclaration, match="no event-time process function"):
        EventTimeExtension.wrap_process_function(Plainly())  # type: ignore[arg-type]
    with pytest.raises(InvalidDeclaration, match="is wrapped already"):
        EventTimeExtension.wrap_process_function(EventTimeExtension.wrap_process_function(Split()))  # type: ignore[arg-type]

    class Both(OneInputEventTimeStreamProcessFunction, TwoOutputEventTimeStreamProcessFunction):
        pass

    for wrong in (Both(), process.EventTimeProcessFunction()):
        with pytest.raises(InvalidDeclaration, match=f"{type(wrong).__name__} is derived from one of OneInputEvent"):
            EventTimeExtension.wrap_process_function(wrong)

    class Odd(Split):
        def uses_states(self):
            return (RULES,)

    with pytest.raises(InvalidDeclaration, match="no broadcast input"):
        shape_of(EventTimeExtension.wrap_process_function(Odd()))

    class Yields(Plainly):
        def process_record(self, record: Row, output, ctx):
            yield record

    class Waits(Split):
        async def on_event_timer(self, timestamp: int, output1, output2, ctx) -> None:
            output1.collect(timestamp)

    with pytest.raises(InvalidDeclaration, match="process_record of Yields yields or waits: hand records to output"):
        LocalRun(Yields(), by_key)
    with pytest.raises(InvalidDeclaration, match="on_event_timer of Waits yields or waits"):
        wrapped(Waits())
    with pytest.raises(FunctionRaised, match="on_watermark must return PEEK or POP, not None"):
        LocalRun(Plainly(None), by_key).epoch([Arrived([], Watermark(1))])


@pytest.mark.parametrize(
    ("function", "kind", "calls"),
    [
        (Misused(lambda f, ctx: None), process.OneInputStreamProcessFunction, {"process_record": 3}),
        (
            Rules(),
            process.TwoInputBroadcastStreamProcessFunction,
            {"process_record_from_non_broadcast_input": 3, "process_record_from_broadcast_input": 2},
        ),
        (
            fn.Paired(),
            process.TwoInputNonBroadcastStreamProcessFunction,
            {"process_record_from_first_input": 3, "process_record_from_second_input": 3},
        ),
        (Split(), process.TwoOutputStreamProcessFunction, {"process_record": 4}),
    ],
)
def test_a_wrapped_function_is_a_plain_one(function: Any, kind: type, calls: dict[str, int]) -> None:
    """Of its own kind, and whatever it is called with goes to the function."""
    known: Any = EventTimeExtension.wrap_process_function(function)
    assert isinstance(known, kind)
    assert known.uses_states() == function.uses_states()
    assert known.watermark_declarations() == function.watermark_declarations()
    seen: list[tuple] = []
    outputs = 2 if kind is process.TwoOutputStreamProcessFunction else 1
    calls = {**calls, "open": 1, "close": 0}
    for name in [*calls, "on_event_time_watermark", "on_watermark"]:
        setattr(function, name, lambda *given, name=name: seen.append((name, *given)))
    for name, arguments in calls.items():
        getattr(known, name)(*range(arguments))
    channels = tuple(range(outputs + 1))
    time = EventTimeExtension.EVENT_TIME_WATERMARK_DECLARATION.new_watermark(7)
    assert known.on_watermark(time, *channels) is WatermarkHandlingResult.PEEK
    known.on_watermark(PROGRESS.new_watermark(1), *channels)
    assert seen == [
        *((name, *range(arguments)) for name, arguments in calls.items()),
        ("on_event_time_watermark", 7, *channels),
        ("on_watermark", PROGRESS.new_watermark(1), *channels),
    ]


def test_what_is_public_can_be_imported() -> None:
    assert all(getattr(process, name) is not None for name in process.__all__)
    names = {"EventTimeExtractor", "MapState", "StateDeclaration", "LongCombine", "TwoOutputPartitionedContext"}
    assert names <= set(process.__all__)


class AskedOnce(OneInputEventTimeStreamProcessFunction):
    """Has its state in hands from the beginning."""

    def uses_states(self):
        return (COUNT,)

    def open(self, ctx) -> None:
        self.count = ctx.get_state_manager().get_state(COUNT)

    def process_record(self, record: Row, output, ctx) -> None:
        assert ctx.get_state_manager().get_state(COUNT) is self.count
        self.count.update((self.count.value() or 0) + record.value)
        output.collect((record.key, self.count.value()))


def test_a_state_that_is_asked_for_once_is_that_of_the_current_key() -> None:
    run = wrapped(AskedOnce())
    assert run.epoch([Arrived([Row("a", 1), Row("b", 10), Row("a", 2)])])[0] == [("a", 1), ("a", 3), ("b", 10)]
    assert run.epoch([Arrived([Row("b", 5)])])[0] == [("b", 15)]


def test_state_kept_in_attributes_is_lost_with_the_epoch() -> None:
    class Remembers(OneInputStreamProcessFunction):
        def __init__(self) -> None:
            self.seen: list[int] = []

        def process_record(self, record: Row, output, ctx) -> None:
            self.seen.append(record.value)
            output.collect(len(self.seen))

    run = LocalRun(Remembers(), by_key)
    assert run.epoch([Arrived([Row("a", 1), Row("a", 2)])]) == ([1, 2],)
    assert run.epoch([Arrived([Row("a", 3)])]) == ([1],)
    assert run._time == MIN_TIMESTAMP
