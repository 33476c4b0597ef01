"""Which splits of a source table count now, for its watermark and for its alignment group. No Spark.

The splits of the bounded phase (chunks of a snapshot, in the order of keys) are read once each. While others go on they
are passed over; as long as there are no others, the greatest of them is the table's: all their rows are in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tidegate.pipelines.lake import SplitWatermark, WatermarkRow
from tidegate.pipelines.lake.records import restored

BOUNDED = "(bounded phase)"
"""Stands for all splits of the bounded phase that are read."""


def stored_splits(row: WatermarkRow | None) -> list[SplitWatermark]:
    """The splits of a log row."""
    return [restored(SplitWatermark, split, row.place) for split in row.splits] if row else []


def counting(splits: Sequence[SplitWatermark]) -> list[SplitWatermark]:
    """The splits that count: those that go on, else one for all that were."""
    going = [split for split in splits if not split.ended and not split.bounded]
    return going or ([together(splits)] if splits else [])


def together(splits: Sequence[SplitWatermark]) -> SplitWatermark:
    """One split for the finished ones; it is idle when each of them is, or has ended."""
    if len(splits) == 1:
        return replace(splits[0], idle=splits[0].idle or splits[0].ended)
    last_rows = [split.last_row for split in splits if split.last_row is not None]
    rowtimes = [split.rowtime for split in splits if split.rowtime is not None]
    return SplitWatermark(
        BOUNDED,
        max(split.timestamp for split in splits),
        all(split.use_processing_time for split in splits),
        idle=all(split.idle or split.ended for split in splits),
        last_row=max(last_rows, default=None),
        late=sum(split.late for split in splits),
        ended=all(split.ended for split in splits),
        bounded=True,
        rowtime=max(rowtimes, default=None),
    )


def folded(splits: Sequence[SplitWatermark], seen: set[str]) -> list[SplitWatermark]:
    """`splits` with those of the bounded phase that are not `seen` in this epoch put together, so that a log row does
    not name every chunk of a snapshot."""
    done = [split for split in splits if split.bounded and split.split not in seen]
    if len(done) < 2:
        return list(splits)
    return [split for split in splits if split not in done] + [together(done)]
