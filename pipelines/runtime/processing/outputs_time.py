"""What the outputs of a process say of time: event time, idleness, and the watermarks that functions declare."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tidegate.pipelines.lake import StagedRow
from tidegate.pipelines.process.spec import ProcessSpec
from tidegate.pipelines.process.watermarks.combining import by_identifier, combined
from tidegate.pipelines.process.watermarks.constants import (
    EVENT_TIME_WATERMARK_DECLARATION,
    IDLE_STATUS_WATERMARK_DECLARATION,
)
from tidegate.pipelines.process.watermarks.declarations import WatermarkDeclaration
from tidegate.pipelines.watermarks import MIN_TIMESTAMP

FACT = "watermark"
_TIME, _IDLE = EVENT_TIME_WATERMARK_DECLARATION.identifier, IDLE_STATUS_WATERMARK_DECLARATION.identifier


@dataclass(frozen=True)
class OutputsTime:
    """What stands of the outputs once an epoch is published; `timestamp` is ms, UTC.

    `declared`: the last value of every other watermark, by its identifier.
    """

    timestamp: int = MIN_TIMESTAMP
    use_processing_time: bool = False
    idle: bool = False
    declared: Mapping[str, int | bool] = field(default_factory=dict)

    def fact(self) -> list[Any]:
        """As a fact of a staged row."""
        return [self.timestamp, self.use_processing_time, self.idle, dict(self.declared)]

    @classmethod
    def of(cls, row: StagedRow) -> OutputsTime:
        """Read back; rows of before there was more have the first two."""
        return cls(*row.facts[FACT])

    def after(
        self, spec: ProcessSpec, processing_time: bool, emitted: Sequence[Mapping[str, int | bool]]
    ) -> OutputsTime:
        """What stands after an epoch.

        Event time never goes back. Inputs in processing time make outputs that are, unless the function itself tells
        event time: its outputs have that from MIN_TIMESTAMP on, and none but that.

        Args:
            processing_time: The inputs were, at the end of the epoch.
            emitted: What each of its tasks has sent on.
        """
        words = _of_all_tasks([*spec.declarations, *spec.shape.watermarks], emitted)
        declared = {**self.declared, **{name: value for name, value in words.items() if name not in (_TIME, _IDLE)}}
        if processing_time and not spec.shape.tells_time:
            return OutputsTime(MIN_TIMESTAMP, True, False, declared)
        timestamp = max(self.timestamp, int(words.get(_TIME, MIN_TIMESTAMP)))
        return OutputsTime(timestamp, False, bool(words.get(_IDLE, self.idle)), declared)


def _of_all_tasks(
    declarations: Iterable[WatermarkDeclaration], emitted: Sequence[Mapping[str, int | bool]]
) -> dict[str, int | bool]:
    """One value of each watermark for those of several tasks."""
    declared = by_identifier(declarations)
    names = {name for words in emitted for name in words}
    return {name: combined(declared, name, [words[name] for words in emitted if name in words]) for name in names}
