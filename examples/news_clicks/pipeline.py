"""FLIP-499's example: how often each news is clicked 1, 5, 10, 30 minutes and 1 hour after its release.

`tidegate run pipeline.py` reads the files in news/; with NEWS_TABLES=kafka.sql it reads a topic.
"""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

from tidegate.process import (
    Collector,
    EventTimeExtension,
    EventTimeManager,
    OneInputEventTimeStreamProcessFunction,
    PartitionedContext,
    StateDeclarations,
)
from tidegate.sql import compile_script

TIMES_AFTER_NEWS_RELEASE = [60_000, 300_000, 600_000, 1_800_000, 3_600_000]
"""ms"""

RELEASE_TIME = StateDeclarations.value_state("release_time", "BIGINT")
CLICK_TIMES = StateDeclarations.list_state("click_times", "BIGINT")


class NewsClickNumber(NamedTuple):
    """News `news_id` was clicked `click_number` times within `time_after_release` ms of its release."""

    news_id: int
    time_after_release: int
    click_number: int


class CountNewsClickNumber(OneInputEventTimeStreamProcessFunction):
    """Sets timers when a news is released, keeps the times of its clicks, and counts them when a timer fires."""

    def uses_states(self):
        return (RELEASE_TIME, CLICK_TIMES)

    def init_event_time_process_function(self, event_time_manager: EventTimeManager) -> None:
        self.event_time_manager = event_time_manager

    def process_record(self, record, output: Collector, ctx: PartitionedContext) -> None:
        states = ctx.get_state_manager()
        if record.type == "RELEASE":
            states.get_state(RELEASE_TIME).update(record.timestamp)
            for after in TIMES_AFTER_NEWS_RELEASE:
                self.event_time_manager.register_timer(record.timestamp + after)
        else:
            states.get_state(CLICK_TIMES).add(record.timestamp)

    def on_event_timer(self, timestamp: int, output: Collector, ctx: PartitionedContext) -> None:
        states = ctx.get_state_manager()
        after = timestamp - states.get_state(RELEASE_TIME).value()
        clicks = sum(1 for time in states.get_state(CLICK_TIMES).get() if time <= timestamp)
        output.collect(NewsClickNumber(states.get_current_key(), after, clicks))


event_time = (
    EventTimeExtension.new_watermark_generator_builder(lambda event: event.timestamp)
    .periodic_watermark(timedelta(milliseconds=200))
    .with_idleness(timedelta(seconds=30))
    .with_max_out_of_order_time(timedelta(seconds=10))
    .build_as_process_function()
)

tables = Path(__file__).with_name(os.environ.get("NEWS_TABLES", "files.sql"))

pipeline = compile_script(tables.read_text(encoding="utf-8"), path=str(tables)).process(
    "click_numbers",
    ("news_events", event_time),
    key="news_id",
    function=EventTimeExtension.wrap_process_function(CountNewsClickNumber()),
)
