"""Whatever way a file has come into a table, every reader finds the rows that a filter takes."""

from __future__ import annotations

import json
from itertools import chain
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, Schema
from deltalake.schema import PrimitiveType
from pyspark.sql import SparkSession

from tests.cases import at_length
from tests.pipelines.lake.readers import LATER, LONG, TYPES, filters, literal, right, rows, schema, sql, wrong
from tidegate.pipelines.lake.adopt import Epochs, adopt, survey
from tidegate.pipelines.lake.rows import add_columns, ensure_table
from tidegate.pipelines.lake.statistics import rounded_up, skipping
from tidegate.pipelines.lake.upkeep import put_together
from tidegate.pipelines.location import Location
from tidegate.pipelines.parquet import OF_SPARK, write_file

SEQ = pa.struct([("phase", pa.int32()), ("row", pa.int64())])
PLACE = pa.schema([("_generation", pa.int32()), ("_epoch", pa.int64()), ("_seq", SEQ)])
"""As in a changelog, whose columns come after a STRUCT."""


def added(path: Path, epoch: int, given: list[dict], instead_of: Epochs | None = None) -> None:
    """An epoch of rows, a file that is adopted."""
    placed = [{**row, "_generation": 1, "_epoch": epoch, "_seq": {"phase": 1, "row": epoch}} for row in given]
    names = [name for name in (*TYPES, *LATER) if name in given[0]]
    whole = pa.Table.from_pylist(placed, pa.schema([*PLACE, *schema(names)]))
    folder = Location(path) / f"e{epoch}"
    write_file(folder / "0.parquet", whole.to_batches())
    adopt(path, folder, survey(folder), application="a", epoch=epoch, instead_of=instead_of)


@pytest.mark.parametrize("own", at_length([True, False]), ids=["a table of Tidegate", "a table that was there"])
def test_readers_lose_no_row(tmp_path: Path, own: bool) -> None:
    made = Schema.from_arrow(pa.schema([*PLACE, *schema()]))
    DeltaTable.create(tmp_path, made, configuration=skipping(json.loads(made.to_json())["fields"]) if own else None)
    epochs = {epoch: rows(epoch, nulls=epoch % 2 == 0) for epoch in range(1, 5)}
    for epoch, given in epochs.items():
        added(tmp_path, epoch, given)
    assert wrong(tmp_path, [*chain(*epochs.values())]) == []
    # All in one file; then a backfill takes one epoch out of it, and columns are added.
    put_together(tmp_path, least=2)
    assert len(DeltaTable(tmp_path).file_uris()) == 1
    epochs[99] = rows(99, nulls=True)
    added(tmp_path, 99, epochs[99], Epochs(1, ((3, 3),)))
    del epochs[3]
    kinds = {"later": PrimitiveType("integer"), "text": PrimitiveType("string")}
    add_columns(Location(tmp_path), [Field(name, kind) for name, kind in kinds.items()])
    epochs[100] = [{**row, "later": 7, "text": LONG} for row in rows(100, nulls=False)]
    added(tmp_path, 100, epochs[100])
    assert wrong(tmp_path, [*chain(*epochs.values())], (*TYPES, *LATER)) == []


def test_readers_lose_no_row_that_spark_has_written(spark: SparkSession, tmp_path: Path) -> None:
    path, of = Location(tmp_path / "table"), literal("X'{}'", "TIMESTAMP")
    columns = {name: kind for name, (kind, _, _) in (TYPES | LATER).items()}
    stored, there = {"_generation": "INT", "_epoch": "BIGINT", **columns}, []
    for epoch in (1, 2, 3):
        of_now = {name: kind for name, kind in stored.items() if epoch == 3 or name not in LATER}
        ensure_table(path, of_now, "t", added=[*LATER])
        of_epoch = rows(epoch, nulls=epoch == 2)
        there += [{**row, "later": 7, "text": LONG} if epoch == 3 else row for row in of_epoch]
        columns_of = ", ".join(f"{name} {kind}" for name, kind in of_now.items() if name not in PLACE.names)
        given = [tuple(row.get(name) for name in of_now if name not in PLACE.names) for row in there[-6:]]
        frame = spark.createDataFrame(given, columns_of).coalesce(1)
        folder = path / f"e{epoch}"
        frame.selectExpr("1 AS _generation", f"{epoch}L AS _epoch", "*").write.options(**OF_SPARK).parquet(str(folder))
        adopt(path, folder, survey(folder), application="a", epoch=epoch)
    assert wrong(Path(path), there, ("double", "exact", "word", "essay", "instant", *LATER)) == []
    # Spark takes a second for each: the columns of which a bound is cut, or is there in some files only.
    asked = [each for each in filters(("exact", "essay", "text")) if each[1] in ("LIKE", "IS NULL", ">")]
    counts = " UNION ALL ".join(
        f"SELECT {number} AS n, count(*) AS rows FROM delta.`{path}` WHERE {sql(each, of)}"
        for number, each in enumerate(asked)
    )
    found = {row.n: row.rows for row in spark.sql(counts).collect()}
    assert [(each, found[n]) for n, each in enumerate(asked) if found[n] != right(there, each)] == []


def test_a_bound_of_text_is_cut_and_rounded_up() -> None:
    last = chr(0x10FFFF)
    cases = {"a" * 32: "a" * 32, "a" * 33: "a" * 31 + "b", "a" * 31 + last * 2: "a" * 30 + "b", last * 33: None}
    cases["a" * 31 + "\ud7ff" * 2] = "a" * 31 + "\ue000"
    assert {text: rounded_up(text) for text in cases} == cases
    assert all(bound is None or bound.encode() >= text.encode() for text, bound in cases.items())
