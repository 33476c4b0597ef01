"""What a finished run ends of the alerts of runs before it, and what explains what."""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster import AssetKey, DagsterInstance, DagsterRun, DagsterRunStatus
from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteRepositoryOrigin

from tests.assets.clicks import pipeline
from tidegate.assets import build_pipeline_definitions
from tidegate.assets.failures import failure
from tidegate.assets.jobs import PIPELINE_TAG
from tidegate.assets.operations.operation import OPERATION_TAG
from tidegate.assets.watched import Watched, WatchedTable, watched
from tidegate.orchestration.alerts.dagster_problems import queued, with_absence, with_runs
from tidegate.orchestration.alerts.memory import Memory
from tidegate.orchestration.alerts.runs import Ran, asked_of, launching, ran, same
from tidegate.pipelines.commands import remedy
from tidegate.pipelines.facts.problem import Problem, rooted, roots
from tidegate.pipelines.runtime.failures import StepFailed

DAYS = [{"from": "2026-01-01", "to": "2026-01-02"}]


def job_run(status: DagsterRunStatus = DagsterRunStatus.SUCCESS, **tags: str) -> DagsterRun:
    """A run of `clicks`; `tags`: of partitions."""
    named = {f"dagster/{name}": value for name, value in tags.items()}
    return DagsterRun("clicks", status=status, tags={PIPELINE_TAG: "clicks", **named})


def operated(pipeline: str, **config: Any) -> DagsterRun:
    """A run of tidegate_backfill."""
    tags = {OPERATION_TAG: "backfill", PIPELINE_TAG: pipeline}
    asked = {"ops": {"release_spans": {"config": config}}}
    return DagsterRun("tidegate_backfill", run_config=asked, tags=tags, status=DagsterRunStatus.SUCCESS)


def failed(run: DagsterRun, *steps: str) -> Problem:
    details = {"job": run.job_name, "asked": asked_of(run), "failed_steps": [*steps]}
    details |= {"checks_not_run": [], "failed_checks": []}
    return Problem("run 1", "run-failed", "run 1 failed", pipeline=run.tags[PIPELINE_TAG], details=details)


def did(run: DagsterRun, *steps: str) -> Ran:
    return Ran(run, run.job_name, run.tags[PIPELINE_TAG], frozenset(steps), frozenset(), None)


@pytest.mark.parametrize(
    ("missed", "done", "over"),
    [
        (job_run(), job_run(), True),
        (job_run(partition="2026-01-01"), job_run(partition="2026-01-01"), True),
        (job_run(partition="2026-01-01"), job_run(partition="2026-01-02"), False),
        (job_run(partition="2026-01-01"), job_run(), False),
        (job_run(partition="2026-01-02"), job_run(asset_partition_range_start="2026-01-01",
         asset_partition_range_end="2026-01-03"), True),
        (operated("clicks", spans=DAYS, target="a"), operated("clicks", spans=DAYS, target="a"), True),
        (operated("clicks", spans=DAYS, target="a"), operated("clicks", spans=[{"from": "2025", "to": "2027"}]), True),
        (operated("clicks", spans=DAYS), operated("clicks", spans=[{"from": "2026-01-02", "to": "2027"}]), False),
        (operated("clicks", spans=DAYS, target="a"), operated("clicks", spans=DAYS, target="b"), False),
        (operated("clicks", spans=DAYS), operated("others", spans=DAYS), False),
        (operated("clicks", tables=["a"]), operated("clicks", tables=["a", "b"]), True),
        (operated("clicks", tables=["a"]), operated("clicks", tables=["b"]), False),
        (operated("clicks"), operated("clicks", tables=["b"]), False),
    ],
)  # fmt: skip
def test_what_failed_is_over_with_a_run_that_is_asked_for_as_much_and_does_it(
    missed: DagsterRun, done: DagsterRun, over: bool
):
    assert did(done, "step", "other").ends(failed(missed, "step")) is over
    assert not did(done, "other").ends(failed(missed, "step"))
    assert did(done).ends(failed(missed)) is over, "a lost run"


def test_runs_that_fail_alike_are_one_problem_but_not_those_of_two_pipelines_in_one_job():
    first = failed(operated("clicks"), "maintain")
    assert same(first, failed(operated("clicks"), "maintain"))
    assert not same(first, failed(operated("others"), "maintain"))
    assert not same(first, failed(operated("clicks", spans=DAYS), "maintain"))


