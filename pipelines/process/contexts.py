"""What a process function is handed beside a record: its key, its state, and where it emits watermarks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tidegate.pipelines.process.errors import InvalidDeclaration, NotKeyed, UndeclaredState, UndeclaredWatermark
from tidegate.pipelines.process.state.declared import StateDeclaration, described
from tidegate.pipelines.process.state.stores import (
    BroadcastState,
    CurrentKey,
    ListState,
    MapState,
    ReducingState,
    ValueState,
)
from tidegate.pipelines.process.watermarks.combining import by_identifier
from tidegate.pipelines.process.watermarks.declarations import GeneralizedWatermark, WatermarkDeclaration


class WatermarkManager:
    """Sends watermarks to the outputs of a process function.

    Args:
        declarations: What the function may emit.
        send: Where it goes.
    """

    def __init__(
        self, declarations: Iterable[WatermarkDeclaration], send: Callable[[GeneralizedWatermark], None]
    ) -> None:
        self._declared = by_identifier(declarations)
        self._send = send

    def emit_watermark(self, watermark: GeneralizedWatermark) -> None:
        """Send `watermark` to every output.

        Raises:
            UndeclaredWatermark: Its name is not among the function's declarations.
            InvalidDeclaration: It is none, or of another type than its declaration.
        """
        if not isinstance(watermark, GeneralizedWatermark):
            raise InvalidDeclaration(f"{watermark!r} is no watermark: make one with new_watermark of its declaration")
        declaration = self._declared.get(watermark.identifier)
        if declaration is None:
            raise UndeclaredWatermark(watermark.identifier, sorted(self._declared))
        if type(declaration.new_watermark(watermark.value)) is not type(watermark):  # type: ignore[arg-type]
            raise InvalidDeclaration(f"watermark {watermark.identifier!r} was declared as another type")
        self._send(watermark)


State = ValueState | ListState | MapState | ReducingState | BroadcastState


class StateManager:
    """The declared states of a function, and the current key."""

    def __init__(self, current: CurrentKey, states: Mapping[str, tuple[StateDeclaration, State]]) -> None:
        self._current = current
        self._states = states

    def get_current_key(self) -> Any:
        """The key: a single value, or a named tuple where several columns make it. Raises NotKeyed."""
        if self._current.cells is None:
            raise NotKeyed("the current key")
        return self._current.key

    def get_state(self, declaration: StateDeclaration) -> Any:
        """The state that was declared. The same object at every call: it may be asked for once, in `open`.

        Raises UndeclaredState, and InvalidDeclaration where another kind of state is declared, or a name is given.
        """
        try:
            declared, state = self._states[declaration.name]
        except (AttributeError, KeyError):
            raise self._unknown(declaration) from None
        if type(declared) is not type(declaration):
            raise _another(declared, declaration)
        return state

    def _unknown(self, asked: Any) -> UndeclaredState | InvalidDeclaration:
        name = asked.name if isinstance(asked, StateDeclaration) else str(asked)
        known = self._states.get(name)
        return UndeclaredState(name, sorted(self._states)) if known is None else _another(known[0], asked)


def _another(declared: StateDeclaration, asked: Any) -> InvalidDeclaration:
    what = f"is declared as {described(declared)}, and asked for as {described(asked)}"
    return InvalidDeclaration(f"state {declared.name!r} {what}")


ApplyPartition = Callable[..., None]
"""(output, context), or (output1, output2, context): called once for every key, in its keyed context."""


class NonPartitionedContext:
    """The context of callbacks that are of no key."""

    def __init__(
        self, states: StateManager, watermarks: WatermarkManager, apply: Callable[[ApplyPartition], None]
    ) -> None:
        self._states = states
        self._watermarks = watermarks
        self._apply = apply

    def apply_to_all_partitions(self, function: ApplyPartition) -> None:
        """Call `function` for every key that has state or timers at this moment, in its keyed context.

        All keys are read for it. Raises NotKeyed where it is called in a keyed context, or where records have no key.
        """
        self._apply(function)

    def get_watermark_manager(self) -> WatermarkManager:
        return self._watermarks

    def get_state_manager(self) -> StateManager:
        """For broadcast state; keyed state can be had here, and used where there is a key."""
        return self._states


class PartitionedContext:
    """The context of callbacks that are of one key."""

    def __init__(self, states: StateManager, non_partitioned: NonPartitionedContext) -> None:
        self._states = states
        self._non_partitioned = non_partitioned

    def get_state_manager(self) -> StateManager:
        return self._states

    def get_non_partitioned_context(self) -> NonPartitionedContext:
        return self._non_partitioned


TwoOutputNonPartitionedContext = NonPartitionedContext
"""FLIP-409's name for the context of functions with two outputs: what is asked of every key is handed both."""

TwoOutputPartitionedContext = PartitionedContext
"""FLIP-409's name for the context of functions with two outputs."""
