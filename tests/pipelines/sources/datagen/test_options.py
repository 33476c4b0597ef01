from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.pipelines.sources.datagen.options import Schedule, field_spec
from tidegate.pipelines.syntax.dialect import parse_type


def spec(flink, **options):
    return field_spec(
        "a", parse_type(flink), {f"fields.a.{name.replace('_', '-')}": value for name, value in options.items()}
    )


@pytest.mark.parametrize(
    ("flink", "low", "high"),
    [
        ("TINYINT", -128, 127),
        ("SMALLINT", -(2**15), 2**15 - 1),
        ("INT", -(2**31), 2**31 - 1),
        ("BIGINT", -(2**63), 2**63 - 1),
        ("DECIMAL(5, 2)", -99999, 99999),
        ("DECIMAL(38, 0)", -(10**38) + 1, 10**38 - 1),
        ("DOUBLE", -1.7976931348623157e308, 1.7976931348623157e308),
    ],
)
def test_random_numbers_span_their_type_unless_options_say_otherwise(flink, low, high):
    assert (spec(flink).low, spec(flink).high) == (low, high)


def test_bounds_are_read_by_type():
    assert spec("INT", min="-3", max=" 4 ").high == 4
    assert spec("DECIMAL(5, 2)", min="0.05", max="1").low == 5
    assert spec("DECIMAL(5, 2)", min="0.05", max="1").high == 100
    assert spec("DOUBLE", min="0", max="1e3").high == 1000.0


@pytest.mark.parametrize(
    ("flink", "options", "length"),
    [
        ("STRING", {}, 100),
        ("BYTES", {"length": "7"}, 7),
        ("VARCHAR(5)", {}, 5),
        ("VARCHAR(500)", {}, 100),
        ("CHAR(500)", {}, 500),
        ("ARRAY<INT>", {}, 3),
        ("MAP<INT, INT>", {"length": "0"}, 0),
        ("INT", {}, 0),
    ],
)
def test_lengths(flink, options, length):
    assert spec(flink, **options).length == length


def test_a_sequence_lasts_from_start_to_end():
    assert spec("BIGINT", kind="sequence", start="5", end="9").rows == 5
    assert spec("BIGINT").rows is None
    inner = {"fields.a.b.kind": "sequence", "fields.a.b.start": "1", "fields.a.b.end": "3"}
    assert field_spec("a", parse_type("ROW<`b` INT, `c` INT>"), inner).rows == 3


def test_durations_and_rates():
    assert spec("TIMESTAMP(3)", max_past="1 d").max_past_us == 86_400_000_000
    assert spec("INT", null_rate="0.25").null_rate == 0.25


def test_nested_fields_take_options_by_their_path():
    of = parse_type("ROW<`tags` ARRAY<INT>, `m` MAP<STRING, INT>>")
    options = {"fields.a.tags.element.max": "5", "fields.a.m.key.length": "2", "fields.a.tags.length": "4"}
    tags, scores = field_spec("a", of, options).children
    assert (tags.length, tags.children[0].high) == (4, 5)
    assert [child.length for child in scores.children] == [2, 0]


@pytest.mark.parametrize(
    ("flink", "options", "words"),
    [
        ("BOOLEAN", {"kind": "sequence"}, "no sequence of BOOLEAN"),
        ("TIMESTAMP(3)", {"kind": "sequence"}, "no sequence of"),
        ("ARRAY<INT>", {"kind": "sequence"}, "no sequence of"),
        ("INT", {"kind": "sequence", "start": "1"}, "'fields.a.end' is needed"),
        ("INT", {"kind": "sequence", "start": "5", "end": "4"}, "before its start"),
        ("TINYINT", {"kind": "sequence", "start": "0", "end": "128"}, "does not fit into TINYINT"),
        ("DECIMAL(3, 2)", {"kind": "sequence", "start": "0", "end": "10"}, "does not fit into DECIMAL"),
        ("INT", {"kind": "sequence", "start": "0", "end": "4", "max": "3"}, "'fields.a.max' does not go with sequence"),
        ("INT", {"max": "2147483648"}, "does not fit into INT"),
        ("INT", {"min": "0.5"}, "does not fit into INT"),
        ("INT", {"min": "NaN"}, "no number"),
        ("DECIMAL(5, 2)", {"min": "0.001"}, "does not fit into DECIMAL"),
        ("INT", {"min": "5", "max": "4"}, "greater than its max (5 > 4)"),
        ("DECIMAL(38, 0)", {"min": "-90000000000000000000000000000000000000"}, "38 digits apart"),
        ("STRING", {"min": "5"}, "'fields.a.min' does not go with random STRING"),
        ("INT", {"length": "5"}, "does not go with"),
        ("VARCHAR(5)", {"length": "6"}, "from 0 to 5"),
        ("ARRAY<INT>", {"length": "101"}, "from 0 to 100"),
        ("CHAR(5)", {"var_len": "true"}, "does not go with"),
        ("INT", {"null_rate": "1.5"}, "from 0 to 1"),
        ("DATE", {"max_past": "1 d"}, "does not go with"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(flink, options, words):
    with pytest.raises(ValueError, match=r"fields\.a") as error:
        spec(flink, **options)
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("schedule", "elapsed_ms", "count"),
    [
        (Schedule(10), 0, 0),
        (Schedule(10), 99, 0),
        (Schedule(10), 100, 1),
        (Schedule(10), 1000, 10),
        (Schedule(10), -5, 0),
        (Schedule(10, at_start=7), 0, 7),
        (Schedule(10, at_start=7), 1000, 17),
        (Schedule(10, at_start=7, limit=5), 0, 5),
        (Schedule(10, limit=12), 5000, 12),
        (Schedule(3), 1000, 3),
    ],
)
def test_how_many_rows_are_due(schedule, elapsed_ms, count):
    assert schedule.count(elapsed_ms) == count


def test_when_a_row_is_due():
    schedule = Schedule(4, at_start=2)
    assert [schedule.due_us(row) for row in range(5)] == [0, 0, 0, 250_000, 500_000]


@given(st.integers(1, 10**7), st.integers(0, 10**6), st.integers(0, 10**9))
def test_no_row_is_counted_before_it_is_due(rate, at_start, elapsed_ms):
    schedule = Schedule(rate, at_start)
    count = schedule.count(elapsed_ms)
    assert count == 0 or schedule.due_us(count - 1) <= elapsed_ms * 1000
    assert schedule.due_us(count + 1) > elapsed_ms * 1000 - 2000 or rate > 10**6


def test_sql_says_the_same(spark):
    schedules = [Schedule(1), Schedule(3, at_start=2), Schedule(7_000_000, at_start=10)]
    base = 1_767_225_600_000
    for schedule in schedules:
        rows = [0, 1, 2, 3, 10, 11, 12, 999_999, schedule.rate * 10**9]
        frame = spark.createDataFrame(pa.table({"id": pa.array(rows, pa.int64())}))
        got = [row[0] for row in frame.selectExpr(schedule.due_us_sql(base, "id")).collect()]
        assert got == [base * 1000 + schedule.due_us(row) for row in rows]
