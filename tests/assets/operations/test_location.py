"""Operations are a few jobs a code location, and a pipeline has one job and one schedule. Without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from tests.assets.clicks import pipeline
from tidegate.assets.factories import build_pipeline_definitions, location_definitions, on_lake
from tidegate.assets.jobs import PIPELINE_TAG
from tidegate.assets.presentation import PipelineAsset, Presentation, Step, Steps
from tidegate.assets.resources import TidegateResource
from tidegate.pipelines.errors import PlanningError
from tidegate.pipelines.sql import compile_script

OPERATIONS = {
    f"tidegate_{name}"
    for name in ("dry_run", "quarantine_list", "quarantine_release", "quarantine_discard", "maintenance")
}
COMPARED = """
CREATE TABLE item (id INT PRIMARY KEY NOT ENFORCED, name STRING) WITH ('connector' = 'mysql-cdc', 'hostname' = 'h',
    'username' = 'u', 'password' = '${PASSWORD}', 'database-name' = 'd', 'table-name' = 'item');
CREATE TABLE sale (id INT, at AS PROCTIME()) WITH ('connector' = 'scripted');
CREATE TABLE named (id INT, name STRING) WITH ('connector' = 'scripted');
INSERT INTO named SELECT s.id, name FROM sale AS s JOIN item FOR SYSTEM_TIME AS OF s.at ON s.id = item.id;
"""


def location(tmp_path: Path, *names: str) -> dg.Definitions:
    return location_definitions([on_lake(pipeline(name=name), lake=tmp_path / name) for name in names])


def started(definitions: dg.Definitions, job: str, step: str, **config: Any) -> dg.ExecuteInProcessResult:
    run_config = {"ops": {step: {"config": config}}}
    with dg.DagsterInstance.ephemeral() as instance:
        done = definitions.resolve_job_def(job).execute_in_process(
            instance=instance, run_config=run_config, raise_on_error=False
        )
        run = instance.get_run_by_id(done.run_id)
        assert run is not None
        assert not done.success or run.tags.get(PIPELINE_TAG, "") == config.get("pipeline", "")
    return done


def test_fifty_pipelines_have_fifty_jobs_and_schedules_and_the_operations_of_one(tmp_path: Path):
    names = [f"p{number}" for number in range(50)]
    repository = location(tmp_path, *names).get_repository_def()
    assert set(repository.job_names) == {"__ASSET_JOB", *names, *OPERATIONS}
    schedules = {schedule.name for schedule in repository.schedule_defs}
    assert schedules == {"tidegate_maintenance_schedule", *(f"{name}_schedule" for name in names)}


def test_an_operation_is_done_to_the_pipeline_in_its_config(tmp_path: Path):
    found = location(tmp_path, "a", "b")
    done = started(found, "tidegate_dry_run", "plan_only", pipeline="b")
    assert done.success
    assert not (tmp_path / "a").exists()
    assert (tmp_path / "b").exists()


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("c", "tidegate_maintenance has no pipeline c"),
        ("", "tidegate_maintenance has several pipelines, and the config names none"),
    ],
)
def test_a_pipeline_that_there_is_not_is_refused_with_those_that_there_are(tmp_path: Path, name: str, wrong: str):
    done = started(location(tmp_path, "a", "b"), "tidegate_maintenance", "maintain", pipeline=name)
    (failed,) = done.get_step_failure_events()
    said = failed.step_failure_data.user_failure_data
    assert said is not None
    assert said.description == wrong
    assert said.metadata["next"].value == "set `pipeline` to one of a, b"
    assert not (tmp_path / "a").exists()


def test_where_there_is_one_it_need_not_be_named(tmp_path: Path):
    found = location(tmp_path, "a")
    assert found.resolve_job_def("tidegate_dry_run").execute_in_process().success


def test_a_schedule_starts_a_run_for_each_pipeline(tmp_path: Path):
    repository = location(tmp_path, "a", "b").get_repository_def()
    schedule = repository.get_schedule_def("tidegate_maintenance_schedule")
    assert schedule.default_status == dg.DefaultScheduleStatus.STOPPED
    with dg.DagsterInstance.ephemeral() as instance:
        context = dg.build_schedule_context(instance=instance, repository_def=repository)
        requests = schedule.evaluate_tick(context).run_requests or []
    assert [(request.run_key, request.tags[PIPELINE_TAG]) for request in requests] == [("a", "a"), ("b", "b")]
    for request in requests:
        assert dg.validate_run_config(repository.get_job("tidegate_maintenance"), request.run_config)


def test_other_times_are_schedules_of_their_own(tmp_path: Path):
    looks = [
        Presentation(),
        Presentation(reconcile_cron="0 5 * * *"),
        Presentation(timezone="Europe/Berlin"),
        Presentation(reconcile_cron=None),
    ]
    found = [
        on_lake(compile_script(COMPARED, name=f"p{number}"), lake=tmp_path, look=look)
        for number, look in enumerate(looks)
    ]
    repository = location_definitions(found).get_repository_def()
    ours = [schedule for schedule in repository.schedule_defs if schedule.name.startswith("tidegate_reconcile")]
    times = {(schedule.cron_schedule, schedule.execution_timezone) for schedule in ours}
    assert times == {("30 4 * * 0", "UTC"), ("0 5 * * *", "UTC"), ("30 4 * * 0", "Europe/Berlin")}
    assert "tidegate_reconcile_schedule" in {schedule.name for schedule in ours}
    assert {schedule.default_status for schedule in ours} == {dg.DefaultScheduleStatus.RUNNING}


EVENT_TIME = """
CREATE TABLE item (id INT PRIMARY KEY NOT ENFORCED, name STRING, since TIMESTAMP(3),
    WATERMARK FOR since AS since) WITH ('connector' = 'scripted');
