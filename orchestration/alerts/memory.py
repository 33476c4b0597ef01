"""The cursor of the alerting sensor: the problems that were sent, and messages that no channel has taken."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from pydantic import TypeAdapter

from tidegate.orchestration.alerts.message import Message
from tidegate.pipelines.facts.problem import Kind, Problem, Reported

RUN_KINDS: tuple[Kind, ...] = ("run-failed", "check-not-run", "check-failed")
"""Problems of runs last until another run has done what failed, and so are not found again by looking."""
_EVIDENCE: dict[str, Any] = {"text": (), "counts": {}, "keys": (), "positions": {}, "next": ()}


@dataclass(frozen=True)
class Memory:
    """Attributes:
    open: problems that were sent and go on, without their evidence.
    unsent: messages that no channel has taken.
    handled: ids of the newest runs that were handled.
    since: when the newest run was updated of which, and of all before, no more is to be known (s, UTC); None before
        the first tick.
    asked: when the sources were queried last (s, UTC).
    reported: table -> what its source reported then.
    looked: when the last tick was (s, UTC).
    away: from when to when there was no tick, since the daemon did not run.
    """

    open: tuple[Problem, ...] = ()
    unsent: tuple[Message, ...] = ()
    handled: tuple[str, ...] = ()
    since: float | None = None
    asked: float = 0.0
    reported: dict[str, Reported] = field(default_factory=dict)
    looked: float = 0.0
    away: tuple[float, float] | None = None

    @classmethod
    def of(cls, cursor: str | None) -> Memory:
        """From `cursor`; a new one for None, and for a cursor of another version."""
        try:
            return _STORED.validate_json(cursor) if cursor else cls()
        except ValueError:
            return cls()

    def cursor(self) -> str:
        return json.dumps(asdict(self), default=str)

    def compared(self, now: Sequence[Problem], unseen: Collection[str]) -> tuple[Memory, list[Problem], list[Problem]]:
        """The problems that have begun, and those that are over. One that another explains is neither. `unseen`: kind,
        lake and name of what could not be read: what is open of it stays open."""
        known = {item.key for item in self.open}
        begun = [each for each in now if each.key not in known and not each.explained_by]
        found, became = {each.key: each for each in now}, {each.replaces for each in now}
        still, over = list[Problem](), list[Problem]()
        for item in self.open:
            there = found.get(item.key)
            if there is not None and there.explained_by:
                continue  # its cause is reported instead
            if there is not None or any(item.key.startswith(f"{each} ") for each in unseen):
                still.append(item)
            elif item.key not in became:
                over.append(item)
        still += [replace(each, **_EVIDENCE) for each in begun]
        return replace(self, open=tuple(still)), begun, over


_STORED = TypeAdapter(Memory)
