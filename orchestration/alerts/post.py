"""One tick's round to the channels, and the queue of messages that a channel did not take in time.

Every message is sent in a thread of its own, so one that hangs does not delay the others.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from functools import partial

from tidegate.orchestration.alerts.channels import Channel, Undelivered
from tidegate.orchestration.alerts.incident import Incident, Message, State, scrub

Id = tuple[str, str, State]
"""The identity of a message: its channel, its incident, and whether that begins or is over."""

GIVE_UP_S = 24 * 3600
"""An alert that was not taken for so long is dropped."""
FIRST_WAIT_S, LONGEST_WAIT_S = 10, 600
"""Pause after a channel's first failure, doubled after each further one, up to the second."""
SEND_FOR_S = 5.0
"""How long a tick begins to send messages: it checks lakes, sends, asks the sources and sends again."""
ANSWER_S = 10.0
"""How long a channel may take for one message: its sockets' timeouts are for each answer, and may follow one another. A
later answer is handled by a later tick."""
MOST_PENDING = 100
"""Messages that wait for one channel; the oldest go first."""

_logger = logging.getLogger("tidegate.alerts")
_under_way: dict[Id, Future[None]] = {}
"""Sends without an answer yet. One that took too long goes on, and may still succeed, so it is not started again. A new
process starts without any."""


@dataclass(frozen=True)
class Pending:
    """A message that one channel has not taken yet. `raised`: s, UTC."""

    message: Message
    channel: str
    raised: float

    @property
    def id(self) -> Id:
        return self.channel, self.message.incident.key, self.message.state


@dataclass(frozen=True)
class Silent:
    """A channel that did not take its last message in time: since when (s, UTC), how often tried, and when to try
    again."""

    since: float
    attempts: int
    due: float
    why: str


@dataclass(frozen=True)
class _Turn:
    """A message that a channel has now; it is waited for `until` (s, monotonic)."""

    item: Pending
    answer: Future[None]
    until: float


@dataclass
class Post:
    """One tick's round to the channels."""

    queue: list[Pending]
    silent: dict[str, Silent]
    channels: Sequence[Channel]
    log: logging.Logger
    now: float

    def to_all(self, message: Message, but: str | None = None) -> None:
        self.queue += [Pending(message, item.name, self.now) for item in self.channels if item.name != but]

    def send_all(self) -> None:
        """Send each channel one message at a time. After SEND_FOR_S no more are begun; the rest waits for the next
        tick, since a tick that takes too long is lost with what it has sent, and sent again."""
        self._expire()
        self._take_late_answers()
        end = time.monotonic() + SEND_FOR_S
        turns = self._turns(())
        while turns:
            until = min(turn.until for turn in turns.values())
            wait([turn.answer for turn in turns.values()], max(0.0, until - time.monotonic()), FIRST_COMPLETED)
            for name, turn in list(turns.items()):
                if turn.answer.done():
                    self._answered(turn.item, turn.answer)
                elif time.monotonic() >= turn.until:
                    self._left_alone(turn.item)
                else:
                    continue
                del turns[name]
            if time.monotonic() < end:
                turns |= self._turns(turns)

    def _turns(self, busy: Collection[str]) -> dict[str, _Turn]:
        """Begin a message for every channel that is not busy and has one."""
        turns: dict[str, _Turn] = {}
        for channel in self.channels:
            item = None if channel.name in busy else self._next(channel.name)
            if item is not None:
                answer = _under_way[item.id] = _begun(partial(channel.send, item.message))
                turns[channel.name] = _Turn(item, answer, time.monotonic() + ANSWER_S)
        return turns

    def _next(self, name: str) -> Pending | None:
        """The next message for a channel."""
        silent = self.silent.get(name)
        if silent is not None and silent.due > self.now:
            return None
        return next((item for item in self.queue if item.channel == name and item.id not in _under_way), None)

    def _take_late_answers(self) -> None:
        """Handle the answers to messages that an earlier tick did not wait for."""
        for item in [*self.queue]:
            answer = _under_way.get(item.id)
            if answer is not None and answer.done():
                self._answered(item, answer, late=True)

    def _answered(self, item: Pending, answer: Future[None], late: bool = False) -> None:
        _under_way.pop(item.id, None)
        name, error = item.channel, answer.exception()
        if error is not None:
            # What nobody has foreseen may hold an address.
            self._failed(name, str(error) if isinstance(error, Undelivered) else type(error).__name__)
            return
        self.queue.remove(item)
        self.log.info(f"{name} took the alert [{item.message.incident.key}]")
        if late:
            self._answers_late(name)
        else:
            self._answers(name)

    def _left_alone(self, item: Pending) -> None:
        """A message that is still being sent: the channel's other messages go before it."""
        self.queue.remove(item)
        self.queue.append(item)
        self._failed(item.channel, f"no answer within {ANSWER_S:g} s")

    def _failed(self, name: str, why: str) -> None:
        before = self.silent.get(name)
        attempts = before.attempts + 1 if before else 1
        pause = min(FIRST_WAIT_S * 2 ** (attempts - 1), LONGEST_WAIT_S)
        since = before.since if before else self.now
        self.silent[name] = Silent(since, attempts, self.now + pause, why)
        self._warn(f"{name} did not take an alert: {why}; it is tried again")
        if before is None:
            self.to_all(Message(unreachable(name, why, since)), but=name)

    def _answers(self, name: str) -> None:
        before = self.silent.pop(name, None)
        if before is not None:
            self.log.info(f"{name} takes alerts again")
            incident = unreachable(name, before.why, before.since)
            self.to_all(Message(incident, "resolved", self.now - before.since), but=name)

    def _answers_late(self, name: str) -> None:
        """The channel may get the next message at once. It stays an incident until it takes one in time; otherwise two
        slow channels would report each other for ever."""
        before = self.silent.get(name)
        if before is not None:
            why = f"it took the last one after more than {ANSWER_S:g} s"
            self.silent[name] = Silent(before.since, 0, self.now, why)

    def _expire(self) -> None:
        there = {channel.name for channel in self.channels}
        self.silent = {name: item for name, item in self.silent.items() if name in there}
        waiting: list[Pending] = []
        for name in there:
            own = [item for item in self.queue if item.channel == name]
            newest = sorted(own, key=lambda item: item.raised)[-MOST_PENDING:]
            for item in own:
                if item in newest and self.now - item.raised < GIVE_UP_S:
                    waiting.append(item)
                else:
                    _under_way.pop(item.id, None)
                    self._warn(f"{name} never took the alert [{item.message.incident.key}]; it is given up")
        self.queue = waiting

    def _warn(self, text: str) -> None:
        text = scrub(text)
        self.log.warning(text)
        _logger.warning(text)


def _begun(send: Callable[[], None]) -> Future[None]:
    """Send in a thread, which cannot keep the process alive."""
    answer: Future[None] = Future()

    def run() -> None:
        try:
            send()
        except BaseException as error:  # noqa: BLE001 it is handed to whoever reads the answer
            answer.set_exception(error)
        else:
            answer.set_result(None)

    threading.Thread(target=run, name="tidegate-sends", daemon=True).start()
    return answer


def unreachable(name: str, why: str, since: float) -> Incident:
    """The incident of a channel that takes no alerts, for the other channels."""
    return Incident(
        key=f"channel-unreachable {name} {since:.0f}",
        kind="channel-unreachable",
        title=f"{name} takes no alerts: {why}.",
        said=("Runs are not affected. Its alerts are stored for a day and sent again.",),
        next=("mend its address or its password where the daemon runs, then restart the daemon",),
        details={"channel": name},
    )
