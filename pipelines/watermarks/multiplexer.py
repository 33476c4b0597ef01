"""Many splits, one output: the watermark of a source that reads several splits, which may come and go.

Source: Flink's WatermarkOutputMultiplexer; combined by the rules of FLIP-326, change 7.
"""

from __future__ import annotations

from collections.abc import Hashable

from tidegate.pipelines.watermarks.channels import Channel, Channels, all_idle, combine, find
from tidegate.pipelines.watermarks.errors import InvalidWatermark
from tidegate.pipelines.watermarks.output import WatermarkOutput
from tidegate.pipelines.watermarks.watermark import BEGINNING, Watermark


class WatermarkOutputMultiplexer:
    """Tells `output` the minimum over the active splits, which never goes back.

    A new split holds the watermark until it has caught up. What an immediate output gets may move the watermark at
    once; what a deferred one gets counts from the next `on_periodic_emit`, or from the next emission of an immediate
    one. So does the leaving of a split. The source turns to processing time when all its splits have; a split that is
    registered later does not turn it back.
    """

    def __init__(self, output: WatermarkOutput) -> None:
        self._output = output
        self._splits: Channels = {}
        self._last = BEGINNING
        self._idle = False

    def register(self, split: Hashable) -> None:
        """Add `split`, active, with no watermark yet. Raises InvalidWatermark if it is there already."""
        if split in self._splits:
            raise InvalidWatermark(f"split {split!r} is registered already")
        self._splits[split] = Channel()

    def unregister(self, split: Hashable) -> bool:
        """Remove `split`, so that it no longer holds the watermark. False if it was not there."""
        return self._splits.pop(split, None) is not None

    def immediate_output(self, split: Hashable) -> WatermarkOutput:
        """An output of `split` that acts at once. Raises InvalidWatermark if it is not registered."""
        return _SplitOutput(find(self._splits, split), self, immediate=True)

    def deferred_output(self, split: Hashable) -> WatermarkOutput:
        """An output of `split` that waits for `on_periodic_emit`. Raises InvalidWatermark if it is not registered."""
        return _SplitOutput(find(self._splits, split), self, immediate=False)

    def on_periodic_emit(self) -> None:
        """Combine what all splits have said, and emit to the output what changed. What the output refuses (its clock is
        behind) is emitted again the next time."""
        idle = all_idle(self._splits)
        if idle != self._idle:
            (self._output.mark_idle if idle else self._output.mark_active)()
            self._idle = idle
        watermark = combine(self._splits, self._last, aligned_only=False)
        if watermark is not None:
            self._output.emit_watermark(watermark)
            self._last = watermark


class _SplitOutput:
    """The output of one split. Still harmless after the split has been unregistered."""

    def __init__(self, channel: Channel, multiplexer: WatermarkOutputMultiplexer, *, immediate: bool) -> None:
        self._channel = channel
        self._multiplexer = multiplexer
        self._immediate = immediate

    def emit_watermark(self, watermark: Watermark) -> None:
        self._channel.tell(watermark)
        self._changed()

    def mark_idle(self) -> None:
        self._channel.told_idle = True
        self._changed()

    def mark_active(self) -> None:
        self._channel.told_idle = False
        self._changed()

    def _changed(self) -> None:
        if self._immediate:
            self._multiplexer.on_periodic_emit()
