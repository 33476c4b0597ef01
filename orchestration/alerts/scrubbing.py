"""Texts without secrets."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from typing import Any

from tidegate.pipelines.commands import advice
from tidegate.pipelines.errors import TidegateError
from tidegate.pipelines.facts.problem import Problem
from tidegate.pipelines.sql.compile import MissedKey
from tidegate.pipelines.syntax.secrets import is_secret

SHORTEST_SECRET = 4
"""Shorter values of secret variables are not masked: they would blank out half of any text."""


def scrub(text: str, environment: Mapping[str, str] = os.environ, secrets: Iterable[str] = ()) -> str:
    """`text` without `secrets`, and without the values of variables that are called like one."""
    known = [value for name, value in environment.items() if is_secret(name)]
    for value in sorted({*known, *secrets}, key=len, reverse=True):
        if len(value) >= SHORTEST_SECRET:
            text = text.replace(value, "***")
    return text


def reason(error: Exception) -> str:
    """An error without secrets: the text of any other kind than these may hold one."""
    return scrub(str(error)) if isinstance(error, TidegateError | OSError) else type(error).__name__


def scrubbed(problem: Problem, secrets: Iterable[str] = ()) -> Problem:
    """A copy whose texts show neither `secrets` nor values of environment variables with a secret's name. What programs
    identify it by (key, kind, pipeline, names of fields) stays, and so do numbers."""
    known = tuple(secrets)

    def hide(text: str) -> str:
        return scrub(text, secrets=known)

    def clean(value: Any) -> Any:
        """As JSON has it, with every text in it scrubbed."""
        if isinstance(value, Mapping):
            return {str(name): clean(inner) for name, inner in value.items()}
        if isinstance(value, list | tuple):
            return [clean(inner) for inner in value]
        return value if isinstance(value, int | float | None) else hide(str(value))

    return replace(
        problem,
        title=hide(problem.title),
        subject=hide(problem.subject),
        text=tuple(map(hide, problem.text)),
        keys=tuple(MissedKey(**clean(asdict(missed))) for missed in problem.keys),
        positions=clean(problem.positions),
        next=tuple(advice(way).reworded(hide) for way in problem.next),
        details=clean(problem.details),
    )
