"""The comparison with the source as an asset: who has one, when it runs, and what it does where a key differs."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from tests.assets.clicks import pipeline
from tests.conftest import Database
from tidegate.assets import Presentation, build_pipeline_definitions
from tidegate.assets.failures import ERROR_KIND
from tidegate.pipelines.sql import compile_script

KEY = "reconcile"


def script(database: Database) -> str:
    options = ", ".join(f"'{name}' = '{value}'" for name, value in database.options("item").items())
    return (
        f"CREATE TABLE item (id INT PRIMARY KEY NOT ENFORCED, name STRING) WITH ({options});"
        "CREATE TABLE visit (id INT, proctime AS PROCTIME()) WITH ('connector' = 'scripted');"
        "CREATE TABLE seen (id INT) WITH ('connector' = 'scripted');"
        "INSERT INTO seen SELECT visit.id FROM visit "
        "JOIN item FOR SYSTEM_TIME AS OF visit.proctime ON visit.id = item.id;"
    )


def test_pipelines_without_a_table_that_can_be_compared_have_none(tmp_path: Path):
    definitions = build_pipeline_definitions(pipeline(), lake=tmp_path)
    assert dg.AssetKey(["clicks", KEY]) not in definitions.resolve_asset_graph().get_all_asset_keys()


def test_it_is_scheduled_weekly_and_has_no_part_in_the_pipelines_job(database: Database, tmp_path: Path):
    found = compile_script(script(database))
    repository = build_pipeline_definitions(found, lake=tmp_path).get_repository_def()
    name = found.name
    schedule = repository.get_schedule_def("tidegate_reconcile_schedule")
    assert schedule.cron_schedule == "30 4 * * 0"
    assert schedule.default_status == dg.DefaultScheduleStatus.RUNNING
    assert f"{name}__{KEY}" not in [node.name for node in repository.get_job(name).nodes]
    never = build_pipeline_definitions(found, lake=tmp_path, look=Presentation(reconcile_cron=None))
    names = [schedule.name for schedule in never.get_repository_def().schedule_defs]
    assert "tidegate_reconcile_schedule" not in names


@pytest.mark.thorough
def test_it_shows_numbers_and_fails_where_a_key_differs(database: Database, tmp_path: Path, spark: SparkSession):
    database.execute(
        "CREATE TABLE item (id INT PRIMARY KEY, name VARCHAR(9))", "INSERT INTO item VALUES (1, 'a'), (2, 'b')"
    )
    found = compile_script(script(database))
    definitions = build_pipeline_definitions(found, lake=tmp_path / "lake")
    job = definitions.get_repository_def()
    with dg.DagsterInstance.ephemeral() as instance:
        landed = job.get_job(found.name).execute_in_process(instance=instance)
        assert landed.success
        well = job.get_job("tidegate_reconcile").execute_in_process(instance=instance)
        (event,) = well.get_asset_materialization_events()
        assert event.materialization.metadata["rows"].value == 2
        assert event.materialization.metadata["differences"].value == 0
        (checked,) = well.get_asset_check_evaluations()
        assert (checked.check_name, checked.passed) == ("item", True)
        database.execute("SET SESSION sql_log_bin = 0", "UPDATE item SET name = 'c' WHERE id = 2")
        failed = job.get_job("tidegate_reconcile").execute_in_process(instance=instance, raise_on_error=False)
    assert not failed.success
    (checked,) = failed.get_asset_check_evaluations()
    assert not checked.passed
    assert (checked.metadata["rows"].value, checked.metadata["differences"].value) == (2, 1)
    (event,) = failed.get_asset_materialization_events()
    assert event.materialization.metadata["differences"].value == 1, "the plot shows it"
    (failure,) = [event for event in failed.all_events if event.is_step_failure]
    error = failure.step_failure_data.user_failure_data
    assert error is not None
    assert error.metadata[ERROR_KIND].value == "SourceDiffers"
    assert error.description == "1 key of item differs from the source (1 changed)"
