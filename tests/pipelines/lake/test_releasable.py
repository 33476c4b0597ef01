"""Releasable rows by the files' statistics: what a log entry says less exactly than the file must not hide a row."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from tests.pipelines.runtime.handmade import no_spark
from tidegate.pipelines.lake.adopt import adopt, survey
from tidegate.pipelines.lake.releasable import Releasable, released, settled
from tidegate.pipelines.lake.upkeep import SMALL_FILES, tidy
from tidegate.pipelines.watermarks import MAX_TIMESTAMP

SCHEMA = pa.schema([("_epoch", pa.int64()), ("_generation", pa.int32()), ("_rowtime", pa.timestamp("us", tz="UTC"))])


def landed(table: Path, times: list[int]) -> None:
    """A row an epoch, at these times (us)."""
    DeltaTable.create(table, schema=SCHEMA)
    for epoch, time in enumerate(times, 1):
        folder = table / f"g1-e{epoch}-x"
        folder.mkdir()
        columns = [pa.array([epoch]), pa.array([1], pa.int32()), pa.array([time], SCHEMA.field("_rowtime").type)]
        pq.write_table(pa.table(columns, schema=SCHEMA), folder / "a.parquet")
        adopt(table, folder, survey(folder), application="landed", epoch=epoch)


def test_a_row_between_two_milliseconds_is_found_after_files_were_put_together(tmp_path: Path) -> None:
    """delta-rs writes times into its log entries in milliseconds, cut."""
    landed(tmp_path, [*range(9_000_000, 9_000_000 + SMALL_FILES - 1), 10_000_500])
    releasable = Releasable(1, (released(SMALL_FILES, SMALL_FILES, 10_000, 11_000),))  # the newest row waited at 10 s
    assert releasable.measured(tmp_path, no_spark) == (1, 10_000)
    assert settled(tmp_path, 1, 0, SMALL_FILES, 10_000) == SMALL_FILES - 1
    tidied = tidy(tmp_path, keep=timedelta(days=7))
    assert tidied.files_after == 1
    assert releasable.measured(tmp_path, no_spark) == (1, 10_000)
    assert settled(tmp_path, 1, 0, SMALL_FILES, 10_000) == 0
    assert settled(tmp_path, 1, 0, SMALL_FILES, 10_001) == SMALL_FILES


def test_the_least_time_of_releasable_rows_is_that_of_the_earliest_however_late_it_came(tmp_path: Path) -> None:
    landed(tmp_path, [5_000_000, 7_000_999, 3_000_001, 9_000_000])
    assert Releasable(1, (released(2, 4, 8_000, 10_000),)).measured(tmp_path, no_spark) == (2, 3_000)
    assert Releasable(1, (released(1, 2, 6_000, 10_000),)).measured(tmp_path, no_spark) == (1, 7_000)
    assert Releasable(1, (released(4, 4, 10_000, 10_000),)).measured(tmp_path, no_spark) == (0, MAX_TIMESTAMP)


def test_the_moment_up_to_which_so_many_releasable_rows_lie(tmp_path: Path) -> None:
    landed(tmp_path, [5_000_000, 7_000_999, 3_000_001, 9_000_000])
    releasable = Releasable(1, (released(0, 4, 2_000, 10_000),))
    found = [releasable.reaching(tmp_path, no_spark, most) for most in (1, 2, 3, 4, 5)]
    assert found == [3_001, 5_000, 7_001, 9_000, MAX_TIMESTAMP]
    assert Releasable(1, (released(4, 4, 10_000, 10_000),)).reaching(tmp_path, no_spark, 1) == MAX_TIMESTAMP
