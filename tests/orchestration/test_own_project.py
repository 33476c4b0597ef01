"""A team's own project, lived in: webserver and daemon, pipelines side by side, and what goes wrong among them.

One `dg dev` serves all stories of this file. Each has a pipeline (a component, a lake) of its own, so that none
disturbs another: PIPELINES has them all. `project` is the project that create-dagster makes by the commands of
docs/dagster-project.md, with the wheel installed; it comes with the pipeline `shop` and alerts.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from dagster import DagsterEventType

from tests.orchestration.own_project import BY_FILES, CLICKS, RATES, OwnProject, order, rate, started, user, written
from tests.orchestration.services import until
from tidegate.assets.scaffold import SCRIPT

ABSENT = "'fields.user_id.max' = '100000'"
"""Of most clicks there is no user."""
BERLIN = "Europe/Berlin"
PIPELINES: dict[str, dict[str, Any]] = {
    "twice": {"script": SCRIPT},
    "strict": {"script": SCRIPT.replace("'quarantine'", "'block'").replace("'fields.user_id.max' = '1000'", ABSENT)},
    "days": {"script": RATES, "partitions_from": "2026-01-01"},
    "group": {"script": RATES, "partitions_from": "2026-01-01"},
    "berlin": {"script": RATES, "partitions_from": "2025-10-25T13:00", "timezone": BERLIN, "cron": "30 2 * * *"},
    "hours": {"script": RATES, "partitions_from": "2025-10-26", "timezone": BERLIN, "partitions_every": "hour"},
    "months": {"script": RATES, "partitions_from": "2025-10-20", "timezone": BERLIN, "partitions_every": "month"},
    "waits": {"script": RATES},
    "broken": {"script": CLICKS, "component": BY_FILES},
    "automated": {"script": CLICKS, "component": BY_FILES, "automation": True},
}

SETTINGS = """
run_monitoring: {enabled: true, poll_interval_seconds: 5, free_slots_after_run_end_seconds: 5}
"""
"""What docs/dagster.md has for a lost process: the slots of a pool come back."""

pytestmark = [pytest.mark.thorough, pytest.mark.usefixtures("jvm")]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnProject]:
    with started(tmp_path_factory.mktemp("own"), PIPELINES, SETTINGS) as made:
        yield made


def test_the_commands_of_the_page_make_a_project_that_says_how_to_limit_pools(project: OwnProject) -> None:
    assert "All definitions loaded" in project.printed
    assert "in dagster.yaml: `concurrency: {pools: {default_limit: 1}}`." in project.log
    project.run("python", "-m", "pytest", "-q", "-p", "no:cacheprovider", str(Path("tests") / "test_shop.py"))
    listed = project.run("dg", "list", "components")
    assert {"tidegate.TidegateComponent", "tidegate.TidegateAlerts"} <= {*listed.replace("│", " ").split()}


def test_runs_at_once_by_the_schedule_the_ui_and_a_terminal_all_succeed(project: OwnProject) -> None:
    assert project.ended(project.launch("twice")) == "SUCCESS"
    assert (before := project.rows("twice")) >= 100, "those that the source has at its start"
    known = project.runs("twice")
    with project.on("twice_schedule"), ThreadPoolExecutor() as terminal:
        until(lambda: project.runs("twice") != known, "the schedule starts a run")
        typed = terminal.submit(project.run, "dg", "launch", "--job", "twice")
        project.launch("twice")
        typed.result()
    together = [run_id for run_id in project.runs("twice") if run_id not in known]
    assert len(together) >= 3
    assert {project.ended(run_id) for run_id in together} == {"SUCCESS"}
    assert project.rows("twice") > before, "one a second comes"
    project.tidegate("verify", "twice")


def test_a_held_gate_is_a_failed_check_and_one_alert_until_a_person_decides_in_a_terminal(project: OwnProject) -> None:
    gate = lambda: project.checked("rows", "strict", "enriched_click_staged")  # noqa: E731
    alerted = lambda: project.alerted("gate-held", "strict")  # noqa: E731
    run_id = project.launch("strict")
    assert project.ended(run_id) == "FAILURE"
    assert gate()[0] == "FAILED"
    assert any("the gate holds epoch 1 of enriched_click" in text for text in project.failures(run_id)), "on its page"
    until(alerted, "the alert of the held gate")
    assert project.rows("strict") == 0
    project.tidegate("discard", "strict", "enriched_click")
    until(lambda: alerted() == ["open", "resolved"], "the alert is over")
    over = project.alerts("gate-held", "strict")[-1]["text"]
    assert "Over: the hold of epoch 1 of strict/enriched_click." in over.splitlines()
    until(lambda: gate()[0] == "SUCCEEDED", "its check is not failed any more")


def test_a_run_that_is_killed_is_reported_once_and_made_good_by_the_next(project: OwnProject) -> None:
    """kill -9 while it works: it is recorded as failed, nothing of it goes on, and what it had of a pool is free."""
    alerted = lambda: project.alerted("run-failed", "shop")  # noqa: E731
    project.run("dagster", "instance", "concurrency", "set", "spark", "1")
    run_id = project.launch("shop")
    until(project.engines, "it starts Spark")
    project.kill(run_id)
    until(lambda: not project.engines(), "its JVM has ended")
    until(lambda: alerted() == ["open"], "the alert of the lost run")
    assert project.ended(project.launch("shop")) == "SUCCESS"
    until(lambda: alerted() == ["open", "resolved"], "the lost run is made good")
    project.run("tidegate", "verify", "src/my_project/defs/shop/pipeline.sql", "--lake", "state/lake")


def test_a_run_that_is_cancelled_while_spark_starts_leaves_no_jvm(project: OwnProject) -> None:
    until(lambda: not project.engines(), "no other run is under way")
    run_id = project.launch("shop")
    until(project.engines, "it starts Spark")
    project.cancel(run_id, at_once=False)
    assert project.ended(run_id) == "CANCELED"
    until(lambda: not project.engines(), "its JVM has ended")


def test_a_backfill_of_days_that_are_apart_is_one_epoch_and_has_a_verdict_for_each(project: OwnProject) -> None:
    """The rows of the days that were asked for are made anew, once, and all others stay what they are."""
    days, parts, apart = range(1, 6), (1, 2), ("2026-01-02", "2026-01-04")

    def found() -> list[tuple[int, int, int]]:
        return [row for row in project.published("days", "converted", "id", "rate", "_epoch") if row[0] < 60]

    def rows(rates: Mapping[int, int]) -> list[tuple[int, int]]:
        return [(10 * day + part, rate) for day, rate in rates.items() for part in parts]

    project.put("days/rates/1.json", *(rate(100 + day, f"2026-01-0{day} 00:00:00") for day in (*days, 7)))
    placed = [order(10 * day + part, f"2026-01-0{day} {6 * part:02}:00:00") for day in (*days, 7) for part in parts]
    project.put("days/orders/1.json", *placed)
    assert project.ended(project.launch("__ASSET_JOB", assets=["days/rate", "days/orders"])) == "SUCCESS"
    made = project.backfilled(project.backfill(["days/converted_by_time"], *apart))
    assert made.pop("backfill") == "COMPLETED_SUCCESS"
    assert [*made.values()] == ["SUCCESS"] * 2, "a run for each row of neighbours"
    assert [row[:2] for row in found()] == rows({2: 102, 4: 104})
    assert len({epoch for _, _, epoch in found()}) == 1, "both runs are one epoch"
    assert project.materialized("days/converted_by_time") == [*apart]
    judged = [entry for run_id in made for entry in project.events(run_id, DagsterEventType.ASSET_CHECK_EVALUATION)]
    verdicts = [entry.get_dagster_event().asset_check_evaluation_data for entry in judged]
    assert {(verdict.partition, verdict.passed) for verdict in verdicts} == {(day, True) for day in apart}

    project.put("days/rates/2.json", *(rate(200 + day, f"2026-01-0{day} 00:00:00", "+U") for day in (2, 3, 4)))
    assert project.ended(project.launch("days")) == "SUCCESS"
    assert [row[:2] for row in found()] == rows({1: 101, 2: 102, 3: 203, 4: 104, 5: 105}), "what is out stays"
    made = project.backfilled(project.backfill(["days/converted_by_time"], *apart))
    assert {*made.values()} == {"SUCCESS", "COMPLETED_SUCCESS"}, made
    rates = {1: 101, 2: 202, 3: 203, 4: 204, 5: 105}
    assert [row[:2] for row in found()] == rows(rates)
    project.tidegate("verify", "days")


def test_all_of_a_group_beside_a_terminal_and_backfills_that_overlap_all_succeed(project: OwnProject) -> None:
    """The order of the seventh day waits meanwhile."""
    days, asset = (*range(1, 6), 7), "group/converted_by_time"
    project.put("group/rates/1.json", *(rate(100 + day, f"2026-01-0{day} 00:00:00") for day in days))
    project.put("group/orders/1.json", *(order(day, f"2026-01-0{day} 06:00:00") for day in days))
    assert project.ended(project.launch("group")) == "SUCCESS"
    expected = [(day, 100 + day) for day in range(1, 6)]
    assert project.published("group", "converted", "id", "rate") == expected
    group = project.group("group")
    assert {"group/orders", "group/converted", asset} <= {*group}
    spans = ("--from", "2026-01-01", "--to", "2026-01-02", "--from", "2026-01-03", "--to", "2026-01-04")
    with ThreadPoolExecutor() as terminal:
        typed = terminal.submit(project.tidegate, "run", "group", *spans, "--wait", "10 min")
        made = project.backfilled(project.backfill(group, "2026-01-03", "2026-01-05"))
        typed.result()
    assert {*made.values()} == {"SUCCESS", "COMPLETED_SUCCESS"}, made
    assert project.published("group", "converted", "id", "rate") == expected
    assert project.materialized(asset) == ["2026-01-03", "2026-01-05"]

    overlapping = [[f"2026-01-0{day}" for day in days] for days in ((2, 3), (3, 4))]
    begun = [project.backfill([asset], *wanted) for wanted in overlapping]
    for backfill_id in begun:
        made = project.backfilled(backfill_id)
        assert {*made.values()} == {"SUCCESS", "COMPLETED_SUCCESS"}, made
    assert project.published("group", "converted", "id", "rate") == expected
    project.tidegate("verify", "group")


def test_rows_that_wait_are_an_observation_that_names_what_they_wait_for(project: OwnProject) -> None:
    project.put("waits/rates/1.json", rate(1, "2026-01-01 00:00:00"))
    project.put("waits/orders/1.json", order(1, "2026-01-02 00:00:00"))
    run_id = project.launch("waits")
    assert project.ended(run_id) == "SUCCESS"
    entries = project.events(run_id, DagsterEventType.ASSET_OBSERVATION)
    observed = [entry.get_dagster_event().asset_observation_data.asset_observation for entry in entries]
    (text,) = [item.description for item in observed if item.asset_key.path == ["waits", "converted"]]
    assert text is not None
    assert text.startswith("1 row waits: ")
    assert "rate" in text
    assert not project.materializations("waits", "converted")


def test_the_ui_shows_periods_and_schedules_of_berlin(project: OwnProject) -> None:
    """A start inside of a period begins with it; the hour that comes twice is two partitions."""
    assert project.partitions("berlin/converted_by_time")[:3] == ["2025-10-25", "2025-10-26", "2025-10-27"]
    assert project.partitions("months/converted_by_time")[:2] == ["2025-10-01", "2025-11-01"]
    hours = [f"2025-10-26-{hour}" for hour in ("00:00", "01:00", "02:00", "02:00+0100", "03:00")]
    assert project.partitions("hours/converted_by_time")[:5] == hours
    schedule = project.ask(
        "query($s: ScheduleSelector!) { scheduleOrError(scheduleSelector: $s) { ... on Schedule {"
        " executionTimezone cronSchedule } } }",
        s={
            "repositoryLocationName": project.location,
            "repositoryName": "__repository__",
            "scheduleName": "berlin_schedule",
        },
    )["scheduleOrError"]
    assert schedule == {"executionTimezone": BERLIN, "cronSchedule": "30 2 * * *"}


def test_a_backfill_at_a_change_of_the_clock_takes_the_rows_of_berlins_day_and_of_one_of_two_equal_hours(
    project: OwnProject,
) -> None:
    """26 October 2025 has 25 hours there, from 22:00 to 23:00 UTC of the next day, and 29 March 2026 has 23."""
    autumn = ["25 21:59:59", "25 22:00:00", "26 00:30:00", "26 01:30:00", "26 22:59:59", "26 23:00:00"]
    spring = ["28 22:59:59", "28 23:00:00", "29 21:59:59", "29 22:00:00"]
    times = [*(f"2025-10-{at}" for at in autumn), *(f"2026-03-{at}" for at in spring)]
    for name in ("berlin", "hours"):
        project.put(f"{name}/rates/1.json", rate(1, "2025-10-01 00:00:00"), rate(2, "2026-03-30 00:00:00"))
        numbered = [order(number, at) for number, at in enumerate(times)]
        project.put(f"{name}/orders/1.json", *numbered, order(99, "2026-03-30 00:00:00"))
        sources = [f"{name}/rate", f"{name}/orders"]
        assert project.ended(project.launch("__ASSET_JOB", assets=sources)) == "SUCCESS"
    asked = {"berlin": ["2025-10-26", "2026-03-29"], "hours": ["2025-10-26-02:00+0100"]}
    made = {name: project.backfill([f"{name}/converted_by_time"], *wanted) for name, wanted in asked.items()}
    for name, wanted in asked.items():
        assert set(project.backfilled(made[name]).values()) == {"SUCCESS", "COMPLETED_SUCCESS"}
        assert project.materialized(f"{name}/converted_by_time") == wanted
    assert project.published("berlin", "converted", "id") == [(1,), (2,), (3,), (4,), (7,), (8,)]
    assert project.published("hours", "converted", "id") == [(3,)], "the second of two hours from two to three"


@pytest.mark.parametrize(
    ("attributes", "wrong"),
    [
        ({"timezone": "Europe/Belin", "partitions_from": "2025-10-25"}, "there is no time zone 'Europe/Belin'"),
        ({"timezone": BERLIN, "partitions_from": "soon"}, "'soon' is neither a day nor a moment"),
        ({"name": "days", "lake": "state/wrong"}, "two pipelines of this code location are called days: "),
    ],
    ids=["zone", "start", "name"],
)
def test_what_cannot_be_is_refused_by_dg_check_defs(
    project: OwnProject, tmp_path: Path, attributes: dict[str, Any], wrong: str
) -> None:
    copy = tmp_path / "my-project"
    shutil.copytree(project.folder, copy, ignore=shutil.ignore_patterns("home", "state", "*.log"))
    written(copy, "wrong", RATES, **attributes)
    printed = replace(project.made, project=copy).run("dg", "check", "defs", status=1)
    assert wrong in printed
    assert "wrong" in printed


def test_one_run_after_a_failed_one_publishes_all_that_had_landed_and_shows_the_worst_verdict(
    project: OwnProject,
) -> None:
    fails = project.beside("broken/published fails")
    gate = lambda: project.checked("rows", "broken", "enriched_click_staged")  # noqa: E731
    users = lambda: [number for (number,) in project.published("broken", "enriched_click", "user_id")]  # noqa: E731
    project.put("broken/users/1.json", *map(user, range(9)))
    project.put("broken/clicks/1.json", {"user_id": 1})
    fails.touch()
    assert project.ended(project.launch("broken")) == "FAILURE"
    assert gate()[0] == "SUCCEEDED"
    assert users() == [], "staged and judged, not published"
    for number in (2, 3):
        project.put(f"broken/clicks/{number}.json", {"user_id": number})
        sources = ["broken/user_info", "broken/click_event"]
        assert project.ended(project.launch("__ASSET_JOB", assets=sources)) == "SUCCESS"
    project.put("broken/clicks/4.json", {"user_id": 4})
    fails.unlink()
    before = project.runs("broken")
    with project.on("broken_schedule"):
        (run_id,) = until(lambda: [run for run in project.runs("broken") if run not in before], "the next tick's run")
        assert project.ended(run_id) == "SUCCESS"
    assert users() == [1, 2, 3, 4], "by one run"
    (shown, *_) = project.materializations("broken", "enriched_click")
    assert shown["run"] == run_id
    assert gate()[0] == "SUCCEEDED"

    fails.touch()
    project.put("broken/clicks/5.json", {"user_id": 5})
    assert project.ended(project.launch("broken")) == "FAILURE"
    fails.unlink()
    project.put("broken/clicks/6.json", {"user_id": 6}, {"user_id": 66})
    assert project.ended(project.launch("broken")) == "FAILURE"
    assert users() == [1, 2, 3, 4, 5], "of two epochs, that which the gate lets through"
    assert gate()[0] == "FAILED"
    until(lambda: project.alerted("gate-held", "broken") == ["open"], "the alert of the held gate")


def test_automation_starts_nothing_unasked_and_no_second_run_while_one_goes_on(project: OwnProject) -> None:
    """A minute passes twice: `cron` is due each time."""
    sensor = {
        "repositoryLocationName": project.location,
        "repositoryName": "__repository__",
        "sensorName": "default_automation_condition_sensor",
    }
    assert project.state_of("sensor", sensor["sensorName"]) == "STOPPED"
    waits = project.beside("automated/source waits")
    project.put("automated/users/1.json", user(1))
    project.put("automated/clicks/1.json", {"user_id": 1})
    before = project.runs("__ASSET_JOB")
    started = lambda: [run for run in project.runs("__ASSET_JOB") if run not in before]  # noqa: E731
    assert not [run for run in before if project.assets_of(run) & {*project.group("automated")}], "it is off"
    waits.touch()
    project.ask("mutation($s: SensorSelector!) { startSensor(sensorSelector: $s) { __typename } }", s=sensor)
    try:
        (run_id,) = until(started, "the first run")
        due = time.time() // 60 * 60 + 60
        later = lambda: [tick for tick in project.ticks(sensor["sensorName"]) if tick["timestamp"] > due]  # noqa: E731
        until(lambda: len(later()) >= 2, "the sensor ticks twice after the next minute has begun")
        assert started() == [run_id]
        assert project.status(run_id) == "STARTED"
        with project.on("automated_schedule"):
            (scheduled,) = until(lambda: project.runs("automated"), "the schedule starts a run beside it")
        waits.unlink()
        assert [project.ended(each) for each in (run_id, scheduled)] == ["SUCCESS", "SUCCESS"]
        until(lambda: project.published("automated", "enriched_click", "user_id") == [(1,)], "what reads it follows")
    finally:
        found = project.ask(
            "query($s: SensorSelector!) { sensorOrError(sensorSelector: $s) { ... on Sensor { sensorState { id } } } }",
            s=sensor,
        )["sensorOrError"]["sensorState"]["id"]
        project.ask("mutation($i: String!) { stopSensor(id: $i) { __typename } }", i=found)
    for run in started():
        assert project.assets_of(run) <= {*project.group("automated")}, "no other pipeline has asked for it"
        assert project.ended(run) == "SUCCESS"
