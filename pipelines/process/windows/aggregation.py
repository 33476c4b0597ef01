"""The function behind SQL's windows: one value for each key and window, emitted when the time has reached its end.

Its records are added up already (`tidegate.pipelines.process.windows.windowed`), so it only merges parts.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable, Sequence
from typing import Any

from tidegate.pipelines.process.contexts import EventTimeManager, PartitionedContext
from tidegate.pipelines.process.functions import Collector, OneInputEventTimeStreamProcessFunction
from tidegate.pipelines.process.state.declared import StateDeclarations
from tidegate.pipelines.process.windows.windowed import Part

_EXACT = decimal.Context(prec=80, traps=[decimal.Inexact, decimal.InvalidOperation])
"""Numbers of up to 38 digits are added without loss; a sum that is too large for its type is refused where it is
stored."""


class WindowAggregation(OneInputEventTimeStreamProcessFunction):
    """Puts the parts of windows together. The key is the window's end (ms, UTC) and what rows are grouped by.

    Args:
        groups: By how many expressions rows are grouped.
        parts: What is stored of a window.

    A record is the key, then the parts; so is what it collects.
    """

    def __init__(self, groups: int, parts: Sequence[Part]) -> None:
        self._keys, self._names = 1 + groups, tuple(part.name for part in parts)
        self._merges = tuple(MERGES[part.kind] for part in parts)
        self._sets = tuple(part.kind == "set" for part in parts)
        fields = ", ".join(f"`{part.name}` {part.type}" for part in parts)
        self._kept = StateDeclarations.value_state("kept", f"ROW<{fields}>")

    def uses_states(self):
        return (self._kept,)

    def init_event_time_process_function(self, event_time_manager: EventTimeManager) -> None:
        self._manager = event_time_manager

    def process_record(self, record: Any, output: Collector, ctx: PartitionedContext) -> None:
        state, parts = ctx.get_state_manager().get_state(self._kept), record[self._keys :]
        stored = state.value()
        if stored is None:
            state.update(tuple(parts))
        else:
            pairs = zip(self._merges, self._names, parts, strict=True)
            state.update(tuple(merge(stored[name], part) for merge, name, part in pairs))
        self._manager.register_timer(record[0])

    def on_event_timer(self, timestamp: int, output: Collector, ctx: PartitionedContext) -> None:
        states = ctx.get_state_manager()
        state, key = states.get_state(self._kept), states.get_current_key()
        stored = state.value()
        state.clear()
        values = (
            len(stored[name]) if is_set else stored[name] for name, is_set in zip(self._names, self._sets, strict=True)
        )
        output.collect((*(key if self._keys > 1 else (key,)), *values))


def _known(merge: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """NULL adds nothing to a window: SQL's aggregates ignore it."""

    def merged(one: Any, other: Any) -> Any:
        if one is None or other is None:
            return one if other is None else other
        return merge(one, other)

    return merged


def _sum(one: Any, other: Any) -> Any:
    return _EXACT.add(one, other) if isinstance(one, decimal.Decimal) else one + other


def _before(one: Any, other: Any) -> bool:
    """Spark's order: NaN is the greatest number."""
    return one == one and (other != other or one < other)


def _set(one: Sequence[Any], other: Sequence[Any]) -> list[Any]:
    return list(dict.fromkeys((*one, *other)))


MERGES: dict[str, Callable[[Any, Any], Any]] = {
    "sum": _known(_sum),
    "min": _known(lambda one, other: other if _before(other, one) else one),
    "max": _known(lambda one, other: other if _before(one, other) else one),
    "set": _known(_set),
}
"""How two parts of a window become one, by `Part.kind`."""
