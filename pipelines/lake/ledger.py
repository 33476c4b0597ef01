"""Sums over a source table's history, as of any landed epoch, without reading the history.

Each row of the watermark log has the sums of its generation up to itself, so the row of an epoch is all that has to be
looked at. Rows of an older lake have none: what follows the last that has is added up, row by row, until the next epoch
lands. So a row without sums, wherever it is, costs time and changes no answer.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

from tidegate.pipelines.lake.records import WatermarkRow

if TYPE_CHECKING:
    from tidegate.pipelines.lake.lake import Lake


@dataclass(frozen=True)
class Sums:
    """Of a generation's first epochs: how many `epochs` they are, their `rows`, the `late` ones, those that were
    `rejected`."""

    epochs: int = 0
    rows: int = 0
    late: int = 0
    rejected: int = 0

    def __add__(self, other: Sums) -> Sums:
        return Sums(
            self.epochs + other.epochs,
            self.rows + other.rows,
            self.late + other.late,
            self.rejected + other.rejected,
        )

    @classmethod
    def of(cls, row: WatermarkRow) -> Self:
        """What one epoch adds."""
        return cls(1, row.rows, row.late or 0, row.rejected or 0)

    def stored(self) -> Mapping[str, int]:
        """As a log row has it."""
        return {"epochs": self.epochs, "rows": self.rows, "late": self.late, "rejected": self.rejected}


def sums(lake: Lake, table: str, generation: int, upto: int | None = None) -> Sums:
    """The sums over the landed epochs of a generation; of those up to one."""
    found = Sums()
    for row in lake.watermarks.newest_first(table, generation=generation, upto=upto):
        if row.sums is not None:
            return found + Sums(**row.sums)
        found += Sums.of(row)
    return found


def with_sums(lake: Lake, row: WatermarkRow) -> WatermarkRow:
    """A log row that is about to be written, with the sums up to itself."""
    before = sums(lake, row.owner, row.generation, row.epoch - 1)
    return replace(row, sums=(before + Sums.of(row)).stored())


def rows_landed(lake: Lake, table: str, generation: int, after: int, upto: int) -> int:
    """The rows of the landed epochs with after < epoch <= upto."""
    if upto <= after:
        return 0
    before = sums(lake, table, generation, after).rows if after > 0 else 0
    return sums(lake, table, generation, upto).rows - before


def landed_before(lake: Lake, table: str, generation: int, instant: int, since: int = 0) -> int:
    """The last epoch of a generation, `since` or one after it, that had landed before `instant` (ms, UTC). Found by
    halves: epochs land in order. Where clocks disagree it is some epoch with a later one behind it."""
    newest = lake.watermarks.last(table, generation)

    def later(epoch: int) -> bool:
        row = next(lake.watermarks.newest_first(table, generation=generation, upto=epoch), None)
        return row is not None and row.landed_at >= instant

    return since + bisect_left(range(since + 1, newest.epoch + 1 if newest else 0), True, key=later)
