"""The cursor of the alerting sensor: the problems that were sent, and messages that no channel has taken."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Self

from pydantic import TypeAdapter

from tidegate.orchestration.alerts.message import Message
from tidegate.pipelines.facts.problem import Kind, Problem, Reported

REMEMBERED = 200
"""Runs that are remembered as looked at; more than can end between two ticks."""
RUN_KINDS: tuple[Kind, ...] = ("run-failed", "check-not-run", "check-failed")
"""Problems of runs last until another run has done what failed, and so are not found again by looking."""


@dataclass(frozen=True)
class Open:
    """A problem that was sent, without its evidence: enough to report its end. `since`: ms, UTC. `times`: how many runs
    had it."""

    key: str
    kind: Kind
    title: str
    pipeline: str
    since: int
    times: int = 1
    details: dict[str, Any] = field(default_factory=dict)
    subject: str = ""
    explains: tuple[str, ...] = ()

    @classmethod
    def of(cls, problem: Problem) -> Self:
        """Of a problem without secrets."""
        return cls(
            problem.key,
            problem.kind,
            problem.title,
            problem.pipeline,
            problem.since,
            details=dict(problem.details),
            subject=problem.subject,
            explains=problem.explains,
        )

    def problem(self) -> Problem:
        return Problem(
            key=self.key,
            kind=self.kind,
            title=self.title,
            subject=self.subject,
            pipeline=self.pipeline,
            since=self.since,
            text=(f"It was seen {self.times} times.",) if self.times > 1 else (),
            details=self.details,
            explains=self.explains,
        )


@dataclass(frozen=True)
class Memory:
    """Attributes:
    open: problems that go on.
    unsent: messages that no channel has taken.
    handled: ids of the newest runs that were handled.
    since: when the newest run that was handled was updated (s, UTC); None before the first tick.
    asked: when the sources were queried last (s, UTC).
    reported: table -> what its source reported then.
    looked: when the last tick was (s, UTC).
    away: from when to when there was no tick, since the daemon did not run.
    retried: runs that failed and will be tried again, or could not be read -> when they were seen first (s, UTC).
    queue: runs that have waited long in Dagster's queue, whose pipeline only their history names -> that pipeline.
    """

    open: tuple[Open, ...] = ()
    unsent: tuple[Message, ...] = ()
    handled: tuple[str, ...] = ()
    since: float | None = None
    asked: float = 0.0
    reported: dict[str, Reported] = field(default_factory=dict)
    looked: float = 0.0
    away: tuple[float, float] | None = None
    retried: dict[str, float] = field(default_factory=dict)
    queue: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, cursor: str | None) -> Memory:
        """From `cursor`; a new one for None, and for a cursor of another version."""
        try:
            return _STORED.validate_json(cursor) if cursor else cls()
        except ValueError:
            return cls()

    def cursor(self) -> str:
        return json.dumps(asdict(self), default=str)

    def of_runs(self) -> list[Problem]:
        """The open problems of runs."""
        return [item.problem() for item in self.open if item.kind in RUN_KINDS]

    def compared(self, now: Sequence[Problem], unseen: Collection[str]) -> tuple[Memory, list[Problem], list[Problem]]:
        """The problems that have begun, and those that are over. One that another explains is neither. `unseen`: kind,
        lake and name of what could not be read: what is open of it stays open."""
        found = {problem.key: problem for problem in now}
        known = {item.key for item in self.open}
        begun = [each for key, each in found.items() if key not in known and not each.explained_by]
        became = {problem.replaces for problem in now}
        still, over = list[Open](), list[Problem]()
        for item in self.open:
            there = found.get(item.key)
            seen = item.kind not in RUN_KINDS and not any(item.key.startswith(f"{each} ") for each in unseen)
            if there is not None and there.explained_by:
                continue  # its cause is reported instead
            if there is not None or not seen:
                still.append(item)
            elif item.key not in became:
                over.append(item.problem())
        return replace(self, open=(*still, *map(Open.of, begun))), begun, over


_STORED = TypeAdapter(Memory)
