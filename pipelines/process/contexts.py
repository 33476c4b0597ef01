"""What a process function is handed beside a record: its key and state, and where watermarks go."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tidegate.pipelines.process.errors import InvalidDeclaration, NotKeyed, UndeclaredState
from tidegate.pipelines.process.state.declared import StateDeclaration, described
from tidegate.pipelines.process.state.stores import (
    BroadcastState,
    CurrentKey,
    ListState,
    MapState,
    ReducingState,
    ValueState,
)
from tidegate.pipelines.process.watermarks.manager import WatermarkManager

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
