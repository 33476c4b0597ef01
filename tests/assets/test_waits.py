"""Steps that wait for another runner, and what the steps of one run hand on to each other."""

import contextlib
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from tests.assets.clicks import pipeline
from tidegate.assets import build_pipeline_definitions
from tidegate.assets.failures import Waits, explained
from tidegate.assets.names import Names
from tidegate.assets.resources import TidegateResource, runner_of
from tidegate.pipelines.commands import AS_WRITTEN
from tidegate.pipelines.errors import LeaseHeld, PlanningError
from tidegate.pipelines.lake import Lake
from tidegate.pipelines.lake.leases import read_leases

CLICKS = pipeline()
NAMES = Names("clicks")
OWNER = "insert enriched_click"


def steps(lake: Path, executor: dg.ExecutorDefinition = dg.in_process_executor) -> dg.JobDefinition:
    """Two steps of a run: the first one stages, so to speak, the second one publishes, and gives who held the lease."""

    @dg.op(required_resource_keys={NAMES.resource})
    def stage(context: dg.OpExecutionContext) -> str:
        with runner_of(context, CLICKS, NAMES, AS_WRITTEN) as runner:
            runner.leases.acquire(OWNER)
            runner.hand_on("enriched_click")
        return runner.leases.holder

    @dg.op(required_resource_keys={NAMES.resource})
    def publish(context: dg.OpExecutionContext, staged_by: str) -> str:
        with pytest.raises(LeaseHeld) as held:
            Lake(lake).leases("another run").acquire(OWNER)
        with runner_of(context, CLICKS, NAMES, AS_WRITTEN) as runner:
            assert runner.leases.holder != staged_by
            runner.leases.acquire(OWNER)
        return held.value.holder

    @dg.job(resource_defs={NAMES.resource: TidegateResource.at(lake)}, executor_def=executor)
    def of_two():
        publish(stage())

    return of_two


def test_from_staged_to_published_the_lease_is_the_run_s(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    done = steps(tmp_path).execute_in_process(instance=instance)
    assert done.output_for_node("publish").startswith(f"dagster run {done.run_id}, process ")
    assert [lease.released for lease in read_leases(tmp_path / "_control")] == [True]


def test_what_nobody_takes_up_is_free_when_the_run_ends(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    assert steps(tmp_path).execute_in_process(instance=instance, op_selection=["stage"]).success
    assert [lease.released for lease in read_leases(tmp_path / "_control")] == [True]


def steps_of_argv() -> dg.JobDefinition:
    """For the processes of an executor, which have this one's arguments."""
    return steps(Path(sys.argv[-1]), dg.multiprocess_executor)


@pytest.mark.thorough
def test_steps_in_processes_of_their_own_hand_on_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["pytest", str(tmp_path / "lake")])
    with (
        dg.instance_for_test(temp_dir=str(tmp_path)) as instance,
        dg.execute_job(dg.reconstructable(steps_of_argv), instance) as done,
    ):
        assert done.success
        assert done.output_for_node("publish").startswith(f"dagster run {done.run_id}, process ")


def run(
    instance: dg.DagsterInstance, lake: Path, longest: timedelta, before: list[Callable[[], Any]], clock: list[int]
) -> dg.ExecuteInProcessResult:
    """A run of one step that needs a lease. Each of its tries calls what comes next in `before`, first of all."""

    @dg.op
    def needs(context: dg.OpExecutionContext) -> int:
        before.pop(0)()
        waits = Waits(context, longest, lambda: clock[0])
        with explained(waits=waits), contextlib.closing(Lake(lake).leases("this run")) as leases:
            leases.acquire(OWNER)
        return context.retry_number

    @dg.job
    def of_one():
        needs()

    return of_one.execute_in_process(instance=instance, raise_on_error=False)


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.assets.failures.LONGEST_PAUSE_S", 0.0)


@pytest.mark.usefixtures("at_once")
def test_a_step_that_waits_is_over_and_started_again_until_the_lease_is_free(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    other = Lake(tmp_path).leases("tidegate run --continuous")
    other.acquire(OWNER)
    before = [lambda: None, lambda: None, other.close]
    done = run(instance, tmp_path, timedelta(minutes=10), before, [0])
    assert done.output_for_node("needs") == 2
    first, _ = done.filter_events(lambda event: event.is_step_up_for_retry)
    assert first.step_retry_data.error.cause.cls_name == "LeaseHeld"
    told = [record.user_message for record in instance.all_logs(done.run_id)]
    assert sum("worked on by tidegate run --continuous, process" in line for line in told) == 2


@pytest.mark.usefixtures("at_once")
def test_a_step_has_waited_for_long_enough_counted_from_its_first_try(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    other = Lake(tmp_path).leases("tidegate run --continuous")
    other.acquire(OWNER)
    clock = [0]

    def minutes_later() -> None:
        (first, *_) = instance.all_logs(instance.get_runs()[0].run_id, dg.DagsterEventType.STEP_UP_FOR_RETRY)
        clock[0] = int(first.timestamp * 1000) + minutes.pop(0) * 60_000

    minutes = [4, 9, 10]
    before = [lambda: None, minutes_later, minutes_later, minutes_later]
    done = run(instance, tmp_path, timedelta(minutes=10), before, clock)
    assert not done.success
    assert before == []
    (failed,) = done.get_step_failure_events()
    data = failed.step_failure_data.user_failure_data
    assert data.metadata["tidegate/error"].value == "LeaseHeld"
    assert str(data.metadata["where"].value).startswith("tidegate run --continuous, process ")


def test_a_wait_that_is_no_duration_is_refused_when_definitions_load(tmp_path: Path) -> None:
    with pytest.raises(PlanningError, match="wait is 'soon'"):
        build_pipeline_definitions(CLICKS, lake=tmp_path, wait="soon")


def test_steps_of_a_table_share_a_pool_in_every_code_location(tmp_path: Path) -> None:
    def pools(lake: Path, name: str) -> dict[str, str]:
        found = build_pipeline_definitions(pipeline(name=name), lake=lake)
        ops = found.resolve_job_def(name).graph.node_defs
        return {op.name.removeprefix(f"{name}__"): op.pool or "" for op in ops if isinstance(op, dg.OpDefinition)}

    here = pools(tmp_path, "clicks")
    assert here == pools(tmp_path, "other")
    assert here["click_event"].startswith("tidegate/")
    assert here["click_event"].endswith("/click_event")
    insert = {pool for name, pool in here.items() if name.startswith("enriched_click")}
    assert insert == {here["click_event"].replace("click_event", "enriched_click")}
    assert set(here.values()).isdisjoint(pools(tmp_path / "another", "clicks").values())
