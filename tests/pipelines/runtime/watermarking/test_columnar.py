"""What the files say is what the generator says, row by row: random splits, files, row groups, epochs, restarts."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from pipelines.lake import SplitWatermark
from pipelines.runtime.watermarking import builtin, columnar
from pipelines.runtime.watermarking.lags import Lag
from pipelines.runtime.watermarking.passes import SplitPass, SplitsBefore
from pipelines.watermarks import MAX_TIMESTAMP, MIN_TIMESTAMP, Watermark
from tests.pipelines.runtime.watermarking.test_builtin import BOUNDED, EXPRESSION, after, by_hand, frame

OWN, COLUMN = Lag("_rowtime", millis=8), Lag("e.at", micros=700)
"""BOUNDED's, and one of a nested column."""

Row = tuple[str, int, int | None, int | None]
"""Split, offset, rowtime in tenths of a ms; and the nested column's, as a distance from it."""

_row = st.tuples(
    st.sampled_from("aab"),
    st.one_of(st.none(), st.integers(-500, 500)),
    st.one_of(st.none(), st.integers(-30, 30)),
)
_epochs = st.lists(st.lists(_row, max_size=14), min_size=1, max_size=3)
_gaps, _floors = st.sampled_from([None, 1]), st.one_of(st.none(), st.integers(-40, 40))


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[columnar.Look]:
    """Large epochs, and without Spark's tasks: the row groups that were looked at."""
    seen: list[columnar.Look] = []

    def here(_: Any, work: Any, items: Sequence[columnar.Look]) -> list[Any]:
        seen.extend(items)
        return [work(item) for item in items]

    monkeypatch.setattr(columnar, "each", here)
    monkeypatch.setattr(columnar, "SMALL_EPOCH", -1)
    return seen


NO_SPARK: Any = None


def written(folder: Path, files: Sequence[Sequence[Row]], group: int = 3) -> dict[str, pq.FileMetaData]:
    """Files of these rows, in row groups of `group` rows, with their footers."""
    found = {}
    for rows in files:
        micros = [None if at is None else at * 100 for _, _, at, _ in rows]
        own = [
            None if at is None or further is None else at + further * 100
            for at, (*_, further) in zip(micros, rows, strict=True)
        ]
        table = pa.table(
            {
                "_split": pa.array([row[0] for row in rows], pa.string()),
                "_offset": pa.array([row[1] for row in rows], pa.int64()),
                "_rowtime": pa.array(micros, pa.timestamp("us", "UTC")),
                "e": pa.array([{"at": at} for at in own], pa.struct([("at", pa.timestamp("us"))])),
            }
        )
        path = folder / f"{len(list(folder.iterdir()))}.parquet"
        pq.write_table(table, path, row_group_size=group)
        found[str(path)] = pq.read_metadata(path)
    return found


def by_split(rows: Sequence[Row]) -> list[list[Row]]:
    """A file for each split, as sources write them."""
    ordered = sorted(rows, key=lambda row: row[:2])
    return [list(own) for _, own in itertools.groupby(ordered, key=lambda row: row[0])]


def in_order(found: Sequence[SplitPass] | None) -> list[SplitPass]:
    assert found is not None
    return sorted(found, key=lambda item: item.split)


def told(item: SplitPass) -> tuple[Any, ...]:
    return item.split, item.rows, item.late, item.watermark, item.rowtime


def numbered(epochs: Sequence[Sequence[Any]]) -> Iterator[list[Row]]:
    offset = itertools.count()
    for epoch in epochs:
        yield [(split, next(offset), at, further) for split, at, further in epoch]


