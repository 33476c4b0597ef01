"""Epochs of a process: what has landed of all of its inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from tidegate.pipelines.lake.records import restored
from tidegate.pipelines.runtime.epochs.plan import InputRange, Landed, ReleasePlan, no_rows
from tidegate.pipelines.watermarks import Watermark

NOT_HAVING = "not-having"
"""The count of a staged epoch for emitted windows that HAVING leaves out."""


@dataclass(frozen=True)
class InputSpan(InputRange):
    """What a process takes of one input: `rows` rows in all. It takes the epochs up to `loaded` before those of any
    other input: they landed before the flip, which the process has waited for."""

    rows: int
    loaded: int = 0


@dataclass(frozen=True)
class ProcessSpan:
    """What an epoch of a process adds to its plan; times in ms, UTC.

    Attributes:
        inputs: What it takes of every input, in the function's order.
        before, end: The time that the epoch before has come to, and the one that this comes to.
        last, watermark: The combined watermark before and after, (timestamp, use_processing_time).
        base: No state was written before this epoch that still counts; 0 before the first.
        rewrite: All state is written anew, so that this epoch is the next one's base.
    """

    inputs: tuple[InputSpan, ...]
    before: int
    end: int
    last: tuple[int, bool]
    watermark: tuple[int, bool]
    base: int
    rewrite: bool = False

    @property
    def rows(self) -> int:
        return sum(item.rows for item in self.inputs)

    def stored(self) -> dict[str, Any]:
        """As a plan stores it."""
        span = asdict(self)
        for item in span["inputs"]:
            if not item["loaded"]:
                del item["loaded"]
        return span

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> Self:
        """Read back from a plan."""
        inputs = tuple(restored(InputSpan, item) for item in stored["inputs"])
        last, watermark = tuple(stored["last"]), tuple(stored["watermark"])
        return restored(cls, {**stored, "inputs": inputs, "last": last, "watermark": watermark})


@dataclass(frozen=True, kw_only=True)
class ProcessPlan(ReleasePlan):
    """An epoch that hands the landed rows of all inputs to a function. Its probe is the first input."""

    process: ProcessSpan

    @property
    def inputs(self) -> tuple[InputRange, ...]:
        return self.process.inputs

    def complete_until(self, inputs: Watermark) -> Watermark:
        return Watermark(*self.process.watermark)

    def rows(self, landed: Landed = no_rows) -> int:
        return self.process.rows

    @property
    def next_base(self) -> int:
        """The epoch from which state has to be read afterwards."""
        return self.epoch if self.process.rewrite else self.process.base

    def _own(self) -> dict[str, Any]:
        return {"process": self.process.stored()}
