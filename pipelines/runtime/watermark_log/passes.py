"""One epoch's rows as a strategy sees them: what they say of each split, in (_split, _offset) order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from tidegate.pipelines.lake import SplitWatermark
from tidegate.pipelines.watermarks import MIN_TIMESTAMP, Watermark


@dataclass(frozen=True)
class SplitPass:
    """What an epoch's rows said of one split.

    Attributes:
        rows: how many there were.
        late: those whose rowtime is at or below the table's watermark as of the epoch before.
        watermark: the last one emitted, also before this epoch; BEGINNING before the first.
        state: of its generator, after them, as JSON.
        idle: a generator of one's own has said that the split is idle.
        rowtime: the greatest rowtime (ms, UTC) among the rows; None where none has one.
    """

    split: str
    rows: int
    late: int
    watermark: Watermark
    state: Any
    idle: bool = False
    rowtime: int | None = None


@dataclass(frozen=True)
class SplitsBefore:
    """How the splits stood before the epoch.

    Attributes:
        splits: by name.
        floor: the table's watermark (ms), by which a row of the epoch is late; None before the first, where nothing was
            emitted and nothing is late.
    """

    splits: Mapping[str, SplitWatermark] = field(default_factory=dict)
    floor: int | None = None

    def emitted(self, split: str) -> Watermark:
        """The last watermark of `split`; BEGINNING for one that was never seen."""
        known = self.splits.get(split)
        return Watermark(known.timestamp, known.use_processing_time) if known else Watermark(MIN_TIMESTAMP)

    def state(self, split: str) -> Any:
        """The state of its generator, None where there is none."""
        known = self.splits.get(split)
        return known.state if known else None


_LEAST, _MOST = -(2**63), 2**63 - 1


def rowtime_ms() -> Column:
    """The rowtime in ms, a part of one counted as a whole one: it is at or below t exactly if this is."""
    rowtime = F.col("_rowtime")
    return F.unix_millis(rowtime) + F.when(F.pmod(F.unix_micros(rowtime), F.lit(1000)) == 0, 0).otherwise(1)


def micros(watermark: int) -> int:
    """A watermark in ms as microseconds, or the end of what a column can hold."""
    return max(_LEAST, min(_MOST, watermark * 1000))
