"""When a tick of the schedule starts a run, and when it is skipped. No Spark: the lake is made by hand."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import dagster as dg
import pytest

from tests.assets.clicks import files, pipeline
from tests.assets.test_run import at_rest
from tests.pipelines.runtime.handmade import HandmadeLake, define, store
from tidegate.assets import Presentation, build_pipeline_definitions
from tidegate.assets.jobs import ANSWER_WITHIN_S, HELD_TAG, NOTHING_NEW, PIPELINE_TAG, Answer, Ticks, rest_of
from tidegate.assets.resources import TidegateResource
from tidegate.pipelines.connectors.protocol import SourcePosition, Step
from tidegate.pipelines.connectors.table import Column
from tidegate.pipelines.errors import SourceError
from tidegate.pipelines.lake import SplitWatermark, WatermarkRow
from tidegate.pipelines.runtime.epochs import source_row
from tidegate.pipelines.sources.scripted import ScriptedInput
from tidegate.pipelines.sources.scripted.source import ScriptedSource
from tidegate.pipelines.watermarks import WatermarkStrategy


@pytest.fixture
def made(tmp_path: Path) -> HandmadeLake:
    return at_rest(tmp_path / "lake")


def schedule_of(made: HandmadeLake) -> tuple[dg.RepositoryDefinition, dg.ScheduleDefinition]:
    repository = build_pipeline_definitions(made.pipeline, lake=made.lake.root).get_repository_def()
    return repository, repository.get_schedule_def("handmade_schedule")


def ran(made: HandmadeLake, history: dg.DagsterInstance, status: dg.DagsterRunStatus) -> None:
    """Let the job have a run in Dagster's history."""
    history.create_run_for_job(schedule_of(made)[0].get_job("handmade"), status=status)


@pytest.fixture
def requests() -> list[dg.RunRequest]:
    """What the ticks of `tick` have asked for."""
    return []


@pytest.fixture
def tick(made: HandmadeLake, history: dg.DagsterInstance, requests: list[dg.RunRequest]) -> Callable[[], str]:
    """Why the schedule starts a run; empty where it skips. It leaves the lake as it is."""
    ran(made, history, dg.DagsterRunStatus.SUCCESS)
    reasons: list[str] = []

    def ticked() -> str:
        repository, schedule = schedule_of(made)
        before = files(Path(made.lake.root))
        context = dg.build_schedule_context(instance=history, repository_def=repository)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(context), "log", property(lambda self: self))
            patch.setattr(type(context), "info", lambda self, said: reasons.append(said), raising=False)
            found = schedule.evaluate_tick(context)
        assert files(Path(made.lake.root)) == before
        if not found.run_requests:
            assert found.skip_message.startswith(NOTHING_NEW)
            return found.skip_message.removeprefix(NOTHING_NEW)
        requests.extend(found.run_requests)
        return reasons[-1].removeprefix("handmade is started: ")

    return ticked


def event(made: HandmadeLake, table: str, landed: int = 1) -> None:
    """Let a source have one event more than have landed."""
    scripted = ScriptedInput(made.lake.scratch(table), made.pipeline.table(table))
    for number in range(landed + 1):
        scripted.rows([{"id": number}])


def test_nothing_new_is_no_run(tick: Callable[[], str]) -> None:
    assert tick() == ""


@pytest.mark.parametrize("table", ["clicks", "users"])
def test_what_a_source_has_more_is_one(made: HandmadeLake, tick: Callable[[], str], table: str) -> None:
    event(made, table)
    assert tick() == f"{table}: new: events 2-2"


def test_an_epoch_that_is_open_is_one(made: HandmadeLake, tick: Callable[[], str]) -> None:
    made.landed("clicks", 2, 1)
    made.appended("clicks", 2)
    made.planned(2, 1, 2)
    assert tick() == "enriched: an epoch is unfinished"


LEFT_OUT = "; left out, until a person decides what the gate holds: enriched"


