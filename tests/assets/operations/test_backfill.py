"""Partitions of time of an output: Dagster's backfills release spans, and the stream goes on beside them."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from tests.cases import at_length
from tests.pipelines.runtime.test_event_time import RATES, at_ms, moment
from tidegate.assets.factories import build_pipeline_definitions
from tidegate.assets.presentation import Partitions, Presentation
from tidegate.pipelines.sql import compile_script
from tidegate.pipelines.testing import Harness

DAY = 86_400_000
TEXT = RATES.format(policy="quarantine", kind="LEFT", more="")
BY_DAY = Presentation(partitions=Partitions(datetime(2026, 1, 1, tzinfo=UTC), "day"))


@pytest.fixture
def harness(spark: SparkSession, tmp_path: Path) -> Harness:
    return Harness(compile_script(TEXT, name="shop"), spark, tmp_path)


def definitions(harness: Harness, look: Presentation = BY_DAY) -> dg.Definitions:
    return build_pipeline_definitions(harness.pipeline, lake=harness.lake.root, look=look)


def push_days(harness: Harness, count: int) -> None:
    """A rate and two orders of each of the first days, all of which are over."""
    for table in ("rates", "orders"):
        harness.watermark(table, at_ms(count * DAY))
    harness.push("rates", [{"currency": "EUR", "rate": 100 + n, "valid_from": moment(n * DAY)} for n in range(count)])
    harness.push("orders", [{"id": n, "currency": "EUR", "at": moment(n * DAY // 2)} for n in range(2 * count)])


def land(defs: dg.Definitions, instance: dg.DagsterInstance) -> None:
    sources = [dg.AssetKey(["shop", "rates"]), dg.AssetKey(["shop", "orders"])]
    assert defs.resolve_job_def("shop").execute_in_process(instance=instance, asset_selection=sources).success


def fill(defs: dg.Definitions, instance: dg.DagsterInstance, **given: Any) -> dg.ExecuteInProcessResult:
    """A run of partitions, as the asset's page starts it."""
    job = defs.resolve_implicit_global_asset_job_def()
    return job.execute_in_process(
        instance=instance, asset_selection=[dg.AssetKey(["shop", "converted_by_time"])], **given
    )