CREATE TABLE sale (id INT, at TIMESTAMP(3), WATERMARK FOR at AS at) WITH ('connector' = 'scripted');
CREATE TABLE named (id INT, name STRING) WITH ('connector' = 'scripted');
INSERT INTO named SELECT s.id, name FROM sale AS s JOIN item FOR SYSTEM_TIME AS OF s.at ON s.id = item.id;
"""


def backfilled(tmp_path: Path, name: str = "timed", **config: Any) -> dg.Failure:
    """Why a backfill was refused."""
    pipelines = [
        pipeline(name="clicks"),
        compile_script(EVENT_TIME, name="timed"),
        compile_script(EVENT_TIME, name="x"),
    ]
    found = location_definitions([on_lake(item, lake=tmp_path / item.name) for item in pipelines])
    (failed,) = started(found, "tidegate_backfill", "release_spans", pipeline=name, **config).get_step_failure_events()
    said = failed.step_failure_data.user_failure_data
    assert said is not None
    return dg.Failure(said.description, metadata=said.metadata)


DAY = {"from": "2026-01-01", "to": "2026-01-02"}


@pytest.mark.parametrize(
    ("config", "wrong", "mend"),
    [
        ({"name": "clicks", "spans": [DAY]}, "tidegate_backfill has no pipeline clicks", "one of timed, x"),
        ({"spans": [DAY], "target": "other"}, "timed has no event-time INSERT other", "one of named"),
        ({"spans": [DAY | {"to": "2026-01-01"}]}, "2026-01-01 is not before 2026-01-01", "{from: 2024-01-31"),
        ({"spans": [DAY | {"from": "May"}]}, "'May' and '2026-01-02' are not two moments", "{from: 2024-01-31"),
        ({"spans": []}, "`spans` is empty", "{from: 2024-01-31"),
    ],
)
def test_a_backfill_of_what_there_is_not_is_refused(tmp_path: Path, config: dict[str, Any], wrong: str, mend: str):
    said = backfilled(tmp_path, **config)
    assert said.description == wrong
    assert mend in str(said.metadata["next"].value)


def test_a_run_of_everything_leaves_maintenance_and_comparisons_out(tmp_path: Path):
    made = on_lake(compile_script(COMPARED, name="p"), lake=tmp_path)
    everything = dg.Definitions(jobs=[dg.define_asset_job("everything", dg.AssetSelection.all())])
    found = dg.Definitions.merge(location_definitions([made]), everything)
    graph = found.resolve_asset_graph()
    upkeep = {dg.AssetKey(["p", name]) for name in ("maintenance", "reconcile")}
    assert upkeep <= graph.get_all_asset_keys()
    assert not upkeep & graph.materializable_asset_keys
    steps = {node.name for node in found.resolve_job_def("everything").nodes}
    assert not {name for name in steps if "maintenance" in name or "reconcile" in name}
    assert dg.AssetCheckKey(dg.AssetKey(["p", "reconcile"]), "item") in graph.asset_check_keys


def test_steps_are_as_all_pipelines_say_and_an_override_runs_around_them(tmp_path: Path):
    ran: list[tuple[str, str]] = []

    def execute(context: dg.OpExecutionContext, tidegate: TidegateResource, step: Step) -> Iterator[Any]:
        ran.append((step.kind, tidegate.lake))
        yield from step.run()

    look = Presentation(steps=Steps(pool="spark", tags={"team": "shop"}), execute=execute)
    own = [on_lake(pipeline(name=name), lake=tmp_path / name, look=look) for name in ("a", "b")]
    found = location_definitions(own)
    (node,) = found.resolve_job_def("tidegate_dry_run").nodes
    assert isinstance(node.definition, dg.OpDefinition)
    assert (node.definition.pool, node.definition.tags["team"]) == ("spark", "shop")
    assert started(found, "tidegate_dry_run", "plan_only", pipeline="b").success
    assert ran == [("dry_run", str(tmp_path / "b"))]
    other = on_lake(pipeline(name="c"), lake=tmp_path)
    (node,) = location_definitions([*own, other]).resolve_job_def("tidegate_dry_run").nodes
    assert isinstance(node.definition, dg.OpDefinition)
    assert node.definition.pool is None


def test_a_pipeline_whose_keys_have_a_prefix_has_them_in_what_is_recorded(tmp_path: Path):
    def prefixed(asset: PipelineAsset) -> dg.AssetSpec:
        return asset.spec.replace_attributes(key=asset.spec.key.with_prefix("mart"))

    made = on_lake(pipeline(name="a"), lake=tmp_path, look=Presentation(translate=prefixed))
    assert made.names.maintenance == dg.AssetKey(["mart", "a", "maintenance"])
    assert made.names.maintenance in location_definitions([made]).resolve_asset_graph().get_all_asset_keys()


def test_definitions_that_python_makes_go_beside_others_with_names_of_their_own(tmp_path: Path):
    others = location(tmp_path, "a", "b")
    made = build_pipeline_definitions(pipeline(name="c"), lake=tmp_path / "c", operations="more")
    repository = dg.Definitions.merge(others, made).get_repository_def()
    more = {name.replace("tidegate_", "more_") for name in OPERATIONS}
    assert set(repository.job_names) == {"__ASSET_JOB", "a", "b", "c", *OPERATIONS, *more}
    assert repository.has_schedule_def("more_maintenance_schedule")


@pytest.mark.parametrize("name", ["tidegate_dry_run", "tidegate-maintenance"])
def test_a_pipeline_that_is_called_like_an_operation_is_refused_by_name(tmp_path: Path, name: str):
    for others in ((), ("a",)):
        with pytest.raises(PlanningError, match=f"{name} has the name of the job tidegate_") as refused:
            location(tmp_path, *others, name)
        assert f"such as {name}_2" in str(refused.value)
    location(tmp_path, f"{name}_2")
    build_pipeline_definitions(pipeline(name=name), lake=tmp_path / name, operations="more")
    location(tmp_path, "tidegate_backfill")  # no pipeline here is in event time, so there is no such job
