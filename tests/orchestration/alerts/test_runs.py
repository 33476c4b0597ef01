"""What a finished run ends of what was told of runs before it."""

from __future__ import annotations

from typing import Any

import pytest
from dagster import DagsterRun, DagsterRunStatus

from tidegate.assets.jobs import PIPELINE_TAG
from tidegate.orchestration.alerts import Incident
from tidegate.orchestration.alerts.memory import Open
from tidegate.orchestration.alerts.runs import Outcome, same

NOTHING: dict[str, Any] = {"failed_steps": [], "checks_not_run": [], "failed_checks": []}


def run(job: str, status: DagsterRunStatus = DagsterRunStatus.SUCCESS) -> DagsterRun:
    return DagsterRun(job_name=job, status=status, tags={PIPELINE_TAG: "clicks"})


def failed(job: str, **details: list[str]) -> Incident:
    return Incident("run 1", "run-failed", "run 1 failed", "clicks", details={"job": job, **NOTHING, **details})


def told(incident: Incident) -> Open:
    return Open(incident.key, incident.kind, incident.title, incident.pipeline, 0.0, details=dict(incident.details))


@pytest.mark.parametrize(
    "details",
    [
        pytest.param({"failed_steps": ["clicks__hunter2_land"]}, id="step"),
        pytest.param({"checks_not_run": ["clicks/hunter2: gate"]}, id="check that did not run"),
        pytest.param({"failed_checks": ["clicks/hunter2: adds_up"]}, id="check that failed"),
        pytest.param({}, id="job"),
    ],
)
def test_an_incident_whose_names_hold_a_secret_is_known_again_and_mended(
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
    assert bad.incident is not None
    item = told(bad.incident)
    assert "hunter2" not in str(item)
    assert same(item, bad.incident)
    assert not bad.mends(item)
    checks = frozenset(("clicks/hunter2: gate", "clicks/hunter2: adds_up"))
    well = Outcome(run("hunter2_job"), "hunter2_job", frozenset(("clicks__hunter2_land",)), checks, checks, None)
    assert well.scrubbed(()).mends(item)


def test_a_run_that_did_something_else_mends_nothing():
    item = told(failed("clicks", failed_steps=["clicks__land"]))
    other = Outcome(run("clicks"), "clicks", frozenset(("clicks__other",)), frozenset(), frozenset(), None)
    assert not other.mends(item)
