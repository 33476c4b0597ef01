"""What a finished run ends of the alerts of runs before it."""

from __future__ import annotations

import time
from dataclasses import replace
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
from tidegate.orchestration.alerts.memory import Memory, Open
from tidegate.orchestration.alerts.runs import Outcome, asked_of, is_watched, launching, outcome, same
from tidegate.pipelines.commands import remedy
from tidegate.pipelines.facts.problem import Problem, rooted, roots
from tidegate.pipelines.runtime.failures import StepFailed

NOTHING: dict[str, Any] = {"failed_steps": [], "checks_not_run": [], "failed_checks": []}


def run(job: str, status: DagsterRunStatus = DagsterRunStatus.SUCCESS) -> DagsterRun:
    return DagsterRun(job_name=job, status=status, tags={PIPELINE_TAG: "clicks"})


def failed(job: str, **details: list[str]) -> Problem:
    known = {"job": job, **NOTHING, **details}
    return Problem("run 1", "run-failed", "run 1 failed", pipeline="clicks", details=known)


@pytest.mark.parametrize(
    "details",
    [
        pytest.param({"failed_steps": ["clicks__hunter2_land"]}, id="step"),
        pytest.param({"checks_not_run": ["clicks/hunter2: gate"]}, id="check that did not run"),
        pytest.param({"failed_checks": ["clicks/hunter2: adds_up"]}, id="check that failed"),
        pytest.param({}, id="job"),
    ],
)
def test_a_problem_whose_names_hold_a_secret_is_known_again_and_mended(
    details: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("CLICKS_PASSWORD", "hunter2")
    bad = Outcome(
        run("hunter2_job", DagsterRunStatus.FAILURE),
        "hunter2_job",
        frozenset(),
        frozenset(),
        frozenset(),
        failed("hunter2_job", **details),
    ).scrubbed(())
    assert bad.problem is not None
    item = Open.of(bad.problem)
    assert "hunter2" not in str(item)
    assert same(item, bad.problem)
    assert not bad.ends(item)
    checks = frozenset(("clicks/hunter2: gate", "clicks/hunter2: adds_up"))
    well = Outcome(run("hunter2_job"), "hunter2_job", frozenset(("clicks__hunter2_land",)), checks, checks, None)
    assert well.scrubbed(()).ends(item)


def test_a_run_that_did_something_else_mends_nothing():
    item = Open.of(failed("clicks", failed_steps=["clicks__land"]))
    other = Outcome(run("clicks"), "clicks", frozenset(("clicks__other",)), frozenset(), frozenset(), None)
    assert not other.ends(item)


def of_partition(key: str, status: DagsterRunStatus = DagsterRunStatus.SUCCESS) -> Outcome:
    made = DagsterRun(job_name="clicks", status=status, tags={PIPELINE_TAG: "clicks", "dagster/partition": key})
    return Outcome(made, "clicks", frozenset(("clicks__by_time",)), frozenset(), frozenset(), None)


def test_a_partition_that_failed_is_over_when_that_very_partition_is_made():
    problem = failed("clicks", failed_steps=["clicks__by_time"])
    item = Open.of(replace(problem, details={**problem.details, "partition": ["2026-01-01", "2026-01-01"]}))
    assert not of_partition("2026-01-02").ends(item)
    assert not Outcome(run("clicks"), "clicks", frozenset(("clicks__by_time",)), frozenset(), frozenset(), None).ends(
        item
    )
    assert of_partition("2026-01-01").ends(item)


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
        problem = outcome(instance, run, Watched((), tables)).problem
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


def operated(pipeline: str, status: DagsterRunStatus = DagsterRunStatus.SUCCESS, **config: Any) -> DagsterRun:
    """A run of tidegate_backfill."""
    tags = {OPERATION_TAG: "backfill", PIPELINE_TAG: pipeline}
    asked = {"ops": {"release_spans": {"config": config}}}
    return DagsterRun("tidegate_backfill", run_config=asked, tags=tags, status=status)


@pytest.mark.parametrize(
    ("pipeline", "done", "over"),
    [
        ("clicks", {"spans": [{"from": "2026-01-01", "to": "2026-01-02"}], "target": "a"}, True),
        ("clicks", {"spans": [{"from": "2025-01-01", "to": "2027-01-01"}]}, True),
        ("clicks", {"spans": [{"from": "2026-01-02", "to": "2026-01-03"}]}, False),
        ("clicks", {"spans": [{"from": "2026-01-01", "to": "2026-01-02"}], "target": "b"}, False),
        ("others", {"spans": [{"from": "2026-01-01", "to": "2026-01-02"}], "target": "a"}, False),
    ],
)
def test_a_failed_operation_is_over_with_one_of_the_same_pipeline_that_asks_for_as_much(
    pipeline: str, done: dict[str, Any], over: bool
):
    missed = operated("clicks", spans=[{"from": "2026-01-01", "to": "2026-01-02"}], target="a")
    asked = {"asked": asked_of(missed), "failed_steps": ["release_spans"], "job": "tidegate_backfill"}
    item = Open("run 1", "run-failed", "run 1 failed", "clicks", 0, details={**NOTHING, **asked})
    run = operated(pipeline, **done)
    found = Outcome(run, run.job_name, frozenset(["release_spans"]), frozenset(), frozenset(), None, pipeline)
    assert found.ends(item) is over


def test_two_pipelines_that_fail_in_one_job_are_two_problems():
    details = {**NOTHING, "job": "tidegate_maintenance", "failed_steps": ["maintain"]}
    item = Open("run 1", "run-failed", "run 1 failed", "clicks", 0, details=details)
    other = Problem("run 2", "run-failed", "run 2 failed", pipeline="clicks", details=details)
    assert same(item, other)
    assert not same(item, replace(other, pipeline="others"))


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
        problem = outcome(instance, run, found).problem
    assert problem is not None
    memory = Memory(open=(Open.of(problem),))
    now = rooted([lag_of("clicks"), *memory.of_runs()])
    after, begun, over = memory.compared(now, ())
    assert ([each.kind for each in begun], over) == ([] if explained else ["lag"], [])
    assert Open.of(problem) in after.open


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
        assert queued(instance, found, now, {}) is None
        queue = queued(instance, found, now + 301, known := {})
    assert queue is not None
    assert known == {}, "both say it in their tags"
    assert queue.title.startswith("1 run has waited in Dagster's queue for up to 5 min")
    assert queue.details["pipelines"] == ["clicks"]
    assert [each.key for each in roots(rooted([lag_of("clicks"), lag_of("orders"), queue]))] == [
        "lag /lake of_orders 1",
        "runs-queued",
    ]


def test_the_history_of_a_run_in_the_queue_is_read_once(monkeypatch: pytest.MonkeyPatch):
    """A whole job of a team's own: neither a tag nor a selection says what it makes."""
    made = [AssetKey(["clicks", "user_info"]), AssetKey("other")]

    @dg.multi_asset(specs=[dg.AssetSpec(key) for key in made])
    def own(): ...

    @dg.op
    def nothing() -> None: ...

    @dg.job
    def upkeep() -> None:
        nothing()

    chosen = dg.Definitions([own], jobs=[dg.define_asset_job("own", selection="*"), upkeep])
    found = Watched((), (WatchedTable("clicks", "user_info", "/lake", ""),), keys={made[0]: "clicks"})
    reads: list[str] = []
    read = DagsterInstance.get_records_for_run

    def counted(self: DagsterInstance, run_id: str, *given: Any, **named: Any) -> Any:
        reads.append(run_id)
        return read(self, run_id, *given, **named)

    monkeypatch.setattr(DagsterInstance, "get_records_for_run", counted)
    with DagsterInstance.ephemeral() as instance:
        place = RemoteRepositoryOrigin(RegisteredCodeLocationOrigin("here"), "__repository__")
        jobs = [chosen.resolve_job_def(name) for name in ("own", "upkeep")]
        ids = [
            instance.create_run_for_job(
                job, status=DagsterRunStatus.QUEUED, remote_job_origin=place.get_job_origin(job.name)
            ).run_id
            for job in jobs
        ]
        memory, late = Memory(), time.time() + 301
        for _ in range(3):
            memory = Memory.of(memory.cursor())
            problem = queued(instance, found, late, memory.queue)
            assert problem is not None
            assert problem.details["runs"] == ids[:1]
            assert memory.queue == dict(zip(ids, ["clicks", ""], strict=True))
        assert sorted(reads) == sorted(ids)
        instance.delete_run(ids[0])
        assert queued(instance, found, late, memory.queue) is None
        assert memory.queue == {ids[1]: ""}


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
    assert is_watched(instance, run, of)
    problem = outcome(instance, run, of).problem
    assert problem is not None
    assert (problem.kind, problem.pipeline) == ("check-failed", "clicks")
    assert problem.details["failed_checks"] == ["clicks/enriched_click_staged: my_own"]
    others = dg.materialize([other], instance=instance)
    unwatched = instance.get_run_by_id(others.run_id)
    assert unwatched is not None
    assert not is_watched(instance, unwatched, of)
