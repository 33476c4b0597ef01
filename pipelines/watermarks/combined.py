"""The watermark of an operator with several inputs: the minimum over the active ones.

Source: FLIP-326, change 7 (Flink calls it IndexedCombinedWatermarkStatus).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping

from tidegate.pipelines.watermarks.channels import all_idle, combine, find, input_all, named
from tidegate.pipelines.watermarks.watermark import BEGINNING, Watermark


class CombinedWatermarkStatus:
    """Knows the watermark over all inputs, which never goes back and never passes an active input.

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
        self._inputs = named(inputs)
        self._last = last

    @property
    def watermark(self) -> Watermark:
        """The watermark as of now; (MIN_TIMESTAMP, false) at first, (MIN_TIMESTAMP, true) in processing time."""
        return self._last

    @property
    def idle(self) -> bool:
        """Whether all inputs are idle."""
        return all_idle(self._inputs)

    def input_watermark(self, channel: Hashable, watermark: Watermark) -> bool:
        """Input `channel` emitted `watermark`; it is active from here on. True if `.watermark` moved."""
        find(self._inputs, channel).tell(watermark)
        return self._update()

    def input_idle(self, channel: Hashable) -> bool:
        """Input `channel` turned idle. True if `.watermark` moved."""
        find(self._inputs, channel).told_idle = True
        return self._update()

    def input_active(self, channel: Hashable) -> bool:
        """Input `channel` came back from idle. True if `.watermark` moved."""
        find(self._inputs, channel).told_idle = False
        return self._update()

    def input_all(self, inputs: Mapping[Hashable, tuple[Watermark, bool]]) -> bool:
        """Several inputs emitted a watermark, and whether they are idle now, at the same moment."""
        input_all(self._inputs, inputs)
        return self._update()

    def _update(self) -> bool:
        watermark = combine(self._inputs, self._last, aligned_only=False)
        if watermark is not None:
            self._last = watermark
        return watermark is not None
