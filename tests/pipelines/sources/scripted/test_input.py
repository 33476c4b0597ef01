import datetime as dt
from decimal import Decimal

import pytest

from tests.pipelines.sources.sources_help import table
from tidegate.pipelines.connectors.table import Column
from tidegate.pipelines.errors import SourceError
from tidegate.pipelines.sources.scripted import ScriptedInput
from tidegate.pipelines.sources.scripted.events import EventLog, Rows
from tidegate.pipelines.watermarks import MIN_TIMESTAMP, ProcessingTimeBehind, ProcessingTimeRevoked, Watermark

COLUMNS = {"user_id": "INT", "price": "DECIMAL(38, 18)", "at": "TIMESTAMP(3)"}
TABLE = table(
    COLUMNS,
    "scripted",
    more=[Column("proctime", "TIMESTAMP_LTZ(3)", "TIMESTAMP", expression="_instant", proctime=True)],
)


def told(directory):
    """The rows and words so far, in short."""
    return [
        (event.op, event.table.to_pylist()) if isinstance(event, Rows) else (event.watermark, event.idle)
        for event in EventLog(directory).read(0)
    ]


def test_where_rows_tell_the_time_a_watermark_is_refused(tmp_path):
    hand = ScriptedInput(tmp_path, table(COLUMNS, "scripted", {"tells-time": "false"}))
    with pytest.raises(SourceError, match="its rows tell its time") as raised:
        hand.watermark(5)
    assert raised.value.next_command == "tell a row that is later"
    hand.watermark(MIN_TIMESTAMP, use_processing_time=True)
    assert told(tmp_path) == [(Watermark(MIN_TIMESTAMP, True), False)]


def test_rows_keep_their_values_exactly_and_missing_keys_are_null(tmp_path):
    row = {
        "user_id": 1,
        "price": Decimal("12345678901234567890.123456789012345678"),
        "at": dt.datetime(2026, 1, 2, 3, 4),
    }
    ScriptedInput(tmp_path, TABLE).rows([row, {"user_id": 2}, {}], "+U")
    ScriptedInput(tmp_path, TABLE).rows([])
    assert told(tmp_path) == [("+U", [row, {"user_id": 2, "price": None, "at": None}, dict.fromkeys(COLUMNS)])]


@pytest.mark.parametrize(
    ("rows", "op", "words"),
    [
        ([{"user": 1}], "+I", ["no column user", "did you mean user_id"]),
        ([{"user_id": 1}, {"xyz": 1}], "+I", ["no column xyz", "its columns are user_id, price, at"]),
        ([{"proctime": None}], "+I", ["column proctime is computed"]),
        ([{"user_id": "one"}], "+I", ["column user_id is INT"]),
        ([{"user_id": 2**31}], "+I", ["column user_id is INT"]),
        ([{"price": 1.5}], "+I", ["column price is DECIMAL"]),
        ([{"at": "2026-01-01"}], "+I", ["column at is TIMESTAMP(3)"]),
        ([{"user_id": 1}], "I", ["no op 'I'", "+I, -U, +U, -D"]),
    ],
)
def test_what_the_table_does_not_have_is_refused_by_name(tmp_path, rows, op, words):
    with pytest.raises(SourceError) as error:
        ScriptedInput(tmp_path, TABLE).rows(rows, op)
    for word in (*words, "t", "nothing of this call was told"):
        assert word in str(error.value)
    assert told(tmp_path) == []


def test_a_target_takes_no_rows(tmp_path):
    with pytest.raises(SourceError, match="it is a target"):
        ScriptedInput(tmp_path, table(COLUMNS, "scripted", role="sink")).rows([{"user_id": 1}])


def test_watermarks_pass_the_guard_whatever_object_tells_them(tmp_path):
    for timestamp in (5, 5, 3, 9):
        ScriptedInput(tmp_path, TABLE).watermark(timestamp)
    ScriptedInput(tmp_path, TABLE).watermark(MIN_TIMESTAMP, use_processing_time=True)
    ScriptedInput(tmp_path, TABLE).watermark(7, use_processing_time=True)
    with pytest.raises(ProcessingTimeRevoked):
        ScriptedInput(tmp_path, TABLE).watermark(10)
    assert told(tmp_path) == [
        (Watermark(5), False),
        (Watermark(9), False),
        (Watermark(MIN_TIMESTAMP, True), False),
        (Watermark(7, True), False),
    ]


def test_processing_time_is_not_behind_what_was_told(tmp_path):
    ScriptedInput(tmp_path, TABLE, clock=lambda: 100).watermark(101)
    with pytest.raises(ProcessingTimeBehind):
        ScriptedInput(tmp_path, TABLE, clock=lambda: 100).watermark(MIN_TIMESTAMP, True)
    ScriptedInput(tmp_path, TABLE, clock=lambda: 101).watermark(MIN_TIMESTAMP, True)
    assert [watermark for watermark, _ in told(tmp_path)] == [Watermark(101), Watermark(MIN_TIMESTAMP, True)]


def test_idleness_ends_with_the_next_watermark_even_one_that_is_not_sent(tmp_path):
    hand = ScriptedInput(tmp_path, TABLE)
    hand.watermark(5)
    hand.idle()
    hand.idle()
    hand.watermark(4)
    hand.idle()
    hand.watermark(6)
    assert told(tmp_path) == [
        (Watermark(5), False),
        (None, True),
        (None, False),
        (None, True),
        (None, False),
        (Watermark(6), False),
    ]


def test_idleness_ends_with_the_next_row(tmp_path):
    hand = ScriptedInput(tmp_path, TABLE)
    hand.idle()
    hand.rows([{"user_id": 1}])
    hand.idle()
    assert [event[1] for event in told(tmp_path)][::2] == [True, True]
