"""Random words for the channels of a valve or a combined status, and a plain model of what they mean."""

from __future__ import annotations

from typing import Protocol

from hypothesis import strategies as st

from tests.pipelines.watermarks.tables import watermark
from tidegate.pipelines.watermarks import MIN_TIMESTAMP, Watermark

WORDS = st.one_of(st.integers(0, 30).map(str), st.sampled_from(["idle", "idle", "active", "active", "now"]))


class Inputs(Protocol):
    def input_watermark(self, channel: int, watermark: Watermark) -> object: ...
    def input_idle(self, channel: int) -> object: ...
    def input_active(self, channel: int) -> object: ...


def say(inputs: Inputs, channel: int, word: str) -> None:
    """Let `channel` say `word`."""
    if word == "idle":
        inputs.input_idle(channel)
    elif word == "active":
        inputs.input_active(channel)
    else:
        inputs.input_watermark(channel, watermark(word))


class Channels:
    """What every channel said last."""

    def __init__(self, count: int) -> None:
        self.timestamps = [MIN_TIMESTAMP] * count
        self.now = [False] * count
        self.idle = [False] * count

    def say(self, channel: int, word: str) -> None:
        self.idle[channel] = word == "idle"
        if word == "now":
            self.now[channel] = True
        elif word not in ("idle", "active") and not self.now[channel]:
            self.timestamps[channel] = max(self.timestamps[channel], int(word))

    def last_word(self, channel: int) -> Watermark:
        return Watermark(self.timestamps[channel], self.now[channel])

    def all_idle(self) -> bool:
        return all(idle and not now for idle, now in zip(self.idle, self.now, strict=True))

    def all_in_processing_time(self) -> bool:
        return all(self.now)

    def active_in_event_time(self) -> list[int]:
        channels = zip(self.timestamps, self.idle, self.now, strict=True)
        return [timestamp for timestamp, idle, now in channels if not idle and not now]
