"""Durations in ms. Rounded up, so that a watermark is never ahead of what was asked for."""

from __future__ import annotations

from datetime import timedelta

from tidegate.pipelines.watermarks.errors import InvalidWatermark


def milliseconds(duration: timedelta, name: str, *, zero: bool = False) -> int:
    """`duration` in ms, rounded up. Raises InvalidWatermark (`name` is …) if negative, or zero unless `zero`."""
    if not isinstance(duration, timedelta):
        raise InvalidWatermark(f"{name} is a timedelta, not {duration!r}")
    if duration < timedelta(0) or (not zero and not duration):
        raise InvalidWatermark(f"{name} must {'not be negative' if zero else 'be positive'}, it is {duration}")
    return -(-duration // timedelta(milliseconds=1))
