"""A team's own project, lived in: webserver and daemon, pipelines side by side, and what goes wrong among them.

One `dg dev` serves all stories of this file. Each has a pipeline (a component, a lake) of its own, so that none
disturbs another: PIPELINES has them all. `project` is the project that create-dagster makes by the commands of
docs/dagster-project.md, with the wheel installed; it comes with the pipeline `shop` and alerts.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.orchestration.own_project import OwnProject, started, written
from tests.orchestration.services import until
from tidegate.assets.scaffold import SCRIPT

ABSENT = "'fields.user_id.max' = '100000'"
"""Of most clicks there is no user."""
RATES = """
CREATE TABLE rate (
    currency STRING PRIMARY KEY NOT ENFORCED, rate INT, valid_from TIMESTAMP(3), WATERMARK FOR valid_from AS valid_from
) WITH ('connector' = 'filesystem', 'path' = 'rates', 'format' = 'changelog-json');
CREATE TABLE orders (id INT, currency STRING, placed TIMESTAMP(3), WATERMARK FOR placed AS placed) WITH (
    'connector' = 'filesystem', 'path' = 'orders', 'format' = 'json'
);
CREATE TABLE converted (id INT, rate INT) WITH ('connector' = 'delta');
INSERT INTO converted SELECT o.id, r.rate FROM orders AS o
LEFT JOIN rate FOR SYSTEM_TIME AS OF o.placed AS r ON o.currency = r.currency;
"""
BREAKS = """
from pathlib import Path

import tidegate

BROKEN = Path(__file__).with_name("broken")


class Breaks(tidegate.TidegateComponent):
    def execute(self, context, tidegate, step):
        if step.kind == "published" and BROKEN.exists():
            raise OSError("what this team does before it publishes has failed")
        yield from super().execute(context, tidegate, step)
