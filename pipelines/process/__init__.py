"""Event-time process functions (FLIP-499): what a user writes, and the engine that runs it over the keys of a task.

Nothing here knows Spark or the lake; `pipelines.runtime.processing` makes epochs of tables out of it.
"""

from pipelines.process.constants import EVENT_TIME_WATERMARK_DECLARATION, IDLE_STATUS_WATERMARK_DECLARATION
from pipelines.process.contexts import NonPartitionedContext, PartitionedContext, StateManager
from pipelines.process.declarations import (
    BoolWatermark,
    BoolWatermarkDeclaration,
    LongWatermark,
    LongWatermarkDeclaration,
    WatermarkDeclarations,
    WatermarkHandlingResult,
    WatermarkHandlingStrategy,
)
from pipelines.process.errors import (
    BroadcastReadOnly,
    FunctionRaised,
    InvalidDeclaration,
    NotKeyed,
    NotWrapped,
    ProcessError,
    UndeclaredState,
    UndeclaredWatermark,
    WrongValue,
)
from pipelines.process.extension import EventTimeExtension, WrappedProcessFunction
from pipelines.process.functions import (
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
from pipelines.process.generator import EventTimeGeneratorFunction, WatermarkGeneratorBuilder
from pipelines.process.local import Arrived, LocalRun
from pipelines.process.manager import WatermarkManager
from pipelines.process.state import StateDeclarations
from pipelines.process.timers import EventTimeManager

__all__ = [
    "EVENT_TIME_WATERMARK_DECLARATION",
    "IDLE_STATUS_WATERMARK_DECLARATION",
    "Arrived",
    "BoolWatermark",
    "BoolWatermarkDeclaration",
    "BroadcastReadOnly",
    "Collector",
    "EventTimeExtension",
    "EventTimeGeneratorFunction",
    "EventTimeManager",
    "EventTimeProcessFunction",
    "FunctionRaised",
    "InvalidDeclaration",
    "LocalRun",
    "LongWatermark",
    "LongWatermarkDeclaration",
    "NonPartitionedContext",
    "NotKeyed",
    "NotWrapped",
    "OneInputEventTimeStreamProcessFunction",
    "OneInputStreamProcessFunction",
    "PartitionedContext",
    "ProcessError",
    "ProcessFunction",
    "StateDeclarations",
    "StateManager",
    "TwoInputBroadcastEventTimeStreamProcessFunction",
    "TwoInputBroadcastStreamProcessFunction",
    "TwoInputNonBroadcastEventTimeStreamProcessFunction",
    "TwoInputNonBroadcastStreamProcessFunction",
    "TwoOutputEventTimeStreamProcessFunction",
    "TwoOutputStreamProcessFunction",
    "UndeclaredState",
    "UndeclaredWatermark",
    "WatermarkDeclarations",
    "WatermarkGeneratorBuilder",
    "WatermarkHandlingResult",
    "WatermarkHandlingStrategy",
    "WatermarkManager",
    "WrappedProcessFunction",
    "WrongValue",
]
