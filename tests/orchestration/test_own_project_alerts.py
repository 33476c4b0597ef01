"""What a team's own project is alerted to: one incident a cause, which ends when what it names has ended, in words
that say what to do.

One `dg dev` serves the stories of this file, as those of test_own_project.py; only the one of two code locations has
its own. Each story has pipelines of its own, whose steps wait or fail as long as the story says. Dagster tries lost
runs again, once. A source is behind once a file has been there for five minutes: those that make it so are an hour old.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.orchestration.own_project import BY_FILES, CLICKS, RATES, OwnProject, order, rate, started, user, written
from tests.orchestration.services import PATIENCE_S, Ui, Webhook, dagster_home, running, until
from tidegate.orchestration.alerts.dagster_problems import AWAY_S, QUEUED_S

LANDED = ("killed", "behind", "slow", "queued", "late", "away")
"""Pipelines that have landed what they had when the stories begin; what has never landed is not behind."""
PIPELINES: dict[str, dict[str, Any]] = {
    "spans": {"script": RATES, "partitions_from": "2026-01-01", "component": BY_FILES},
    **{name: {"script": CLICKS, "component": BY_FILES} for name in (*LANDED, "absent", "full", "held")},
}
SETTINGS = """
run_retries: {enabled: true, max_retries: 1}
concurrency:
  runs:
    tag_concurrency_limits:
      - {key: tidegate/pipeline, value: queued, limit: 1}
      - {key: tidegate/pipeline, value: held, limit: 1}
