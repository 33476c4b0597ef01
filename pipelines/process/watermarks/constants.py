"""The two watermarks of event time (FLIP-499, "Step 1")."""

from __future__ import annotations

from tidegate.pipelines.process.watermarks.declarations import WatermarkDeclarations

EVENT_TIME_WATERMARK_DECLARATION = (
    WatermarkDeclarations.new_builder("BUILTIN_API_EVENT_TIME").type_long().combine_function_min().build()
)
"""No record with a rowtime earlier than its value (ms, UTC) is still to come."""

IDLE_STATUS_WATERMARK_DECLARATION = (
    WatermarkDeclarations.new_builder("BUILTIN_API_EVENT_TIME_IDLE").type_bool().combine_function_and().build()
)
"""Nobody needs to wait for this input: it is left out where event times are combined."""
