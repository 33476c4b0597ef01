"""The cursor of the alerting sensor: what is open, what is still to be delivered, and who does not answer.

observed(...)     which incidents are new, and which are over: each makes one message
delivered(...)    send what is pending; a channel that does not answer is an incident for the others
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

from orchestration.alerts.channels import Channel
from orchestration.alerts.incident import Incident, Message, scrub
from orchestration.alerts.lag import Asked
from orchestration.alerts.patience import Unanswered, answers
from orchestration.alerts.webhook import Undelivered

GIVE_UP_S = 24 * 3600
"""An alert that no one took for so long is of no use any more."""
FIRST_WAIT_S, LONGEST_WAIT_S = 10, 600
"""How long a channel is left alone after a first failure; twice as long after each further one, up to the second."""
SEND_FOR_S = 5.0
"""For how long a tick begins to send messages; it looks, sends, asks the sources and sends again."""
ANSWER_S = 10.0
"""How long a channel may take over one message: its sockets' timeouts are for each answer, and may follow one another.
One that takes it later than that gets it again."""
MOST_PENDING = 100
"""Messages that are kept for one channel; the oldest go first."""
REMEMBERED = 200
"""Runs that are remembered as looked at; more than can end between two ticks."""

_logger = logging.getLogger("tidegate.alerts")


@dataclass(frozen=True)
class Open:
    """An incident that goes on, without its evidence: enough to say that it is over. `since`: s, UTC.

    `times`: how often it was seen, of one that is seen run by run."""

    key: str
    kind: str
    title: str
    pipeline: str
    since: float
    times: int = 1
    details: dict[str, Any] = field(default_factory=dict)

    def incident(self) -> Incident:
        again = (f"It was seen {self.times} times.",) if self.times > 1 else ()
        return Incident(self.key, self.kind, self.title, self.pipeline, again, details=self.details)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Pending:
    """A message that one channel has not taken yet. `raised`: s, UTC."""

    message: Message
    channel: str
    raised: float


@dataclass(frozen=True)
class Silent:
    """A channel that did not take its last message: since when (s, UTC), how often tried, and when to try again."""

    since: float
    attempts: int
    due: float
    why: str


@dataclass(frozen=True)
class Memory:
    """Attributes:
    open: incidents that go on.
    pending: messages that are still to be delivered.
    silent: channel -> since when it does not answer.
    told: ids of runs that were looked at.
    since: when the newest run that was looked at was updated (s, UTC); None before the first tick.
    asked: when the sources were asked last (s, UTC).
    unread: table -> what its source said then of what has not landed.
    """

    open: tuple[Open, ...] = ()
    pending: tuple[Pending, ...] = ()
    silent: dict[str, Silent] = field(default_factory=dict)
    told: tuple[str, ...] = ()
    since: float | None = None
    asked: float = 0.0
    unread: dict[str, Asked] = field(default_factory=dict)

    @classmethod
    def of(cls, cursor: str | None) -> Memory:
        """From `cursor`; a new one for None."""
        if not cursor:
            return cls()
        stored: dict[str, Any] = json.loads(cursor)
        return cls(
            tuple(Open(**item) for item in stored["open"]),
            tuple(
                Pending(Message.restored(item["message"]), item["channel"], item["raised"])
                for item in stored["pending"]
            ),
            {name: Silent(**item) for name, item in stored["silent"].items()},
            tuple(stored["told"]),
            stored["since"],
            stored["asked"],
            {name: Asked(**item) for name, item in stored.get("unread", {}).items()},  # a cursor of before has none
        )

    def cursor(self) -> str:
        return json.dumps(asdict(self), default=str)

    def observed(
        self, active: Sequence[Incident], looked_at: Collection[str], now: float
    ) -> tuple[Memory, tuple[Message, ...]]:
        """What is new and what is over. `active` are all that go on of the kinds in `looked_at`; incidents of other
        kinds stay as they are."""
        known, going = {item.key for item in self.open}, {incident.key for incident in active}
        new = [incident for incident in active if incident.key not in known]
        over = [item for item in self.open if item.kind in looked_at and item.key not in going]
        opened = tuple(
            Open(item.key, item.kind, item.title, item.pipeline, now, details=dict(item.details)) for item in new
        )
        kept = tuple(item for item in self.open if item not in over)
        messages = [Message(incident) for incident in new]
        became = {incident.replaces for incident in active}
        ended = [item for item in over if item.key not in became]
        messages += [Message(item.incident(), "resolved", now - item.since) for item in ended]
        return replace(self, open=kept + opened), tuple(messages)

    def delivered(
        self, messages: Sequence[Message], channels: Sequence[Channel], log: logging.Logger, now: float
    ) -> Memory:
        """Log the messages, send them and what is pending. What a channel did not take stays pending for it."""
        for message in messages:
            text = message.title if message.state == "resolved" else str(message.payload()["text"])
            say = log.info if message.state == "resolved" else log.error
            say(text)
            _logger.log(logging.INFO if message.state == "resolved" else logging.ERROR, text)
        post = _Post([*self.pending], dict(self.silent), channels, log, now)
        for message in messages:
            post.to_all(message)
        post.send_all(SEND_FOR_S)
        return replace(self, pending=tuple(post.queue), silent=post.silent)


@dataclass
class _Post:
    """One tick's round to the channels."""

    queue: list[Pending]
    silent: dict[str, Silent]
    channels: Sequence[Channel]
    log: logging.Logger
    now: float

    def to_all(self, message: Message, but: str | None = None) -> None:
        self.queue += [Pending(message, item.name, self.now) for item in self.channels if item.name != but]

    def send_all(self, within: float) -> None:
        """One message to every channel at the same time, then the next. After `within` s no more is begun: the rest
        waits for the next tick, since a tick that takes too long is lost with what it has told, and told again."""
        self._expire()
        end = time.monotonic() + within
        while turns := [(channel, item) for channel in self.channels if (item := self._next(channel.name)) is not None]:
            sent = [partial(channel.send, item.message) for channel, item in turns]
            for (channel, item), answer in zip(turns, answers(sent, ANSWER_S, len(sent)), strict=True):
                self._heard(channel.name, item, answer)
            if time.monotonic() >= end:
                return

    def _next(self, name: str) -> Pending | None:
        """What a channel gets now."""
        silent = self.silent.get(name)
        if silent is not None and silent.due > self.now:
            return None
        return next((item for item in self.queue if item.channel == name), None)

    def _heard(self, name: str, item: Pending, answer: Callable[[], None]) -> None:
        try:
            answer()
        except (Undelivered, Unanswered) as error:
            self._failed(name, str(error))
            return
        self.queue.remove(item)
        self.log.info(f"{name} took the alert [{item.message.incident.key}]")
        self._answers(name)

    def _failed(self, name: str, why: str) -> None:
        before = self.silent.get(name)
        attempts = before.attempts + 1 if before else 1
        wait = min(FIRST_WAIT_S * 2 ** (attempts - 1), LONGEST_WAIT_S)
        since = before.since if before else self.now
        self.silent[name] = Silent(since, attempts, self.now + wait, why)
        self._warn(f"{name} did not take an alert: {why}; it is tried again")
        if before is None:
            self.to_all(Message(unreachable(name, why, since)), but=name)

    def _answers(self, name: str) -> None:
        before = self.silent.pop(name, None)
        if before is not None:
            self.log.info(f"{name} takes alerts again")
            incident = unreachable(name, before.why, before.since)
            self.to_all(Message(incident, "resolved", self.now - before.since), but=name)

    def _expire(self) -> None:
        there = {channel.name for channel in self.channels}
        self.silent = {name: item for name, item in self.silent.items() if name in there}
        kept: list[Pending] = []
        for name in there:
            own = [item for item in self.queue if item.channel == name]
            young = [item for item in own if self.now - item.raised < GIVE_UP_S][-MOST_PENDING:]
            for item in own:
                if item not in young:
                    self._warn(f"{name} never took the alert [{item.message.incident.key}]; it is given up")
            kept += young
        self.queue = kept

    def _warn(self, text: str) -> None:
        text = scrub(text)
        say: Callable[[str], None] = self.log.warning
        say(text)
        _logger.warning(text)


def unreachable(name: str, why: str, since: float) -> Incident:
    """A channel that takes no alerts, as the others hear of it."""
    return Incident(
        key=f"channel-unreachable {name} {since:.0f}",
        kind="channel-unreachable",
        title=f"{name} takes no alerts: {why}.",
        said=("Runs are not touched by it; its alerts are kept for a day and tried again.",),
        next=("mend its address or its password where the daemon runs, then restart the daemon",),
        details={"channel": name},
    )
