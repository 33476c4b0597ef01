"""The watermarks of several channels combined into one: the valve of an input, the combined status of an operator, the
multiplexer of a source's splits. They differ in which channels count; the rule is the same.

Source: FLIP-326, changes 6 and 7, and its chart of two channels.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass

from tidegate.pipelines.watermarks.watermark import (
    BEGINNING,
    MIN_TIMESTAMP,
    PROCESSING_TIME,
    InvalidWatermark,
    Watermark,
    WatermarkOutput,
)


@dataclass
class Channel:
    """The state of one channel: its last watermark and idleness. One in processing time counts as active, whatever its
    idleness."""

    timestamp: int = MIN_TIMESTAMP
    use_processing_time: bool = False
    marked_idle: bool = False

    @property
    def idle(self) -> bool:
        return self.marked_idle and not self.use_processing_time

    def emit(self, watermark: Watermark) -> None:
        """Process `watermark`, which ends idleness. A watermark that would turn time back changes nothing else."""
        self.marked_idle = False
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


def combine(channels: Channels, last: Watermark, *, aligned_only: bool) -> Watermark | None:
    """The stream's new watermark; None if it does not move beyond `last`.

    All channels in processing time: processing time. Else the minimum over the active channels in event time; with
    `aligned_only`, over those of them that have reached `last`. If every channel in event time is idle, or not aligned,
    the watermark stays: in event time idleness may skip a channel, but it may never open the gate.
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


class _Combination:
    """Channels with their combined watermark and idleness, and the output, if there is one, that gets changes of
    these."""

    _aligned_only = False
    """See `combine`."""

    def __init__(self, channels: Channels, last: Watermark, output: WatermarkOutput | None = None) -> None:
        self._channels = channels
        self._last = last
        self._output = output
        self._idle = False

    def _update(self) -> bool:
        """Combine the channels and emit changes; returns whether the watermark has changed."""
        idle = bool(self._channels) and all(channel.idle for channel in self._channels.values())
        if idle != self._idle:
            if self._output is not None:
                (self._output.mark_idle if idle else self._output.mark_active)()
            self._idle = idle
        watermark = combine(self._channels, self._last, aligned_only=self._aligned_only)
        if watermark is None:
            return False
        if self._output is not None:
            self._output.emit_watermark(watermark)
        self._last = watermark
        return True


class _Inputs(_Combination):
    """Channels that are known from the start. Each method says whether `.watermark` moved; an unknown channel is an
    InvalidWatermark."""

    @property
    def watermark(self) -> Watermark:
        """The combined watermark so far; (MIN_TIMESTAMP, false) at first, (MIN_TIMESTAMP, true) in processing time."""
        return self._last

    @property
    def idle(self) -> bool:
        """Whether all channels are idle."""
        return self._idle

    def input_watermark(self, channel: Hashable, watermark: Watermark) -> bool:
        """`channel` emitted `watermark`; it is active from here on."""
        find(self._channels, channel).emit(watermark)
        return self._update()

    def input_idle(self, channel: Hashable) -> bool:
        """`channel` turned idle."""
        find(self._channels, channel).marked_idle = True
        return self._update()

    def input_active(self, channel: Hashable) -> bool:
        """`channel` came back from idle."""
        find(self._channels, channel).marked_idle = False
        return self._update()

    def input_all(self, inputs: Mapping[Hashable, tuple[Watermark, bool]], emitted: Collection[Hashable] = ()) -> bool:
        """Several channels emitted a watermark, and may be idle now, at the same moment. The watermark of one in
        `emitted` that is idle still counts once, as it was emitted before (FLIP-126)."""
        found = [(name, find(self._channels, name), *state) for name, state in inputs.items()]
        moved = False
        if any(idle and name in emitted for name, _, _, idle in found):
            moved = self.input_all({name: (mark, idle and name not in emitted) for name, _, mark, idle in found})
        for _, channel, watermark, idle in found:
            channel.emit(watermark)
            channel.marked_idle = idle
        return self._update() or moved


