"""Quarantined rows released and discarded from Dagster, and what it shows of that."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from tests.assets.clicks import pipeline
from tidegate.assets.factories import build_pipeline_definitions
from tidegate.pipelines.testing import Harness


@pytest.fixture
def harness(spark: SparkSession, tmp_path: Path) -> Harness:
    harness = Harness(pipeline(), spark, tmp_path)
    harness.push("user_info", [{"user_id": 1, "gender": "f"}])
    harness.end_of_snapshot("user_info")
    harness.push("click_event", [{"user_id": number, "item_id": number} for number in (1, 2, 3)])
    harness.advance()
    harness.push("user_info", [{"user_id": 2, "gender": "m"}])
    harness.runner.advance("user_info")
    harness.runner.close()
    return harness


def test_two_jobs_take_rows_out_of_quarantine(harness: Harness) -> None:
    definitions = build_pipeline_definitions(harness.pipeline, lake=harness.lake.root)

    def run(verb: str, **config: Any) -> tuple[dg.ExecuteInProcessResult, dict[str, Any]]:
        job = definitions.resolve_job_def(f"tidegate_quarantine_{verb}")
        op = f"{verb}_quarantined"
        result = job.execute_in_process(
            run_config={"ops": {op: {"config": config}}}, raise_on_error=False, tags={"user": "ada"}
        )
        metadata: dict[str, Any] = {}
        for event in result.all_events:
            if event.is_successful_output:
                metadata = dict(event.step_output_data.metadata)
        return result, {name: getattr(value, "value", value) for name, value in metadata.items()}

    result, metadata = run("release", dry_run=True)
    assert result.success
    assert (metadata["rows taken"], metadata["rows in quarantine now"]) == (0, 2)
    assert metadata["summary"] == "a dry run: it would take 2 rows of enriched_click; next: set `dry_run: false`"
    assert metadata["line 1"] == "quarantined by epoch: 1; reason: unmatched:key-absent@user_info; rows: 2"
    result, metadata = run("list")
    assert result.success
    assert result.output_for_node("list_quarantined") == metadata["rows found"] == 2
    assert "| enriched_click | 1 | key-absent@user_info | 2 | open |" in metadata["rows by reason"]
    assert "| user_info 1/1 |" in metadata["rows by reason"], "what they were joined to"
    assert '{"user_id": 3, "item_id": 3, "gender": null}' in metadata["rows"]
    assert "more" not in metadata["rows"]
    after_the_pin = "(epoch 2), after the pin (epoch 1): joining again finds it |"
    [second, third] = metadata["nearest versions"].splitlines()[2:]
    assert second.startswith('| enriched_click | 1 | key-absent@user_info | {"user_id": 2} | inserted')
    assert second.endswith(after_the_pin)
    assert third.endswith('| {"user_id": 3} | none up to epoch 1, nor since |')
    _, metadata = run("list", limit=1)
    assert metadata["rows"].endswith("… and 1 more: `limit`")
    assert "user_id" in metadata["nearest versions"]
    assert len(metadata["nearest versions"].splitlines()) == 3
    _, metadata = run("list", limit=0)
    assert not {"rows", "nearest versions"} & set(metadata), "no value of a row is in Dagster's history"
    _, metadata = run("list", state="released")
    assert metadata["rows found"] == 0
    result, metadata = run("release", target="enriched_click", reasons=["key-absent"])
    assert result.success
    assert result.output_for_node("release_quarantined") == 1
    assert (metadata["rows taken"], metadata["rows published"], metadata["rows back in quarantine"]) == (2, 1, 1)
    assert metadata["summary"] == "2 rows of enriched_click taken out of quarantine: 1 published, 1 back in it"
    [seen] = result.get_asset_materialization_events()
    assert seen.asset_key == dg.AssetKey(["clicks", "enriched_click"])
    assert sorted(row["user_id"] for row in harness.published("enriched_click")) == [1, 2]
    result, metadata = run("discard", epochs=[2])
    assert result.success
    assert (metadata["rows taken"], metadata["rows it would take"], metadata["rows in quarantine now"]) == (0, 1, 1)
    result, _ = run("discard", epochs=[2], dry_run=False)
    assert not result.success, "without a reason"
    result, metadata = run("discard", epochs=[2], because="a load test", dry_run=False)
    assert result.success
    assert result.output_for_node("discard_quarantined") == 1
    assert (metadata["rows taken"], metadata["rows in quarantine now"]) == (1, 0)
    assert metadata["summary"] == "1 row of enriched_click given up; they stay in the quarantine, counted as discarded"
    _, metadata = run("list", state="all")
    assert "| 1 | key-absent@user_info | 2 | released |" in metadata["rows by reason"]
    assert "a load test" in metadata["rows by reason"]
    kept_up = definitions.resolve_job_def("tidegate_maintenance").execute_in_process()
    [shown] = kept_up.get_asset_materialization_events()
    assert re.fullmatch(
        r"\d tables: \d+ files became \d+, [\d,]+ bytes freed, 0 rows removed",
        str(shown.materialization.metadata["summary"].value),
    )
    result, _ = run("list", target="enriched")
    assert not result.success
    plan = harness.lake.epochs.rows("insert enriched_click")[-1].plan
    assert plan["asked"]["because"] == "a load test"
    assert plan["asked"]["by"].startswith("ada (dagster run ")
    result, metadata = run("discard", epochs=[2], because="again", dry_run=False)
    assert result.success
    assert metadata["summary"] == "no row of enriched_click that was asked for is in quarantine"
    result, _ = run("release", target="enriched")
    [failed] = [event for event in result.all_events if event.is_step_failure]
    said = failed.step_failure_data.user_failure_data
    assert said is not None
    assert said.metadata["next"].value == "set `target` to one of enriched_click"