@pytest.mark.parametrize("large", [False, True], ids=["small", "large"])
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(epochs=_epochs, gap=_gaps, floor=_floors, mixed=st.booleans(), group=st.integers(1, 4))
def test_files_say_what_the_generator_says(
    tmp_path_factory: pytest.TempPathFactory,
    looks: list[columnar.Look],
    epochs: list[list[Any]],
    gap: int | None,
    floor: int | None,
    mixed: bool,
    group: int,
    large: bool,
) -> None:
    mine, theirs = SplitsBefore(floor=floor), SplitsBefore(floor=floor)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columnar, "SMALL_EPOCH", -1 if large else 1_000)
        for rows in numbered(epochs):
            kinds = [rows] if mixed and rows and not large else by_split(rows)
            files = written(tmp_path_factory.mktemp("epoch"), kinds, group)
            found = in_order(columnar.scan(files, OWN, gap, mine, NO_SPARK))
            expected = by_hand(BOUNDED, gap, rows, theirs)
            assert list(map(told, found)) == [
                (*told(item)[:-1], None if item.rowtime == MIN_TIMESTAMP else item.rowtime) for item in expected
            ]
            mine, theirs = after(mine, found, floor), after(theirs, expected, floor)


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    rows=st.lists(_row, min_size=1, max_size=14),
    gap=_gaps,
    floor=_floors,
    own=st.dictionaries(st.sampled_from("ab"), st.integers(-40, 40)),
)
def test_files_say_what_sql_says(
    spark: SparkSession,
    tmp_path_factory: pytest.TempPathFactory,
    looks: list[columnar.Look],
    rows: list[Any],
    gap: int | None,
    floor: int | None,
    own: dict[str, int],
) -> None:
    """Of another column than the rowtime, by both ways."""
    (found,) = numbered([rows])
    splits = {name: SplitWatermark(name, at, False, state={"greatest": at, "since": 0}) for name, at in own.items()}
    before = SplitsBefore(splits, floor)
    values = [
        (split, offset, at, None if at is None or further is None else (at * 100 + further * 100 - 700) // 1000)
        for split, offset, at, further in found
    ]
    expected = in_order(builtin.scan(frame(spark, values), EXPRESSION, gap, before))
    files = written(tmp_path_factory.mktemp("epoch"), by_split(found))
    for small in (-1, 1_000):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(columnar, "SMALL_EPOCH", small)
            assert in_order(columnar.scan(files, COLUMN, gap, before, NO_SPARK)) == expected


def before(floor: int, own: Mapping[str, int] | None = None) -> SplitsBefore:
    return SplitsBefore({name: SplitWatermark(name, at, False) for name, at in (own or {}).items()}, floor)


@pytest.mark.parametrize(
    ("gap", "floor", "times", "late", "looked"),
    [
        (None, 5, [60, 70, 80], 0, 0),  # all later than the floor
        (None, 9, [60, 70, 90], 3, 0),  # none
        (None, 7, [60, 70, None, 80], 2, 1),
        (1, 0, [100, 110, 105], 0, 0),  # 11 - 8 is the last that is told
        (1, 9, [60, 70, 80], 3, 0),
        (1, 0, [200, 10, 115, 125], 2, 1),  # 12 is told before them
        (1, 0, [None, None], 0, 0),
    ],
)
def test_bounds_spare_a_look(
    tmp_path: Path,
    looks: list[columnar.Look],
    gap: int | None,
    floor: int,
    times: Sequence[int | None],
    late: int,
    looked: int,
) -> None:
    rows: list[Row] = [("a", n, at, None) for n, at in enumerate(times)]
    (found,) = in_order(columnar.scan(written(tmp_path, [rows], group=10), OWN, gap, before(floor), NO_SPARK))
    assert (found.late, len(looks)) == (late, looked)


OLD_AND_NEW: list[Row] = [("a", 0, 10, None), ("a", 1, 500, None)]


@pytest.mark.parametrize(
    ("files", "gap", "small"),
    [
        ([[("a", 1, 500, None), ("a", 0, 10, None)]], 1, False),  # not in order
        ([[("a", 0, 500, None), ("a", 0, 10, None)]], 1, False),  # two at one offset: _seq has the order
        ([[("a", 0, 500, None), ("a", 0, 10, None)]], 1, True),
        ([OLD_AND_NEW, [("a", 1, 500, None), ("a", 2, 10, None)]], 1, False),  # of two files at one offset
        ([[("a", 1, 500, None)], [("a", 0, 10, None), ("a", 2, 10, None)]], 1, False),  # one inside of the other
        ([[("a", 0, 10, None), ("b", 1, 500, None)]], None, False),  # two splits in one row group
        ([OLD_AND_NEW], 2, False),
        ([OLD_AND_NEW], 2, True),
        ([[("a", 0, -92_233_720_368_547_758, None), ("a", 1, 500, None)]], None, False),  # less 700 µs: no 64 bits
        ([[("a", 0, -92_233_720_368_547_758, None), ("a", 1, 500, None)]], None, True),
    ],
)
def test_what_files_do_not_tell(
    tmp_path: Path, looks: list[columnar.Look], files: list[list[Row]], gap: int | None, small: bool
) -> None:
    lag = Lag("_rowtime", micros=700)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columnar, "SMALL_EPOCH", 1_000 if small else -1)
        assert columnar.scan(written(tmp_path, files), lag, gap, before(5), NO_SPARK) is None


