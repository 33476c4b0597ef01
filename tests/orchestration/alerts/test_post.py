"""Rounds to channels that are slow, hang, or fail in ways that nobody has foreseen."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from threading import Event

import pytest

from tidegate.orchestration.alerts import Incident, Message, post
from tidegate.orchestration.alerts.channels import Channel, Undelivered
from tidegate.orchestration.alerts.memory import Memory
from tidegate.orchestration.alerts.post import LONGEST_WAIT_S, MOST_PENDING

LOG = logging.getLogger("tests.alerts")
LONG_S = 60.0
"""Longer than anything of these tests takes."""


def message(key: str) -> Message:
    return Message(Incident(key, "run-failed", f"{key} failed"))


@dataclass
class Scripted:
    """A channel that does to a message what the test says; it takes the others."""

    name: str
    does: Callable[[str], None] = lambda key: None
    got: list[str] = field(default_factory=list)

    def send(self, message: Message) -> None:
        self.got.append(message.incident.key)
        self.does(message.incident.key)


@dataclass
class Slow:
    """Keeps messages under way until it is `released`; then it takes them, or fails."""

    keys: Sequence[str] = ()
    error: Exception | None = None
    released: Event = field(default_factory=Event)

    def __call__(self, key: str) -> None:
        if key in self.keys or not self.keys:
            self.released.wait()
            if self.error is not None:
                raise self.error

    def answers(self, under_way: dict[post.Id, Future[None]]) -> None:
        self.released.set()
        assert not wait(under_way.values(), LONG_S).not_done


@pytest.fixture(autouse=True)
def under_way(monkeypatch: pytest.MonkeyPatch) -> dict[post.Id, Future[None]]:
    """What is under way in this process: nothing of other tests. Nobody is waited for in vain."""
    found: dict[post.Id, Future[None]] = {}
    monkeypatch.setattr(post, "_under_way", found)
    monkeypatch.setattr(post, "SEND_FOR_S", LONG_S)
    monkeypatch.setattr(post, "ANSWER_S", LONG_S)
    return found


@dataclass
class Ticks:
    """Ticks of one sensor, far enough from each other that any channel is tried again."""

    channels: list[Channel]
    memory: Memory = field(default_factory=Memory)
    now: float = 0.0

    def __call__(self, *keys: str) -> None:
        self.now += 2 * LONGEST_WAIT_S
        memory = Memory.of(self.memory.cursor())
        self.memory = memory.delivered([message(key) for key in keys], self.channels, LOG, self.now)

    def pending(self) -> list[str]:
        return [item.message.incident.key for item in self.memory.pending]


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], None]], None]:
    """Do something while no channel gets much time to answer."""

    def does(tick: Callable[[], None]) -> None:
        with monkeypatch.context() as short:
            short.setattr(post, "ANSWER_S", 0.3)
            tick()

    return does


def test_what_is_taken_late_is_sent_once_and_lets_others_pass(under_way, impatient):
    slow = Slow(["a"])
    channel = Scripted("one", slow)
    tick = Ticks([channel])
    impatient(lambda: tick("a"))
    assert tick.pending() == ["a"]
    assert tick.memory.silent["one"].why == "no answer within 0.3 s"
    tick("b")
    tick()
    assert tick.pending() == ["a"]
    slow.answers(under_way)
    tick("c")
    assert channel.got == ["a", "b", "c"]
    assert (tick.pending(), tick.memory.silent, under_way) == ([], {}, {})


def test_what_fails_late_is_sent_again_behind_the_others(under_way, impatient):
    slow = Slow(["a"], Undelivered("it answered 503"))
    channel = Scripted("one", slow)
    tick = Ticks([channel])
    impatient(lambda: tick("a", "b"))
    slow.answers(under_way)
    tick()
    assert tick.memory.silent["one"].why == "it answered 503"
    assert tick.pending() == ["b", "a"]
    slow.error = None
    tick()
    assert channel.got == ["a", "b", "a"]
    assert (tick.pending(), tick.memory.silent) == ([], {})


def test_a_tick_that_is_lost_sends_nothing_twice(under_way, impatient):
    slow = Slow()
    channel = Scripted("one", slow)
    tick = Ticks([channel])
    impatient(lambda: tick("a"))
    slow.answers(under_way)
    again = Ticks([channel])
    again("a")
    assert (channel.got, again.pending()) == (["a"], [])


def test_a_new_process_sends_what_was_under_way_once_more(under_way, impatient):
    slow = Slow()
    channel = Scripted("one", slow)
    tick = Ticks([channel])
    impatient(lambda: tick("a"))
    slow.answers(under_way)
    under_way.clear()
    tick()
    assert (channel.got, tick.pending()) == (["a", "a"], [])


def test_two_slow_channels_report_each_other_once(under_way, impatient):
    slow = Slow()
    one, two = Scripted("one", slow), Scripted("two", slow)
    tick = Ticks([one, two])
    for keys in (["a"], [], [], []):
        slow.released.clear()
        impatient(lambda keys=keys: tick(*keys))
        slow.answers(under_way)
    assert [key.split()[0] for key in one.got] == ["a", "channel-unreachable"]
    assert [key.split()[0] for key in two.got] == ["a", "channel-unreachable"]
    assert tick.pending() == []
    assert set(tick.memory.silent) == {"one", "two"}, "they are slow until they take one in time"


def test_one_that_hangs_keeps_no_message_from_the_others():
    """It hangs until the other has all of its own."""
    slow = Slow()
    other = Scripted("other", lambda key: slow.released.set() if key == "d" else None)
    tick = Ticks([Scripted("hangs", slow), other])
    tick("a", "b", "c", "d")
    assert other.got == ["a", "b", "c", "d"]
    assert slow.released.is_set()
    assert (tick.pending(), tick.memory.silent) == ([], {})


@pytest.mark.parametrize("error", [ValueError("http://T0KEN"), SystemExit("http://T0KEN")], ids=["error", "exit"])
def test_what_nobody_has_foreseen_is_a_failure_that_is_reported_by_its_kind(
    error: BaseException, caplog: pytest.LogCaptureFixture
):
    def breaks(_: str) -> None:
        raise error

    other = Scripted("other")
    tick = Ticks([Scripted("breaks", breaks), other])
    tick("a")
    assert tick.pending() == ["a"]
    assert tick.memory.silent["breaks"].why == type(error).__name__
    assert [key.split()[0] for key in other.got] == ["a", "channel-unreachable"]
    assert "T0KEN" not in tick.memory.cursor() + caplog.text


def test_the_oldest_is_given_up_though_it_went_behind_the_others(impatient):
    def down(_: str) -> None:
        raise Undelivered("down")

    slow = Slow(["a"])
    channel = Scripted("one", down)
    tick = Ticks([channel])
    tick("a")
    channel.does = slow
    impatient(lambda: tick(*(f"b{number}" for number in range(MOST_PENDING - 1))))
    assert tick.pending()[-1] == "a"
    tick("c")
    assert tick.pending() == []
    assert channel.got == ["a", "a", *(f"b{number}" for number in range(MOST_PENDING - 1)), "c"]
    slow.released.set()
