"""What an alert of a growing quarantine tells, of a lake whose control rows are written by hand."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tests.pipelines.runtime.grown import decoded, grown
from tests.pipelines.runtime.handmade import HandmadeLake, store
from tests.quality_checks.staged import Given, stage
from tidegate.assets import build_pipeline_definitions
from tidegate.assets.watched import watched
from tidegate.orchestration.alerts import AlertOptions
from tidegate.orchestration.alerts.gates import growing_quarantine


def test_a_hot_key_leaves_room_for_others_where_a_quarantine_grows(tmp_path: Path):
    ids = [7] * 500 + list(range(100, 112))
    staged = stage(tmp_path, Given({"unmatched:key-absent@u": len(ids)}))
    made = HandmadeLake(tmp_path / "lake")
    landed = {
        "id": ids,
        "_generation": pa.array([1] * len(ids), pa.int32()),
        "_epoch": [2] * len(ids),
        "_split": ["0"] * len(ids),
        "_offset": list(range(len(ids))),
        "_rowtime": pa.nulls(len(ids), pa.timestamp("us")),
    }
    write_deltalake(str(made.lake.table_path("clicks")), pa.table(landed))
    store(made.lake, staged.staged)
    made.judged(staged.plan)
    made.published(staged.plan)
    definitions = build_pipeline_definitions(made.pipeline, lake=made.lake.root)
    (insert,) = watched(definitions.get_repository_def()).inserts
    with dg.DagsterInstance.ephemeral() as instance:
        found = growing_quarantine(insert, instance, AlertOptions(), now=3000)
        _lose(Path(made.lake.table_path("clicks")))
        bare = growing_quarantine(insert, instance, AlertOptions(), now=3000)
    assert bare.keys == (), "keys are evidence: an alert does not wait for what cannot be read"
    assert (found.details["rows"], found.counts) == (512, {"key-absent@u": 512})
    assert [missed.key["id"] for missed in found.keys] == [7, *range(100, 109)]


def test_a_look_at_a_quarantine_that_grows_reads_the_epochs_of_its_window(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    options = AlertOptions(quarantine_rows=5, quarantine_window=timedelta(seconds=20))
    for epochs in (40, 400):
        made = grown(tmp_path / str(epochs), epochs)  # staged long ago
        for epoch in range(epochs + 1, epochs + 11):
            made.released(epoch, epoch - 1, epoch, matched=1, unmatched_deleted_u=2)
        definitions = build_pipeline_definitions(made.pipeline, lake=made.root)
        (insert,) = watched(definitions.get_repository_def()).inserts
        with dg.DagsterInstance.ephemeral() as instance, decoded(monkeypatch) as rows:
            found = growing_quarantine(insert, instance, options, now=(epochs + 10) * 1000)
        assert found.details["rows"] == 20
        seen.append(sum(rows.values()))
    assert seen[1] <= seen[0]


def _lose(table: Path) -> None:
    """What a broken disk leaves of a table's files."""
    for file in table.glob("*.parquet"):
        file.write_bytes(b"no Parquet")