def test_partitions_release_their_days_alone_together_and_again(harness: Harness) -> None:
    push_days(harness, 4)
    defs, instance = definitions(harness), dg.DagsterInstance.ephemeral()
    key = dg.AssetKey(["shop", "converted_by_time"])
    land(defs, instance)
    one = fill(defs, instance, partition_key="2026-01-03")
    assert one.success
    assert sorted(row["id"] for row in harness.published("converted")) == [4, 5]
    tags = {"dagster/asset_partition_range_start": "2026-01-01", "dagster/asset_partition_range_end": "2026-01-03"}
    several = fill(defs, instance, tags=tags)
    assert several.success
    events = [event for event in several.get_asset_materialization_events() if event.asset_key == key]
    metadata = events[0].step_materialization_data.materialization.metadata
    details = metadata["details"].value
    assert (metadata["rows released again"].value, metadata["rows published"].value) == (2, 6)
    assert details["replaces epochs"] == "1"
    assert instance.get_materialized_partitions(key) == {"2026-01-01", "2026-01-02", "2026-01-03"}
    judged = [(found.partition, found.passed) for found in several.get_asset_check_evaluations()]
    assert [verdict for verdict in judged if verdict[0]] == [(f"2026-01-0{day}", True) for day in (1, 2, 3)]
    assert defs.resolve_job_def("shop").execute_in_process(instance=instance).success
    rows = sorted((row["id"], row["rate"]) for row in harness.published("converted"))
    assert rows == [(n, 100 + n // 2) for n in range(8)]


@pytest.mark.parametrize(
    ("reached", "ids", "waits"),
    at_length(
        [(2 * DAY + DAY // 4, [4], 1), (2 * DAY + DAY // 2, [4, 5], 0), (None, [], 2), (3 * DAY, [4, 5], None)], fast=2
    ),
)
def test_a_day_of_which_rows_wait_fails_and_says_for_what(
    harness: Harness, reached: int | None, ids: list[int], waits: int | None
) -> None:
    harness.push("rates", [{"currency": "EUR", "rate": 1, "valid_from": moment(0)}])
    harness.push("orders", [{"id": n, "currency": "EUR", "at": moment(n * DAY // 2)} for n in range(7)])
    for table in ("rates", "orders") if reached is not None else ("rates",):
        harness.watermark(table, at_ms(0 if reached is None else reached))
    defs, instance = definitions(harness), dg.DagsterInstance.ephemeral()
    key = dg.AssetKey(["shop", "converted_by_time"])
    land(defs, instance)
    done = fill(defs, instance, partition_key="2026-01-03", raise_on_error=False)
    assert sorted(row["id"] for row in harness.published("converted")) == ids
    assert done.success == (not waits)
    assert instance.get_materialized_partitions(key) == (set() if waits else {"2026-01-03"})
    if waits:
        [failed] = [event for event in done.all_events if event.is_step_failure]
        said = failed.step_failure_data.user_failure_data
        assert said is not None
        rows = "1 row of this span waits" if waits == 1 else f"{waits} rows of this span wait"
        assert rows in (said.description or "")
        assert f"{len(ids)} were published" in (said.description or "")
        assert "launch it again" in str(said.metadata["next"].value)
    else:
        [event] = [found for found in done.get_asset_materialization_events() if found.asset_key == key]
        metadata = event.step_materialization_data.materialization.metadata
        assert ("rows may still come" in str(metadata["details"].value)) == (waits == 0)


def test_a_held_backfill_has_a_failed_verdict_for_each_of_its_days(spark: SparkSession, tmp_path: Path) -> None:
    text = RATES.format(policy="block", kind="LEFT", more="")
    harness = Harness(compile_script(text, name="shop"), spark, tmp_path)
    for table in ("rates", "orders"):
        harness.watermark(table, at_ms(4 * DAY))
    harness.push("orders", [{"id": n, "currency": "EUR", "at": moment(n * DAY)} for n in range(3)])
    defs, instance = definitions(harness), dg.DagsterInstance.ephemeral()
    land(defs, instance)
    tags = {"dagster/asset_partition_range_start": "2026-01-01", "dagster/asset_partition_range_end": "2026-01-02"}
    done = fill(defs, instance, tags=tags, raise_on_error=False)
    assert not done.success
    check = dg.AssetCheckKey(dg.AssetKey(["shop", "converted_by_time"]), "verdict")
    records = instance.event_log_storage.get_asset_check_execution_history(check, limit=10)
    judged = sorted((str(record.partition), record.status.value) for record in records)
    assert judged == [(f"2026-01-0{day}", "FAILED") for day in (1, 2)]
    assert harness.published("converted") == []


def test_of_several_days_those_that_are_reached_are_done(harness: Harness) -> None:
    harness.push("rates", [{"currency": "EUR", "rate": 1, "valid_from": moment(0)}])
    harness.push("orders", [{"id": n, "currency": "EUR", "at": moment(n * DAY // 2)} for n in range(6)])
    for table in ("rates", "orders"):
        harness.watermark(table, at_ms(2 * DAY + DAY // 4))
    defs, instance = definitions(harness), dg.DagsterInstance.ephemeral()
    key = dg.AssetKey(["shop", "converted_by_time"])
    land(defs, instance)
    tags = {"dagster/asset_partition_range_start": "2026-01-01", "dagster/asset_partition_range_end": "2026-01-04"}
    assert not fill(defs, instance, tags=tags, raise_on_error=False).success
    assert instance.get_materialized_partitions(key) == {"2026-01-01", "2026-01-02"}
    assert sorted(row["id"] for row in harness.published("converted")) == [0, 1, 2, 3, 4]


def test_partitions_are_there_where_they_are_asked_for(harness: Harness) -> None:
    keys = {key.to_user_string() for key in definitions(harness).resolve_asset_graph().get_all_asset_keys()}
    assert "shop/converted_by_time" in keys
    plain = definitions(harness, Presentation()).resolve_asset_graph().get_all_asset_keys()
    assert "shop/converted_by_time" not in {key.to_user_string() for key in plain}


def test_days_that_are_apart_are_one_epoch_of_all_runs_of_a_backfill(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    push_days(harness, 5)
    defs, instance = definitions(harness), dg.DagsterInstance.ephemeral()
    key = dg.AssetKey(["shop", "converted_by_time"])
    land(defs, instance)
    days = ["2026-01-01", "2026-01-03", "2026-01-05"]
    partitions = defs.get_repository_def().assets_defs_by_key[key].partitions_def
    assert partitions is not None
    asked = SimpleNamespace(get_target_partitions_subset=lambda _: partitions.subset_with_partition_keys(days))
    wanted = SimpleNamespace(asset_backfill_data=asked, backfill_timestamp=datetime.now(UTC).timestamp())
    monkeypatch.setattr(instance, "get_backfill", {"apart": wanted}.get)

    def run(day: str) -> str:
        done = fill(defs, instance, partition_key=day, tags={"dagster/backfill": "apart"})
        [event] = [found for found in done.get_asset_materialization_events() if found.asset_key == key]
        metadata = event.step_materialization_data.materialization.metadata
        return str(metadata["released by"].value) if "released by" in metadata else ""

    assert [run(day) for day in days[:2]] == ["", "epoch 1, with the other partitions of this backfill"]
    assert sorted(row["id"] for row in harness.published("converted")) == [0, 1, 4, 5, 8, 9]
    harness.push("orders", [{"id": 10, "currency": "EUR", "at": moment(4 * DAY)}])  # late, and landed since
    land(defs, instance)
    assert run(days[2]) == "", "what has landed since is in no epoch yet"
    assert instance.get_materialized_partitions(key) == set(days)
    assert sorted(row["id"] for row in harness.published("converted")) == [0, 1, 4, 5, 8, 9, 10]


def operated(defs: dg.Definitions, instance: dg.DagsterInstance, *days: tuple[str, str]) -> dg.ExecuteInProcessResult:
    config = {"spans": [{"from": low, "to": high} for low, high in days]}
    job, ops = defs.resolve_job_def("tidegate_backfill"), {"release_spans": {"config": config}}
    return job.execute_in_process(instance=instance, run_config={"ops": ops}, raise_on_error=False)


def test_the_operation_releases_spans_and_makes_the_partitions_in_them(harness: Harness) -> None:
    push_days(harness, 4)
    defs, instance = definitions(harness), dg.DagsterInstance.ephemeral()
    key = dg.AssetKey(["shop", "converted_by_time"])
    land(defs, instance)
    done = operated(defs, instance, ("2026-01-01", "2026-01-02"), ("2026-01-02T12:00", "2026-01-04"))
    assert done.success
    [output] = [event for event in done.all_events if event.is_successful_output]
    assert output.step_output_data.metadata["rows published"].value == 5
    assert sorted(row["id"] for row in harness.published("converted")) == [0, 1, 3, 4, 5]
    assert instance.get_materialized_partitions(key) == {"2026-01-01", "2026-01-03"}, "half of the second is not there"
    judged = {(found.partition, found.passed) for found in done.get_asset_check_evaluations()}
    assert judged == {("2026-01-01", True), ("2026-01-03", True)}
    later = operated(defs, instance, ("2026-01-04", "2026-01-09"))
    assert later.success, "no row waits; some may still come"
    [output] = [event for event in later.all_events if event.is_successful_output]
    assert "rows may still come" in str(output.step_output_data.metadata)
    plain = definitions(harness, Presentation())
    again = operated(plain, instance, ("2026-01-01", "2026-01-02"))
    assert again.success
    [event] = again.get_asset_materialization_events()
    assert event.asset_key == dg.AssetKey(["shop", "converted"]), "without partitions"
    assert sorted(row["id"] for row in harness.published("converted")) == [0, 1, 3, 4, 5, 6, 7]
