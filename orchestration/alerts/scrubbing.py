"""Texts without secrets."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, replace
from functools import partial
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
    hide = partial(scrub, secrets=tuple(secrets))
    clean = partial(_json, hide=hide)
    return replace(
        problem,
        title=clean(problem.title),
        subject=clean(problem.subject),
        text=tuple(clean(list(problem.text))),
        keys=tuple(MissedKey(**clean(asdict(missed))) for missed in problem.keys),
        positions=clean(dict(problem.positions)),
        next=tuple(advice(way).reworded(hide) for way in problem.next),
        details=clean(dict(problem.details)),
    )


def _json(value: Any, hide: Callable[[str], str]) -> Any:
    """A value as JSON has it, with every text in it scrubbed; done to the JSON's own text, it could break that."""

    def of(found: Any) -> Any:
        if isinstance(found, str):
            return hide(found)
        if isinstance(found, dict):
            return {name: of(inner) for name, inner in found.items()}
        return [of(inner) for inner in found] if isinstance(found, list) else found

    return of(json.loads(json.dumps(value, default=str)))
