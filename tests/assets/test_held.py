"""A held epoch as Dagster shows it. All of it is in the control tables, so no Spark session is started."""

from dataclasses import dataclass, replace
from pathlib import Path

import dagster as dg
import pytest

from tests.assets.clicks import pipeline
from tests.assets.test_continuous import Daemon, checked
from tests.pipelines.runtime.handmade import no_spark, store
from tests.pipelines.runtime.plans import release, taken
from tidegate.assets import Presentation, build_pipeline_definitions
from tidegate.assets.checks import check_names
from tidegate.assets.names import GATE, Names
from tidegate.assets.resources import TidegateResource
from tidegate.pipelines.lake import Lake, StagedRow, VerdictRow
from tidegate.pipelines.runtime.epochs import Pin, ReleaseKind, insert_owner, stored_plan
from tidegate.pipelines.runtime.gate import CheckResult, GateVerdict
from tidegate.pipelines.sql.canonical import computes
from tidegate.pipelines.sql.compile import Pipeline

REASON = "1 of 3 released rows found no match in user_info."


def hold(found: Pipeline, folder: Path, owner: str = "enriched_click", *, verdict: bool = True) -> None:
    """Store an epoch that is planned, staged and held; without a verdict where nobody has judged it."""
    lake, insert = Lake(folder), found.insert(owner)
    pins = tuple(Pin(build, 1, 1, 1) for build in insert.builds)
    takes = taken(insert.probe, 0, 1, 3)
    plan = release(insert.id, 1, takes, pins=pins, on_unmatched="block", computes=computes(found, insert))
    checks = tuple(CheckResult(name, name != "unmatched-policy", 1, 0, REASON) for name in check_names())
    said = GateVerdict(insert.id, 1, 1, plan.digest, False, checks, (REASON,))
    name = insert_owner(insert.id)
    store(lake, plan.row())
    staged = StagedRow(name, 1, 1, plan.digest, 0, "g1-e1", [], {"rows": 3, "matched": 2}, {})
    store(lake, staged)
    if verdict:
        row: VerdictRow = said.row(1_700_000_000_000)
        store(lake, row)


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
    found = {gate.check_name: gate for gate in result.get_asset_check_evaluations()}
    gate = found["rows"]
    assert {name: gate.passed for name, gate in found.items()} == {name: name != "rows" for name in GATE}
    (why,) = result.get_step_failure_events()
    said = why.step_failure_data.user_failure_data
    assert said.description == f"the gate holds epoch 1 of enriched_click: {REASON}", "on the run's own page"
    assert "its rows are staged" in str(said.metadata["state"].value)
    assert f"tidegate release {on}   (joins again" in str(said.metadata["next"].value)
    assert gate.metadata["reasons"].value == REASON
    assert gate.metadata["next"].value == commands
    assert gate.description == "epoch 1 is held by unmatched-policy"
    tables = [str(gate.metadata["questions"].value) for gate in found.values()]
    assert sum(table.count("| passed |") for table in tables) == len(check_names()) - 1
    (failed,) = published.get_step_failure_events()
    said = failed.step_failure_data.user_failure_data
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
        assert run.status == dg.DagsterRunStatus.FAILURE
        assert run.tags["dagster/will_retry"] == "false"
        assert run.tags["dagster/max_retries"] == "0", "nor if its process is lost"


