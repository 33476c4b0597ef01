"""How far retention has gone in a table: marks in the table's own log, stored by the commit that removed the rows.

Of a build side single versions go ('changelog.retention'), of a probe whole landed epochs ('landed.retention').
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tidegate.pipelines.lake import delta_log
from tidegate.pipelines.lake.areas import Part, micros
from tidegate.pipelines.lake.lake import Lake

Mark = Literal["retention-time", "retention-epoch", "retention-rows"]
MARKS: tuple[Mark, Mark, Mark] = ("retention-time", "retention-epoch", "retention-rows")
"""The transactions that store how far retention has gone: ms, UTC; an epoch of the table; all the rows that it has
removed."""


@dataclass(frozen=True)
class Gone:
    """How far retention has ever gone in a generation of a table; all None where it has removed nothing.

    Attributes:
        time: ms, UTC. Of a build: every version that was removed had a successor at or before it. Of a probe: no row
            that was removed lies after it; None where none has a time.
        epoch: Of a build: no processing-time pin of this epoch or a later one lost its latest versions. Of a probe: all
            rows of the epochs up to this one were removed, and no others.
        rows: How many rows were removed; None also where an older lake has not stored it.
    """

    time: int | None = None
    epoch: int | None = None
    rows: int | None = None

    def marks(self, lake: Lake, table: str, generation: int) -> dict[str, int]:
        """The transactions that store it, for the commit that removes the rows."""
        reached = zip(MARKS, (self.time, self.epoch, self.rows), strict=True)
        return {lake.application(table, mark, generation): value for mark, value in reached if value is not None}

    @property
    def nothing(self) -> bool:
        return self == Gone()

    def asked_by(self, parts: Sequence[Part]) -> bool:
        """Whether a row that was removed from a probe may lie in one of these parts of its landed rows."""
        if self.epoch is None:
            return False
        areas = [area for part in parts for area in part.areas if area.after < self.epoch and not area.empty]
        return any(area.nulls or (self.time is not None and area.low < micros(self.time)) for area in areas)


def gone(lake: Lake, table: str, generation: int) -> Gone:
    """How far retention has gone in a table, by its log."""
    path = lake.table_path(table)
    found = [delta_log.committed(path, lake.application(table, mark, generation)) for mark in MARKS]
    return Gone(*(None if value < 0 else value for value in found))
