"""Base classes of process functions (FLIP-409's, with FLIP-499's event time). A function overrides what it needs.

Plain functions handle watermarks in `on_watermark`. Event-time functions have timers, and are given to
`EventTimeExtension.wrap_process_function`.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Protocol

from tidegate.pipelines.process.contexts import EventTimeManager, NonPartitionedContext, PartitionedContext
from tidegate.pipelines.process.state.declared import StateDeclaration
from tidegate.pipelines.process.watermarks.declarations import (
    GeneralizedWatermark,
    WatermarkDeclaration,
    WatermarkHandlingResult,
)


class Collector(Protocol):
    """Takes output records: tuples in the order of the schema, dicts, or objects with attributes of its names."""

    def collect(self, record: Any) -> None: ...


class ProcessFunction:
    """What all process functions have. An instance lives for one epoch on one task."""

    def uses_states(self) -> Collection[StateDeclaration]:
        """The states that it keeps."""
        return ()

    def watermark_declarations(self) -> Collection[WatermarkDeclaration]:
        """The watermarks that it emits."""
        return ()

    def open(self, ctx: NonPartitionedContext) -> None:
        """Called before anything else."""

    def close(self) -> None:
        """Called after everything else."""


class OneInputStreamProcessFunction(ProcessFunction):
    """Records of one input, one output."""

    def process_record(self, record: Any, output: Collector, ctx: PartitionedContext) -> None:
        raise NotImplementedError

    def on_watermark(
        self, watermark: GeneralizedWatermark, output: Collector, ctx: NonPartitionedContext
    ) -> WatermarkHandlingResult:
        return WatermarkHandlingResult.PEEK


class TwoInputBroadcastStreamProcessFunction(ProcessFunction):
    """Records of a keyed input, and of a broadcast one that every task sees whole."""

    def process_record_from_non_broadcast_input(self, record: Any, output: Collector, ctx: PartitionedContext) -> None:
        raise NotImplementedError

    def process_record_from_broadcast_input(self, record: Any, ctx: NonPartitionedContext) -> None:
        raise NotImplementedError

    def on_watermark(
        self, watermark: GeneralizedWatermark, output: Collector, ctx: NonPartitionedContext
    ) -> WatermarkHandlingResult:
        return WatermarkHandlingResult.PEEK


class TwoInputNonBroadcastStreamProcessFunction(ProcessFunction):
    """Records of two inputs that are keyed alike."""

    def process_record_from_first_input(self, record: Any, output: Collector, ctx: PartitionedContext) -> None:
        raise NotImplementedError

    def process_record_from_second_input(self, record: Any, output: Collector, ctx: PartitionedContext) -> None:
        raise NotImplementedError

    def on_watermark(
        self, watermark: GeneralizedWatermark, output: Collector, ctx: NonPartitionedContext
    ) -> WatermarkHandlingResult:
        return WatermarkHandlingResult.PEEK


class TwoOutputStreamProcessFunction(ProcessFunction):
    """Records of one input, two outputs."""

    def process_record(self, record: Any, output1: Collector, output2: Collector, ctx: PartitionedContext) -> None:
        raise NotImplementedError

    def on_watermark(
        self, watermark: GeneralizedWatermark, output1: Collector, output2: Collector, ctx: NonPartitionedContext
    ) -> WatermarkHandlingResult:
        return WatermarkHandlingResult.PEEK


class EventTimeProcessFunction(ProcessFunction):
    """What event-time functions have. One of the four below is what to derive from."""

    def init_event_time_process_function(self, event_time_manager: EventTimeManager) -> None:
        """Called once, before `open`; keep the manager."""


class _OneOutput(EventTimeProcessFunction):
    def on_event_time_watermark(self, watermark_timestamp: int, output: Collector, ctx: NonPartitionedContext) -> None:
        """The watermark has reached `watermark_timestamp` (ms, UTC). Called before the keys' timers up to it fire."""

    def on_event_timer(self, timestamp: int, output: Collector, ctx: PartitionedContext) -> None:
        """A timer of the current key, set to `timestamp` (ms, UTC), is due."""


class OneInputEventTimeStreamProcessFunction(_OneOutput, OneInputStreamProcessFunction):
    """Records of one input, one output, event time."""


class TwoInputBroadcastEventTimeStreamProcessFunction(_OneOutput, TwoInputBroadcastStreamProcessFunction):
    """Records of a keyed input and of a broadcast one, event time. Timers belong to the keyed input."""


class TwoInputNonBroadcastEventTimeStreamProcessFunction(_OneOutput, TwoInputNonBroadcastStreamProcessFunction):
    """Records of two inputs that are keyed alike, event time."""


class TwoOutputEventTimeStreamProcessFunction(EventTimeProcessFunction, TwoOutputStreamProcessFunction):
    """Records of one input, two outputs, event time."""

    def on_event_time_watermark(
        self, watermark_timestamp: int, output1: Collector, output2: Collector, ctx: NonPartitionedContext
    ) -> None:
        """The watermark has reached `watermark_timestamp` (ms, UTC). Called before the keys' timers up to it fire."""

    def on_event_timer(self, timestamp: int, output1: Collector, output2: Collector, ctx: PartitionedContext) -> None:
        """A timer of the current key, set to `timestamp` (ms, UTC), is due."""
