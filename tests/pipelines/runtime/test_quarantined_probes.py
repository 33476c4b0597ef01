"""A quarantined row holds the probe's own columns, whatever staged it, and only it does."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark import TaskContext
from pyspark.sql import SparkSession

from tests.pipelines.runtime import handmade
from tidegate.pipelines.errors import LakeError
from tidegate.pipelines.joins import writer
from tidegate.pipelines.joins.task import Groups, Landed
from tidegate.pipelines.lake import rows as lake_rows
from tidegate.pipelines.lake.releasable import Releasable, released
from tidegate.pipelines.location import Location
from tidegate.pipelines.parquet import BatchWriter
from tidegate.pipelines.runtime.epochs import Asked
from tidegate.pipelines.runtime.quarantine import quarantined_in, rows_of
from tidegate.pipelines.runtime.releasing import join_runner
from tidegate.pipelines.sources.scripted import ScriptedInput
from tidegate.pipelines.testing import Harness
from tidegate.pipelines.watermarks import MIN_TIMESTAMP

SCRIPT = """
CREATE TABLE users (user_id INT PRIMARY KEY NOT ENFORCED, gender STRING) WITH ('connector' = 'scripted');
CREATE TABLE clicks (user_id INT, item_id INT, price DECIMAL(10, 2), tags ARRAY<STRING>, size ROW<w INT, h DOUBLE>,
    seen MAP<STRING, INT>, day DATE, at TIMESTAMP(3), note BYTES, `odd-näme` STRING, proctime AS PROCTIME())
WITH ('connector' = 'scripted');
CREATE TABLE enriched (item_id INT, gender STRING) WITH ('connector' = 'scripted');
INSERT INTO enriched SELECT c.item_id, u.gender FROM clicks AS c
JOIN users FOR SYSTEM_TIME AS OF c.proctime AS u ON c.user_id = u.user_id
"""

FULL = {
    "price": Decimal("12.30"),
    "tags": ["a", None],
    "size": {"w": 1, "h": 0.5},
    "seen": {"x": 1},
    "day": date(2026, 1, 2),
    "at": datetime(2026, 1, 2, 3, 4, 5, 6000),
    "note": b"\x00\xff",
    "odd-näme": "ä" * 50,
}
EMPTY = dict.fromkeys(FULL)


def click(user: int | None, item: int, columns: dict[str, Any] = EMPTY) -> dict[str, Any]:
    return {"user_id": user, "item_id": item, **columns}


def loaded(spark: SparkSession, directory: Path, script: str = SCRIPT) -> Harness:
    """User 1 is known, and the table of users has flipped."""
    harness = Harness(script, spark, directory)
    harness.push("users", [{"user_id": 1, "gender": "f"}])
    harness.end_of_snapshot("users")
    return harness


def probes(harness: Harness) -> dict[tuple[int, int, str], dict[str, Any] | None]:
    """(epoch, item, op) -> what is stored of the probe's row."""
    insert = harness.pipeline.inserts[0]
    path = harness.lake.quarantine_path(harness.pipeline.table(insert.target), insert)
    rows = lake_rows.read(harness.spark, path).collect()
    return {
        (row["_epoch"], row["item_id"], row["_op"]): None
        if row["_probe"] is None
        else row["_probe"].asDict(recursive=True)
        for row in rows
    }


