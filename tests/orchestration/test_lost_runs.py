"""Runs that a killed Dagster left behind are ended when it is opened again, and an alert is sent."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster import DagsterRunStatus
from dagster._core.events import DagsterEvent, DagsterEventType, EngineEventData
from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteRepositoryOrigin
from typer.testing import CliRunner

from tests.assets.clicks import pipeline
from tests.orchestration.services import Webhook, free_port
from tidegate.assets import build_pipeline_definitions
from tidegate.assets.lost_runs import (
    FreedSlots,
    LostRun,
    UnknownRun,
    end_lost_runs,
    end_runs_that_were_lost,
    lives,
    only_server,
)
from tidegate.orchestration.commands import ui
from tidegate.orchestration.commands.app import app
from tidegate.orchestration.definitions import with_alerts
from tidegate.orchestration.sensors import ALERTS


@pytest.fixture
def definitions(lake: Path) -> dg.Definitions:
    return with_alerts(build_pipeline_definitions(pipeline(), lake=lake))


def left(
    history: dg.DagsterInstance,
    definitions: dg.Definitions,
    status: DagsterRunStatus,
    pid: int | None = None,
    location: str = "here",
) -> str:
    """A run of `clicks` in this status; `pid` is the process that its events name."""
    job = definitions.get_repository_def().get_job("clicks")
    origin = RemoteRepositoryOrigin(RegisteredCodeLocationOrigin(location), "__repository__").get_job_origin("clicks")
    run = history.create_run_for_job(job, status=status, tags=job.run_tags, remote_job_origin=origin)
    if pid is not None:
        history.report_engine_event(f"Started process for run (pid: {pid}).", run, EngineEventData.in_process(pid))
    return run.run_id


def status(history: dg.DagsterInstance, run_id: str) -> DagsterRunStatus:
    found = history.get_run_by_id(run_id)
    assert found is not None
    return found.status


def gone() -> int:
    """The number of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


ENDED = {
    DagsterRunStatus.STARTING: DagsterRunStatus.FAILURE,
    DagsterRunStatus.STARTED: DagsterRunStatus.FAILURE,
    DagsterRunStatus.CANCELING: DagsterRunStatus.CANCELED,
}


def test_runs_whose_process_is_gone_are_ended_and_no_others(
    home: Path, history: dg.DagsterInstance, definitions: dg.Definitions
):
    lost = {before: left(history, definitions, before, gone()) for before in ENDED}
    others = {
        before: left(history, definitions, before)
        for before in (DagsterRunStatus.NOT_STARTED, DagsterRunStatus.SUCCESS)
    }
    lives = left(history, definitions, DagsterRunStatus.STARTED, os.getpid())
    ended = end_lost_runs(home)
    assert sorted(run.run_id for run in ended) == sorted(lost.values())
    for before, run_id in lost.items():
        assert LostRun(run_id, "clicks", ENDED[before] == DagsterRunStatus.CANCELED) in ended
        assert status(history, run_id) == ENDED[before]
        assert any("it goes on where this one stopped" in entry.message for entry in history.all_logs(run_id))
    assert {status(history, run_id): run_id for run_id in others.values()} == others
    assert status(history, lives) == DagsterRunStatus.STARTED
    assert end_lost_runs(home) == []


def test_beside_a_dagster_that_goes_on_a_location_ends_its_own_lost_runs_once_they_are_quiet(
    history: dg.DagsterInstance, definitions: dg.Definitions
):
    began = time.time()
    lost = left(history, definitions, DagsterRunStatus.STARTED, gone())
    others = (
        left(history, definitions, DagsterRunStatus.STARTED, gone(), location="in another container"),
        left(history, definitions, DagsterRunStatus.STARTED, os.getpid()),
        left(history, definitions, DagsterRunStatus.STARTING),
    )
    assert end_runs_that_were_lost(history, began, "here") == [], "it has said something since"
    later = time.time() + 60
    assert end_runs_that_were_lost(history, later, "here") == [LostRun(lost, "clicks", cancelled=False)]
    assert end_runs_that_were_lost(history, later, "here") == []
    assert status(history, lost) == DagsterRunStatus.FAILURE
    assert [status(history, run_id) for run_id in others] == [
        *2 * [DagsterRunStatus.STARTED],
        DagsterRunStatus.STARTING,
    ]


def test_a_run_that_comes_to_its_end_while_its_process_is_looked_for_is_left_alone(
    home: Path, history: dg.DagsterInstance, definitions: dg.Definitions, monkeypatch: pytest.MonkeyPatch
):
    run_id = left(history, definitions, DagsterRunStatus.STARTED, gone())

    def gone_by_itself(*_: Any) -> bool:
        run = history.get_run_by_id(run_id)
        assert run is not None
        if not run.is_finished:
            history.report_dagster_event(DagsterEvent(DagsterEventType.RUN_SUCCESS.value, run.job_name), run_id)
        return False

    monkeypatch.setattr("tidegate.assets.lost_runs._any_lives", gone_by_itself)
    assert end_runs_that_were_lost(history, time.time() + 60, "here") == []
    assert status(history, run_id) == DagsterRunStatus.SUCCESS
    assert end_lost_runs(home) == []


