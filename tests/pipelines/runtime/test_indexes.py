"""The index of a build of a real lake: ticks add runs to it, upkeep puts them together beside the ticks."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from tests.pipelines.runtime.handmade import HandmadeLake
from tidegate.pipelines.clock import system_clock
from tidegate.pipelines.connectors.spec import SEQ_PARTS
from tidegate.pipelines.lake import rows as lake_rows
from tidegate.pipelines.lake.rows import LAKE_COLUMNS
from tidegate.pipelines.runtime.indexes import Indexed, latest_rows
from tidegate.pipelines.runtime.upkeep import Upkeep
from tidegate.pipelines.sources.arrow_types import arrow_type
from tidegate.pipelines.testing import Harness
from tidegate.pipelines.versions import MATCH, ensure, opened, runs


def land(made: HandmadeLake, epoch: int, rows: Sequence[dict[str, Any]]) -> None:
    """Changes of `users` as an epoch: id, name, op, time (us) of each, in the order of their seqs."""
    kinds = {"id": pa.int64(), "name": pa.string()}
    own = ("_op", "_rowtime", "_seq", "_generation", "_epoch")
    kinds |= {name: arrow_type(LAKE_COLUMNS[name]) for name in own}
    found = [
        {
            "id": row.get("id"),
            "name": row.get("name"),
            "_op": row.get("op", "c"),
            "_rowtime": row.get("time"),
            "_seq": {**dict.fromkeys(SEQ_PARTS, 0), "position": epoch * 1000 + place},
            "_generation": 1,
            "_epoch": epoch,
        }
        for place, row in enumerate(rows)
    ]
    write_deltalake(str(made.lake.table_path("users")), pa.Table.from_pylist(found, pa.schema(kinds)), mode="append")
    made.landed("users", epoch, len(rows), flip=1)


def tick(made: HandmadeLake, epoch: int) -> list[str]:
    """What a release at a pin asks of the index; the names of its runs."""
    made.planned(epoch, epoch - 1, epoch, pin=epoch)
    index = Indexed.of(made.lake, made.pipeline.table("users"), 1).upto(epoch)
    found = opened(index).find([pa.array([epoch, 0])], None)
    assert found.what.tolist() == [MATCH, 1]
    return [Path(run.folder).name.rpartition("-")[0] for run in index.runs]


def kept_up(made: HandmadeLake) -> Upkeep:
    leases = made.lake.leases("test")
    for owner in ("users", made.owner):
        leases.acquire(owner)
    return Upkeep(made.lake, made.pipeline, leases, system_clock, timedelta(0))


def round_of(upkeep: Upkeep) -> None:
    while upkeep.piece():
        pass
    if upkeep._merging is not None:
        upkeep._merging.result()


def test_a_tick_makes_its_own_run_alone_and_upkeep_puts_them_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = HandmadeLake(tmp_path)
    upkeep, by_ticks, by_upkeep = kept_up(made), list[tuple[int, int]](), list[tuple[int, int]]()
    real, where = runs.make, by_ticks
    monkeypatch.setattr(runs, "make", lambda run, dealt: (where.append((run.after, run.upto)), real(run, dealt)))
    for epoch in range(1, 31):
        land(made, epoch, [{"id": epoch, "name": "a"}])
        where = by_ticks
        names = tick(made, epoch)
        assert len(names) <= runs.MERGED_FROM + 3
        where = by_upkeep
        round_of(upkeep)
    assert by_ticks == [(epoch - 1, epoch) for epoch in range(1, 31)]
    assert 2 <= len(by_upkeep) <= 5
    assert len(os.listdir(Path(Indexed.of(made.lake, made.pipeline.table("users"), 1)._folder))) <= len(names) + 4


def test_without_upkeep_a_tick_puts_the_small_ones_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, seen, real = HandmadeLake(tmp_path), list[tuple[int, int]](), runs.make
    monkeypatch.setattr(runs, "make", lambda run, dealt: (seen.append((run.after, run.upto)), real(run, dealt)))
    for epoch in range(1, 53):
        land(made, epoch, [{"id": epoch, "name": "a"}])
        assert len(tick(made, epoch)) <= runs.MOST
    assert [span for span in seen if span[1] - span[0] > 1] == [(1, 25), (25, 48)]
    assert len([span for span in seen if span[1] - span[0] == 1]) == 50


def test_a_merge_that_fails_is_tried_again_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made = HandmadeLake(tmp_path)
    upkeep = kept_up(made)
    for epoch in range(1, 12):
        land(made, epoch, [{"id": epoch, "name": "a"}])
        tick(made, epoch)

    def full(run: object, dealt: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(runs, "make", full)
        with pytest.raises(OSError, match="No space"):
            round_of(upkeep)
        upkeep.piece()
    assert "No space left" in caplog.text
    assert len(tick(made, 12 - 1)) == 11, "the runs that were there serve on"
    upkeep._rests_until = 0
    round_of(upkeep)
    assert len(tick(made, 11)) == 2


def test_a_run_that_was_made_meanwhile_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = HandmadeLake(tmp_path)
    land(made, 1, [{"id": 1, "name": "a"}])
    tick(made, 1)
    (run,) = Indexed.of(made.lake, made.pipeline.table("users"), 1).upto(1).runs
    monkeypatch.setattr(runs, "make", lambda run, dealt: pytest.fail("made twice"))
    ensure(run)


BY_NUMBER = """
CREATE TABLE users (k DOUBLE, part INT, name STRING, PRIMARY KEY (k, part) NOT ENFORCED)
WITH ('connector' = 'scripted');
CREATE TABLE seen (name STRING) WITH ('connector' = 'scripted');
CREATE TABLE clicks (k DOUBLE, part INT, at AS PROCTIME()) WITH ('connector' = 'scripted');
INSERT INTO seen SELECT u.name FROM clicks AS c JOIN users FOR SYSTEM_TIME AS OF c.at AS u
ON c.k = u.k AND c.part = u.part;
"""


def test_the_latest_row_of_a_key_is_found_whatever_it_is(spark: SparkSession, tmp_path: Path) -> None:
    """NaN is a key like another, a delete is a row, and NULL and what has not come yet have none."""
    harness = Harness(BY_NUMBER, spark, tmp_path)
    nan = float("nan")
    harness.push("users", [{"k": nan, "part": 1, "name": "a"}, {"k": 1.0, "part": 1, "name": "b"}])
    harness.runner.advance("users")
    harness.push("users", [{"k": nan, "part": 1, "name": "c"}])
    harness.push("users", [{"k": 1.0, "part": 1}], op="-D")
    harness.end_of_snapshot("users")
    harness.runner.advance("users")
    step = harness.lake.epochs.last("users")
    assert step.epoch == 2
    asked = spark.sql("SELECT * FROM VALUES (1, CAST('NaN' AS DOUBLE)), (1, 1D), (2, 1D), (1, NULL) AS asked(part, k)")

    def found(epoch: int) -> set[tuple[Any, ...]]:
        rows = latest_rows(harness.lake, harness.pipeline.table("users"), spark, replace(step, epoch=epoch), asked)
        return {(str(row["k"]), row["_split"], row["_seq"]) for row in rows.collect() if row["part"] == 1}

    rows = lake_rows.read(spark, harness.lake.table_path("users")).collect()
    assert {row["_op"] for row in rows if row["k"] == 1.0 and row["_epoch"] == 2} == {"d"}
    for upto in (1, 2):
        newest = {(str(row["k"]), row["_split"], row["_seq"]) for row in rows if row["_epoch"] == upto}
        assert len(newest) == 2
        assert found(upto + 1) == newest
