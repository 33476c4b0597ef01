from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from tests.pipelines.sources.sources_help import Bench, table
from tidegate.pipelines.connectors.protocol import Landed, Source, SourcePosition
from tidegate.pipelines.connectors.spec import SOURCE_COLUMNS
from tidegate.pipelines.errors import SourceError
from tidegate.pipelines.sources.scripted import CONNECTOR, ScriptedInput
from tidegate.pipelines.sources.scripted.source import EventLog, Rows, WatermarkEvent
from tidegate.pipelines.watermarks import MIN_TIMESTAMP, PROCESSING_TIME, Watermark

COLUMNS = {"k": "INT", "at": "TIMESTAMP(3)"}
EVENT_TIME = table(COLUMNS, "scripted", role="build", rowtime="at")
PROCESSING = table(COLUMNS, "scripted", role="build")


def hand_and_bench(tmp_path, scripted):
    return ScriptedInput(tmp_path, scripted), Bench(CONNECTOR, scripted, str(tmp_path))


def spans(bench: Bench) -> list[tuple[int, int, str, bool]]:
    steps = [stored.step for stored in bench.steps]
    return [(step.ranges["from"], step.ranges["to"], step.phase, step.flips) for step in steps]


def test_it_is_a_source(tmp_path):
    _, bench = hand_and_bench(tmp_path, PROCESSING)
    source = bench.source()
    assert isinstance(source, Source)
    assert source.delegate_watermark_periodic_emit(lambda: None)
    source.preflight(SourcePosition())
    source.close()


def test_without_watermark_for_it_flips_at_processing_time_and_the_step_ends_there(tmp_path):
    hand, bench = hand_and_bench(tmp_path, PROCESSING)
    hand.rows([{"k": 1}])
    assert bench.plan() is not None
    hand.watermark(5)
    hand.rows([{"k": 2}])
    hand.watermark(MIN_TIMESTAMP, True)
    hand.rows([{"k": 3}])
    while bench.plan():
        pass
    assert spans(bench) == [(0, 1, "bounded", False), (1, 4, "bounded", True), (4, 5, "unbounded", False)]


def test_with_watermark_for_it_flips_at_its_first_event_time_watermark(tmp_path):
    hand, bench = hand_and_bench(tmp_path, EVENT_TIME)
    hand.rows([{"k": 1}])
    hand.idle()
    hand.watermark(5)
    hand.watermark(6)
    while bench.plan():
        pass
    assert spans(bench) == [(0, 4, "unbounded", True), (4, 5, "unbounded", False)]


def test_with_watermark_for_processing_time_is_no_flip(tmp_path):
    hand, bench = hand_and_bench(tmp_path, EVENT_TIME)
    hand.watermark(MIN_TIMESTAMP, True)
    while bench.plan():
        pass
    assert spans(bench) == [(0, 1, "unbounded", False)]


@pytest.mark.parametrize("phases", ["true", "false"])
def test_the_rule_is_the_same_with_and_without_phases(tmp_path, phases):
    scripted = table(COLUMNS, "scripted", {"phases": phases, "signals": phases}, role="build")
    hand, bench = hand_and_bench(tmp_path, scripted)
    hand.rows([{"k": 1}])
    bench.plan()
    hand.rows([{"k": 1}])
    bench.plan()
    hand.watermark(MIN_TIMESTAMP, True)
    bench.plan()
    assert [stored.step.flips for stored in bench.steps] == [False, False, True]


def test_a_run_stops_at_the_ends_that_it_took(tmp_path):
    hand, bench = hand_and_bench(tmp_path, PROCESSING)
    hand.rows([{"k": 1}])
    ends = bench.source().ends(bench.position)
    hand.rows([{"k": 2}])
    bench.plan(ends)
    assert bench.plan(ends) is None
    assert spans(bench) == [(0, 1, "bounded", False)]


def landed(bench: Bench, number: int) -> Landed:
    return bench.source().landed(bench.steps[number], None)


def test_landed_reports_what_was_emitted_within_the_step(tmp_path):
    hand, bench = hand_and_bench(tmp_path, PROCESSING)
    hand.watermark(5)
    hand.idle()
    hand.watermark(6)
    bench.plan()
    hand.idle()
    bench.plan()
    hand.rows([{"k": 1}])
    bench.plan()
    hand.watermark(MIN_TIMESTAMP, True)
    bench.plan()
    assert landed(bench, 0) == Landed(None, "event 4", [("0", Watermark(5)), ("0", Watermark(6))], {"0": False})
    assert landed(bench, 1) == Landed(None, "event 5", [], {"0": True})
    assert landed(bench, 2) == Landed(None, "event 6", [], {"0": False})
    assert landed(bench, 3) == Landed(None, "event 7", [("0", PROCESSING_TIME)], {"0": False})


def read(spark, bench: Bench, number: int = 0):
    return bench.source().read(spark, bench.steps[number])