@dataclass
class Page:
    """What Dagster's pages show of the gate of `hold`, by Dagster's own rules, beside a daemon that looks."""

    lake: Path
    daemon: Daemon
    gate: dg.AssetCheckKey = dg.AssetCheckKey(dg.AssetKey(["clicks", "enriched_click_staged"]), "rows")

    @property
    def instance(self) -> dg.DagsterInstance:
        return self.daemon.instance

    @property
    def job(self) -> dg.JobDefinition:
        return self.daemon.definitions.resolve_job_def("clicks")

    def run(self) -> dg.DagsterRun:
        """A run of the pipeline that has not begun."""
        return self.instance.create_run_for_job(self.job, tags=dict(self.job.run_tags))

    def execute(self, run: dg.DagsterRun) -> None:
        """Take a run out of the queue."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(self.instance, "create_run_for_job", lambda **_: self.started(run))
            self.job.execute_in_process(instance=self.instance, raise_on_error=False)

    def started(self, run: dg.DagsterRun) -> dg.DagsterRun:
        found = self.instance.get_run_by_id(run.run_id)
        assert found is not None
        return found

    def shown(self) -> str:
        """The status in the newest record of the check, if that is of the asset's newest materialisation. A record is
        as old as the second that it was made in: a test does not wait for the next one, as the sensor does."""
        record = self.instance.event_log_storage.get_latest_asset_check_execution_by_key([self.gate])[self.gate]
        made = self.instance.get_latest_materialization_event(self.gate.asset_key)
        status = record.status.value
        if status == "PLANNED":
            return "NOTHING" if self.started(self.instance.get_run_by_id(record.run_id)).is_finished else "IN_PROGRESS"
        is_newest = made is None or made.run_id == record.run_id or int(made.timestamp) <= record.create_timestamp
        return status if is_newest else "NOTHING"

    def decided(self, kind: ReleaseKind = "discard", *reasons: str, judged: bool = True) -> None:
        """Outside of Dagster a person has decided about what is held, by default to discard it; with reasons the gate
        holds what takes its place, too."""
        lake, insert = Lake(self.lake), pipeline("block").insert("enriched_click")
        held = next(stored_plan(row) for row in lake.epochs.rows(insert_owner(insert.id)))
        plan = replace(held, epoch=2, kind=kind, supersedes=1)
        store(lake, plan.row())
        if judged:
            staged = StagedRow(insert_owner(insert.id), 1, 2, plan.digest, 0, "g1-e2", [], {"rows": 3}, {})
            verdict = GateVerdict(insert.id, 1, 2, plan.digest, not reasons, (), reasons).row(1_700_000_000_000)
            store(lake, staged, verdict)


@pytest.fixture
def page(tmp_path: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> Page:
    """One whose gate holds an epoch, which a run has found."""
    monkeypatch.setattr(TidegateResource, "session", lambda *_: no_spark())
    hold(pipeline("block"), tmp_path / "lake")
    found = Page(tmp_path / "lake", Daemon(tmp_path / "lake", instance))
    found.execute(found.run())
    assert found.shown() == "FAILED"
    return found


def test_a_held_gate_stays_red_whatever_is_queued(page: Page):
    for number in (1, 2):
        page.run()
        assert page.shown() == "IN_PROGRESS", "until the sensor looks"
        assert [event.check_name for event in page.daemon.look()] == [*GATE]
        assert page.shown() == "FAILED"
        assert page.daemon.look() == [], f"once for the run: {number}"


@pytest.mark.parametrize(
    ("end", "looks"),
    [
        ("staged alone, by another run", "while it is queued"),
        ("judged", "never"),
        ("cancelled in the queue", "never"),
        ("failed in the queue", "while it is queued"),
    ],
)
def test_a_held_gate_is_red_however_a_run_ends(page: Page, end: str, looks: str):
    """Though the sensor's word is newer than what the run says, or the asset has been materialised since."""
    run = page.run()
    if looks != "never":
        page.daemon.look()
    if end == "staged alone, by another run":
        dg.materialize(
            list(page.daemon.definitions.assets or []),  # type: ignore[arg-type]
            selection=dg.AssetSelection.assets(page.gate.asset_key).without_checks(),
            resources=page.daemon.definitions.resources,
            instance=page.instance,
        )
    elif end == "judged":
        page.execute(run)
    elif end == "cancelled in the queue":
        page.instance.report_run_canceled(page.started(run))
    else:
        page.instance.report_run_failed(page.started(run))
    page.daemon.look()
    assert page.shown() == "FAILED"
    assert page.daemon.look() == []


@pytest.mark.parametrize("looks", [True, False], ids=["seen as held", "the sensor was off"])
def test_a_decision_outside_of_dagster_turns_it_green(page: Page, looks: bool):
    """Also where a person had started a run that is not the schedule's."""
    page.run()
    if looks:
        page.daemon.look()
    page.decided()
    assert page.shown() != "SUCCEEDED"
    page.daemon.look()
    assert page.shown() == "SUCCEEDED"
    assert page.daemon.look() == []


def test_a_decision_that_is_not_carried_out_yet_asks_for_none(page: Page):
    """Such as a release that has failed before it was judged: the two commands would be refused."""
    page.daemon.look()
    page.decided("re-release", judged=False)
    (found, *others) = page.daemon.look()
    assert [found.check_name, *(other.check_name for other in others)] == [*GATE]
    assert (found.passed, page.shown()) == (False, "FAILED")
    assert found.description == "epoch 2 takes the place of epoch 1, which the gate held, and is not judged yet"
    assert "tidegate" not in str(found.metadata["next"].value)
    assert page.daemon.look() == [], "once"
    page.run()
    assert page.daemon.look() == []
    assert page.shown() == "IN_PROGRESS", "the run is to judge it"


@pytest.mark.parametrize("then", ["passed", "held again"])
def test_what_comes_of_a_decision_is_shown_once_it_is_judged(page: Page, then: str):
    page.daemon.look()
    page.decided("re-release", judged=False)
    page.daemon.look()
    page.decided("re-release", *([] if then == "passed" else [REASON]))
    shown = page.daemon.look()
    assert checked(shown) == [(page.gate.asset_key, then == "passed", 2)]
    assert page.shown() == ("SUCCEEDED" if then == "passed" else "FAILED")
    assert page.daemon.look() == []


@pytest.mark.parametrize("behind", ["nothing", "another run", "another run, of which was looked"])
def test_a_decision_turns_it_green_after_the_run_that_finds_it(page: Page, behind: str):
    """Though its own record is older than what hides it."""
    run = page.run()
    if behind != "nothing":
        page.run()
    if behind != "another run":
        page.daemon.look()
    page.decided()
    page.execute(run)
    page.daemon.look()
    assert page.shown() == "SUCCEEDED"


def test_what_a_slower_location_still_reports_as_held_is_made_good(page: Page):
    """Two code locations look at one lake; one of them has looked before the decision, and reports after it."""
    other = Daemon(page.lake, page.instance)
    page.run()
    late = other.looked()
    page.decided()
    page.daemon.look()
    for event in late:
        page.instance.report_runless_asset_event(event)
    assert page.shown() == "FAILED"
    other.look()
    assert page.shown() == "SUCCEEDED"