def test_what_the_gate_holds_is_left_out_until_a_person_has_decided(
    made: HandmadeLake, history: dg.DagsterInstance, tick: Callable[[], str], requests: list[dg.RunRequest]
) -> None:
    """No run asks the gate again, so its check stays failed in Dagster; the sources go on landing."""
    held(made)
    ran(made, history, dg.DagsterRunStatus.FAILURE)  # the run that was held
    assert tick() == "the job's last run did not succeed" + LEFT_OUT
    (request,) = requests
    keys = request.asset_selection
    assert keys == [dg.AssetKey(["handmade", table]) for table in ("users", "clicks")]
    job = schedule_of(made)[0].get_job("handmade")
    gate = dg.AssetCheckKey(dg.AssetKey(["handmade", "enriched_staged"]), "rows")
    before = newest_check(history, gate)
    without = job.get_subset(asset_selection={*keys})
    history.create_run_for_job(without, status=dg.DagsterRunStatus.SUCCESS, tags=request.tags)
    assert newest_check(history, gate) == before, "a run that leaves it out does not make it `in progress`"
    assert tick() == LEFT_OUT, "nothing else is new"
    event(made, "clicks", landed=2)
    assert tick() == "clicks: new: events 3-3" + LEFT_OUT
    made.planned(3, 1, 2, kind="discard", supersedes=2)
    assert tick() == "the gate does not hold enriched any more"
    assert requests[-1].asset_selection is None, "the whole job"
    ran(made, history, dg.DagsterRunStatus.SUCCESS)
    assert newest_check(history, gate) != before


def held(made: HandmadeLake) -> None:
    """Let the gate hold an epoch."""
    made.landed("clicks", 2, 1)
    made.appended("clicks", 2)
    made.released(2, 1, 2, "no", matched=1)


def newest_check(history: dg.DagsterInstance, key: dg.AssetCheckKey) -> str | None:
    """The run that the newest result of a check is of, or is to be of."""
    found = history.event_log_storage.get_latest_asset_check_execution_by_key([key]).get(key)
    return None if found is None else found.run_id


def test_an_epoch_of_a_source_that_is_open_is_one(made: HandmadeLake, tick: Callable[[], str]) -> None:
    made.landed("clicks", 2, 1)
    made.appended("clicks", 2)
    rows = made.lake.epochs.rows("clicks")
    plan = replace(rows[-1], epoch=3)
    store(made.lake, plan)
    assert tick() == "clicks: an open epoch: step 2"


def test_what_waits_and_can_be_released_is_one(made: HandmadeLake, tick: Callable[[], str]) -> None:
    made.landed("clicks", 2, 1)
    made.appended("clicks", 2)
    assert tick() == "enriched: an epoch is to be released"


def test_a_split_that_becomes_idle_is_one(made: HandmadeLake, tick: Callable[[], str]) -> None:
    idle = WatermarkStrategy.for_monotonous_timestamps().with_idleness(timedelta(seconds=1))
    made.pipeline = made.pipeline.with_strategy("clicks", idle)
    define(made.lake, made.pipeline, "clicks", 2)
    split = SplitWatermark("0", 0, False, last_row=1_000)
    heard(made, split)
    assert tick() == "clicks: new: no rows: idle"
    heard(made, replace(split, idle=True))
    assert tick() == ""


def heard(made: HandmadeLake, split: SplitWatermark) -> None:
    """Let one more epoch of clicks land and be released, after which this is the state of its split."""
    epoch = made.lake.watermarks.rows("clicks")[-1].epoch + 1
    step = Step({"from": 0, "to": 1}, "unbounded", summary=f"step {epoch}")
    plan = source_row("clicks", 1, epoch, 1_000, step)
    store(made.lake, plan)
    row = WatermarkRow("clicks", 1, epoch, 1_000, 0, 0, False, splits=[vars(split)], lag_ms=0)
    store(made.lake, row)


def test_a_script_that_says_something_else_is_one(made: HandmadeLake, tick: Callable[[], str]) -> None:
    assert tick() == ""
    users = made.pipeline.table("users")
    wider = replace(users, columns=(*users.columns, Column("age", "INT", "INT")))
    made.pipeline = replace(made.pipeline, tables={**made.pipeline.tables, "users": wider})
    assert tick() == "the script defines users differently than the lake"


@pytest.mark.parametrize("status", [dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED])
def test_a_run_that_failed_is_made_again(
    made: HandmadeLake, history: dg.DagsterInstance, tick: Callable[[], str], status: dg.DagsterRunStatus
) -> None:
    ran(made, history, status)
    assert tick() == "the job's last run did not succeed"


