"""What is decided of a statement's generations, in the log of the statement itself: which one has begun, and which one
is current. It is never concluded from which generation is the newest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tidegate.pipelines.lake.records import Record

OF_STATEMENT = 0
"""In the place of a generation's number: what belongs to the statement, and not to one of them."""


@dataclass(frozen=True)
class GenerationRow(Record):
    """A decision on one generation `of` a statement, which is the owner. `epoch` counts the statement's decisions.

    Attributes:
        decided: "begun": it publishes beside the current one. "swapping": it is about to take its place; it has done so
            once the target's log has its mark. "current": it has. "over": it was given up.
        decided_at: ms, UTC.
    """

    table: ClassVar[str] = "generations"

    of: int
    decided: str
    decided_at: int
