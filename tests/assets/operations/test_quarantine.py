"""Quarantined rows shown, released and discarded from Dagster; and upkeep, on the same lake."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from tests.assets.clicks import pipeline
from tidegate.assets.factories import build_pipeline_definitions
from tidegate.assets.text import values_of
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


def test_jobs_show_rows_of_the_quarantine_and_take_them_out(harness: Harness) -> None:
    definitions = build_pipeline_definitions(harness.pipeline, lake=harness.lake.root)

    def run(verb: str, **config: Any) -> tuple[dg.ExecuteInProcessResult, dict[str, Any]]:
        job = definitions.resolve_job_def(f"tidegate_quarantine_{verb}")
        given = {"ops": {f"{verb}_quarantined": {"config": config}}}
        result = job.execute_in_process(run_config=given, raise_on_error=False, tags={"user": "ada"})
        (found,) = [event.step_output_data.metadata for event in result.all_events if event.is_successful_output] or [
            {}
        ]
        return result, values_of(found)

    def refused(verb: str, **config: Any) -> dict[str, Any]:
        (failed,) = [event for event in run(verb, **config)[0].all_events if event.is_step_failure]
        said = failed.step_failure_data.user_failure_data
        assert said is not None
        return {"what": said.description, **values_of(said.metadata)}

    _, metadata = run("release", dry_run=True)
    assert metadata["summary"] == "enriched_click: this would join again 2 rows."
    assert (metadata["taken"], metadata["details"]["dry run"], metadata["details"]["epochs"]) == (2, True, [])
    _, metadata = run("list")
    assert (metadata["summary"], metadata["rows found"]) == ("2 rows fit what was asked for", 2)
    assert metadata["line 1"] == "enriched_click: 2 rows in quarantine"
    (group,) = [name for name in metadata if name.startswith("enriched_click, epoch 1, ")]
    assert group.endswith("joined to user_info 1/1: the key is not in the table (user_info)")
    assert metadata[group].startswith("| user_id | item_id | gender | joined by | nearest version |\n")
    assert "\n| 2 | 2 | NULL | user_id = 2 | " in metadata[group]
    (shown,) = metadata["details"]["inserts"]
    assert [(row["key"]["user_id"], row["epoch"], row["state"]) for row in shown["rows"]] == [
        (2, 1, "open"),
        (3, 1, "open"),
    ]
    assert shown["rows"][0]["nearest"].endswith("(epoch 2), after the pin (epoch 1): joining again finds it")
    _, metadata = run("list", limit=0)
    assert metadata["rows found"] == 2
    assert "gender" not in str(metadata), "no value of a row is in Dagster's history"
    _, metadata = run("list", state="released")
    assert metadata["rows found"] == 0
    result, metadata = run("release", target="enriched_click", reasons=["key-absent"])
    assert (metadata["taken"], metadata["published"], metadata["quarantined"]) == (2, 1, 1)
    assert metadata["summary"].endswith("has joined 2 quarantined rows again: 1 published, 1 back in quarantine.")
    [seen] = result.get_asset_materialization_events()
    assert seen.asset_key == dg.AssetKey(["clicks", "enriched_click"])
    assert values_of(seen.materialization.metadata)["dagster/row_count"] == 2
    assert sorted(row["user_id"] for row in harness.published("enriched_click")) == [1, 2]
    _, metadata = run("discard", epochs=[2])
    assert metadata["summary"] == "enriched_click: this would discard 1 row."
    assert refused("discard", epochs=[2], dry_run=False)["what"] == "a discard needs a reason"
    _, metadata = run("discard", epochs=[2], because="a load test", dry_run=False)
    assert (metadata["taken"], metadata["summary"]) == (1, "1 row of enriched_click discarded (epoch 3).")
    _, metadata = run("list", state="all")
    assert "a load test" in str(metadata["details"])
    plan = harness.lake.epochs.rows("insert enriched_click")[-1].plan
    assert plan["asked"]["because"] == "a load test"
    assert plan["asked"]["by"].startswith("ada (dagster run ")
    _, metadata = run("discard", epochs=[2], because="again", dry_run=False)
    assert metadata["summary"].startswith("There is nothing to discard: no row of enriched_click that fits")
    assert refused("list", target="enriched")["next"] == "set `target` to one of enriched_click"
    kept_up = definitions.resolve_job_def("tidegate_maintenance").execute_in_process()
    [shown] = kept_up.get_asset_materialization_events()
    metadata = values_of(shown.materialization.metadata)
    assert re.fullmatch(r"\d tables: \d+ files became \d+, [\d,.]+ MB freed, 0 rows removed", metadata["summary"])
    assert (metadata["versions removed"], metadata["passed over"]) == (0, 0)
    assert "| enriched_click |" in metadata["tables"]
