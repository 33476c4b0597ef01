"""The watermark of one input that arrives through several channels: the minimum over the aligned ones.

Source: FLIP-326, change 6.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping

from tidegate.pipelines.watermarks.channels import all_idle, combine, find, input_all, named
from tidegate.pipelines.watermarks.output import WatermarkOutput
from tidegate.pipelines.watermarks.watermark import BEGINNING, Watermark


class StatusWatermarkValve:
    """Tells `output` the watermark of an input, which never goes back and never passes a channel that counts.

    A channel counts (is aligned) if it is active and has reached the last output: one that comes back from idle is
    passed over until then. When all channels are idle the input is idle, and its last watermark stays. A channel in
    processing time counts as active and as "now"; only when all channels are in processing time the input is, and it
    stays so. A watermark that would turn its own channel's time back is ignored; it ends idleness all the same. What
    `output` refuses (its clock is behind) is emitted again at the next input of any channel.

    Args:
        channels: How many channels (they are called 0, 1, …), or their names.
        output: Told each new watermark once, and idleness when it changes.
        last: The last output, to go on from it; `input_all` then restores what each channel had emitted.

    Raises:
        InvalidWatermark: No channels; and from the methods, an unknown channel.
    """

    def __init__(
        self, channels: int | Iterable[Hashable], output: WatermarkOutput, last: Watermark = BEGINNING
    ) -> None:
        self._channels = named(channels)
        self._output = output
        self._last = last
        self._idle = False

    @property
    def watermark(self) -> Watermark:
        """The last output; (MIN_TIMESTAMP, false) before the first."""
        return self._last

    @property
    def idle(self) -> bool:
        """Whether all channels are idle."""
        return self._idle

    def input_watermark(self, channel: Hashable, watermark: Watermark) -> None:
        """`channel` emitted `watermark`; it is active from here on."""
        find(self._channels, channel).tell(watermark)
        self._update()

    def input_idle(self, channel: Hashable) -> None:
        """`channel` turned idle."""
        find(self._channels, channel).told_idle = True
        self._update()

    def input_active(self, channel: Hashable) -> None:
        """`channel` came back from idle."""
        find(self._channels, channel).told_idle = False
        self._update()

    def input_all(self, inputs: Mapping[Hashable, tuple[Watermark, bool]]) -> None:
        """Several channels emitted a watermark, and whether they are idle now, at the same moment."""
        input_all(self._channels, inputs)
        self._update()

    def _update(self) -> None:
        idle = all_idle(self._channels)
        if idle != self._idle:
            (self._output.mark_idle if idle else self._output.mark_active)()
            self._idle = idle
        watermark = combine(self._channels, self._last, aligned_only=True)
        if watermark is not None:
            self._output.emit_watermark(watermark)
            self._last = watermark
