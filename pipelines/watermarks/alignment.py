"""Keeps the splits of a group together: one that is too far ahead of the slowest waits (FLIP-182, per split)."""

from __future__ import annotations

from collections.abc import Hashable
from datetime import timedelta

from tidegate.pipelines.watermarks.watermark import MAX_TIMESTAMP, InvalidWatermark, Watermark, milliseconds


class AlignmentCoordinator:
    """Blocks each split whose watermark is more than `max_drift` ahead of the least one in the group.

    A split that has emitted MAX_TIMESTAMP (it has ended) or processing time takes no part: it neither waits nor is
    waited for. Nor does one that was withdrawn because it is idle or gone.

    Args:
        group: The group's name, for people.
        max_drift: How far ahead a split may be.

    Raises:
        InvalidWatermark: `group` is empty or `max_drift` negative.
    """

    def __init__(self, group: str, max_drift: timedelta) -> None:
        if not group:
            raise InvalidWatermark("a watermark alignment group needs a name")
        self.group = group
        self.max_drift = max_drift
        self._drift = milliseconds(max_drift, "the drift", zero=True)
        self._timestamps: dict[tuple[Hashable, Hashable], int] = {}

    def report(self, source: Hashable, split: Hashable, watermark: Watermark | int) -> None:
        """The last watermark of `split` of `source`; a number is the ms of one in event time."""
        watermark = watermark if isinstance(watermark, Watermark) else Watermark(watermark)
        if watermark.use_processing_time or watermark.timestamp == MAX_TIMESTAMP:
            self.withdraw(source, split)
        else:
            self._timestamps[(source, split)] = watermark.timestamp

    def withdraw(self, source: Hashable, split: Hashable) -> None:
        """`split` of `source` is idle or gone: nobody waits for it. A report brings it back."""
        self._timestamps.pop((source, split), None)

    @property
    def slowest(self) -> tuple[tuple[Hashable, Hashable], int] | None:
        """The (source, split) that the group waits for, and its watermark in ms; None when nobody takes part."""
        if not self._timestamps:
            return None
        return min(self._timestamps.items(), key=lambda item: item[1])

    @property
    def limit(self) -> int | None:
        """The greatest watermark in ms that is not too far ahead; None when nobody takes part."""
        return None if self.slowest is None else self.slowest[1] + self._drift

    def reach(self, source: Hashable, split: Hashable) -> int | None:
        """How far `split` of `source` may come, in ms: to the least watermark of all others and the drift. What the
        slowest has emitted itself does not hold it. None when no other takes part."""
        others = [timestamp for pair, timestamp in self._timestamps.items() if pair != (source, split)]
        return min(others) + self._drift if others else None

    def blocked(self) -> set[tuple[Hashable, Hashable]]:
        """The (source, split) pairs that must not be read further now. Never all of them."""
        limit = self.limit
        return {pair for pair, timestamp in self._timestamps.items() if limit is not None and timestamp > limit}
