"""An error as a record."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import ClassVar, Self

from tidegate.pipelines.commands import Advice
from tidegate.pipelines.errors import TidegateError


@dataclass(frozen=True, kw_only=True)
class Failure:
    """What happened, where, which state is kept, and what to do next; of an error in a script its place, too."""

    OPTIONAL: ClassVar = ("line", "column", "hint")

    kind: str
    what: str
    where: str
    state: str
    next: Advice
    line: int | None = None
    column: int | None = None
    hint: str | None = None

    @classmethod
    def of(cls, error: TidegateError, **more: object) -> Self:
        """`more`: what a kind of failure has beside the error."""
        names = {item.name for item in fields(cls)} - {"kind", "next"}
        found = {name: getattr(error, name) for name in names if hasattr(error, name)}
        return cls(kind=type(error).__name__, next=error.advice, **{**found, **more})  # type: ignore[arg-type]