def test_where_no_process_can_be_looked_for_no_run_is_ended(
    home: Path, history: dg.DagsterInstance, definitions: dg.Definitions, monkeypatch: pytest.MonkeyPatch
):
    run_id = left(history, definitions, DagsterRunStatus.STARTED, gone())
    monkeypatch.setattr("tidegate.assets.lost_runs._BOOT", home / "no such file")
    assert end_runs_that_were_lost(history, time.time() + 60, "here") == end_lost_runs(home) == []
    assert status(history, run_id) == DagsterRunStatus.STARTED


def test_a_code_location_ends_them_where_nobody_is_alerted(
    history: dg.DagsterInstance, lake: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("tidegate.assets.lost_runs.QUIET_S", -1.0)
    made = build_pipeline_definitions(pipeline(), lake=lake)
    lost = left(history, made, DagsterRunStatus.STARTED, gone(), location="")
    (sensor,) = made.sensors or ()
    assert isinstance(sensor, dg.SensorDefinition)
    sensor.evaluate_tick(dg.build_sensor_context(instance=history, repository_def=made.get_repository_def()))
    assert status(history, lost) == DagsterRunStatus.FAILURE


def test_a_run_that_cannot_be_looked_at_keeps_no_other_under_way_and_the_tick_says_so(
    home: Path, history: dg.DagsterInstance, lake: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("tidegate.assets.lost_runs.QUIET_S", -1.0)
    made = build_pipeline_definitions(pipeline(), lake=lake)
    before, broken, after = (left(history, made, DagsterRunStatus.STARTED, gone(), location="") for _ in range(3))
    read = dg.DagsterInstance.all_logs

    def all_logs(self: dg.DagsterInstance, run_id: str, *given: Any, **named: Any) -> Any:
        if run_id == broken:
            raise OSError("disk I/O error")
        return read(self, run_id, *given, **named)

    monkeypatch.setattr(dg.DagsterInstance, "all_logs", all_logs)
    (sensor,) = made.sensors or ()
    assert isinstance(sensor, dg.SensorDefinition)
    tick = sensor.evaluate_tick(dg.build_sensor_context(instance=history, repository_def=made.get_repository_def()))
    said = (tick.skip_message or "").splitlines()
    assert said[0] == "nothing new was published outside of Dagster"
    assert said[1].startswith(f"Run {broken} of clicks is under way")
    assert "OSError: disk I/O error. Its state is kept," in said[1]
    ended = [DagsterRunStatus.FAILURE, DagsterRunStatus.STARTED, DagsterRunStatus.FAILURE]
    assert [status(history, run_id) for run_id in (before, broken, after)] == ended
    (unknown,) = end_lost_runs(home)
    assert isinstance(unknown, UnknownRun)
    monkeypatch.undo()
    assert end_lost_runs(home) == [LostRun(broken, "clicks", cancelled=False)]


@pytest.fixture
def pool(history: dg.DagsterInstance) -> str:
    """A pool with one slot."""
    history.event_log_storage.set_concurrency_slots("spark", 1)
    return "spark"


def holds(history: dg.DagsterInstance, pool: str, run_id: str) -> bool:
    """Whether a step of the run has the pool's slot, which it asks for."""
    return history.event_log_storage.claim_concurrency_slot(pool, run_id, "landing").is_claimed


def test_slots_of_a_pool_are_free_once_the_process_of_an_ended_run_is_gone(
    history: dg.DagsterInstance, definitions: dg.Definitions, pool: str
):
    def freed(seconds: float) -> object:
        return end_runs_that_were_lost(history, time.time() + seconds, "here")

    works_on = left(history, definitions, DagsterRunStatus.CANCELED, os.getpid())
    assert holds(history, pool, works_on)
    assert freed(60) == [], "its process is still there, and so is its Spark"
    history.event_log_storage.free_concurrency_slots_for_run(works_on)

    elsewhere = left(history, definitions, DagsterRunStatus.FAILURE, gone(), location="in another container")
    assert holds(history, pool, elsewhere)
    assert freed(60) == []
    history.event_log_storage.free_concurrency_slots_for_run(elsewhere)

    killed = left(history, definitions, DagsterRunStatus.FAILURE, gone())
    assert holds(history, pool, killed)
    assert freed(0) == [], "it has said something since"
    next_one = left(history, definitions, DagsterRunStatus.STARTED, os.getpid())
    assert not holds(history, pool, next_one)
    assert freed(60) == [FreedSlots(killed, "clicks")]
    assert holds(history, pool, next_one)
    assert freed(60) == []


def test_a_lost_run_is_ended_first_and_its_slots_are_free_after_it(
    home: Path, history: dg.DagsterInstance, definitions: dg.Definitions, pool: str
):
    lost = left(history, definitions, DagsterRunStatus.STARTED, gone())
    assert holds(history, pool, lost)
    assert end_lost_runs(home) == [LostRun(lost, "clicks", cancelled=False), FreedSlots(lost, "clicks")]
    assert history.event_log_storage.get_concurrency_info(pool).slot_count == 1
    assert holds(history, pool, left(history, definitions, DagsterRunStatus.STARTED))


def test_slots_that_cannot_be_freed_keep_no_other_ones_and_say_where_to_free_them(
    home: Path, history: dg.DagsterInstance, definitions: dg.Definitions, pool: str, monkeypatch: pytest.MonkeyPatch
):
    killed = left(history, definitions, DagsterRunStatus.FAILURE, gone())
    assert holds(history, pool, killed)

    def full(*_: object) -> None:
        raise OSError("database is locked")

    monkeypatch.setattr(type(history.event_log_storage), "free_concurrency_slots_for_run", full)
    (unknown,) = end_lost_runs(home)
    assert str(unknown) == (
        f"Run {killed} of clicks has ended, and the slots of pools that its steps had could not be freed: OSError: "
        "database is locked. It is tried again. Next: free them in Dagster, by Deployment, Concurrency."
    )


def test_a_run_inside_this_very_process_is_left_alone(home: Path, history: dg.DagsterInstance):
    found: list[Any] = []

    @dg.op
    def look() -> None:
        found.extend(end_lost_runs(home))
        found.append(history.get_runs()[0].status)

    @dg.job
    def looking() -> None:
        look()

    assert looking.execute_in_process(instance=history).success
    assert found == [DagsterRunStatus.STARTED]


def test_a_process_that_began_later_with_the_same_number_is_another():
    assert lives(os.getpid(), time.time())
    assert not lives(os.getpid(), 0.0)
    assert not lives(gone(), time.time())


def test_one_process_serves_a_home_and_a_child_that_inherits_it_still_does(home: Path):
    with only_server(home) as first:
        assert first is not None
        with only_server(home) as second:
            assert second is None
        child = subprocess.Popen(["sleep", "600"], pass_fds=(first,))
    with only_server(home) as while_it_lives:
        assert while_it_lives is None
    child.kill()
    child.wait()
    with only_server(home) as after_it:
        assert after_it is not None


class Opened:
    """Stands for `dagster dev`: remembers how the runs stood when it was started."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self.stood: list[DagsterRunStatus] = []

    def __call__(self, command: list[str], **_: object) -> Opened:
        assert "dagster" in command
        with dg.DagsterInstance.from_config(str(self._home)) as history:
            self.stood = [run.status for run in history.get_runs()]
        return self

    def wait(self) -> int:
        return 0


@pytest.fixture
def opened(home: Path, lake: Path, monkeypatch: pytest.MonkeyPatch) -> Opened:
    opened = Opened(home)
    monkeypatch.setattr(os, "environ", {**os.environ, "DAGSTER_HOME": str(home), "TIDEGATE_LAKE": str(lake)})
    monkeypatch.setattr(ui.subprocess, "Popen", opened)
    return opened


def test_tidegate_ui_ends_them_before_dagster_starts_and_says_so(
    history: dg.DagsterInstance, definitions: dg.Definitions, opened: Opened, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("tidegate.pipelines.jars.java", lambda: "java")
    run_id = left(history, definitions, DagsterRunStatus.STARTED)
    result = CliRunner().invoke(app, ["ui", "--port", str(free_port()), "--docs-port", "0"])
    assert result.exit_code == 0, result.output
    assert opened.stood == [DagsterRunStatus.FAILURE]
    assert f"Run {run_id} of clicks was under way when its process was lost" in result.stderr


def test_tidegate_ui_ends_none_while_another_one_serves_them(
    home: Path,
    history: dg.DagsterInstance,
    definitions: dg.Definitions,
    opened: Opened,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr("tidegate.pipelines.jars.java", lambda: "java")
    left(history, definitions, DagsterRunStatus.STARTING)
    with only_server(home):
        result = CliRunner().invoke(app, ["ui", "--port", str(free_port()), "--docs-port", "0"])
    assert result.exit_code == 0, result.output
    assert opened.stood == [DagsterRunStatus.STARTING]


def test_they_are_reported_with_the_checks_that_did_not_run(
    home: Path, history: dg.DagsterInstance, definitions: dg.Definitions, webhook: Webhook
):
    (sensor,) = ALERTS
    of = definitions.get_repository_def()
    kinds = {DagsterRunStatus.STARTED: "run-failed", DagsterRunStatus.CANCELING: "check-not-run"}
    left_behind = {left(history, definitions, before): kind for before, kind in kinds.items()}
    first = sensor.evaluate_tick(dg.build_sensor_context(instance=history, repository_def=of))
    assert webhook.messages == []
    end_lost_runs(home)
    sensor.evaluate_tick(dg.build_sensor_context(instance=history, cursor=first.cursor, repository_def=of))
    assert {message["run_id"]: message["kind"] for message in webhook.messages} == left_behind
    assert len(webhook.messages) == 2
    for message in webhook.messages:
        assert "clicks/enriched_click_staged: gate" in message["checks_not_run"]
