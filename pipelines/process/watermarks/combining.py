"""Watermarks of several channels become one, by their declarations.

Event time and idleness are combined together, by the rule that every other watermark of this house follows
(tidegate.pipelines.watermarks.CombinedWatermarkStatus): an idle channel is passed over, and time never goes back.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence

from tidegate.pipelines.process.errors import InvalidDeclaration, UndeclaredWatermark
from tidegate.pipelines.process.watermarks.declarations import (
    EVENT_TIME_WATERMARK_DECLARATION,
    IDLE_STATUS_WATERMARK_DECLARATION,
    GeneralizedWatermark,
    LongWatermark,
    LongWatermarkDeclaration,
    WatermarkDeclaration,
)
from tidegate.pipelines.watermarks import CombinedWatermarkStatus, Watermark


class DeclaredCombiner:
    """The last value of each channel of one declaration; emits a combined value where it has changed."""

    def __init__(self, declaration: WatermarkDeclaration, channels: Iterable[Hashable]) -> None:
        self.declaration = declaration
        self._channels = set(channels)
        self._last_of: dict[Hashable, int | bool] = {}
        self._last: int | bool | None = None

    def receive(self, channel: Hashable, watermark: GeneralizedWatermark) -> list[GeneralizedWatermark]:
        """The watermarks to forward after `channel` has emitted `watermark`: one, or none."""
        if channel not in self._channels:
            raise InvalidDeclaration(f"there is no channel {channel!r}")
        self._last_of[channel] = watermark.value
        if self.declaration.wait_for_all and len(self._last_of) < len(self._channels):
            return []
        values = list(self._last_of.values())
        found = self.declaration.combined(values)  # type: ignore[arg-type]
        if found == self._last:
            return []
        self._last = found
        return [self.declaration.new_watermark(found)]  # type: ignore[arg-type]


class EventTimeCombiner:
    """Event time (MIN over the channels that are not idle) and the idle status (AND) of several channels."""

    def __init__(self, channels: Iterable[Hashable]) -> None:
        self._status = CombinedWatermarkStatus(list(channels))
        self._idle = False

    def receive(self, channel: Hashable, watermark: GeneralizedWatermark) -> list[GeneralizedWatermark]:
        """The watermarks to forward after `channel` has emitted `watermark`: a change of idleness first, then a new
        event time."""
        if isinstance(watermark, LongWatermark):
            moved = self._status.input_watermark(channel, Watermark(watermark.value))
        elif watermark.value:
            moved = self._status.input_idle(channel)
        else:
            moved = self._status.input_active(channel)
        found: list[GeneralizedWatermark] = []
        if self._status.idle != self._idle:
            self._idle = self._status.idle
            found.append(IDLE_STATUS_WATERMARK_DECLARATION.new_watermark(self._idle))
        if moved:
            found.append(EVENT_TIME_WATERMARK_DECLARATION.new_watermark(self._status.watermark.timestamp))
        return found


class WatermarkCombiner:
    """All watermarks that an operator receives, through its channels.

    Args:
        declarations: What may be received; event time and idleness always may.
        channels: The names of the channels.

    Raises:
        UndeclaredWatermark: from `receive`.
    """

    def __init__(self, declarations: Iterable[WatermarkDeclaration], channels: Iterable[Hashable]) -> None:
        names = list(channels)
        event_time = EventTimeCombiner(names)
        self._combiners: dict[str, DeclaredCombiner | EventTimeCombiner] = {
            EVENT_TIME_WATERMARK_DECLARATION.identifier: event_time,
            IDLE_STATUS_WATERMARK_DECLARATION.identifier: event_time,
        }
        for declaration in declarations:
            self._combiners.setdefault(declaration.identifier, DeclaredCombiner(declaration, names))

    def receive(self, channel: Hashable, watermark: GeneralizedWatermark) -> list[GeneralizedWatermark]:
        """The combined watermarks that result when `channel` emits `watermark`."""
        combiner = self._combiners.get(watermark.identifier)
        if combiner is None:
            raise UndeclaredWatermark(watermark.identifier, sorted(self._combiners))
        return combiner.receive(channel, watermark)


def by_identifier(declarations: Iterable[WatermarkDeclaration]) -> dict[str, WatermarkDeclaration]:
    """Declarations by their names. Raises InvalidDeclaration if a name is declared in two ways, or something is no
    declaration."""
    found: dict[str, WatermarkDeclaration] = {}
    for declaration in declarations:
        if not isinstance(declaration, WatermarkDeclaration):
            raise InvalidDeclaration(
                f"{declaration!r} is no watermark declaration: build it with WatermarkDeclarations"
            )
        other = found.setdefault(declaration.identifier, declaration)
        if other != declaration:
            both = " and ".join(map(_described, (other, declaration)))
            raise InvalidDeclaration(f"watermark {declaration.identifier!r} is declared in two ways ({both})")
    return found


def _described(declaration: WatermarkDeclaration) -> str:
    kind = "a long" if isinstance(declaration, LongWatermarkDeclaration) else "a bool"
    waits = ", of all channels" if declaration.wait_for_all else ""
    return f"{kind}, {declaration.combine.name}{waits}, {declaration.strategy.name}"


BUILT_IN = by_identifier([EVENT_TIME_WATERMARK_DECLARATION, IDLE_STATUS_WATERMARK_DECLARATION])
"""The declarations that need not be declared."""


def combined(declared: Mapping[str, WatermarkDeclaration], identifier: str, values: Sequence[int | bool]) -> int | bool:
    """One value for several of a watermark that was emitted for several keys or by several tasks; if nobody declares
    it, the last."""
    declaration = BUILT_IN.get(identifier) or declared.get(identifier)
    return values[-1] if declaration is None else declaration.combined(values)  # type: ignore[arg-type]
