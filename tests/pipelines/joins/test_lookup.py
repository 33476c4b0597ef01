"""Rows are found in a copy as a scan finds them: any keys, any types, any pin."""

from __future__ import annotations

import itertools
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipelines.joins import lookup
from pipelines.joins.lookup import Copying, copy, looking_up

OWN = {"_generation": pa.int32(), "_epoch": pa.int64()}

KEYS: dict[str, tuple[dict[str, pa.DataType], st.SearchStrategy[tuple[Any, ...]]]] = {
    "int": ({"a": pa.int32()}, st.tuples(st.integers(-4, 4))),
    "bigint": ({"a": pa.int64()}, st.tuples(st.sampled_from([-(2**63), -1, 0, 1, 2**31, 2**63 - 1]))),
    "text": ({"a": pa.string()}, st.tuples(st.sampled_from(["", "a", "A", "ab", "ä", "z", "日本", "a\x00"]))),
    "bytes": ({"a": pa.binary()}, st.tuples(st.sampled_from([b"", b"\x00", b"a", b"\xff", b"ab"]))),
    "two": ({"a": pa.string(), "b": pa.int16()}, st.tuples(st.sampled_from("xyz"), st.integers(-2, 2))),
    "three": (
        {"a": pa.bool_(), "b": pa.date32(), "c": pa.decimal128(9, 2)},
        st.tuples(st.booleans(), st.dates(date(2026, 1, 1), date(2026, 1, 9)), st.decimals("-1", "1", places=2)),
    ),
}


def copied(tmp: Path, types: dict[str, pa.DataType], rows: list[dict[str, Any]], group: int) -> list[str]:
    path = tmp / "data.parquet"
    pq.write_table(pa.Table.from_pylist(rows, pa.schema(list(types.items()))), path, row_group_size=group)
    return copy(Copying(str(path), str(tmp / "copies"), tuple(name for name in types if name in "abc"), types))[0]


@pytest.mark.parametrize("kind", KEYS)
@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data(), group=st.integers(1, 5), epoch=st.integers(0, 3), generation=st.integers(1, 2))
def test_a_copy_gives_what_a_scan_gives(
    tmp_path_factory: pytest.TempPathFactory, kind: str, data: st.DataObject, group: int, epoch: int, generation: int
) -> None:
    keys, values = KEYS[kind]
    names = list(keys)
    told = data.draw(st.lists(st.tuples(values, st.integers(1, 2), st.integers(1, 3)), max_size=25))
    rows = [
        {**dict(zip(names, key, strict=True)), "_generation": own, "_epoch": at, "v": f"v{number}"}
        for number, (key, own, at) in enumerate(told)
    ]
    wanted = list(dict.fromkeys(data.draw(st.lists(values, min_size=1, max_size=8))))
    types = {**OWN, **keys, "v": pa.string()}
    files = copied(tmp_path_factory.mktemp("copy"), types, rows, group)
    if not files:
        return
    asked = [pa.array([key[place] for key in wanted], kind) for place, kind in enumerate(keys.values())]
    found = looking_up(files, names, types, generation, epoch)(*asked)
    assert found.type.value_type == pa.struct(list(types.items()))
    assert [sorted(own, key=lambda row: row["v"]) for own in found.to_pylist()] == [
        sorted(
            (
                row
                for row in rows
                if tuple(row[name] for name in names) == key
                and row["_generation"] == generation
                and row["_epoch"] <= epoch
            ),
            key=lambda row: row["v"],
        )
        for key in wanted
    ]


def test_rows_with_a_null_in_their_key_are_in_no_copy(tmp_path: Path) -> None:
    types = {**OWN, "a": pa.int32(), "b": pa.string()}
    rows = [{"_generation": 1, "_epoch": 1, "a": a, "b": b} for a, b in itertools.product((None, 1, 2), (None, "x"))]
    (file,) = copied(tmp_path, types, rows, 100)
    assert pa.ipc.open_file(file).read_all().num_rows == 2
    assert copied(tmp_path / "..", types, [row for row in rows if row["a"] is None], 100) == []


def test_a_narrower_number_is_found_among_wider_ones(tmp_path: Path) -> None:
    types = {**OWN, "a": pa.int16()}
    files = copied(tmp_path, types, [{"_generation": 1, "_epoch": 1, "a": a} for a in (5, 3, 5)], 100)
    found = looking_up(files, ["a"], types, 1, 1)(pa.array([5, 2**40, 3], pa.int64()))
    assert [len(own) for own in found.to_pylist()] == [2, 0, 1]
    assert found.type.value_type.field("a").type == pa.int16()


def test_another_attempt_has_files_of_its_own(tmp_path: Path) -> None:
    types = {**OWN, "a": pa.int32()}
    rows = [{"_generation": 1, "_epoch": 1, "a": 1}]
    assert copied(tmp_path, types, rows, 1) != copied(tmp_path, types, rows, 1)


@pytest.mark.parametrize(
    ("keys", "crowd"), [([1, 2, 3], 0), ([1, 1, 2], 1), ([5] * 40, 39), ([1] * 3 + [2] * 3 + [3], 4), ([7], 0)]
)
def test_a_crowd_is_what_keys_have_beyond_one_row_each(
    tmp_path: Path, keys: list[int], crowd: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    types = {**OWN, "a": pa.int32()}
    path = tmp_path / "data.parquet"
    rows = [{"_generation": 1, "_epoch": 1, "a": key} for key in keys]
    pq.write_table(pa.Table.from_pylist(rows, pa.schema(list(types.items()))), path)
    work = Copying(str(path), str(tmp_path), ("a",), types)
    assert copy(work)[1] == crowd
    monkeypatch.setattr(lookup, "BATCH", 1)
    assert copy(work)[1] == max(keys.count(key) for key in keys) - 1


def test_a_column_that_came_later_is_null(tmp_path: Path) -> None:
    types = {**OWN, "a": pa.int32()}
    path = tmp_path / "data.parquet"
    pq.write_table(
        pa.table({"_generation": pa.array([1], pa.int32()), "_epoch": [1], "a": pa.array([4], pa.int32())}), path
    )
    files, _ = copy(Copying(str(path), str(tmp_path), ("a",), {**types, "b": pa.string()}))
    found = looking_up(files, ["a"], {**types, "b": pa.string()}, 1, 1)(pa.array([4], pa.int32()))
    assert found.to_pylist() == [[{"_generation": 1, "_epoch": 1, "a": 4, "b": None}]]


def test_files_that_are_gone_are_let_go(tmp_path: Path) -> None:
    types = {**OWN, "a": pa.int32()}
    rows = [{"_generation": 1, "_epoch": 1, "a": 1}]
    one, other = (copied(tmp_path, types, rows, 1) for _ in range(2))
    for files in (one, other):
        assert looking_up(files, ["a"], types, 1, 1)(pa.array([1], pa.int32())).to_pylist() == [rows]
    Path(one[0]).unlink()
    looking_up(other, ["a"], types, 1, 1)(pa.array([1], pa.int32()))
    assert {path for path, _, _ in lookup._OPEN} & {*one, *other} == set(other)
