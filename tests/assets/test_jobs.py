from pathlib import Path

import dagster as dg
import pytest

from tests.assets.clicks import pipeline
from tidegate.assets import Presentation, build_pipeline_definitions
from tidegate.assets.jobs import PIPELINE_TAG


@pytest.fixture
def repository(tmp_path: Path) -> dg.RepositoryDefinition:
    look = Presentation(cron="*/5 * * * *")
    return build_pipeline_definitions(pipeline(), lake=tmp_path, look=look).get_repository_def()


def test_the_job_is_the_whole_pipeline_in_one_process(repository: dg.RepositoryDefinition):
    job = repository.get_job("clicks")
    assert job.executor_def is dg.in_process_executor
    assert {key.path[-1] for key in job.asset_layer.executable_asset_keys} == {
        "user_info",
        "click_event",
        "enriched_click_staged",
        "enriched_click",
    }
    assert dg.AssetCheckKey(dg.AssetKey(["clicks", "enriched_click_staged"]), "gate") in (
        job.asset_layer.asset_graph.asset_check_keys
    )
    assert job.tags[PIPELINE_TAG] == "clicks"
    assert job.tags["dagster/retry_on_asset_or_op_failure"] == "false"


def test_the_schedule_is_stopped_until_it_is_turned_on(repository: dg.RepositoryDefinition):
    schedule = repository.get_schedule_def("clicks_schedule")
    assert schedule.default_status == dg.DefaultScheduleStatus.STOPPED
    assert schedule.cron_schedule == "*/5 * * * *"


def test_a_tick_is_passed_over_while_a_run_is_in_progress(
    repository: dg.RepositoryDefinition, history: dg.DagsterInstance
):
    schedule = repository.get_schedule_def("clicks_schedule")
    context = dg.build_schedule_context(instance=history, repository_def=repository)
    assert len(schedule.evaluate_tick(context).run_requests or []) == 1

    job = repository.get_job("clicks")
    history.create_run_for_job(job, status=dg.DagsterRunStatus.STARTED)
    skipped = schedule.evaluate_tick(dg.build_schedule_context(instance=history, repository_def=repository))
    assert not skipped.run_requests
    assert "still in progress" in (skipped.skip_message or "")
