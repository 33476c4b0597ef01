from datetime import timedelta

import pytest

from tests.pipelines.watermarks.tables import Recorder
from tidegate.pipelines.watermarks import InvalidWatermark, NoWatermarks, Watermark, WithIdleness


class OnEveryRow:
    """A punctuated generator, which keeps no state."""

    def on_event(self, event, event_timestamp, output):
        output.emit_watermark(Watermark(event_timestamp))

    def on_periodic_emit(self, output):
        """Emits on rows only."""


def test_a_timeout_is_positive():
    with pytest.raises(InvalidWatermark, match="idle timeout"):
        WithIdleness(NoWatermarks(), timedelta(0), lambda: 0)


def test_a_row_ends_idleness_before_its_own_watermark():
    now = 0
    recorder = Recorder()
    generator = WithIdleness(OnEveryRow(), timedelta(milliseconds=5), lambda: now)
    now = 5
    generator.on_periodic_emit(recorder)
    generator.on_event(None, 7, recorder)
    assert recorder.take() == ["idle", "active", "7"]


def test_a_generator_of_ones_own_needs_no_state():
    now = 0
    generator = WithIdleness(OnEveryRow(), timedelta(milliseconds=5), lambda: now)
    state = generator.state()
    again = WithIdleness(OnEveryRow(), timedelta(milliseconds=5), lambda: 4)
    again.restore(state)
    now = 5
    recorder = Recorder()
    again.on_periodic_emit(recorder)
    assert recorder.take() == []