@pytest.mark.parametrize(
    ("role", "ops"), [("probe", ["+I", "-U", "+U", "-D"]), ("build", ["c", "u", "d"])], ids=["probe", "build"]
)
def test_read_gives_rows_in_order_with_their_op(spark, tmp_path, role, ops):
    scripted = table({"k k": "INT"}, "scripted", role=role)
    hand, bench = hand_and_bench(tmp_path, scripted)
    hand.rows([{"k k": 1}, {"k k": 2}], "+I")
    hand.watermark(5)
    for op in ("-U", "+U", "-D"):
        hand.rows([{"k k": 3}], op)
    bench.plan()
    rows = read(spark, bench)
    assert set(rows.columns) == {*SOURCE_COLUMNS, "k k"}
    found = rows.orderBy("_offset").collect()
    assert [row["_op"] for row in found] == [ops[0], *ops]
    assert [row["k k"] for row in found[:2]] == [1, 2]
    assert len({(row["_split"], row["_offset"]) for row in found}) == len(found)
    assert found == rows.orderBy("_seq").collect()
    assert {row["_rowtime"] for row in found} == {None}


def test_a_step_without_rows(spark, tmp_path):
    hand, bench = hand_and_bench(tmp_path, PROCESSING)
    hand.watermark(5)
    bench.plan()
    rows = read(spark, bench)
    assert rows.collect() == []
    assert set(rows.columns) == {*SOURCE_COLUMNS, *COLUMNS}


def test_every_type_comes_out_as_it_went_in(spark, tmp_path):
    values = {
        "BOOLEAN": True,
        "TINYINT": -128,
        "SMALLINT": 32767,
        "INT": -(2**31),
        "BIGINT": 2**63 - 1,
        "FLOAT": 1.5,
        "DOUBLE": -0.1,
        "DECIMAL(38, 18)": Decimal("12345678901234567890.123456789012345678"),
        "STRING": "Gr\u00fc\u00dfe \U0001f30a",
        "CHAR(3)": "ab",
        "BYTES": b"\x00\xff",
        "DATE": dt.date(1582, 10, 14),
        "TIMESTAMP(3)": dt.datetime(2026, 3, 29, 2, 30, 0, 123000),
        "TIMESTAMP(6)": dt.datetime(1969, 12, 31, 23, 59, 59, 999999),
        "ARRAY<INT>": [1, None],
        "MAP<STRING, INT>": {"a": 1},
    }
    scripted = table({f"c{number}": flink for number, flink in enumerate(values)}, "scripted")
    hand, bench = hand_and_bench(tmp_path, scripted)
    row = {f"c{number}": value for number, value in enumerate(values.values())}
    hand.rows([row, {}])
    bench.plan()
    frame = read(spark, bench)
    wanted = {column.name: column.spark_type for column in scripted.columns}
    assert {name: frame.schema[name].dataType for name in wanted} == {
        field.name: field.dataType for field in StructType.fromDDL(", ".join(map(" ".join, wanted.items())))
    }
    first, second = frame.orderBy("_offset").collect()
    assert {name: first[name] for name in row} == row
    assert {second[name] for name in row} == {None}


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_an_instant_is_an_instant_in_any_session_time_zone(spark, tmp_path, zone):
    scripted = table({"at": "TIMESTAMP_LTZ(3)"}, "scripted")
    hand, bench = hand_and_bench(tmp_path, scripted)
    hand.rows(
        [
            {"at": dt.datetime(2026, 1, 2, 3)},
            {"at": dt.datetime(2026, 1, 2, 5, tzinfo=dt.timezone(dt.timedelta(hours=2)))},
        ]
    )
    bench.plan()
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        rows = read(spark, bench).selectExpr("unix_millis(at) AS ms").collect()
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    assert [row["ms"] for row in rows] == [1767322800000] * 2


def test_the_spec_says_what_the_options_say():
    assert not CONNECTOR.spec.phases({})
    assert CONNECTOR.spec.phases({"phases": "true"})
    assert not CONNECTOR.spec.signals({"phases": "true"})
    assert CONNECTOR.spec.signals({"signals": "TRUE"})
    assert CONNECTOR.spec.source
    assert CONNECTOR.spec.sink


def test_a_step_has_as_many_rows_as_the_runtime_allows(tmp_path):
    hand, bench = hand_and_bench(tmp_path, EVENT_TIME)
    hand.watermark(5)
    for count in (2, 1, 4):
        hand.rows([{"k": 1}] * count)
    bench.max_rows = 3
    step = bench.plan({"to": 4})
    assert (step.ranges["to"], step.flips) == (1, True)  # the flip still ends a step
    step = bench.plan({"to": 4})
    assert step.ranges == {"from": 1, "to": 3}
    bench.steps.pop()
    bench.max_rows = 1  # what was pushed at once is not torn
    step = bench.plan({"to": 4})
    assert step.ranges == {"from": 1, "to": 2}


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


def test_nothing_was_emitted_yet(tmp_path):
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
