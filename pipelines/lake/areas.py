"""Landed rows as areas of a plane, probe epoch by time: what releases take, and what is left to later ones.

A release takes whole areas. So each row is taken exactly once if areas do not overlap, and no row has to be looked up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from tidegate.pipelines.watermarks import MAX_TIMESTAMP, MIN_TIMESTAMP

if TYPE_CHECKING:
    import pyarrow.compute as pc

_TIME = pa.timestamp("us", tz="UTC")


def micros(watermark: int) -> int:
    """The greatest rowtime (us) that a watermark (ms) covers; MAX where it covers all of them, MIN where none."""
    return max(min(watermark * 1000, MAX_TIMESTAMP), MIN_TIMESTAMP)


def just_before(moment: int) -> int:
    """The greatest rowtime (us) below a moment (ms)."""
    return moment if moment in (MIN_TIMESTAMP, MAX_TIMESTAMP) else micros(moment) - 1


@dataclass(frozen=True)
class Area:
    """Landed rows with after < epoch <= upto and low < rowtime <= high (us, UTC; MIN and MAX: no bound); with `nulls`
    those without a time too."""

    after: int
    upto: int
    low: int
    high: int
    nulls: bool = False

    @property
    def empty(self) -> bool:
        return self.upto <= self.after or (not self.nulls and not self.timed)

    @property
    def timed(self) -> bool:
        """Whether rows that have a time may be in it."""
        return self.high > self.low

    def covered_by(self, epoch: int, high: int) -> bool:
        """Whether all of its timed rows have an epoch up to `epoch` and a time (us) up to `high`."""
        return self.upto <= epoch and self.high <= high

    def meets(self, other: Area) -> bool:
        """Whether a row may be in both; considers rows that have a time."""
        epochs = max(self.after, other.after) < min(self.upto, other.upto)
        return epochs and max(self.low, other.low) < min(self.high, other.high)

    def condition(self) -> str:
        """Spark SQL over the landed table."""
        bounds = ["_rowtime IS NOT NULL"]
        if self.low > MIN_TIMESTAMP:
            bounds.append(f"_rowtime > timestamp_micros({int(self.low)}L)")
        if self.high < MAX_TIMESTAMP:
            bounds.append(f"_rowtime <= timestamp_micros({int(self.high)}L)")
        timed = " AND ".join(bounds) if self.timed else "false"
        in_time = f"(_rowtime IS NULL OR ({timed}))" if self.nulls else timed
        return f"(_epoch > {int(self.after)} AND _epoch <= {int(self.upto)} AND {in_time})"

    def expression(self) -> pc.Expression:
        """The same for Arrow."""
        import pyarrow.compute as pc

        time, epoch = pc.field("_rowtime"), pc.field("_epoch")
        timed = time.is_valid() if self.timed else pc.scalar(False)
        if self.timed and self.low > MIN_TIMESTAMP:
            timed = timed & (time > pa.scalar(self.low, _TIME))
        if self.timed and self.high < MAX_TIMESTAMP:
            timed = timed & (time <= pa.scalar(self.high, _TIME))
        return (epoch > self.after) & (epoch <= self.upto) & ((time.is_null() | timed) if self.nulls else timed)


@dataclass(frozen=True)
class Part:
    """The rows of `areas`, which do not overlap, less those of `without`."""

    areas: tuple[Area, ...]
    without: tuple[Area, ...] = ()

    @property
    def upto(self) -> int:
        """The greatest probe epoch of which it may take rows."""
        return max((area.upto for area in self.areas), default=0)

    def condition(self) -> str:
        """Spark SQL over the landed table."""
        return _less(_any_sql(self.areas), [area.condition() for area in self.without])

    def expression(self) -> pc.Expression:
        """The same for Arrow."""
        found = any_of(self.areas)
        return found & ~any_of(self.without) if self.without else found


def joined(parts: Sequence[Part]) -> tuple[Part, ...]:
    """The same rows in fewer parts: single areas that follow one another in time are joined."""
    found: list[Part] = []
    for part in parts:
        last = found[-1] if found else None
        if last is not None and len(last.areas) == len(part.areas) == 1 and last.without == part.without:
            one, two = last.areas[0], part.areas[0]
            if one.high == two.low and replace(one, low=two.low, high=two.high) == two:
                found[-1] = Part((replace(one, high=two.high),), part.without)
                continue
        found.append(part)
    return tuple(found)


def merged(areas: Sequence[Area]) -> tuple[Area, ...]:
    """The same rows in fewer areas: areas of the same epochs that follow one another in time become one."""
    found: list[Area] = []
    for area in sorted(areas, key=lambda one: (one.after, one.upto, one.nulls, one.low)):
        last = found[-1] if found else None
        if last is not None and last.high == area.low and replace(last, low=area.low, high=area.high) == area:
            found[-1] = replace(last, high=area.high)
        else:
            found.append(area)
    return tuple(found)


def _less(taken: str, left: Sequence[str]) -> str:
    return f"({taken} AND NOT coalesce({' OR '.join(left)}, false))" if left else taken


def _any_sql(areas: Sequence[Area]) -> str:
    return f"({' OR '.join(area.condition() for area in areas) or 'false'})"


def any_of(rows: Sequence[Area] | Sequence[Part]) -> pc.Expression:
    """Rows of any of these, as an Arrow expression. Built by halving, as Arrow walks an expression by recursion, one
    level deeper for each term of a chain."""
    import pyarrow.compute as pc

    if len(rows) > 1:
        middle = len(rows) // 2
        return any_of(rows[:middle]) | any_of(rows[middle:])
    return rows[0].expression() if rows else pc.scalar(False)
