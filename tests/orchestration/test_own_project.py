"""A team's own project, lived in: webserver and daemon, pipelines side by side, and what goes wrong among them.

One `dg dev` serves all stories of this file. Each has a pipeline (a component, a lake) of its own, so that none
disturbs another: PIPELINES has them all. `project` is the project that create-dagster makes by the commands of
docs/dagster-project.md, with the wheel installed; it comes with the pipeline `shop` and alerts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.orchestration.own_project import OwnProject, started
from tests.orchestration.services import until
from tidegate.assets.scaffold import SCRIPT

ABSENT = "'fields.user_id.max' = '100000'"
"""Of most clicks there is no user."""
PIPELINES: dict[str, dict[str, Any]] = {
    "twice": {"script": SCRIPT},
    "strict": {"script": SCRIPT.replace("'quarantine'", "'block'").replace("'fields.user_id.max' = '1000'", ABSENT)},
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
