"""Event-time process functions (FLIP-499): what a user writes, and the engine that runs it over the keys of a task.

Nothing here knows Spark or the lake; `tidegate.pipelines.runtime.processes` makes epochs of tables out of it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tidegate.pipelines.process.contexts import (
    EventTimeManager,
    NonPartitionedContext,
    PartitionedContext,
    StateManager,
    TwoOutputNonPartitionedContext,
    TwoOutputPartitionedContext,
    WatermarkManager,
)
from tidegate.pipelines.process.errors import (
    BroadcastReadOnly,
    FunctionRaised,
    InvalidDeclaration,
    NoEventTime,
    NotKeyed,
    NotWrapped,
    ProcessError,
    UndeclaredState,
    UndeclaredWatermark,
    WrongValue,
)
from tidegate.pipelines.process.extension import EventTimeExtension, WrappedProcessFunction
from tidegate.pipelines.process.functions import (
    Collector,
    EventTimeProcessFunction,
    OneInputEventTimeStreamProcessFunction,
    OneInputStreamProcessFunction,
    ProcessFunction,
    TwoInputBroadcastEventTimeStreamProcessFunction,
    TwoInputBroadcastStreamProcessFunction,
    TwoInputNonBroadcastEventTimeStreamProcessFunction,
    TwoInputNonBroadcastStreamProcessFunction,
    TwoOutputEventTimeStreamProcessFunction,
    TwoOutputStreamProcessFunction,
)
from tidegate.pipelines.process.generator import (
    EventTimeExtractor,
    EventTimeGeneratorFunction,
    WatermarkGeneratorBuilder,
)
from tidegate.pipelines.process.state.declared import (
    BroadcastStateDeclaration,
    ListStateDeclaration,
    MapStateDeclaration,
    ReducingStateDeclaration,
    StateDeclaration,
    StateDeclarations,
    ValueStateDeclaration,
)
from tidegate.pipelines.process.state.stores import BroadcastState, ListState, MapState, ReducingState, ValueState
from tidegate.pipelines.process.watermarks.declarations import (
    EVENT_TIME_WATERMARK_DECLARATION,
    IDLE_STATUS_WATERMARK_DECLARATION,
    BoolCombine,
    BoolWatermark,
    BoolWatermarkDeclaration,
    GeneralizedWatermark,
    LongCombine,
    LongWatermark,
    LongWatermarkDeclaration,
    WatermarkDeclaration,
    WatermarkDeclarations,
    WatermarkHandlingResult,
    WatermarkHandlingStrategy,
)

if TYPE_CHECKING:
    from tidegate.pipelines.process.local import Arrived, LocalRun

__all__ = [
    "EVENT_TIME_WATERMARK_DECLARATION",
    "IDLE_STATUS_WATERMARK_DECLARATION",
    "Arrived",
    "BoolCombine",
    "BoolWatermark",
    "BoolWatermarkDeclaration",
    "BroadcastReadOnly",
    "BroadcastState",
    "BroadcastStateDeclaration",
    "Collector",
    "EventTimeExtension",
    "EventTimeExtractor",
    "EventTimeGeneratorFunction",
    "EventTimeManager",
    "EventTimeProcessFunction",
    "FunctionRaised",
    "GeneralizedWatermark",
    "InvalidDeclaration",
    "ListState",
    "ListStateDeclaration",
    "LocalRun",
    "LongCombine",
    "LongWatermark",
    "LongWatermarkDeclaration",
    "MapState",
    "MapStateDeclaration",
    "NoEventTime",
    "NonPartitionedContext",
    "NotKeyed",
    "NotWrapped",
    "OneInputEventTimeStreamProcessFunction",
    "OneInputStreamProcessFunction",
    "PartitionedContext",
    "ProcessError",
    "ProcessFunction",
    "ReducingState",
    "ReducingStateDeclaration",
    "StateDeclaration",
    "StateDeclarations",
    "StateManager",
    "TwoInputBroadcastEventTimeStreamProcessFunction",
    "TwoInputBroadcastStreamProcessFunction",
    "TwoInputNonBroadcastEventTimeStreamProcessFunction",
    "TwoInputNonBroadcastStreamProcessFunction",
    "TwoOutputEventTimeStreamProcessFunction",
    "TwoOutputNonPartitionedContext",
    "TwoOutputPartitionedContext",
    "TwoOutputStreamProcessFunction",
    "UndeclaredState",
    "UndeclaredWatermark",
    "ValueState",
    "ValueStateDeclaration",
    "WatermarkDeclaration",
    "WatermarkDeclarations",
    "WatermarkGeneratorBuilder",
    "WatermarkHandlingResult",
    "WatermarkHandlingStrategy",
    "WatermarkManager",
    "WrappedProcessFunction",
    "WrongValue",
]


def __getattr__(name: str) -> Any:
    """The engine's names are imported when they are used: code that only defines a function does not need them."""
    if name in ("Arrived", "LocalRun"):
        return getattr(import_module(f"{__name__}.local"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
