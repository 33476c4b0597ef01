"""Generalised watermarks: a value of a declared meaning that travels between the records (FLIP-467, for FLIP-499).

A declaration says how the values of several channels become one: MIN or MAX of longs, AND or OR of bools. A watermark
that nobody handles is forwarded, or ignored, as its declaration says.

    declaration = WatermarkDeclarations.new_builder("progress").type_long().combine_function_min().build()
    context.get_watermark_manager().emit_watermark(declaration.new_watermark(42))
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Generic, Self, TypeVar

from tidegate.pipelines.process.errors import InvalidDeclaration
from tidegate.pipelines.watermarks import MAX_TIMESTAMP, MIN_TIMESTAMP


class WatermarkHandlingResult(Enum):
    """What `on_watermark` returns. PEEK: the watermark goes where its declaration says, handled or not. POP: the
    function has taken it; nothing is forwarded unless the function emits it itself (FLIP-499, "Step 3")."""

    PEEK = "peek"
    POP = "pop"


class WatermarkHandlingStrategy(Enum):
    """Where a watermark goes after PEEK: on to the outputs, or nowhere."""

    FORWARD = "forward"
    IGNORE = "ignore"


class LongCombine(Enum):
    """How longs of several channels become one."""

    MIN = "min"
    MAX = "max"


class BoolCombine(Enum):
    """How bools of several channels become one."""

    AND = "and"
    OR = "or"


@dataclass(frozen=True)
class LongWatermark:
    """A long of 64 bits, of the declaration called `identifier`."""

    value: int
    identifier: str


@dataclass(frozen=True)
class BoolWatermark:
    """A bool of the declaration called `identifier`."""

    value: bool
    identifier: str


GeneralizedWatermark = LongWatermark | BoolWatermark


@dataclass(frozen=True)
class LongWatermarkDeclaration:
    """A watermark whose value is a long. `wait_for_all`: nothing is combined before every channel has emitted one."""

    identifier: str
    combine: LongCombine
    wait_for_all: bool = False
    strategy: WatermarkHandlingStrategy = WatermarkHandlingStrategy.FORWARD

    def new_watermark(self, value: int) -> LongWatermark:
        """A watermark of this declaration. Raises InvalidDeclaration for anything but a long."""
        if isinstance(value, bool) or not isinstance(value, int) or not MIN_TIMESTAMP <= value <= MAX_TIMESTAMP:
            raise InvalidDeclaration(f"watermark {self.identifier!r} is a long, not {value!r}")
        return LongWatermark(value, self.identifier)

    def combined(self, values: Sequence[int]) -> int:
        """One value for those of several channels."""
        return min(values) if self.combine is LongCombine.MIN else max(values)


@dataclass(frozen=True)
class BoolWatermarkDeclaration:
    """A watermark whose value is a bool. `wait_for_all`: nothing is combined before every channel has emitted one."""

    identifier: str
    combine: BoolCombine
    wait_for_all: bool = False
    strategy: WatermarkHandlingStrategy = WatermarkHandlingStrategy.FORWARD

    def new_watermark(self, value: bool) -> BoolWatermark:
        """A watermark of this declaration. Raises InvalidDeclaration for anything but a bool."""
        if not isinstance(value, bool):
            raise InvalidDeclaration(f"watermark {self.identifier!r} is a bool, not {value!r}")
        return BoolWatermark(value, self.identifier)

    def combined(self, values: Sequence[bool]) -> bool:
        """One value for those of several channels."""
        return all(values) if self.combine is BoolCombine.AND else any(values)


WatermarkDeclaration = LongWatermarkDeclaration | BoolWatermarkDeclaration
D = TypeVar("D", LongWatermarkDeclaration, BoolWatermarkDeclaration)


@dataclass(frozen=True)
class _Builder(Generic[D]):
    """Builds a declaration. Every step gives a new builder."""

    declaration: D

    def combine_wait_for_all_channels(self, wait: bool = True) -> Self:
        return self._with(wait_for_all=wait)

    def default_handling_strategy_forward(self) -> Self:
        return self._with(strategy=WatermarkHandlingStrategy.FORWARD)

    def default_handling_strategy_ignore(self) -> Self:
        return self._with(strategy=WatermarkHandlingStrategy.IGNORE)

    def build(self) -> D:
        return self.declaration

    def _with(self, **changed: Any) -> Self:
        return replace(self, declaration=replace(self.declaration, **changed))


class LongBuilder(_Builder[LongWatermarkDeclaration]):
    """Builds a LongWatermarkDeclaration; MIN by default."""

    def combine_function_min(self) -> Self:
        return self._with(combine=LongCombine.MIN)

    def combine_function_max(self) -> Self:
        return self._with(combine=LongCombine.MAX)


class BoolBuilder(_Builder[BoolWatermarkDeclaration]):
    """Builds a BoolWatermarkDeclaration; AND by default."""

    def combine_function_and(self) -> Self:
        return self._with(combine=BoolCombine.AND)

    def combine_function_or(self) -> Self:
        return self._with(combine=BoolCombine.OR)


@dataclass(frozen=True)
class TypeBuilder:
    """The first step of a declaration: what its value is."""

    identifier: str

    def type_long(self) -> LongBuilder:
        return LongBuilder(LongWatermarkDeclaration(self.identifier, LongCombine.MIN))

    def type_bool(self) -> BoolBuilder:
        return BoolBuilder(BoolWatermarkDeclaration(self.identifier, BoolCombine.AND))


class WatermarkDeclarations:
    """Where a declaration begins."""

    @staticmethod
    def new_builder(identifier: str) -> TypeBuilder:
        """`identifier` names the watermark in the whole pipeline. Raises InvalidDeclaration where it is empty."""
        if not isinstance(identifier, str) or not identifier:
            raise InvalidDeclaration(f"a watermark's identifier is a text, not {identifier!r}")
        return TypeBuilder(identifier)


EVENT_TIME_WATERMARK_DECLARATION = (
    WatermarkDeclarations.new_builder("BUILTIN_API_EVENT_TIME").type_long().combine_function_min().build()
)
"""No record with a rowtime earlier than its value (ms, UTC) is still to come."""

IDLE_STATUS_WATERMARK_DECLARATION = (
    WatermarkDeclarations.new_builder("BUILTIN_API_EVENT_TIME_IDLE").type_bool().combine_function_and().build()
)
"""Nobody needs to wait for this input: it is left out where event times are combined."""
