"""Steps that wait for another runner, and what the steps of one run hand on to each other."""

import contextlib
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tests.assets.clicks import handmade, pipeline
from tests.pipelines.runtime.handmade import HandmadeLake
from tidegate.assets import build_pipeline_definitions
from tidegate.assets.failures import Waits, explained
from tidegate.assets.names import BACKFILL_TAG, Names
from tidegate.assets.resources import TidegateResource, runner_of
from tidegate.pipelines.commands import AS_WRITTEN
from tidegate.pipelines.errors import LeaseHeld, PlanningError
from tidegate.pipelines.lake import Lake
from tidegate.pipelines.lake.leases import read_leases
from tidegate.pipelines.lake.owner_log import OwnerLogs
from tidegate.pipelines.sql import compile_script
from tidegate.pipelines.sql.compile import Pipeline

SPANS = """
CREATE TABLE rates (currency STRING PRIMARY KEY NOT ENFORCED, rate INT, at TIMESTAMP(3), WATERMARK FOR at AS at)
WITH ('connector' = 'scripted');
CREATE TABLE orders (id INT, currency STRING, at TIMESTAMP(3), WATERMARK FOR at AS at) WITH ('connector' = 'scripted');
CREATE TABLE converted (id INT, rate INT) WITH ('connector' = 'scripted');
INSERT INTO converted SELECT orders.id, rates.rate FROM orders
LEFT JOIN rates FOR SYSTEM_TIME AS OF orders.at ON orders.currency = rates.currency;
"""
"""A pipeline in event time."""

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
    assert [lease.row.released for lease in read_leases(OwnerLogs(tmp_path / "_control"))] == [True]


def test_what_nobody_takes_up_is_free_when_the_run_ends(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    assert steps(tmp_path).execute_in_process(instance=instance, op_selection=["stage"]).success
    assert [lease.row.released for lease in read_leases(OwnerLogs(tmp_path / "_control"))] == [True]


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
    messages = [record.user_message for record in instance.all_logs(done.run_id)]
    assert sum("worked on by tidegate run --continuous, process" in line for line in messages) == 2


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


PUBLISHED = dg.AssetKey(["clicks", "enriched_click"])


@pytest.fixture
def rows(tmp_path: Path) -> HandmadeLake:
    """Three clicks have landed, and the users are still loading."""
    found = handmade(tmp_path / "lake")
    for table, number in ((found.build, 2), (found.probe, 3)):
        found.landed(table, 1, number, at=0)
    return found


def published(
    lake: Path, *others: dg.AssetsDefinition, of: Pipeline | None = None, backfill: str = ""
) -> dg.ExecuteInProcessResult:
    """A run of the published asset, and of others beside it."""
    made = build_pipeline_definitions(of or pipeline(), lake=lake)
    key = PUBLISHED if of is None else dg.AssetKey([of.name, of.inserts[0].id])
    names = [key, *(other.key for other in others)]
    return dg.materialize(
        [*(made.assets or []), *others],  # type: ignore[list-item]
        selection=dg.AssetSelection.assets(*names).without_checks(),
        resources=made.resources,
        instance=dg.DagsterInstance.ephemeral(),
        tags={BACKFILL_TAG: backfill} if backfill else {},
    )


def observed(result: dg.ExecuteInProcessResult) -> list[dg.AssetObservation]:
    return [event.asset_observation_data.asset_observation for event in result.get_asset_observation_events()]


def test_rows_that_wait_are_an_observation_that_names_what_they_wait_for(rows: HandmadeLake, tmp_path: Path) -> None:
    result = published(tmp_path / "lake")
    (found,) = observed(result)
    assert found.asset_key == PUBLISHED
    assert found.description == (
        "3 rows wait: user_info is still loading: its snapshot is not proved complete; "
        "next: they are released once user_info has flipped"
    )
    assert next(iter(found.metadata)) == "summary"
    assert found.metadata["waiting for"].value == "user_info"
    assert found.metadata["waiting rows"].value == 3
    assert not result.get_asset_materialization_events()


def test_what_reads_it_in_the_same_run_is_not_skipped(rows: HandmadeLake, tmp_path: Path) -> None:
    @dg.asset(deps=[PUBLISHED])
    def report() -> None: ...

    result = published(tmp_path / "lake", report)
    assert len(observed(result)) == 1
    assert {event.asset_key for event in result.get_asset_materialization_events()} == {PUBLISHED, report.key}


def test_a_backfill_that_takes_it_along_is_not_shown_as_failed(rows: HandmadeLake, tmp_path: Path) -> None:
    """Dagster takes an asset of a backfill for failed that its run has not materialised."""
    result = published(tmp_path / "lake", backfill="abcdefgh")
    assert len(observed(result)) == 1
    assert [event.asset_key for event in result.get_asset_materialization_events()] == [PUBLISHED]


def test_where_no_row_waits_it_has_asked_and_is_fresh(tmp_path: Path) -> None:
    handmade(tmp_path / "lake")
    result = published(tmp_path / "lake")
    assert observed(result) == []
    assert [event.asset_key for event in result.get_asset_materialization_events()] == [PUBLISHED]


def test_a_watermark_is_waited_for_by_the_input_that_holds_it(tmp_path: Path) -> None:
    found, spans = handmade(tmp_path / "lake"), compile_script(SPANS)
    for table, number, watermark in (("rates", 1, 1_000), ("orders", 2, 9_000)):
        found.landed(table, 1, number, at=0, flip=1, timestamp=watermark, use_processing_time=False)
    rows = {
        "id": pa.array([1, 2], pa.int32()),
        "currency": ["EUR", "EUR"],
        "at": pa.array([2_000_000, 3_000_000], pa.timestamp("us")),
        "_generation": pa.array([1, 1], pa.int32()),
        "_epoch": [1, 1],
        "_rowtime": pa.array([2_000_000, 3_000_000], pa.timestamp("us", "UTC")),
    }
    write_deltalake(str(found.lake.table_path("orders")), pa.table(rows))
    assert spans.name
    (seen,) = observed(published(tmp_path / "lake", of=spans))
    assert seen.metadata["waiting for"].value == "rates"
    assert "2 rows wait: the watermark stands at 1970-01-01T00:00:01" in (seen.description or "")
