"""The cursor of the alerting sensor: what is open, what is still to be delivered, and who does not answer.

observed(...)     which incidents are new, and which are over: each makes one message
delivered(...)    send what is pending; a channel that does not answer is an incident for the others
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, Any, Self

from pydantic import AliasChoices, Field, TypeAdapter

from tidegate.orchestration.alerts.channels import Channel
from tidegate.orchestration.alerts.incident import Incident, Kind, Message
from tidegate.orchestration.alerts.post import Pending, Post, Silent
from tidegate.orchestration.alerts.tables import Asked

REMEMBERED = 200
"""Runs that are remembered as looked at; more than can end between two ticks."""

_logger = logging.getLogger("tidegate.alerts")


@dataclass(frozen=True)
class Open:
    """An open incident, without its evidence: enough to report its end. `since`: s, UTC.

    `times`: how often it was seen, for incidents that are seen run by run. `subject`: what its end is an end of.
    """

    key: str
    kind: str
    title: str
    pipeline: str
    since: float
    times: int = 1
    details: dict[str, Any] = field(default_factory=dict)
    subject: str = ""

    @classmethod
    def of(cls, incident: Incident, now: float) -> Self:
        return cls(
            incident.key,
            incident.kind,
            incident.title,
            incident.pipeline,
            now,
            details=dict(incident.details),
            subject=incident.subject,
        )

    def incident(self) -> Incident:
        again = (f"It was seen {self.times} times.",) if self.times > 1 else ()
        return Incident(
            self.key,
            self.kind,  # type: ignore[arg-type]
            self.title,
            self.pipeline,
            again,
            details=self.details,
            subject=self.subject,
        )


@dataclass(frozen=True)
class Seen:
    """The result of a look.

    Attributes:
        incidents: all that go on, of what could be checked.
        kinds: the kinds that were checked.
        unseen: kind and subject of what could not be checked; open incidents of it stay open.
    """

    incidents: Sequence[Incident]
    kinds: Collection[Kind]
    unseen: Collection[str] = ()
    taken: Collection[str] = ()
    """Keys of incidents that follow from another one: no message is sent when they begin or end."""

    def ends(self, item: Open) -> bool:
        """Whether an open incident would have been found again, and was not."""
        unseen = any(item.key.startswith(f"{subject} ") for subject in self.unseen)
        return item.kind in self.kinds and not unseen and all(item.key != going.key for going in self.incidents)


@dataclass(frozen=True)
class Memory:
    """Attributes:
    open: incidents that go on.
    pending: messages that are still to be delivered.
    silent: channel -> since when it does not answer.
    handled: ids of the newest runs that were handled; `told` in older cursors.
    since: when the newest run that was handled was updated (s, UTC); None before the first tick.
    asked: when the sources were queried last (s, UTC).
    unread: table -> what its source reported then that has not landed.
    looked: when the last tick was (s, UTC).
    away: from when to when there was no tick, since the daemon did not run.
    retried: runs that failed and will be tried again, or could not be read -> when they were seen first (s, UTC).
    queue: runs that have waited long in Dagster's queue, whose pipeline only their history names -> that pipeline.
    """

    open: tuple[Open, ...] = ()
    pending: tuple[Pending, ...] = ()
    silent: dict[str, Silent] = field(default_factory=dict)
    handled: Annotated[tuple[str, ...], Field(validation_alias=AliasChoices("handled", "told"))] = ()
    since: float | None = None
    asked: float = 0.0
    unread: dict[str, Asked] = field(default_factory=dict)
    looked: float = 0.0
    away: tuple[float, float] | None = None
    retried: dict[str, float] = field(default_factory=dict)
    queue: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, cursor: str | None) -> Memory:
        """From `cursor`; a new one for None. What an older cursor lacks is as in a new one."""
        return _STORED.validate_json(cursor) if cursor else cls()

    def cursor(self) -> str:
        return json.dumps(asdict(self), default=str)

    def observed(self, seen: Seen, now: float) -> tuple[Memory, tuple[Message, ...]]:
        """The new incidents and those that are over; what was not checked stays as it is."""
        known = {item.key for item in self.open}
        taken = set(seen.taken)
        found = {incident.key: incident for incident in seen.incidents}
        new = [incident for key, incident in found.items() if key not in known]
        over = [item for item in self.open if item.key in taken or seen.ends(item)]
        opened = tuple(Open.of(item, now) for item in new)
        still_open = tuple(item for item in self.open if item not in over)
        messages = [Message(incident) for incident in new]
        became = {incident.replaces for incident in seen.incidents} | taken
        ended = [item for item in over if item.key not in became]
        messages += [Message(item.incident(), "resolved", now - item.since) for item in ended]
        return replace(self, open=still_open + opened), tuple(messages)

    def delivered(
        self, messages: Sequence[Message], channels: Sequence[Channel], log: logging.Logger, now: float
    ) -> Memory:
        """Log the messages, send them and what is pending. What a channel did not take stays pending for it."""
        for message in messages:
            text = message.title if message.state == "resolved" else str(message.payload()["text"])
            say = log.info if message.state == "resolved" else log.error
            say(text)
            _logger.log(logging.INFO if message.state == "resolved" else logging.ERROR, text)
        post = Post([*self.pending], dict(self.silent), channels, log, now)
        for message in messages:
            post.to_all(message)
        post.send_all()
        return replace(self, pending=tuple(post.queue), silent=post.silent)


_STORED = TypeAdapter(Memory)
