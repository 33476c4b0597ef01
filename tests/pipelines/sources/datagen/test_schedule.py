import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.pipelines.sources.datagen.schedule import Schedule


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
