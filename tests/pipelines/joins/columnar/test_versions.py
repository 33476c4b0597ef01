"""The versions that rows meet, against a search that looks at every version of the key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.joins.columnar import versions as module
from pipelines.joins.columnar.versions import NO_KEY, Changelog, Versions, load, save_versions, versions_of
from pipelines.sources.arrow_types import arrow_type
from pipelines.sources.protocol import SEQ_PARTS, SEQ_TYPE

TIME = pa.timestamp("us", tz="UTC")
FAR = 2**62
"""So far apart, times and keys do not fit into one number."""

Version = tuple[Any, Any, int | None, int | None]
"""Two columns of the key, the time, and one part of the seq."""

ints = st.one_of(st.none(), st.integers(-2, 3), st.sampled_from([-(2**63), 2**63 - 1, 2**40]))
texts = st.one_of(st.none(), st.sampled_from(["", "a", "ä", "a" * 40]))
times = st.one_of(st.integers(-3, 3), st.sampled_from([-FAR, FAR]))
histories = st.lists(st.tuples(ints, texts, st.one_of(st.none(), times), st.one_of(st.none(), st.integers(-1, 2))))
probes = st.lists(st.tuples(ints, texts, times), min_size=1)


def changelog(rows: list[Version]) -> pa.Table:
    """`place` is the row's own place; no two have the same seq."""
    seqs = [{**dict.fromkeys(SEQ_PARTS, 0), "file": row[3], "position": place} for place, row in enumerate(rows)]
    size = len(rows)
    return pa.table(
        {
            "number": pa.array([row[0] for row in rows], pa.int64()),
            "text": pa.array([row[1] for row in rows], pa.string()),
            "place": pa.array(range(size), pa.int64()),
            "_rowtime": pa.array([row[2] for row in rows], TIME),
            "_seq": pa.array(seqs, arrow_type(SEQ_TYPE)),
            "_op": pa.repeat("+I", size),
            "_generation": pa.repeat(pa.scalar(1, pa.int32()), size),
            "_epoch": pa.repeat(1, size),
        }
    )


def expected(rows: list[Version], key: tuple[Any, ...], at: int, width: int) -> str | int:
    """The place of the version that a key meets; or why there is none."""
    known = [
        (row[2], -1_000 if row[3] is None else row[3], place)
        for place, row in enumerate(rows)
        if None not in (*row[:width], row[2]) and row[:width] == key[:width] and None not in key[:width]
    ]
    met = [version for version in known if version[0] <= at]
    return "no key" if not known else "before" if not met else max(met)[2]


def found(versions: Versions, keys: list[pa.Array], at: list[int]) -> list[str | int]:
    numbers, after = versions.find(keys, np.array(at, np.int64))
    places = versions.rows.column("place").to_pylist()
    return [
        "no key" if number == NO_KEY else "before" if last < versions.starts[number] else places[versions.order[last]]
        for number, last in zip(numbers.tolist(), after.tolist(), strict=True)
    ]


@given(rows=histories, asked=probes, width=st.sampled_from([1, 2]))
def test_a_row_meets_the_last_version_that_is_not_after_it(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Version], asked: list[tuple[Any, Any, int]], width: int
) -> None:
    columns = ["number", "text"][:width]
    folder = tmp_path_factory.mktemp("versions")
    versions_of(changelog(rows), columns, ["place"]).save(folder / "saved")
    keys = [pa.array([each[0] for each in asked], pa.int64()), pa.array([each[1] for each in asked], pa.string())]
    assert found(load(str(folder / "saved")), keys[:width], [each[2] for each in asked]) == [
        expected(rows, each[:2], each[2], width) for each in asked
    ]


@pytest.mark.parametrize(("close", "by_value"), [(8, True), (0, False)])
def test_keys_that_lie_close_are_picked(monkeypatch: pytest.MonkeyPatch, close: int, by_value: bool) -> None:
    monkeypatch.setattr(module, "CLOSE", close)
    rows: list[Version] = [(7, None, 10, 0), (9, None, 10, 0), (-1, None, 5, 0), (7, None, 20, 0)]
    versions = versions_of(changelog(rows), ["number"], ["place"])
    assert bool(len(versions.by_value)) == by_value
    keys = pa.array([7, 7, 8, 9, -1, -2, 10, None, 7, 2**63 - 1, -(2**63)], pa.int64())
    assert found(versions, [keys], [20, 19, 99, 10, 99, 99, 99, 99, 9, 99, 99]) == (
        [3, 0, "no key", 1, 2, "no key", "no key", "no key", "before", "no key", "no key"]
    )


def test_a_narrow_key_is_looked_up_by_a_wide_one(tmp_path: Path) -> None:
    rows = changelog([(1, None, 1, 0)])
    narrow = rows.set_column(0, "number", rows["number"].cast(pa.int8()))
    versions = versions_of(narrow, ["number"], ["place"])
    assert found(versions, [pa.array([1, 2**40], pa.int64())], [1, 1]) == [0, "no key"]


def test_a_build_that_is_larger_than_it_looked_is_left_to_sql(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = changelog([(1, "a" * 1_000, 1, 0)] * 5_000)
    pq.write_table(rows, tmp_path / "a.parquet")
    columns, types = ("number", "text"), {"number": pa.int64(), "text": pa.string()}
    told = Changelog((str(tmp_path / "a.parquet"),), 1, 1, ("number",), columns, types, str(tmp_path / "saved"))
    saved = save_versions(told)
    assert saved is not None
    assert load(saved).rows.num_rows == 5_000
    assert save_versions(told) != saved  # what another attempt saves is apart
    monkeypatch.setattr(module, "MOST_HELD", 1_000_000)
    assert save_versions(told) is None


def test_no_versions_at_all(tmp_path: Path) -> None:
    versions_of(changelog([]), ["number", "text"], []).save(tmp_path / "none")
    keys = [pa.array([1], pa.int64()), pa.array(["a"])]
    numbers, _ = load(str(tmp_path / "none")).find(keys, np.array([1], np.int64))
    assert numbers.tolist() == [NO_KEY]
