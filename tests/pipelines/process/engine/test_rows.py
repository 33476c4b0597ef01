"""A task's rows: whose they are, and which of them are late."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle

from tidegate.pipelines.process.engine.rows import InputShape, Rows, python_values
from tidegate.pipelines.process.errors import NoEventTime, WrongValue
from tidegate.pipelines.watermarks import MAX_TIMESTAMP, MIN_TIMESTAMP


def batch(times: list[tuple[int, int | None]], inputs: int = 1) -> Iterator[pa.RecordBatch]:
    """Rows of key `a`: (step, time in ms), of input (step mod `inputs`)."""
    size = len(times)
    columns: dict[str, Any] = {
        "_bucket": pa.array([0] * size, pa.int32()),
        "_key0": pa.array(["a"] * size),
        "_step": pa.array([step for step, _ in times], pa.int32()),
        "_time": pa.array([None if time is None else time * 1000 for _, time in times], pa.int64()),
    }
    for place in range(inputs):
        columns[f"_in{place}_0"] = pa.array([time for _, time in times], pa.int64())
    yield pa.record_batch(columns)


BORDER: list[tuple[int, int | None]] = [(0, 3), (0, 5), (0, None), (1, 4), (1, 5), (1, 6), (1, None), (2, 9)]
"""The time is 0 at step 0, 5 at step 1, and 9 at step 2: late is 4 at step 1."""


@pytest.mark.parametrize("extracted", [False, True])
def test_late_is_before_the_watermark(extracted: bool) -> None:
    shape = InputShape(("time",), cloudpickle.dumps(lambda record: record.time) if extracted else None)
    rows = Rows(batch(BORDER), [shape], (0, 0, 0), (0, 5, 9), 1)
    assert [record.time for _, record in rows.records()] == [time for _, time in BORDER]
    assert (rows.seen, rows.late) == ([8], [1])


def test_every_input_is_asked_for_its_own_time() -> None:
    """At 5 ms: rowtime 3 is late and 5 is not; the second input has a generator, by which 3 is 5 and 5 is 7."""
    shapes = [InputShape(("time",)), InputShape(("time",), cloudpickle.dumps(lambda record: record.time + 2))]
    found: list[tuple[int, int | None]] = [(0, 3), (0, 5), (1, 2), (1, 3), (1, 5)]
    rows = Rows(batch(found, 2), shapes, (0, 1), (5, 5), 1)
    list(rows.records())
    assert (rows.seen, rows.late) == ([2, 3], [1, 1])


@pytest.mark.parametrize(("at", "late"), [(MIN_TIMESTAMP, 0), (MAX_TIMESTAMP, 1)])
def test_at_the_ends_of_time(at: int, late: int) -> None:
    assert Rows(batch([(0, 3)]), [InputShape(("time",))], (0,), (at,), 1).late == [late]


def test_an_extractor_that_fails_names_the_record() -> None:
    shape = InputShape(("time",), cloudpickle.dumps(lambda record: "soon"))
    with pytest.raises(
        NoEventTime, match=r"event time of Record\(time=3\) cannot be found: it is a number of ms, .*'soon'"
    ):
        Rows(batch([(0, 3)]), [shape], (0,), (5,), 1)


ENDS = [datetime.min, None, datetime.max]
"""The first and the last time that Python has."""
TIMES = {"TIMESTAMP": pa.timestamp("us"), "TIMESTAMP_LTZ": pa.timestamp("us", "UTC"), "DATE": pa.date32()}


@pytest.mark.parametrize("name", TIMES)
@pytest.mark.parametrize("nested", [False, True])
def test_a_time_that_python_has_not_is_refused(name: str, nested: bool) -> None:
    kind = TIMES[name]
    zone = UTC if name == "TIMESTAMP_LTZ" else None
    there: list[Any] = [end and (end.date() if name == "DATE" else end.replace(tzinfo=zone)) for end in ENDS]
    held = pa.array(
        [value and value.replace(tzinfo=None) if zone else value for value in there],
        pa.timestamp("us") if zone else kind,
    ).cast(kind)
    assert python_values(held) == there
    whole = held.view(pa.int32() if name == "DATE" else pa.int64())
    for end, step in ((whole[0].as_py(), -1), (whole[2].as_py(), 1)):
        beyond = pa.array([end, None, end + step], whole.type).view(kind)
        array = pa.StructArray.from_arrays([beyond], ["at"]) if nested else beyond
        with pytest.raises(WrongValue, match=f"a {name} lies outside of the years 1 to 9999"):
            python_values(array)