def test_what_a_failed_step_says_is_one_sentence_and_its_cause_comes_with_what_to_do_once():
    do = remedy("No space left on device") + ", then run the same command again"
    error = StepFailed(
        "user_info: No space left on device. The task is lost.", where="epoch 2. It is planned.", next_command=do
    )

    @dg.asset(key=["clicks", "user_info"])
    def land():
        raise failure(error)

    @dg.asset(key=["clicks", "click_event"])
    def also():
        raise OSError(28, "No space left on device: hunter2")

    tables = tuple(WatchedTable("clicks", name, "/nowhere", "") for name in ("user_info", "click_event"))
    with DagsterInstance.ephemeral() as instance:
        ended = dg.materialize([land, also], instance=instance, raise_on_error=False)
        run = instance.get_run_by_id(ended.run_id)
        assert run is not None
        found = ran(instance, run, Watched((), tables))
    assert found is not None
    problem = found.problem
    assert problem is not None
    assert set(problem.text) == {
        "Step clicks__user_info failed: user_info: No space left on device; the task is lost (epoch 2; it is planned).",
        "Step clicks__click_event failed.",
    }
    assert [str(command) for command in problem.next if "make room" in str(command)] == [str(do)]


@pytest.mark.parametrize(
    ("job", "tags", "command"),
    [
        ("clicks", {}, "dg launch --job clicks"),
        ("clicks_backfill", {"partition": "2026-01-01"}, "dg launch --job clicks_backfill --partition 2026-01-01"),
        ("__ASSET_JOB", {}, "dg launch --assets 'key:\"clicks/a\"'"),
        ("__ASSET_JOB", {"partition": "x y"}, "dg launch --assets 'key:\"clicks/a\"' --partition 'x y'"),
        (
            "__ASSET_JOB",
            {"asset_partition_range_start": "2026-01-01", "asset_partition_range_end": "2026-01-01"},
            "dg launch --assets 'key:\"clicks/a\"' --partition 2026-01-01",
        ),
        (
            "__ASSET_JOB",
            {"asset_partition_range_start": "2026-01-01", "asset_partition_range_end": "2026-01-03"},
            "dg launch --assets 'key:\"clicks/a\"' --partition-range 2026-01-01...2026-01-03",
        ),
    ],
)
def test_a_run_like_it_makes_the_same_partitions(job: str, tags: dict[str, str], command: str):
    named = {f"dagster/{name}": value for name, value in tags.items()}
    assert launching(DagsterRun(job, tags=named, asset_selection=frozenset([AssetKey(["clicks", "a"])]))) == command


def test_an_operation_like_it_is_of_the_same_pipeline():
    config = {"ops": {"maintain": {"config": {"pipeline": "clicks"}}}, "execution": {}}
    run = DagsterRun("tidegate_maintenance", run_config=config, tags={OPERATION_TAG: "maintenance"})
    config_of_the_step = """'{"ops": {"maintain": {"config": {"pipeline": "clicks"}}}}'"""
    assert launching(run) == f"dg launch --job tidegate_maintenance --config-json {config_of_the_step}"


def lag_of(pipeline: str) -> Problem:
    return Problem(f"lag /lake of_{pipeline} 1", "lag", f"{pipeline} is behind", pipeline=pipeline)


@pytest.mark.parametrize(
    ("steps", "explained"), [([], True), (["clicks__of_clicks"], True), (["clicks__other"], False)]
)
def test_lag_follows_from_a_lost_run_and_from_its_own_step(steps: list[str], explained: bool):
    @dg.asset(key=["clicks", steps[0].removeprefix("clicks__") if steps else "lost"])
    def land():
        raise OSError

    found = Watched((), (WatchedTable("clicks", "of_clicks", "/lake", ""),))
    with DagsterInstance.ephemeral() as instance:
        ended = dg.materialize([land], instance=instance, raise_on_error=False)
        run = instance.get_run_by_id(ended.run_id)
        assert run is not None
        if not steps:  # its process was lost: no step says so
            lost = DagsterRun(job_name="clicks", status=DagsterRunStatus.FAILURE, tags={PIPELINE_TAG: "clicks"})
            run = instance.add_run(lost)
        ended = ran(instance, run, found)
    assert ended is not None
    assert ended.problem is not None
    memory = Memory.of(Memory().compared([ended.problem], ())[0].cursor())
    after, begun, over = memory.compared(rooted([lag_of("clicks"), *memory.open]), ())
    assert ([each.kind for each in begun], over) == ([] if explained else ["lag"], [])
    assert after.open[0] == memory.open[0]