"""
HOUR_S = 3600

pytestmark = [pytest.mark.thorough, pytest.mark.usefixtures("jvm")]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnProject]:
    with started(tmp_path_factory.mktemp("own"), PIPELINES, SETTINGS, TIDEGATE_ALERT_MAX_LAG="5 min") as made:
        for name in LANDED:
            made.put(f"{name}/users/1.json", user(1))
            made.put(f"{name}/clicks/1.json", {"user_id": 1})
        land(made, *LANDED)
        made.beside("queued/source waits").touch()
        for _ in range(2):  # the second one waits in the queue for as long as the other stories go on
            made.launch("queued")
        yield made


def land(project: OwnProject, *names: str) -> None:
    sources = [f"{name}/{table}" for name in names for table in ("user_info", "click_event")]
    assert project.ended(project.launch("__ASSET_JOB", assets=sources)) == "SUCCESS"


def test_an_incident_ends_with_its_own_partition_or_span_and_not_with_another_one(project: OwnProject) -> None:
    days = range(1, 8)
    project.put("spans/rates/1.json", *(rate(day, f"2026-01-0{day} 00:00:00") for day in days))
    project.put("spans/orders/1.json", *(order(day, f"2026-01-0{day} 06:00:00") for day in days))
    assert project.ended(project.launch("__ASSET_JOB", assets=["spans/rate", "spans/orders"])) == "SUCCESS"

    def made(day: str) -> None:
        ended = project.backfilled(project.backfill(["spans/converted_by_time"], day))
        assert {*ended.values()} == {"SUCCESS", "COMPLETED_SUCCESS"}, ended

    def released(first: str, last: str) -> str:
        config = {"pipeline": "spans", "spans": [{"from": first, "to": last}]}
        return project.ended(project.launch("tidegate_backfill", {"ops": {"release_spans": {"config": config}}}))

    def over() -> str:
        """What the last message says that has ended."""
        lines = project.alerts("run-failed", "spans")[-1]["text"].splitlines()
        return next(line for line in lines if line.startswith("Over: "))

    def alerted(*states: str) -> bool:
        return project.alerted("run-failed", "spans") == [*states]

    fails = project.beside("spans/by_time fails")
    fails.touch()
    project.backfill(["spans/converted_by_time"], "2026-01-02")
    until(lambda: alerted("open"), "the alert of the failed partition")
    fails.unlink()
    made("2026-01-04")
    project.ticked()
    assert alerted("open"), "another partition ends nothing"
    made("2026-01-02")
    until(lambda: alerted("open", "resolved"), "the partition is made")
    assert over() == "Over: the failure of spans__converted_by_time of spans, partition 2026-01-02."

    fails = project.beside("spans/backfill fails")
    fails.touch()
    assert released("2026-01-05", "2026-01-06") == "FAILURE"
    until(lambda: alerted("open", "resolved", "open"), "the alert of the failed span")
    fails.unlink()
    assert released("2026-01-06", "2026-01-07") == "SUCCESS"
    project.ticked()
    assert alerted("open", "resolved", "open"), "another span ends nothing"
    assert released("2026-01-04", "2026-01-07") == "SUCCESS"
    until(lambda: alerted("open", "resolved", "open", "resolved"), "the span is released, with others")
    assert over() == "Over: the failure of release_spans of spans, from 2026-01-05 to 2026-01-06."


def test_a_source_that_fails_ends_no_other_and_its_alert_says_it_in_one_sentence(project: OwnProject) -> None:
    project.put("absent/clicks/1.json", {"user_id": 1})
    run_id = project.launch("absent")
    assert project.ended(run_id) == "FAILURE"
    assert [shown["run"] for shown in project.materializations("absent", "click_event")] == [run_id]
    (message,) = until(lambda: project.alerts("run-failed", "absent"), "the alert of the failed source")
    assert message["failed_steps"] == ["absent__user_info"]
    folder = project.beside("absent/users")
    sentence = f"Step absent__user_info failed: user_info: the folder is not there ({folder})."
    assert sentence in message["text"].splitlines()


def test_a_full_disk_comes_with_what_to_do(project: OwnProject) -> None:
    project.beside("full/published fails").write_text("/dev/full")
    project.put("full/users/1.json", user(1))
    project.put("full/clicks/1.json", {"user_id": 1})
    assert project.ended(project.launch("full")) == "FAILURE"
    (message,) = until(lambda: project.alerts("run-failed", "full"), "the alert of the full disk")
    assert "Step full__enriched_click failed." in message["text"].splitlines(), (
        "the text of an unknown error is not shown"
    )
    assert message["next"][0].startswith("make room on the disk")
    project.beside("full/published fails").unlink()
    assert project.ended(project.launch("full")) == "SUCCESS"
    until(lambda: project.alerted("run-failed", "full") == ["open", "resolved"], "it is made good")
    assert project.published("full", "enriched_click", "user_id") == [(1,)]


def test_two_kills_are_one_incident_which_takes_in_what_is_behind_because_of_them(project: OwnProject) -> None:
    """The run and its retry are killed; `behind`, of which no run was lost, is reported itself."""
    lost = lambda: project.alerts("run-failed", "killed")  # noqa: E731
    waits = project.beside("killed/source waits")
    waits.touch()
    first = project.launch("killed")
    project.kill(first)
    (retry,) = until(lambda: project.retries(first), "Dagster tries the lost run again")
    assert lost() == [], "one that is tried again is no incident"
    project.kill(retry)
    until(lost, "the alert of the lost run")
    for name, files in (("killed", (2,)), ("behind", (2, 3))):
        for number in files:
            project.put(f"{name}/clicks/{number}.json", {"user_id": 1}, age_s=HOUR_S)
    (behind,) = until(lambda: project.alerts("lag", "behind"), "the alert of what nobody runs")
    assert "behind/click_event is behind its source: 2 files have not landed" in behind["text"]
    assert any("or turn its schedule on" in command for command in behind["next"])
    waits.unlink()
    assert project.ended(project.launch("killed")) == "SUCCESS"
    until(lambda: len(lost()) == 2, "the lost run is made good")
    assert [message["state"] for message in lost()] == ["open", "resolved"]
    assert f"It was retry 1 of run {first}; Dagster does not try again." in lost()[0]["text"]
    assert "Over: the lost run of killed." in lost()[1]["text"].splitlines()
    assert project.alerted("lag", "killed") == []
    land(project, "behind")
    until(lambda: project.alerted("lag", "behind") == ["open", "resolved"], "it is not behind any more")
    assert "Over: the lag of behind/click_event." in project.alerts("lag", "behind")[1]["text"].splitlines()


def test_lag_beside_a_schedule_that_is_on_says_what_its_last_tick_did(project: OwnProject) -> None:
    waits = project.beside("slow/source waits")
    waits.touch()
    with project.on("slow_schedule"):
        (run_id,) = until(lambda: project.runs("slow"), "the schedule starts a run")
        project.put("slow/clicks/2.json", {"user_id": 1}, age_s=HOUR_S)
        (message,) = until(lambda: project.alerts("lag", "slow"), "the alert of what is behind")
    assert "1 file has not landed" in message["text"]
    assert not [command for command in message["next"] if "turn its schedule on" in command]
    assert any("its schedule is on; its last tick" in command for command in message["next"])
    waits.unlink()
    assert project.ended(run_id) == "SUCCESS"
    until(lambda: project.alerted("lag", "slow") == ["open", "resolved"], "it is not behind any more")


def test_a_held_gate_is_not_tried_again_and_stays_red_while_runs_are_queued(project: OwnProject) -> None:
    gate = lambda: project.checked("rows", "held", "enriched_click_staged")[0]  # noqa: E731
    project.put("held/users/1.json", user(1))
    project.put("held/clicks/1.json", {"user_id": 9})
    run_id = project.launch("__ASSET_JOB", assets=project.group("held"))
    assert project.ended(run_id) == "FAILURE"
    assert gate() == "FAILED"
    until(lambda: project.alerted("gate-held", "held"), "the alert of the held gate")
    waits = project.beside("held/source waits")
    waits.touch()
    going, queued = (project.launch("held") for _ in range(2))
    until(lambda: gate() == "FAILED", "the check is failed again, whatever is under way")
    assert project.status(queued) == "QUEUED"
    waits.unlink()
    assert {project.ended(each) for each in (going, queued)} == {"FAILURE"}
    assert gate() == "FAILED"
    project.ticked()
    assert project.alerted("gate-held", "held") == ["open"]
    assert [project.retries(each) for each in (run_id, going, queued)] == [[], [], []]
    for each in (run_id, going, queued):
        assert any("the gate holds epoch 1 of enriched_click" in text for text in project.failures(each)), "on its page"


def test_a_run_that_waits_long_in_the_queue_is_an_incident_of_the_queue_which_takes_its_lag_in(
    project: OwnProject,
) -> None:
    waiting, going = project.runs("queued")
    found = until(lambda: project.alerts("runs-queued"), "the alert of the queue", QUEUED_S + PATIENCE_S)
    assert (found[0]["runs"], found[0]["pipelines"]) == ([waiting], ["queued"])
    assert any("max_concurrent_runs" in command for command in found[0]["next"])
    for name in ("queued", "late"):
        project.put(f"{name}/clicks/2.json", {"user_id": 1}, age_s=HOUR_S)
    until(lambda: project.alerts("lag", "late"), "the alert of what nobody runs")
    assert project.alerted("lag", "queued") == []
    project.beside("queued/source waits").unlink()
    assert {project.ended(run_id) for run_id in (going, waiting)} == {"SUCCESS"}
    until(lambda: project.alerted("runs-queued") == ["open", "resolved"], "none waits any more")
    assert project.alerted("lag", "queued") == []
    land(project, "late")


def test_what_is_behind_since_the_daemon_was_away_is_one_incident(project: OwnProject) -> None:
    project.ticked()
    with project.daemon_stopped():
        back = time.time() + AWAY_S + 5
        project.put("away/clicks/2.json", {"user_id": 1}, age_s=HOUR_S)
        until(lambda: time.time() > back, "it has been away for long enough")
    (message,) = until(lambda: project.alerts("daemon-away"), "the alert of the daemon's absence")
    assert "click_event" in message["tables"]
    assert "away/click_event is behind its source: 1 file has not landed" in message["text"]
    assert project.alerted("lag", "away") == []
    land(project, "away")
    until(lambda: project.alerted("daemon-away") == ["open", "resolved"], "nothing is behind any more")
    assert project.alerted("lag", "away") == []


def test_two_code_locations_on_one_lake_wait_for_each_other_and_those_without_alerts_say_so(
    project: OwnProject, tmp_path: Path
) -> None:
    """Three copies of the project, with the pipeline `shared` alone; the first one has the sensor."""
    script = CLICKS.replace("'users'", f"'{tmp_path}/users'").replace("'clicks'", f"'{tmp_path}/clicks'")
    names = ("one", "two", "silent")
    for name in names:
        copy = tmp_path / name
        left_out = shutil.ignore_patterns("home", "state", "*.log", "shop", *PIPELINES)
        shutil.copytree(project.folder, copy, ignore=left_out)
        written(copy, "shared", script, lake=str(tmp_path / "lake"))
    for name in names[1:]:
        shutil.rmtree(tmp_path / name / "src" / "my_project" / "defs" / "alerts")
    places = [
        {
            "module_name": "my_project.definitions",
            "working_directory": str(tmp_path / name / "src"),
            "location_name": name,
        }
        for name in names
    ]
    workspace, log = tmp_path / "workspace.yaml", tmp_path / "dagster.log"
    workspace.write_text(yaml.safe_dump({"load_from": [{"python_module": place} for place in places]}))
    here = replace(project, made=replace(project.made, project=tmp_path / "one"))
    for path, row in (("users/1.json", user(1)), ("clicks/1.json", {"user_id": 1})):
        here.put(str(tmp_path / path), row)
    with Webhook() as webhook:
        more = {**project.made.more, "TIDEGATE_WEBHOOK_URL": webhook.url}
        environment = replace(here.made, more=more).environment()
        dagster_home(here.folder / "home")
        dev = (str(project.made.bin / "dagster"), "dev", "-w", str(workspace))
        with running(log, environment, *dev, folder=tmp_path) as address:
            one, two = (Ui(address, location=name) for name in names[:2])
            until(one.loaded, "the code locations are loaded")
            one.watching()
            runs = [place.launch("shared") for place in (one, two)]
            assert {one.ended(run_id) for run_id in runs} == {"SUCCESS"}
            held = lambda: [message["state"] for message in webhook.messages if message["kind"] == "gate-held"]  # noqa: E731
            here.put(str(tmp_path / "clicks" / "2.json"), {"user_id": 9})
            assert two.ended(two.launch("shared")) == "FAILURE"
            until(held, "the alert of the held gate")
            one.ticked()
            assert held() == ["open"]
    warning = "This code location has no component tidegate.TidegateAlerts"
    assert log.read_text().count(warning) == 2
    assert not [message for message in webhook.messages if message["kind"] != "gate-held"]