def test_a_run_is_made_before_an_asset_is_stale(tmp_path: Path, made: HandmadeLake) -> None:
    def rest(**windows: timedelta | None) -> timedelta:
        made_of = build_pipeline_definitions(made.pipeline, lake=tmp_path, look=Presentation(**windows))
        return rest_of(list(made_of.assets or []))  # type: ignore[arg-type]

    assert rest() == timedelta(hours=12)
    assert rest(probe_fresh_within=timedelta(hours=1)) == timedelta(minutes=30)
    assert rest(fresh_within=None, build_fresh_within=None, probe_fresh_within=None) == timedelta(hours=12)
    by_nine = dg.FreshnessPolicy.cron(deadline_cron="0 9 * * *", lower_bound_delta=timedelta(hours=1))
    daily = dg.multi_asset(name="a", specs=[dg.AssetSpec("a", freshness_policy=by_nine)])(lambda: None)
    assert rest_of([daily]) == timedelta()


def test_a_pipeline_that_rested_for_long_is_run(
    made: HandmadeLake, history: dg.DagsterInstance, tick: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert tick() == ""
    monkeypatch.setattr("tidegate.assets.jobs.time", lambda: time.time() + 12 * 3600)
    assert tick() == "the last run was 12:00:00 ago, or longer"


def test_without_a_run_and_without_a_lake_there_is_one(tmp_path: Path, history: dg.DagsterInstance) -> None:
    made = HandmadeLake(tmp_path / "other")
    ticks = Ticks(made.pipeline, ("clicks",), (), TidegateResource.at(tmp_path / "nowhere"))
    assert ticks.answer(None, 0) == Answer("the job has not run yet")
    ran(made, history, dg.DagsterRunStatus.SUCCESS)
    (last,) = history.get_run_records(limit=1)
    assert "no lake" in ticks.answer(last, 0).reason
    assert not (tmp_path / "nowhere").exists()


def test_a_source_that_does_not_answer_is_one_and_holds_one_thread(
    tick: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegate.assets.jobs.ANSWER_WITHIN_S", 0.05)
    answer = threading.Event()
    monkeypatch.setattr(ScriptedSource, "ends", lambda self, position: answer.wait() and {"to": 0})
    try:
        assert tick() == "there was no answer within 0.05 s"
    finally:
        answer.set()
    assert ANSWER_WITHIN_S == 5


def test_what_is_held_is_left_out_though_a_source_does_not_answer(
    made: HandmadeLake, history: dg.DagsterInstance, tick: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lake says what is held: else each run of a slow source would fail at the gate. At the next tick, too, while
    the source still has not answered; and the decision is seen then."""
    held(made)
    tagged = {HELD_TAG: '["enriched"]'}
    history.create_run_for_job(
        schedule_of(made)[0].get_job("handmade"), status=dg.DagsterRunStatus.SUCCESS, tags=tagged
    )
    asked, answer, join = threading.Event(), threading.Event(), threading.Thread.join

    def waits(thread: threading.Thread, timeout: float | None = None) -> None:
        join(thread) if thread.name == "asks the lake" else asked.wait()

    repository, schedule = schedule_of(made)
    monkeypatch.setitem(globals(), "schedule_of", lambda _: (repository, schedule))  # one code server
    monkeypatch.setattr(ScriptedSource, "ends", lambda self, position: asked.set() or (answer.wait() and {"to": 0}))
    monkeypatch.setattr(threading.Thread, "join", waits)
    try:
        assert tick() == "there was no answer within 5 s" + LEFT_OUT
        assert tick() == "what was asked at an earlier tick has not been answered yet" + LEFT_OUT
        made.planned(3, 1, 2, kind="discard", supersedes=2)
        assert tick() == "the gate does not hold enriched any more"
    finally:
        answer.set()


def test_a_source_that_cannot_be_asked_is_one(tick: Callable[[], str], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: ScriptedSource, position: SourcePosition) -> None:
        raise SourceError("the server does not answer", state="nothing", next_command="look")

    monkeypatch.setattr(ScriptedSource, "preflight", refuse)
    assert tick() == "the server does not answer"
    monkeypatch.setattr(ScriptedSource, "preflight", lambda self, position: self._context.spark())
    assert tick() == "only Spark can read it"
    monkeypatch.setattr(ScriptedSource, "preflight", lambda self, position: {}["hunter2"])
    assert tick() == "asking failed (KeyError)"


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
    assert dg.AssetCheckKey(dg.AssetKey(["clicks", "enriched_click_staged"]), "rows") in (
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