class StatusWatermarkValve(_Inputs):
    """Emits the watermark of an input to `output`: it never goes back and never passes a channel that counts.

    A channel counts (is aligned) if it is active and has reached the last output: one that comes back from idle is
    passed over until then. When all channels are idle the input is idle, and its last watermark stays. A channel in
    processing time counts as active and as "now"; only when all channels are in processing time the input is, and it
    stays so. A watermark that would turn its own channel's time back is ignored; it ends idleness all the same. What
    `output` refuses (its clock is behind) is emitted again at the next input of any channel.

    Args:
        channels: How many channels (they are called 0, 1, …), or their names.
        output: Receives each new watermark once, and idleness when it changes.
        last: The last output, to go on from it; `input_all` then restores what each channel had emitted.

    Raises:
        InvalidWatermark: No channels; and from the methods, an unknown channel.
    """

    _aligned_only = True

    def __init__(
        self, channels: int | Iterable[Hashable], output: WatermarkOutput, last: Watermark = BEGINNING
    ) -> None:
        super().__init__(named(channels), last, output)


class CombinedWatermarkStatus(_Inputs):
    """The watermark over all inputs, which never goes back and never passes an active input.

    Unlike in the valve, an input that comes back from idle behind the watermark is not passed over: the watermark
    stays until that input has caught up. An input in processing time counts as active and as "now"; only when all
    inputs are in processing time the combination is, and it stays so.

    Args:
        inputs: How many inputs (they are called 0, 1, …), or their names.
        last: The last watermark, to go on from it; `input_all` then restores what each input had emitted.

    Raises:
        InvalidWatermark: No inputs; and from the methods, an unknown input.
    """

    def __init__(self, inputs: int | Iterable[Hashable], last: Watermark = BEGINNING) -> None:
        super().__init__(named(inputs), last)


class WatermarkOutputMultiplexer(_Combination):
    """Emits the minimum over the active splits to `output`; it never goes back.

    A new split holds the watermark until it has caught up. What an immediate output gets may move the watermark at
    once; what a deferred one gets counts from the next `on_periodic_emit`, or from the next emission of an immediate
    one. So does the leaving of a split. The source turns to processing time when all its splits have; a split that is
    registered later does not turn it back.
    """

    def __init__(self, output: WatermarkOutput) -> None:
        super().__init__({}, BEGINNING, output)

    def register(self, split: Hashable) -> None:
        """Add `split`, active, with no watermark yet. Raises InvalidWatermark if it is there already."""
        if split in self._channels:
            raise InvalidWatermark(f"split {split!r} is registered already")
        self._channels[split] = Channel()

    def unregister(self, split: Hashable) -> bool:
        """Remove `split`, so that it no longer holds the watermark. False if it was not there."""
        return self._channels.pop(split, None) is not None

    def immediate_output(self, split: Hashable) -> WatermarkOutput:
        """An output of `split` that acts at once. Raises InvalidWatermark if it is not registered."""
        return _SplitOutput(find(self._channels, split), self, immediate=True)

    def deferred_output(self, split: Hashable) -> WatermarkOutput:
        """An output of `split` that waits for `on_periodic_emit`. Raises InvalidWatermark if it is not registered."""
        return _SplitOutput(find(self._channels, split), self, immediate=False)

    def on_periodic_emit(self) -> None:
        """Combine the watermarks of all splits, and emit what changed to the output. What the output refuses (its clock
        is behind) is emitted again the next time."""
        self._update()


class _SplitOutput:
    """The output of one split. Still harmless after the split has been unregistered."""

    def __init__(self, channel: Channel, multiplexer: WatermarkOutputMultiplexer, *, immediate: bool) -> None:
        self._channel = channel
        self._multiplexer = multiplexer
        self._immediate = immediate

    def emit_watermark(self, watermark: Watermark) -> None:
        self._channel.emit(watermark)
        self._changed()

    def mark_idle(self) -> None:
        self._channel.marked_idle = True
        self._changed()

    def mark_active(self) -> None:
        self._channel.marked_idle = False
        self._changed()

    def _changed(self) -> None:
        if self._immediate:
            self._multiplexer.on_periodic_emit()