def test_what_is_open_is_silent_once_another_problem_explains_it():
    stuck = Problem("stuck /lake of_clicks 7", "stuck", "it hangs", explains=("lag /lake of_clicks",))
    memory, begun, over = Memory().compared(rooted([lag_of("clicks")]), ())
    assert [each.kind for each in begun] == ["lag"]
    memory, begun, over = memory.compared(rooted([lag_of("clicks"), stuck]), ())
    assert ([each.kind for each in begun], over) == (["stuck"], [])
    memory = Memory.of(memory.cursor())
    assert memory.compared(rooted([]), ["stuck /lake of_clicks"])[1:] == ([], []), "it could not be looked at"
    assert [each.kind for each in memory.compared(rooted([]), ["stuck /lake of"])[2]] == ["stuck"]
    assert Memory.of('{"told": ["run 1"], "open": 7}') == Memory(), "the cursor of another version"


def test_a_step_that_failed_in_a_run_of_dagster_is_reported_as_that_run(instance: DagsterInstance):
    run = instance.add_run(run_of_clicks := DagsterRun(job_name="clicks"))
    stuck = [
        Problem(f"stuck /lake t{n} 1", "stuck", "it hangs", details={"by": by}, explains=(f"lag /lake t{n}",))
        for n, by in enumerate((f"dagster run {run.run_id}", "dagster run of-another-instance", "tidegate run"))
    ]
    assert run_of_clicks.run_id == run.run_id
    assert roots(with_runs(stuck, instance)) == stuck[1:]


def test_what_is_behind_after_the_daemon_was_away_is_one_problem_until_it_had_the_time_to_catch_up():
    lags, away, bound = [lag_of("clicks"), lag_of("orders")], (1000.0, 5000.0), timedelta(minutes=15)
    (absence,) = roots(with_absence(lags, away, 5000.0, bound))
    assert absence.kind == "daemon-away"
    assert "1970-01-01 00:16:40" in absence.title
    assert all(item.title in absence.text for item in lags)
    assert roots(with_absence(lags, away, 5000.0 + 900, bound)) == lags
    assert with_absence([], away, 5000.0, bound) == []


def test_a_run_that_waits_too_long_in_the_queue_is_reported_by_the_queue():
    found = Watched((), (WatchedTable("clicks", "of_clicks", "/lake", ""),))
    with DagsterInstance.ephemeral() as instance:
        for job, pipeline in (("clicks", "clicks"), ("other", "not Tidegate's")):
            place = RemoteRepositoryOrigin(RegisteredCodeLocationOrigin("here"), "__repository__")
            waiting = DagsterRun(
                job,
                status=DagsterRunStatus.QUEUED,
                tags={PIPELINE_TAG: pipeline},
                remote_job_origin=place.get_job_origin(job),
            )
            instance.add_run(waiting)
        now = time.time()
        assert queued(instance, found, now) is None
        queue = queued(instance, found, now + 301)
    assert queue is not None
    assert queue.title.startswith("1 run has waited in Dagster's queue for up to 5 min")
    assert queue.details["pipelines"] == ["clicks"]
    assert [each.key for each in roots(rooted([lag_of("clicks"), lag_of("orders"), queue]))] == [
        "lag /lake of_orders 1",
        "runs-queued",
    ]


def test_a_job_and_a_check_of_ones_own_are_watched(tmp_path: Path, instance: DagsterInstance):
    """A job that makes other assets, too; and a check on a staged asset, which is not taken for the gate's."""

    @dg.asset_check(asset=AssetKey(["clicks", "enriched_click_staged"]))
    def my_own() -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=False)

    @dg.asset(key=["accounts", "before_all_others"])
    def other() -> None: ...

    chosen = dg.AssetSelection.assets(other) | dg.AssetSelection.checks(my_own)
    own = dg.Definitions([other], asset_checks=[my_own], jobs=[dg.define_asset_job("own", selection=chosen)])
    found = dg.Definitions.merge(build_pipeline_definitions(pipeline(), lake=tmp_path), own)
    done = found.resolve_job_def("own").execute_in_process(instance=instance)
    run, of = instance.get_run_by_id(done.run_id), watched(found.get_repository_def())
    assert run is not None
    found_of_it = ran(instance, run, of)
    assert found_of_it is not None
    problem = found_of_it.problem
    assert problem is not None
    assert (problem.kind, problem.pipeline) == ("check-failed", "clicks")
    assert problem.details["failed_checks"] == ["clicks/enriched_click_staged: my_own"]
    others = dg.materialize([other], instance=instance)
    unwatched = instance.get_run_by_id(others.run_id)
    assert unwatched is not None
    assert ran(instance, unwatched, of) is None
