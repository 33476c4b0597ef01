import pyarrow as pa
import pytest

from tidegate.pipelines.errors import SourceError
from tidegate.pipelines.sources.scripted.events import EventLog, Rows, Word
from tidegate.pipelines.watermarks import PROCESSING_TIME, Watermark

ROWS = Rows("+U", pa.table({"a": [1, 2]}))
WORD = Word(Watermark(5), Watermark(7), idle=False)
IDLE = Word(None, Watermark(7, True), idle=True)


def test_events_outlive_the_object_that_wrote_them(tmp_path):
    for event in (ROWS, WORD, IDLE):
        EventLog(tmp_path / "deep" / "t").append(event)
    log = EventLog(tmp_path / "deep" / "t")
    assert len(log) == 3
    assert log.read(0) == [ROWS, WORD, IDLE]
    assert log.read(1, 2) == [WORD]
    assert log.words(0) == [(1, WORD), (2, IDLE)]
    assert log.words(2) == [(2, IDLE)]


def test_nothing_was_told_yet(tmp_path):
    log = EventLog(tmp_path / "t")
    assert (len(log), log.read(0), log.last_word()) == (0, [], (Word(None), False))


def test_the_last_word_and_whether_rows_came_after_it(tmp_path):
    log = EventLog(tmp_path)
    log.append(ROWS)
    assert log.last_word() == (Word(None), True)
    log.append(Word(PROCESSING_TIME, PROCESSING_TIME))
    assert log.last_word() == (Word(PROCESSING_TIME, PROCESSING_TIME), False)
    log.append(ROWS)
    assert log.last_word() == (Word(PROCESSING_TIME, PROCESSING_TIME), True)


def test_two_objects_share_the_numbers(tmp_path):
    first, second = EventLog(tmp_path), EventLog(tmp_path)
    for _ in range(3):
        first.append(WORD)
        second.append(IDLE)
    assert first.read(0) == [WORD, IDLE] * 3


def test_a_file_that_is_not_whole_yet_is_no_event(tmp_path):
    log = EventLog(tmp_path)
    log.append(WORD)
    (log.folder / ".half").write_text("{")
    assert log.read(0) == [WORD]


def test_an_event_that_is_gone_is_not_passed_over(tmp_path):
    log = EventLog(tmp_path)
    log.append(WORD)
    log.append(WORD)
    (log.folder / "00000000.json").unlink()
    with pytest.raises(SourceError, match="event 0 is gone"):
        log.read(0)
