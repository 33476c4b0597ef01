"""The example's assets on a real server: what a build's materialisation tells, and what no run writes down."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from tests.assets.test_run import CLICKS, PUBLISHED, USERS, checks, metadata_of
from tests.conftest import ACCOUNT, SECRET, Database
from tests.secret_traces import traces
from tidegate.assets import build_pipeline_definitions
from tidegate.pipelines.runtime.scripts import load_script

EXAMPLE = Path(__file__).parents[2] / "examples" / "clicks" / "pipeline.sql"


@pytest.mark.thorough  # assets/test_run.py has a build's metadata, orchestration/test_demo.py looks for secrets
def test_a_build_shows_its_lag_its_chunks_and_their_cuts_and_never_the_account(
    spark: SparkSession,
    example_database: Database,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    example_database.execute(
        "CREATE TABLE user_info (user_id INT PRIMARY KEY, gender VARCHAR(8) NOT NULL)",
        "INSERT INTO user_info SELECT seq, 'f' FROM seq_1_to_40",
    )
    for name, value in example_database.environment(CLICKS_AT_START=50, GREATEST_USER_ID=50).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("tidegate.pipelines.sources.cdc.snapshot.STEP_CHUNKS", 3)
    script, lake, home = tmp_path / "clicks.sql", tmp_path / "lake", tmp_path / "dagster"
    chunks = "'table-name' = 'user_info', 'scan.incremental.snapshot.chunk.size' = '10'"
    script.write_text(EXAMPLE.read_text().replace("'table-name' = 'user_info'", chunks))
    job = build_pipeline_definitions(load_script(script), lake=lake).resolve_job_def("clicks")
    home.mkdir()
    with dg.DagsterInstance.local_temp(str(home)) as instance:
        first = job.execute_in_process(instance=instance, raise_on_error=False)
        example_database.execute("UPDATE user_info SET gender = 'm'", "DELETE FROM user_info WHERE user_id > 30")
        ((file, end, *_),) = example_database.execute("SHOW MASTER STATUS")
        second = job.execute_in_process(instance=instance, raise_on_error=False)
    assert first.success
    assert second.success

    users = metadata_of(first, USERS)
    assert users["summary"].startswith("flipped; ")
    assert (users["watermark"], users["flip epoch"]) == ("(MIN, true)", 3)
    assert (users["flipped"], "watermark (ms)" in users) == (1, False), "(MIN, true) is no time"
    seen = [
        {name: value.value for name, value in event.asset_observation_data.asset_observation.metadata.items()}
        for event in first.all_events
        if event.event_type_value == "ASSET_OBSERVATION" and event.asset_key == USERS
    ]
    chunks_of = [(facts["chunks done"], facts["chunks"], facts["rows landed"], facts["flipped"]) for facts in seen]
    assert chunks_of == [(3, 4, 30, 0), (4, 4, 10, 0), (4, 4, 0, 1)], "reported while it loads, and at the flip"
    assert (users["chunks"], users["chunks done"]) == (4, 4)
    assert [cut["cut"]["file"].startswith("binlog.0") for cut in users["cuts"]] == [True] * 4
    assert users["lag (ms)"] == 0
    file_before, _, reached = users["position"].partition(":")
    assert "chunks 1-3 of 4" in users["epochs"][0]["what"]
    assert "lag (ms)" not in metadata_of(first, CLICKS) or metadata_of(first, CLICKS)["lag (ms)"] is not None

    users = metadata_of(second, USERS)
    assert users["lag (ms)"] == 0
    assert users["position"] == f"{file}:{end}"
    assert file_before == file
    assert int(reached) < end
    assert users["rows landed"] == 40 + 10
    assert users["chunks done"] == 4
    assert set(checks(second).values()) == {True}
    assert metadata_of(second, PUBLISHED)["rows published"] > 0

    shown = capfd.readouterr()
    (tmp_path / "shown").write_text(shown.out + shown.err)
    assert list(home.rglob("*.db")), "Dagster's history is looked at too"
    assert list(lake.rglob("*.parquet"))
    assert traces(SECRET, tmp_path) == []
    assert traces(ACCOUNT, tmp_path) == []
