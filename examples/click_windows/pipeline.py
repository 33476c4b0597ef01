"""Windows, which have two outputs: clicks of a user by 5 minutes and by visit, and the clicks that came too late."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from tidegate.process import EventTimeExtension
from tidegate.process.windows import Aggregate, Window, WindowFunction, session, tumble
from tidegate.sql import compile_script


def counted(kept: dict[str, int], click) -> dict[str, int]:
    """One click more on its item."""
    return {**kept, click.item: kept.get(click.item, 0) + 1}


def together(one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    """What two parts of a visit, which turn out to be one, have clicked."""
    return {item: one.get(item, 0) + other.get(item, 0) for item in {**one, **other}}


def as_row(key: str, window: Window, kept):
    """A window as a row."""
    return (key, window.start, window.end, kept)


CLICKS = Aggregate("BIGINT", create=int, add=lambda kept, click: kept + 1, result=as_row)
ITEMS = Aggregate("MAP<STRING, BIGINT>", create=dict, add=counted, result=as_row, merge=together)

by_5_minutes = WindowFunction(tumble(timedelta(minutes=5)), CLICKS, time=lambda click: click.time)
by_visit = WindowFunction(session(timedelta(minutes=10)), ITEMS, time=lambda click: click.time)

event_time = (
    EventTimeExtension.new_watermark_generator_builder(lambda click: click.time)
    .with_max_out_of_order_time(timedelta(seconds=10))
    .build_as_process_function()
)

tables = Path(__file__).with_name("tables.sql")

pipeline = (
    compile_script(tables.read_text(encoding="utf-8"), path=str(tables))
    .process(
        ["clicks_5min", "late_clicks"],
        ("clicks", event_time),
        key="user_id",
        function=EventTimeExtension.wrap_process_function(by_5_minutes),
    )
    .process(
        ["visits", "late_visits"],
        "clicks",
        key="user_id",
        function=EventTimeExtension.wrap_process_function(by_visit),
    )
)