@pytest.mark.parametrize("small", [False, True])
@pytest.mark.parametrize(
    ("floor", "times", "late"),
    [
        (0, [100, 105, 110], 0),  # all later than the last that is told
        (9, [60, 90, 70], 3),  # all late before they begin
        (9, [60, None, 70], 2),
    ],
)
def test_where_bounds_are_enough_no_order_is_asked_for(
    tmp_path: Path, looks: list[columnar.Look], floor: int, times: list[int | None], late: int, small: bool
) -> None:
    rows: list[Row] = [("a", 2 - n % 2, at, None) for n, at in enumerate(times)]  # two at one offset, and none in order
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columnar, "SMALL_EPOCH", 1_000 if small else -1)
        (found,) = in_order(columnar.scan(written(tmp_path, [[row] for row in rows]), OWN, 1, before(floor), NO_SPARK))
    assert (found.late, looks) == (late, [])


def test_a_split_with_something_left_to_emit_needs_an_order(tmp_path: Path) -> None:
    left = SplitsBefore({"a": SplitWatermark("a", 5, False, state={"greatest": 9, "since": 1})}, 5)
    files = written(tmp_path, [OLD_AND_NEW])
    assert columnar.scan(files, OWN, 1, left, NO_SPARK) is None
    assert columnar.scan(files, OWN, None, left, NO_SPARK) is not None


@pytest.mark.parametrize("column", ["gone", "_offset", "e"])
def test_a_column_that_is_no_time_is_not_read(tmp_path: Path, column: str) -> None:
    assert columnar.scan(written(tmp_path, [OLD_AND_NEW]), Lag(column), None, before(5), NO_SPARK) is None


def test_no_rows_say_nothing(tmp_path: Path) -> None:
    assert columnar.scan({}, OWN, None, before(5), NO_SPARK) == []
    assert columnar.scan(written(tmp_path, [[]]), OWN, None, before(5), NO_SPARK) == []


@pytest.mark.parametrize("floor", [MIN_TIMESTAMP, MAX_TIMESTAMP])
@pytest.mark.parametrize("small", [False, True])
def test_the_ends_of_time(tmp_path: Path, looks: list[columnar.Look], floor: int, small: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columnar, "SMALL_EPOCH", 1_000 if small else -1)
        (found,) = in_order(columnar.scan(written(tmp_path, [OLD_AND_NEW]), OWN, 1, before(floor), NO_SPARK))
    assert found.late == (0 if floor == MIN_TIMESTAMP else 2)
    assert found.watermark == Watermark(42)


def test_a_large_epoch_is_looked_at_in_tasks(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columnar, "SMALL_EPOCH", 10)
    rows: list[Row] = [("a", n, 10 * ((n * 7) % 40), None) for n in range(40)]
    (found,) = in_order(columnar.scan(written(tmp_path, [rows[:20], rows[20:]], 10), OWN, 1, before(0), spark))
    (expected,) = by_hand(BOUNDED, 1, rows, before(0))
    assert 0 < found.late == expected.late < 40


def test_batches_of_a_row_group_follow_on_each_other(
    tmp_path: Path, looks: list[columnar.Look], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columnar, "AT_ONCE", 3)
    rows: list[Row] = [("a", n, 10 * ((n * 7) % 40), None) for n in range(40)]
    (found,) = in_order(columnar.scan(written(tmp_path, [rows], 40), OWN, 1, before(0), NO_SPARK))
    (expected,) = by_hand(BOUNDED, 1, rows, before(0))
    assert found.late == expected.late
    assert len(looks) == 1
    swapped = [*rows[:3], rows[4], rows[3], *rows[5:]]
    assert columnar.scan(written(tmp_path, [swapped], 40), OWN, 1, before(0), NO_SPARK) is None
