"""Epochs of a process: what has landed of all of its inputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tidegate.pipelines.lake.records import later, stored
from tidegate.pipelines.runtime.epochs.plan import InputRange, Landed, ReleasePlan, no_rows
from tidegate.pipelines.watermarks import Watermark

NOT_HAVING = "not-having"
"""The count of a staged epoch for emitted windows that HAVING leaves out."""


@dataclass(frozen=True)
class InputSpan(InputRange):
    """What a process takes of one input: `rows` rows in all. It takes the epochs up to `loaded` before those of any
    other input: they landed before the flip, which the process has waited for."""

    rows: int
    loaded: int = later(0)


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
        return {"process": stored(self.process)}
