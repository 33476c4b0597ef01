import pyarrow as pa
import pytest

from tidegate.pipelines.errors import SourceError
from tidegate.pipelines.sources.scripted.events import EventLog, Rows, WatermarkEvent
from tidegate.pipelines.watermarks import PROCESSING_TIME, Watermark

ROWS = Rows("+U", pa.table({"a": [1, 2]}))
WATERMARK = WatermarkEvent(Watermark(5), Watermark(7), idle=False)
IDLE = WatermarkEvent(None, Watermark(7, True), idle=True)


def test_events_outlive_the_object_that_wrote_them(tmp_path):
    for event in (ROWS, WATERMARK, IDLE):
        EventLog(tmp_path / "deep" / "t").append(event)
    log = EventLog(tmp_path / "deep" / "t")
    assert len(log) == 3
    assert log.read(0) == [ROWS, WATERMARK, IDLE]
    assert log.read(1, 2) == [WATERMARK]
    assert log.watermark_events(0) == [(1, WATERMARK), (2, IDLE)]
    assert log.watermark_events(2) == [(2, IDLE)]


def test_nothing_was_told_yet(tmp_path):
    log = EventLog(tmp_path / "t")
    assert (len(log), log.read(0), log.last_watermark_event()) == (0, [], (WatermarkEvent(None), False))


def test_the_last_word_and_whether_rows_came_after_it(tmp_path):
    log = EventLog(tmp_path)
    log.append(ROWS)
    assert log.last_watermark_event() == (WatermarkEvent(None), True)
    log.append(WatermarkEvent(PROCESSING_TIME, PROCESSING_TIME))
    assert log.last_watermark_event() == (WatermarkEvent(PROCESSING_TIME, PROCESSING_TIME), False)
    log.append(ROWS)
    assert log.last_watermark_event() == (WatermarkEvent(PROCESSING_TIME, PROCESSING_TIME), True)


def test_two_objects_share_the_numbers(tmp_path):
    first, second = EventLog(tmp_path), EventLog(tmp_path)
    for _ in range(3):
        first.append(WATERMARK)
        second.append(IDLE)
    assert first.read(0) == [WATERMARK, IDLE] * 3


def test_a_file_that_is_not_whole_yet_is_no_event(tmp_path):
    log = EventLog(tmp_path)
    log.append(WATERMARK)
    (log.folder / ".half").write_text("{")
    assert log.read(0) == [WATERMARK]


def test_an_event_that_is_gone_is_not_passed_over(tmp_path):
    log = EventLog(tmp_path)
    log.append(WATERMARK)
    log.append(WATERMARK)
    (log.folder / "00000000.json").unlink()
    with pytest.raises(SourceError, match="event 0 is gone"):
        log.read(0)
