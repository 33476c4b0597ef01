"""What is known of the channels of a stream, and the one rule by which they are combined.

Source: FLIP-326, changes 6 and 7, and its chart of two channels. Kept apart from the valve and the combined status,
which only differ in the channels that count.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass

from tidegate.pipelines.watermarks.errors import InvalidWatermark
from tidegate.pipelines.watermarks.watermark import MIN_TIMESTAMP, PROCESSING_TIME, Watermark


@dataclass
class Channel:
    """The last word of one channel. One in processing time counts as active, whatever it said of idleness."""

    timestamp: int = MIN_TIMESTAMP
    use_processing_time: bool = False
    told_idle: bool = False

    @property
    def idle(self) -> bool:
        return self.told_idle and not self.use_processing_time

    def tell(self, watermark: Watermark) -> None:
        """Take in `watermark`, which ends idleness. One that would turn time back changes nothing else."""
        self.told_idle = False
        if watermark.use_processing_time:
            self.use_processing_time = True
        elif not self.use_processing_time:
            self.timestamp = max(self.timestamp, watermark.timestamp)


Channels = dict[Hashable, Channel]


def named(channels: int | Iterable[Hashable]) -> Channels:
    """Fresh channels: `channels` is how many (they are called 0, 1, …), or their names."""
    if isinstance(channels, bool) or (isinstance(channels, int) and channels < 1):
        raise InvalidWatermark(f"the number of channels is at least 1, not {channels!r}")
    names = list(range(channels)) if isinstance(channels, int) else list(channels)
    if not names or len(set(names)) < len(names):
        raise InvalidWatermark(f"channels need names of their own, not {names!r}")
    return {name: Channel() for name in names}


def find(channels: Channels, name: Hashable) -> Channel:
    """The channel called `name`. Raises InvalidWatermark."""
    if name not in channels:
        raise InvalidWatermark(f"there is no channel {name!r}; there are {', '.join(map(repr, channels))}")
    return channels[name]


def input_all(channels: Channels, inputs: Mapping[Hashable, tuple[Watermark, bool]]) -> None:
    """Take in several channels' last (watermark, idle), as one. Raises InvalidWatermark."""
    found = [(find(channels, name), watermark, idle) for name, (watermark, idle) in inputs.items()]
    for channel, watermark, idle in found:
        channel.tell(watermark)
        channel.told_idle = idle


def all_idle(channels: Channels) -> bool:
    """Whether the whole stream is idle."""
    return bool(channels) and all(channel.idle for channel in channels.values())


def combine(channels: Channels, last: Watermark, *, aligned_only: bool) -> Watermark | None:
    """The stream's new watermark; None if it does not move beyond `last`.

    All channels in processing time: processing time. Else the minimum over the active channels in event time, with
    `aligned_only` over those of them that have reached `last`. If every channel in event time is idle, or passed over,
    the stream holds: idleness may pass over a channel in event time, it may never open the gate.
    """
    if last.use_processing_time or not channels:
        return None
    if all(channel.use_processing_time for channel in channels.values()):
        return PROCESSING_TIME
    counted = [
        channel.timestamp
        for channel in channels.values()
        if not channel.use_processing_time
        and not channel.idle
        and not (aligned_only and channel.timestamp < last.timestamp)
    ]
    lowest = min(counted, default=MIN_TIMESTAMP)
    return Watermark(lowest) if lowest > last.timestamp else None
