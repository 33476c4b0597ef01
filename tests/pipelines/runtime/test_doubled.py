"""Rows of one key within an epoch are counted, as PRIMARY KEY of a target is not enforced."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tidegate.pipelines.location import Location
from tidegate.pipelines.runtime.releasing.doubled import KEY_TWICE, doubled, doubled_by_output, doubled_rows


@pytest.mark.parametrize(
    ("files", "key", "twice"),
    [
        ([], ["k"], 0),
        ([[("+I", 1, "a")]], ["k"], 0),
        ([[("+I", 1, "a"), ("+I", 1, "b")], [("+I", 1, "c"), ("+I", 2, "a")]], ["k"], 2),
        ([[("+I", 1, "a"), ("+I", 1, "b"), ("+I", 2, "a")]], ["k", "v"], 0),
        ([[("+I", None, "a"), ("+I", None, "b")]], ["k"], 1),
        ([[("+I", 1, "a"), ("-U", 1, "a"), ("+U", 1, "b"), ("-D", 1, "b")]], ["k"], 0),
    ],
)  # fmt: skip
def test_rows_of_one_key(
    files: list[list[tuple[str, int | None, str]]], key: list[str], twice: int, tmp_path: Path
) -> None:
    paths = []
    for number, rows in enumerate(files):
        op, k, v = zip(*rows, strict=True)
        pq.write_table(pa.table({"_op": op, "k": pa.array(k, pa.int64()), "v": v}), tmp_path / f"{number}.parquet")
        paths.append(Location(str(tmp_path)) / f"{number}.parquet")
    assert doubled(paths, key) == {KEY_TWICE: twice}
    assert doubled(paths, []) == {}


@pytest.mark.parametrize(
    ("facts", "by_output", "together"),
    [
        ({}, (None, None), None),
        ({KEY_TWICE: 0}, (0, None), 0),
        ({"second": {KEY_TWICE: 2}}, (None, 2), 2),
        ({KEY_TWICE: 3, "second": {KEY_TWICE: 2}}, (3, 2), 5),
        ({KEY_TWICE: 3, "second": {}}, (3, None), 3),
    ],
)
def test_both_outputs_are_told_apart(
    facts: dict[str, object], by_output: tuple[int | None, ...], together: int | None
) -> None:
    assert doubled_by_output(facts) == by_output
    assert doubled_rows(facts) == together