"""
CLICKS = """
CREATE TABLE user_info (user_id INT PRIMARY KEY NOT ENFORCED, gender STRING) WITH (
    'connector' = 'filesystem', 'path' = 'users', 'format' = 'changelog-json'
);
CREATE TABLE click_event (user_id INT, proctime AS PROCTIME()) WITH (
    'connector' = 'filesystem', 'path' = 'clicks', 'format' = 'json'
);
CREATE TABLE enriched_click (user_id INT, gender STRING) WITH ('connector' = 'delta', 'gate.on-unmatched' = 'block');
INSERT INTO enriched_click SELECT c.user_id, u.gender FROM click_event AS c
LEFT JOIN user_info FOR SYSTEM_TIME AS OF c.proctime AS u ON c.user_id = u.user_id;
"""
BERLIN = "Europe/Berlin"
PIPELINES: dict[str, dict[str, Any]] = {
    "twice": {"script": SCRIPT},
    "strict": {"script": SCRIPT.replace("'quarantine'", "'block'").replace("'fields.user_id.max' = '1000'", ABSENT)},
    "berlin": {"script": RATES, "partitions_from": "2025-10-25T13:00", "timezone": BERLIN, "cron": "30 2 * * *"},
    "hours": {"script": RATES, "partitions_from": "2025-10-26", "timezone": BERLIN, "partitions_every": "hour"},
    "months": {"script": RATES, "partitions_from": "2025-10-20", "timezone": BERLIN, "partitions_every": "month"},
    "broken": {"script": CLICKS, "component": BREAKS},
}

pytestmark = [pytest.mark.thorough, pytest.mark.usefixtures("jvm")]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnProject]:
    with started(tmp_path_factory.mktemp("own"), PIPELINES) as made:
        yield made
        for sensor in ("tidegate_alerts", "tidegate_continuous"):
            assert not [tick for tick in made.ticks(sensor) if tick["error"]]


def test_the_commands_of_the_page_make_a_project_that_says_how_to_limit_pools(project: OwnProject) -> None:
    assert "All definitions loaded" in project.said
    assert "in dagster.yaml: `concurrency: {pools: {default_limit: 1}}`." in project.log


def test_two_runs_at_once_both_succeed(project: OwnProject) -> None:
    assert project.ended(project.launch("twice")) == "SUCCESS"
    assert (before := project.rows("twice")) >= 100, "those that the source has at its start"
    together = [project.launch("twice") for _ in range(2)]
    assert [project.ended(run_id) for run_id in together] == ["SUCCESS", "SUCCESS"]
    assert project.rows("twice") > before, "one a second comes"
    project.tidegate("verify", "twice")


def test_a_held_gate_is_a_failed_check_and_one_alert_until_a_person_decides_in_a_terminal(project: OwnProject) -> None:
    gate = lambda: project.checked("gate", "strict", "enriched_click_staged")  # noqa: E731
    told = lambda: project.told("gate-held", "strict")  # noqa: E731
    assert project.ended(project.launch("strict")) == "FAILURE"
    assert gate()[0] == "FAILED"
    until(told, "the alert of the held gate")
    assert project.rows("strict") == 0
    project.tidegate("discard", "strict", "enriched_click")
    until(lambda: told() == ["open", "resolved"], "the alert is over")
    until(lambda: gate()[0] == "SUCCEEDED", "its check is not failed any more")


def test_a_run_that_is_killed_is_reported_once_and_made_good_by_the_next(project: OwnProject) -> None:
    """kill -9 while it works: it is recorded as failed, and nothing of it goes on."""
    told = lambda: project.told("run-failed", "shop")  # noqa: E731
    run_id = project.launch("shop")
    worker = until(lambda: project.worker_of(run_id), "the run names its process")
    engines = until(lambda: [child for child in worker.children(True) if child.name() == "java"], "it starts Spark")
    worker.kill()
    assert project.ended(run_id) == "FAILURE"
    until(lambda: not [engine for engine in engines if engine.is_running()], "its JVM has ended")
    until(lambda: told() == ["open"], "the alert of the lost run")
    assert project.ended(project.launch("shop")) == "SUCCESS"
    until(lambda: told() == ["open", "resolved"], "the lost run is made good")
    project.run("tidegate", "verify", "src/my_project/defs/shop/pipeline.sql", "--lake", "state/lake")


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


@pytest.mark.parametrize(
    ("attributes", "wrong"),
    [
        ({"timezone": "Europe/Belin", "partitions_from": "2025-10-25"}, "there is no time zone 'Europe/Belin'"),
        ({"timezone": BERLIN, "partitions_from": "soon"}, "'soon' is neither a day nor a moment"),
    ],
    ids=["zone", "start"],
)
def test_what_cannot_be_partitions_is_refused_by_dg_check_defs(
    project: OwnProject, tmp_path: Path, attributes: dict[str, Any], wrong: str
) -> None:
    copy = tmp_path / "my-project"
    shutil.copytree(project.folder, copy, ignore=shutil.ignore_patterns("home", "state", "*.log"))
    written(copy, "wrong", RATES, **attributes)
    said = replace(project.made, project=copy).run("dg", "check", "defs", status=1)
    assert wrong in said
    assert "wrong" in said


def test_one_run_after_a_failed_one_publishes_all_that_had_landed_and_shows_the_worst_verdict(
    project: OwnProject,
) -> None:
    broken = project.folder / "src" / "my_project" / "defs" / "broken" / "broken"
    gate = lambda: project.checked("gate", "broken", "enriched_click_staged")  # noqa: E731
    users = lambda: [user for (user,) in project.published("broken", "enriched_click", "user_id")]  # noqa: E731
    project.put("broken/users/1.json", *({"data": {"user_id": user, "gender": "f"}, "op": "+I"} for user in range(9)))
    project.put("broken/clicks/1.json", {"user_id": 1})
    broken.touch()
    assert project.ended(project.launch("broken")) == "FAILURE"
    assert gate()[0] == "SUCCEEDED"
    assert users() == [], "staged and judged, not published"
    for number in (2, 3):
        project.put(f"broken/clicks/{number}.json", {"user_id": number})
        sources = ["broken/user_info", "broken/click_event"]
        assert project.ended(project.launch("__ASSET_JOB", assets=sources)) == "SUCCESS"
    project.put("broken/clicks/4.json", {"user_id": 4})
    broken.unlink()
    before = project.runs("broken")
    with project.on("broken_schedule"):
        (run_id,) = until(lambda: [run for run in project.runs("broken") if run not in before], "the next tick's run")
        assert project.ended(run_id) == "SUCCESS"
    assert users() == [1, 2, 3, 4], "by one run"
    (shown, *_) = project.materializations("broken", "enriched_click")
    assert shown["run"] == run_id
    assert gate()[0] == "SUCCEEDED"

    broken.touch()
    project.put("broken/clicks/5.json", {"user_id": 5})
    assert project.ended(project.launch("broken")) == "FAILURE"
    broken.unlink()
    project.put("broken/clicks/6.json", {"user_id": 6}, {"user_id": 66})
    assert project.ended(project.launch("broken")) == "FAILURE"
    assert users() == [1, 2, 3, 4, 5], "of two epochs, that which the gate lets through"
    assert gate()[0] == "FAILED"
    until(lambda: project.told("gate-held", "broken") == ["open"], "the alert of the held gate")
