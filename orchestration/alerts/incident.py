"""One incident, from its beginning to its end. Never holds a secret."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, Literal

from tidegate.pipelines.sql.compile import MissedKey
from tidegate.pipelines.syntax.secrets import is_secret
from tidegate.pipelines.text import key, why

Kind = Literal[
    "gate-held",
    "check-not-run",
    "check-failed",
    "run-failed",
    "stuck",
    "not-flipped",
    "lag",
    "runs-queued",
    "daemon-away",
    "retention",
    "quarantine-growing",
    "channel-unreachable",
]
State = Literal["open", "resolved"]

SHORTEST_SECRET = 4
"""Shorter values of secret variables are not masked: they would blank out half of any text."""


@dataclass(frozen=True)
class Incident:
    """One incident.

    Attributes:
        key: identifies the incident for as long as it lasts.
        title: the verdict: one sentence.
        said: further sentences (the cursor has the field under this name).
        counts: rows by reason.
        keys: some of the rows that it is about.
        positions: source table -> how far it is.
        run: the address of the run in Dagster; empty where no run of it is known.
        next: the commands to go on with, the likeliest first.
        details: small JSON values for programs.
        replaces: the key of an incident that has become this one, so that no message reports its end.
        subject: what the incident is about, for the message of its end: an epoch, a partition, a table.
    """

    key: str
    kind: Kind
    title: str
    pipeline: str = ""
    said: tuple[str, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    keys: tuple[MissedKey, ...] = ()
    positions: Mapping[str, str] = field(default_factory=dict)
    run: str = ""
    next: tuple[str, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)
    replaces: str = ""
    subject: str = ""

    def body(self) -> str:
        """All of it, as lines for people."""
        lines = [self.title, *self.said, ""]
        if self.pipeline:
            lines.append(f"pipeline: {self.pipeline}")
        if self.counts:
            lines.append("rows by reason: " + ", ".join(f"{n:,} {why(name)}" for name, n in self.counts.items()))
        if self.keys:
            lines += ["keys:", *(f"  {_line(missed)}" for missed in self.keys)]
        if self.positions:
            lines += ["positions:", *(f"  {table}: {place}" for table, place in self.positions.items())]
        if self.run:
            lines.append(f"run: {self.run}")
        lines += [f"next: {command}" for command in self.next]
        return "\n".join(lines).strip()

    def scrubbed(self, secrets: Iterable[str] = ()) -> Incident:
        """A copy whose texts show neither `secrets` nor values of environment variables with a secret's name. What
        programs identify it by (key, kind, pipeline, names of fields) stays, and so do numbers."""
        clean = partial(_scrubbed_json, scrub=partial(scrub, secrets=tuple(secrets)))
        return replace(
            self,
            title=clean(self.title),
            said=tuple(clean(list(self.said))),
            keys=tuple(MissedKey(**clean(asdict(missed))) for missed in self.keys),
            positions=clean(dict(self.positions)),
            run=clean(self.run),
            subject=clean(self.subject),
            next=tuple(clean(list(self.next))),
            details=clean(dict(self.details)),
        )


@dataclass(frozen=True)
class Message:
    """An incident that began, or one that is over (`lasted` s)."""

    incident: Incident
    state: State = "open"
    lasted: float = 0.0

    @property
    def title(self) -> str:
        """One line: a mail's subject, a chat's headline."""
        if self.state == "open":
            return f"Tidegate: {self.incident.title}"
        return f"Tidegate: resolved after {_length(self.lasted)}: {self.incident.title}"

    @property
    def body(self) -> str:
        if self.state == "open":
            return self.incident.body()
        ended = f"Over: {self.incident.subject or self.incident.title.rstrip('.')}."
        return "\n".join([ended, "", self.incident.body()])

    def scrubbed(self, secrets: Iterable[str] = ()) -> Message:
        """The same without secrets."""
        return replace(self, incident=self.incident.scrubbed(secrets))

    def payload(self) -> dict[str, Any]:
        """What the webhook gets. `text` alone is enough for a chat."""
        incident = self.incident
        return {
            "text": f"{self.title}\n{self.body.removeprefix(incident.title).strip()}".strip(),
            "kind": incident.kind,
            "key": incident.key,
            "state": self.state,
            "pipeline": incident.pipeline,
            "counts": dict(incident.counts),
            "keys": [asdict(missed) for missed in incident.keys],
            "positions": dict(incident.positions),
            "run": incident.run,
            "next": list(incident.next),
            **incident.details,
        }


def _line(missed: MissedKey) -> str:
    return f"{key(missed.key) or 'a row'}: {why(missed.reason)}; nearest version: {missed.nearest}"


def _scrubbed_json(value: Any, scrub: Callable[[str], str]) -> Any:
    """A value as JSON has it, with every text in it scrubbed; done to the JSON's own text, it could break that."""

    def of(found: Any) -> Any:
        if isinstance(found, str):
            return scrub(found)
        if isinstance(found, dict):
            return {name: of(inner) for name, inner in found.items()}
        return [of(inner) for inner in found] if isinstance(found, list) else found

    return of(json.loads(json.dumps(value, default=str)))


def _length(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def scrub(text: str, environment: Mapping[str, str] = os.environ, secrets: Iterable[str] = ()) -> str:
    """`text` without `secrets`, and without the values of variables that are called like one."""
    known = [value for name, value in environment.items() if is_secret(name)]
    for value in sorted({*known, *secrets}, key=len, reverse=True):
        if len(value) >= SHORTEST_SECRET:
            text = text.replace(value, "***")
    return text
