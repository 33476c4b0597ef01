"""A message: a problem that has begun, or one that is over, as it is sent. Holds no secret if its problem holds none
(`scrubbed`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self

from tidegate.pipelines.commands import AS_WRITTEN, Commands
from tidegate.pipelines.facts.problem import Problem
from tidegate.pipelines.sql.compile import MissedKey
from tidegate.pipelines.text import key, seconds, why

State = Literal["open", "resolved"]


@dataclass(frozen=True)
class Message:
    """`title`: one line, a mail's subject, a chat's headline. `payload`: what the webhook gets."""

    title: str
    body: str
    payload: Mapping[str, Any]

    @property
    def key(self) -> str:
        """The key of its problem."""
        return str(self.payload["key"])

    @property
    def state(self) -> State:
        return self.payload["state"]

    @property
    def text(self) -> str:
        """All of it, which is enough for a chat."""
        return str(self.payload["text"])

    @classmethod
    def begun(cls, problem: Problem, commands: Commands = AS_WRITTEN, run: str = "") -> Self:
        """Of a problem that has begun. `run`: the address of its run in Dagster; empty where none is known."""
        following = commands.all(problem.next)
        body = _body(problem, [f"run: {run}"] if run else [], following)
        return cls._of(problem, "open", f"Tidegate: {problem.title}", body, run, following)

    @classmethod
    def ended(cls, problem: Problem, now: int) -> Self:
        """Of a problem that is over, at `now` (ms, UTC)."""
        title = f"Tidegate: resolved after {seconds(max(now - problem.since, 0))}: {problem.title}"
        over = f"Over: {problem.subject or problem.title.rstrip('.')}."
        return cls._of(problem, "resolved", title, f"{over}\n\n{_body(problem, [], ())}", "", ())

    @classmethod
    def _of(cls, problem: Problem, state: State, title: str, body: str, run: str, following: Iterable[str]) -> Self:
        payload = {
            "text": f"{title}\n{body.removeprefix(problem.title).strip()}".strip(),
            "kind": problem.kind,
            "key": problem.key,
            "state": state,
            "pipeline": problem.pipeline,
            "since": problem.since,
            "counts": dict(problem.counts),
            "keys": [asdict(missed) for missed in problem.keys],
            "positions": dict(problem.positions),
            "run": run,
            "next": list(following),
            **problem.details,
        }
        return cls(title, body, payload)


def _body(problem: Problem, run: list[str], following: Iterable[str]) -> str:
    """All of it, as lines for people."""
    lines = [problem.title, *problem.text, ""]
    if problem.pipeline:
        lines.append(f"pipeline: {problem.pipeline}")
    if problem.counts:
        lines.append("rows by reason: " + ", ".join(f"{n:,} {why(name)}" for name, n in problem.counts.items()))
    if problem.keys:
        lines += ["keys:", *(f"  {_line(missed)}" for missed in problem.keys)]
    if problem.positions:
        lines += ["positions:", *(f"  {table}: {place}" for table, place in problem.positions.items())]
    lines += [*run, *(f"next: {command}" for command in following)]
    return "\n".join(lines).strip()


def _line(missed: MissedKey) -> str:
    return f"{key(missed.key) or 'a row'}: {why(missed.reason)}; nearest version: {missed.nearest}"
