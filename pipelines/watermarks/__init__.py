"""Watermarks: how far the time of a stream has come, and how that is emitted, combined and waited for.

Pure Python on the standard library: the rules alone. `tidegate.pipelines.runtime.watermark_log` applies them to the
rows of landed epochs, on Spark. The rules are FLIP-326's (processing time in watermarks), FLIP-126's (generators)
and FLIP-182's (alignment); docs/watermarks.md has them in one place.
"""

from tidegate.pipelines.watermarks.combining import (
    CombinedWatermarkStatus,
    StatusWatermarkValve,
    WatermarkOutputMultiplexer,
)
from tidegate.pipelines.watermarks.generators import (
    BoundedOutOfOrderness,
    ExpressionWatermarks,
    NoWatermarks,
    SourceWatermarks,
    StatefulGenerator,
    WatermarkGenerator,
    WithIdleness,
)
from tidegate.pipelines.watermarks.strategy import (
    AlignmentCoordinator,
    TimestampAssigner,
    WatermarkAlignment,
    WatermarkStrategy,
)
from tidegate.pipelines.watermarks.timers import Scheduler, TickScheduler, Timers
from tidegate.pipelines.watermarks.watermark import (
    BEGINNING,
    MAX_TIMESTAMP,
    MIN_TIMESTAMP,
    PROCESSING_TIME,
    GeneratorError,
    InvalidWatermark,
    ProcessingTimeBehind,
    ProcessingTimeRevoked,
    Watermark,
    WatermarkError,
    WatermarkOutput,
    WatermarkToDataOutput,
)

__all__ = [
    "BEGINNING",
    "MAX_TIMESTAMP",
    "MIN_TIMESTAMP",
    "PROCESSING_TIME",
    "AlignmentCoordinator",
    "BoundedOutOfOrderness",
    "CombinedWatermarkStatus",
    "ExpressionWatermarks",
    "GeneratorError",
    "InvalidWatermark",
    "NoWatermarks",
    "ProcessingTimeBehind",
    "ProcessingTimeRevoked",
    "Scheduler",
    "SourceWatermarks",
    "StatefulGenerator",
    "StatusWatermarkValve",
    "TickScheduler",
    "Timers",
    "TimestampAssigner",
    "Watermark",
    "WatermarkAlignment",
    "WatermarkError",
    "WatermarkGenerator",
    "WatermarkOutput",
    "WatermarkOutputMultiplexer",
    "WatermarkStrategy",
    "WatermarkToDataOutput",
    "WithIdleness",
]
