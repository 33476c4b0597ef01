"""What Spark is not shown of the rows between two tasks: each row meets its own again, or nothing is staged."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from tests.pipelines.runtime.test_dry_run import SCRIPT
from tidegate.pipelines.connectors.table import RESERVED_PREFIX
from tidegate.pipelines.errors import LakeError
from tidegate.pipelines.joins.task import (
    PACKED,
    PACKED_BYTES,
    PLACE,
    ROW,
    ROWS_BACK,
    Frame,
    LookUp,
    Pass,
    RowsTooWide,
    fixed_width,
    flat,
    frames_of,
    packed,
)
from tidegate.pipelines.joins.writer import Release, Writer
from tidegate.pipelines.sql import compile_script
from tidegate.pipelines.sql.model import Join
from tidegate.pipelines.versions import ABSENT, MATCH, IndexOf

ROWS = 10


def _table() -> pa.Table:
    """Ten rows as Spark is handed them, in three batches: `shown` beside what is packed."""
    numbers = list(range(ROWS))
    label = pa.array([f"label {number % 3}" for number in numbers]).dictionary_encode()
    columns = {"id": pa.array(numbers), "label": label, "none": pa.nulls(ROWS, pa.int64()), "nested": [[1], None] * 5}
    rest = pa.RecordBatch.from_pydict(columns)
    shown = pa.array([number * 10 for number in numbers])
    batches = [packed({"shown": shown.slice(first, 4)}, rest.slice(first, 4), first) for first in range(0, ROWS, 4)]
    return pa.Table.from_batches(batches).combine_chunks()


@pytest.mark.parametrize("size", [1, 3, 4, 7, ROWS])
def test_each_row_meets_its_own_columns_however_spark_cuts_the_batches(size: int) -> None:
    (frame,) = frames_of(_table().to_batches(size))
    assert list(frame) == ["shown", "id", "label", "none", "nested"]
    assert frame["shown"].to_pylist() == [10 * number for number in frame["id"].to_pylist()]
    assert frame["id"].to_pylist() == list(range(ROWS))
    assert frame["label"].to_pylist() == [f"label {number % 3}" for number in range(ROWS)]
    assert frame["nested"].to_pylist() == [[1], None] * 5
    assert pa.types.is_dictionary(frame["label"].type)


def test_rows_of_which_nothing_is_shown_come_back() -> None:
    rest = pa.RecordBatch.from_pydict({"id": [1, 2]})
    (frame,) = frames_of([packed({}, rest)])
    assert frame["id"].to_pylist() == [1, 2]


@pytest.mark.parametrize(
    "rows",
    [
        [*range(1, 10)],
        [*range(9)],
        [0, 1, 2, 4],
        [0, 0, 1, 2, 3],
        [4, 5, 6, 7, 0, 1, 2],
        [4, 5, 6, 7, 0, 1, 2, 3],
        [0, 2, 1, 3],
        [4, 5, 6, 7],
    ],
)
def test_other_rows_than_spark_was_handed_are_refused(rows: list[int]) -> None:
    with pytest.raises(LakeError, match="Spark returned other rows"):
        list(frames_of(_table().take(rows).to_batches()))


def test_a_dictionary_is_packed_as_far_as_a_batch_needs_it() -> None:
    words = pa.array([f"word {number}" for number in range(1_000)])
    column = pa.DictionaryArray.from_arrays(pa.array([7, None, 999, 7], pa.int32()), words)
    batch = packed({}, pa.RecordBatch.from_pydict({"word": column}))
    assert batch.nbytes < 2_000
    (frame,) = frames_of([batch])
    assert frame["word"].to_pylist() == ["word 7", None, "word 999", "word 7"]
    assert frame["word"].type == column.type


def test_batches_are_of_few_rows_where_rows_are_large() -> None:
    frame = {"shown": pa.array(range(2_000)), "text": pa.array(["x" * 10_000] * 2_000)}
    batches = list(Pass(not_packed=frozenset({"shown"}), shown={"shown": "BIGINT"}).batches([frame]))
    assert [batch[ROW][0].as_py() for batch in batches[:3]] == [0, 27, 54]
    assert [batch.num_rows for batch in batches[:2]] == [27, 27]
    assert sum(batch.num_rows for batch in batches) == 2_000
    assert max(batch[PACKED].nbytes for batch in batches) < PACKED_BYTES + 20_000


@pytest.mark.parametrize("size", [1, 2, 5])
def test_what_was_counted_of_rows_comes_once_with_them(size: int) -> None:
    """In two frames, of which one row is late (at or below 2), and one has no time."""
    work = Pass(not_packed=frozenset({"_probe_time"}), timed="o", late_upto=2)
    times = [pa.array(some, pa.int64()) for some in ([2, None, 9], [3, 4])]
    rows = pa.Table.from_batches(work.batches([{"_probe_time": each, "id": each} for each in times]))
    (frame,) = frames_of(rows.combine_chunks().to_batches(size))
    assert list(frame) == ["id", "_counted0"]
    names = ("_counted0", "late@o", "least-time@o", "greatest-time@o")
    wanted = [dict(zip(names, counts, strict=True)) for counts in ((3, 1, 2, 9), (2, 0, 3, 4))]
    assert [json.loads(text) for text in frame["_counted0"].drop_null().to_pylist()] == wanted


@pytest.mark.parametrize("of", [1, 2, None])
def test_rows_of_which_nothing_was_counted_are_not_staged(tmp_path: Path, of: int | None) -> None:
    """Without counts, none would lie outside of its pin."""
    insert = compile_script(SCRIPT.format(options="'connector' = 'datagen', 'number-of-rows' = '5'")).inserts[0]
    folders = {kind: str(tmp_path / kind) for kind in ("publish", "quarantine")}
    columns = {item.name: item.name for item in insert.projections}
    frame = {"id": pa.array([1], pa.int32()), "name": pa.array(["a"]), "_probe_op": pa.array(["c"])}
    frame |= {"_why0": pa.nulls(1, pa.int8())} | {name: pa.nulls(1) for name in PLACE}
    frame |= {} if of is None else {"_counted0": pa.array([json.dumps({"_counted0": of, "outside-pin@item": 0})])}
    writer = Writer(insert, Release(1, 1, 0, "publish"), columns, folders)
    if of == 1:
        counts = json.loads(writer.write([frame]))["counts"]
        assert (counts["rows"], counts["outside-pin@item"], "_counted0" in counts) == (1, 0, False)
    else:
        with pytest.raises(LakeError, match="Spark returned other rows"):
            writer.write([frame])


def test_a_version_that_the_pin_does_not_allow_is_counted() -> None:
    """As if the index had found one of a later epoch, one that is younger than the row, and one that is neither."""
    join = Join("rates", "r", "LEFT", (), None, "event", "at")
    lookup = LookUp(0, join, IndexOf((), 5), ("key",), None, (), proof=False)
    lookup.__dict__["_index"] = SimpleNamespace(
        find=lambda *_: SimpleNamespace(what=np.array([MATCH, MATCH, MATCH, ABSENT], np.int8)),
        numbers=lambda array, _: np.array([6, 4, 5, 9] if array == "epochs" else [1, 3, 2, 9]),
        taken=lambda *_: [],
    )
    frame = {"key": pa.array([1, 2, 3, 4]), "_probe_time": pa.array([2, 2, 2, 2])}
    assert lookup.look_up(frame) == {"outside-pin@r": 2, "greatest-epoch@r": 6}
    assert frame["_why0"].null_count == 3


SIZE = 1 << 20
NARROW = {"text": pa.array(["x"] * ROWS_BACK)}
HALF = {"text": pa.array(["x" * (SIZE // 200)] * 110)}


@pytest.mark.parametrize(
    ("frames", "whole"),
    [
        ([NARROW] * 20, True),
        ([HALF], True),
        ([HALF, HALF], False),
        ([NARROW, HALF, NARROW, HALF], True),  # Spark hands them on apart: others come between
        ([NARROW, HALF, HALF], False),
        ([{"text": pa.array(["x" * (SIZE + 1)])}], False),
    ],
)
def test_rows_are_too_wide_where_spark_could_not_hand_them_on_at_once(frames: list[Frame], whole: bool) -> None:
    rows = sum(len(frame["text"]) for frame in frames)
    assert sum(batch.num_rows for batch in Pass().batches(frames)) == rows
    bounded = Pass(most_bytes=SIZE)
    if whole:
        assert sum(batch.num_rows for batch in bounded.batches(frames)) == rows
    else:
        with pytest.raises(RowsTooWide):
            list(bounded.batches(frames))


def test_which_types_have_a_width() -> None:
    fixed = ["BOOLEAN", "TINYINT", "BIGINT", "DOUBLE", "DECIMAL(38, 10)", "DATE", "TIMESTAMP", "TIMESTAMP_NTZ"]
    assert all(map(fixed_width, fixed))
    assert not any(map(fixed_width, ["STRING", "BINARY", "ARRAY<INT>", "STRUCT<a: INT>", "MAP<INT, INT>"]))


@pytest.mark.parametrize(
    ("missed", "why", "time", "left_out"),
    [
        (("_why0",), [None, None], [1, 2], True),
        (("_why0",), [None, 1], [1, 2], False),
        ((), [None, 1], [1, 2], True),
        ((), [None, 1], [1, None], False),
        (None, [None, None], [1, 2], False),
    ],
)
def test_which_row_one_was_is_left_out_where_none_can_be_quarantined(
    missed: tuple[str, ...] | None, why: list[int | None], time: list[int | None], left_out: bool
) -> None:
    columns = {"_why0": pa.array(why, pa.int8()), "_probe_time": pa.array(time, pa.int64())}
    places = {name: pa.array([1, 2]) for name in PLACE}
    work = Pass(shown={"_why0": "TINYINT"}, missed=missed)
    (frame,) = work.over([{**columns, **places}])
    assert (PLACE[0] not in frame) == left_out
    (back,) = frames_of(work.batches([{**columns, **places}]))
    assert set(back) == set(frame)


def test_batches_with_other_columns_are_frames_of_their_own() -> None:
    one, other = pa.RecordBatch.from_pydict({"a": [1], "b": [2]}), pa.RecordBatch.from_pydict({"a": [3]})
    batches = [packed({}, rest, first) for first, rest in enumerate([one, one, other])]
    found = [{name: column.to_pylist() for name, column in frame.items()} for frame in frames_of(batches)]
    assert found == [{"a": [1, 1], "b": [2, 2]}, {"a": [3]}]


def test_no_column_of_a_target_has_the_name_under_which_one_of_a_table_travels() -> None:
    """Results come back beside packed columns, by name."""
    assert flat("c", "user_id").startswith(RESERVED_PREFIX)
