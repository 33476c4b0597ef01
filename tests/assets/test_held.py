"""A held epoch as Dagster shows it. All of it is in the control tables, so no Spark session is started."""

from pathlib import Path

import dagster as dg
import pytest
from dagster._core.events import RunFailureReason
from dagster._core.execution.retries import auto_reexecution_should_retry_run

from tests.assets.clicks import pipeline
from tidegate.assets import Presentation, build_pipeline_definitions
from tidegate.assets.checks import check_names
from tidegate.assets.names import Names
from tidegate.pipelines.lake import Lake, StagedRow, VerdictRow
from tidegate.pipelines.runtime.epochs import Pin, StreamPlan, insert_owner
from tidegate.pipelines.runtime.gate import CheckResult, GateVerdict
from tidegate.pipelines.sql.pipeline import Pipeline

REASON = "1 of 3 released rows found no match in user_info."


def hold(found: Pipeline, folder: Path, owner: str = "enriched_click", *, verdict: bool = True) -> None:
    """Store an epoch that is planned, staged and held; without a verdict where nobody has judged it."""
    lake, insert = Lake(folder), found.insert(owner)
    pins = tuple(Pin(build, 1, 1, 1) for build in insert.builds)
    plan = StreamPlan(
        insert.id, 1, 1, "release", 0, insert.probe, 1, 0, 1, pins, "block", found.digest(insert)
    )  # fmt: skip
    checks = tuple(CheckResult(name, name != "unmatched-policy", 1, 0, REASON) for name in check_names())
    said = GateVerdict(insert.id, 1, 1, plan.digest, False, checks, (REASON,))
    name = insert_owner(insert.id)
    lake.epochs.append([plan.row()], application=lake.application(name, "plan", 1), version=1)
    staged = StagedRow(name, 1, 1, plan.digest, 0, "g1-e1", [], {"rows": 3, "matched": 2}, {})
    lake.staged.append([staged], application=lake.application(name, "stage", 1), version=1)
    if verdict:
        row: VerdictRow = said.row(1_700_000_000_000)
        lake.verdicts.append([row], application=lake.application(name, "verdict", 1), version=1)


def test_a_held_epoch_names_its_reasons_and_the_commands_on_this_script(tmp_path: Path):
    found, script = pipeline("block"), tmp_path / "clicks.sql"
    hold(found, tmp_path / "lake")
    definitions = build_pipeline_definitions(found, lake=tmp_path / "lake", look=Presentation(script=script))
    with dg.DagsterInstance.ephemeral() as instance:
        result = definitions.resolve_job_def("clicks").execute_in_process(instance=instance, raise_on_error=False)
        published = dg.materialize(
            list(definitions.assets or []),  # type: ignore[arg-type]
            selection=dg.AssetSelection.assets(Names("clicks").published(found.inserts[0])),
            resources=definitions.resources,
            instance=instance,
            raise_on_error=False,
        )
    on = f"{script} enriched_click --lake {tmp_path / 'lake'}"
    commands = f"tidegate release {on}   or   tidegate discard {on}"
    (gate,) = result.get_asset_check_evaluations()
    assert not gate.passed
    (why,) = result.get_step_failure_events()
    said = why.step_failure_data.user_failure_data
    assert said is not None
    assert said.description == f"the gate holds epoch 1 of enriched_click: {REASON}", "on the run's own page"
    assert "its rows are staged" in str(said.metadata["state"].value)
    assert f"tidegate release {on}   (joins again" in str(said.metadata["next"].value)
    assert gate.metadata["reasons"].value == REASON
    assert gate.metadata["next"].value == commands
    assert gate.description == "epoch 1 is held by unmatched-policy"
    assert str(gate.metadata["checks"].value).count("| passed |") == len(check_names()) - 1
    (failed,) = published.get_step_failure_events()
    said = failed.step_failure_data.user_failure_data
    assert said is not None
    assert f"tidegate release {on}   (joins again" in str(said.metadata["next"].value)
    assert "`held: release`" in str(gate.metadata["next in Dagster"].value)
    assert said.metadata["tidegate/error"].value == "GateHeld"


@pytest.mark.parametrize("start", ["staged", "published"])
def test_a_held_gate_is_not_tried_again_in_a_run_from_the_asset_graph(tmp_path: Path, start: str):
    """Where run retries are on, and steps that fail are tried again."""
    found, names = pipeline("block"), Names("clicks")
    hold(found, tmp_path / "lake")
    definitions = build_pipeline_definitions(found, lake=tmp_path / "lake")
    key = names.staged(found.inserts[0]) if start == "staged" else names.published(found.inserts[0])
    retries = {"enabled": True, "max_retries": 3, "retry_on_asset_or_op_failure": True}
    with dg.DagsterInstance.ephemeral(settings={"run_retries": retries}) as instance:
        result = dg.materialize(
            [*(definitions.assets or []), *(definitions.asset_checks or [])],  # type: ignore[list-item]
            selection=dg.AssetSelection.assets(key),
            resources=definitions.resources,
            instance=instance,
            raise_on_error=False,
        )
        run = instance.get_run_by_id(result.run_id)
        assert run is not None
        assert run.status == dg.DagsterRunStatus.FAILURE
        assert run.tags["dagster/will_retry"] == "false"
        assert not auto_reexecution_should_retry_run(instance, run, RunFailureReason.STEP_FAILURE)
        assert not auto_reexecution_should_retry_run(instance, run, RunFailureReason.RUN_EXCEPTION)
        assert not auto_reexecution_should_retry_run(instance, run, RunFailureReason.UNKNOWN)