def test_a_quarantined_row_holds_the_probes_columns(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = SCRIPT.replace("c.item_id, u", "c.item_id + 0, u")  # Spark's SQL lies between what reads and what writes
    harness = loaded(spark, tmp_path, script)
    with monkeypatch.context() as before:  # as it was written before the column was there
        before.setattr(join_runner, "probe_column", lambda probe: {})
        before.setattr(join_runner, "columns_of", lambda probe: {})
        harness.push("clicks", [click(9, 90, FULL)])
        harness.advance()
    assert "_probe" not in lake_rows.read(spark, tmp_path / "lake/targets/enriched/_quarantine/enriched").columns
    harness.restart()

    harness.push("clicks", [click(1, 1, FULL), click(2, 2, FULL), click(None, 3), click(4, 4)])
    # Not by the harness, which takes no updates here.
    clicks = ScriptedInput(harness.lake.scratch("clicks"), harness.pipeline.table("clicks"))
    clicks.rows([click(5, 5, FULL)], "-U")
    clicks.rows([click(5, 5)], "+U")
    harness.advance()
    assert [row["item_id"] for row in harness.published("enriched")] == [1]
    wanted = {
        (1, 90, "+I"): None,
        (2, 2, "+I"): click(2, 2, FULL),
        (2, 3, "+I"): click(None, 3),
        (2, 4, "+I"): click(4, 4),
        (2, 5, "-U"): click(5, 5, FULL),
        (2, 5, "+U"): click(5, 5),
    }
    assert probes(harness) == wanted

    # Rows that a release out of quarantine quarantines again are found by the epochs that they landed in.
    harness.push("users", [{"user_id": 2, "gender": "m"}])
    harness.runner.advance("users")
    harness.runner.out_of_quarantine("enriched", Asked())
    assert sorted(row["item_id"] for row in harness.published("enriched")) == [1, 2]
    again = {(3, *key[1:]): row for key, row in wanted.items() if key[1] != 2}
    assert probes(harness) == {**wanted, **again, (3, 90, "+I"): click(9, 90, FULL)}
    assert harness.verify("enriched").passed
    shown = rows_of(harness.lake, harness.pipeline, harness.pipeline.insert("enriched"), open_of(harness), 100)
    assert {row.values["item_id"]: row.probe and row.probe["price"] for row in shown if row.op == "+I"} == {
        90: Decimal("12.30"), 3: None, 4: None,
    }  # fmt: skip


def open_of(harness: Harness) -> list[Any]:
    from tidegate.pipelines.runtime.epochs.history import history_of

    history = history_of(harness.lake, harness.pipeline, harness.pipeline.insert("enriched"))
    return [item for item in quarantined_in(history) if item.state == "open"]


def test_a_release_that_keeps_no_row_out_writes_no_column_more(spark: SparkSession, tmp_path: Path) -> None:
    harness = loaded(spark, tmp_path)
    harness.push("clicks", [click(1, 1, FULL)])
    assert [row["item_id"] for row in harness.advance()] == [1]
    assert not list(tmp_path.glob("lake/targets/enriched/_quarantine/**/*.parquet"))
    files = list(tmp_path.glob("lake/targets/enriched/_data/enriched/*/*/*.parquet"))
    assert [path.parent.name for path in files] == ["_disposition=publish"]
    assert {"item_id", "_reason"} <= set(pq.read_schema(files[0]).names)
    assert "_probe" not in pq.read_schema(files[0]).names
    harness.push("clicks", [click(1, 2), click(9, 9, FULL), click(9, 10)])
    assert [row["item_id"] for row in harness.advance()] == [2]
    assert probes(harness) == {(2, 9, "+I"): click(9, 9, FULL), (2, 10, "+I"): click(9, 10)}


def test_a_probe_that_has_new_columns_gives_them_to_the_quarantine(spark: SparkSession, tmp_path: Path) -> None:
    old, new, other = "STRUCT<a: INT, c: DATE>", "STRUCT<a: INT, b: ROW, c: DATE>", "STRUCT<a: BIGINT, c: DATE>"
    new = new.replace("ROW", "STRUCT<x: ARRAY<INT>>")
    for kind in (old, new, new):
        lake_rows.ensure_table(Location(tmp_path / "q"), {"n": "INT", "_probe": kind}, "q", added={"_probe"})
    found = {field.name: field.type for field in DeltaTable(tmp_path / "q").schema().fields}["_probe"]
    assert [field.name for field in found.fields] == ["a", "c", "b"]  # type: ignore[union-attr]
    with pytest.raises(LakeError, match="the columns of q have changed since its rows were stored: _probe is"):
        lake_rows.ensure_table(Location(tmp_path / "q"), {"n": "INT", "_probe": other}, "q", added={"_probe"})


def test_rows_out_of_quarantine_have_no_value_of_a_column_that_their_table_does_not_have_yet(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new column is declared before the table gets it, with the next epoch that lands."""
    harness = loaded(spark, tmp_path)
    harness.push("clicks", [click(9, 90, FULL)])
    harness.advance()
    declared = join_runner.columns_of(harness.pipeline.table("clicks"))
    own = ", ".join(f"`{name}`: {kind}" for name, kind in {**declared, "later": "INT"}.items())
    monkeypatch.setattr(join_runner, "columns_of", lambda probe: {**declared, "later": "INT"})
    monkeypatch.setattr(join_runner, "probe_column", lambda probe: {"_probe": f"STRUCT<{own}>"})
    harness.restart()
    harness.runner.out_of_quarantine("enriched", Asked())
    assert probes(harness)[2, 90, "+I"] == {**click(9, 90, FULL), "later": None}


def landed_in(shares: Sequence[Sequence[Groups]], **more: pa.DataType) -> Landed:
    releasable = Releasable(1, (released(0, 9, MIN_TIMESTAMP, 10**9),))
    return Landed("clicks", {}, {"n": pa.int64(), **more}, releasable, event=False, shares=shares)


def test_the_columns_are_found_in_the_row_groups_that_may_have_them(tmp_path: Path) -> None:
    """By place; what is not there once is counted, and a row without a whole place has none."""
    shares = [(Groups(str(landed(tmp_path / "a.parquet", [0, 1, 2, 3])), (0, 1)),)]
    shares.append((Groups(str(landed(tmp_path / "b.parquet", [4, 5, 5])), (0, 1)),))
    found = landed_in(shares, new=pa.string())

    def of(share: int, *offsets: int | None) -> tuple[list[Any], int]:
        columns = {"_epoch": [1] * len(offsets), "_op": ["+I"] * len(offsets), "_split": ["s"] * len(offsets)}
        places = pa.table(columns | {"_offset": pa.array(offsets, pa.int64())})
        values, unclear = found.at(share, places)
        return values.to_pylist(), unclear

    assert of(0, 3, 0) == ([{"n": 30, "new": None}, {"n": 0, "new": None}], 0)
    assert of(0, 2, None) == ([{"n": 20, "new": None}, None], 0)
    assert of(0, None) == ([None], 0)
    assert of(0, 1, 4)[1] == 1  # of another task
    assert of(1, 4)[1] == 0
    assert of(1, 5)[1] > 0  # two rows of one place


def test_rows_of_other_splits_with_the_same_offsets_are_not_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic of many partitions has each offset many times: only columns of quarantined rows are held."""
    paths = [landed(tmp_path / f"{split}.parquet", list(range(50)), split) for split in "abcdefgh"]
    found, held = landed_in([[Groups(str(path), (0, 1, 2)) for path in paths]]), []

    def together(tables: list[pa.Table]) -> pa.Table:
        held.append(sum(table.num_rows for table in tables))
        return concat(tables)

    concat = pa.concat_tables
    monkeypatch.setattr(pa, "concat_tables", together)
    places = {"_epoch": [1, 1], "_op": ["+I", "+I"], "_split": ["g", "a"], "_offset": [4, 3]}
    values, unclear = found.at(0, pa.table(places))
    assert (values.to_pylist(), unclear) == ([{"n": 40}, {"n": 30}], 0)
    assert 2 <= max(held) < 8  # of 16 with these offsets


def test_a_task_looks_up_a_bounded_number_of_rows_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However small the columns of the target are, those of the probe may be large."""
    file = landed(tmp_path / "landed.parquet", list(range(25)))
    probe = landed_in([[Groups(str(file), tuple(range(13)))]])
    asked, of = list[int](), Landed.at

    def counted(self: Landed, share: int, places: pa.Table) -> tuple[pa.StructArray, int]:
        asked.append(places.num_rows)
        return of(self, share, places)

    monkeypatch.setattr(Landed, "at", counted)
    monkeypatch.setattr(writer, "LOOKED_UP", 10)
    monkeypatch.setattr(TaskContext, "get", lambda: SimpleNamespace(partitionId=lambda: 0))
    insert = handmade.pipeline().inserts[0]
    own = writer.Writer(insert, writer.Release(1, 1, 0, "quarantine", False, None, False), {}, {}, probe)
    columns = {"_op": ["+I"] * 26, "_split": ["s"] * 26, "_probe_epoch": [1] * 26, "_offset": [*range(25), 99]}
    with BatchWriter(tmp_path / "quarantined.parquet") as written:
        assert own._quarantine(written, [pa.record_batch(columns)]) == 1
    assert asked == [10, 10, 6]
    stored = pq.read_table(tmp_path / "quarantined.parquet")
    assert stored["_probe"].to_pylist() == [{"n": 10 * number} for number in range(25)] + [None]


def landed(path: Path, offsets: list[int], split: str = "s") -> Path:
    columns = {"_op": "+I", "_split": split}
    rows = {name: [value] * len(offsets) for name, value in columns.items()}
    kinds = {"_epoch": pa.int64(), "_generation": pa.int32()}
    rows |= {name: pa.array([1] * len(offsets), kind) for name, kind in kinds.items()}
    rows |= {"_offset": pa.array(offsets, pa.int64()), "n": pa.array([10 * each for each in offsets], pa.int64())}
    pq.write_table(pa.table(rows), path, row_group_size=2)
    return path
