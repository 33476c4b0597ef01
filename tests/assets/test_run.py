"""The assets as Dagster runs them, on a real session and a lake of their own."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from tests.assets.clicks import Hand, files, pipeline
from tests.pipelines.runtime.handmade import HandmadeLake, made_once, no_spark
from tidegate.assets import build_pipeline_definitions
from tidegate.assets.checks import check_names
from tidegate.assets.failures import Waits
from tidegate.assets.names import GATE
from tidegate.assets.resources import TidegateResource
from tidegate.pipelines.errors import LeaseHeld
from tidegate.pipelines.lake import Lake
from tidegate.pipelines.lake.leases import read_leases
from tidegate.pipelines.runtime.epochs import insert_owner, stored_plan

USERS = dg.AssetKey(["clicks", "user_info"])
CLICKS = dg.AssetKey(["clicks", "click_event"])
STAGED = dg.AssetKey(["clicks", "enriched_click_staged"])
PUBLISHED = dg.AssetKey(["clicks", "enriched_click"])


class Location:
    """A code location of one pipeline, its lake and its history."""

    def __init__(self, folder: Path, instance: dg.DagsterInstance, on_unmatched: str) -> None:
        self.pipeline = pipeline(on_unmatched)
        self.lake = folder / "lake"
        self.hand = Hand(self.pipeline, self.lake)
        self.definitions = build_pipeline_definitions(self.pipeline, lake=self.lake)
        self.instance = instance

    def run(self) -> dg.ExecuteInProcessResult:
        """The pipeline's job."""
        job = self.definitions.resolve_job_def("clicks")
        return job.execute_in_process(instance=self.instance, raise_on_error=False)

    def materialize(self, selection: dg.AssetSelection) -> dg.ExecuteInProcessResult:
        """Some of it, as a person selects it in the UI."""
        found = self.definitions
        return dg.materialize(
            [*(found.assets or []), *(found.asset_checks or [])],  # type: ignore[list-item]
            selection=selection,
            resources=found.resources,
            instance=self.instance,
            raise_on_error=False,
        )


@pytest.fixture
def location(tmp_path: Path, instance: dg.DagsterInstance, spark: SparkSession) -> Location:
    return Location(tmp_path, instance, "quarantine")


@pytest.fixture
def strict(tmp_path: Path, instance: dg.DagsterInstance, spark: SparkSession) -> Location:
    """A click of an unknown user holds the whole epoch."""
    return Location(tmp_path, instance, "block")


def metadata_of(result: dg.ExecuteInProcessResult, key: dg.AssetKey) -> dict[str, Any]:
    """The metadata of the run's materialisation of `key`, with what is folded."""
    events = [event for event in result.get_asset_materialization_events() if event.asset_key == key]
    assert len(events) == 1
    shown = events[0].step_materialization_data.materialization.metadata
    assert next(iter(shown)) == "summary" or key.path[-1] == "maintenance"
    found = {name: value.value for name, value in shown.items()}
    return found | found.pop("details", {})


def checks(result: dg.ExecuteInProcessResult) -> dict[str, bool]:
    return {found.check_name: found.passed for found in result.get_asset_check_evaluations()}


def failure(result: dg.ExecuteInProcessResult, key: dg.AssetKey) -> Any:
    """What a failed step said: the data of its dagster.Failure."""
    step = "__".join(key.path)
    events = [event for event in result.get_step_failure_events() if event.step_key == step]
    assert len(events) == 1
    return events[0].step_failure_data.user_failure_data


def test_a_run_waits_for_the_flip_and_then_publishes_each_row_once(location: Location):
    location.hand.users(1, 2)
    location.hand.clicks(1, 2, 3)
    waiting = location.run()
    assert waiting.success
    assert metadata_of(waiting, STAGED)["waiting for"] == "user_info"
    assert metadata_of(waiting, STAGED)["waiting rows"] == 3
    assert PUBLISHED not in [event.asset_key for event in waiting.get_asset_materialization_events()]
    assert set(checks(waiting).values()) == {True}
    assert location.hand.published() == []

    location.hand.all_users_are_there()
    released = location.run()
    assert released.success
    assert set(checks(released).values()) == {True}
    verdict = Lake(location.lake).verdicts.last(insert_owner("enriched_click"))
    assert verdict is not None
    assert {check["name"] for check in verdict.checks} == set(check_names())
    judged = [item for item in released.get_asset_check_evaluations() if item.check_name in GATE]
    shown = "\n".join(str(item.metadata["questions"].value) for item in judged)
    assert {name for name in check_names() if f"| {name} | passed |" in shown} == set(check_names())
    assert location.hand.published() == [
        {"user_id": 1, "item_id": 10, "gender": "F"},
        {"user_id": 2, "item_id": 20, "gender": "F"},
    ]
    users = metadata_of(released, USERS)
    assert (users["dagster/row_count"], users["flipped"], users["watermark"]) == (2, 1, "(MIN, true)")
    staged = metadata_of(released, STAGED)
    assert (staged["released rows"], staged["staged rows"], staged["staged for quarantine"]) == (3, 2, 1)
    assert staged["pins"] == [{"build": "user_info", "generation": 1, "epoch": 2, "flip epoch": 2}]
    assert staged["outcomes"]["unmatched:key-absent@user_info"] == 1
    published = metadata_of(released, PUBLISHED)
    assert (published["dagster/row_count"], published["quarantine rows"], published["waiting rows"]) == (2, 1, 0)
    assert (published["rows published"], published["verdict"], published["epoch"]) == (2, "passed", 1)
    assert published["gate passed"] == 1
    assert published["rows by epoch"].startswith(
        "![Rows of each epoch, by what they found, and those that it left waiting](data:image/svg+xml;base64,"
    )

    added = next(item for item in released.get_asset_check_evaluations() if item.check_name == "adds_up")
    numbers = {name: value.value for name, value in added.metadata.items()}
    places = ("landed", "published", "quarantined", "dropped", "waiting")
    assert [numbers[f"rows {place}"] for place in places] == [3, 2, 1, 0, 0]

    again = location.run()
    assert again.success
    assert metadata_of(again, PUBLISHED)["rows published"] == 0
    assert metadata_of(again, PUBLISHED)["dagster/row_count"] == 2
    assert len(location.hand.published()) == 2

    target = Lake(location.lake).target_path(location.pipeline.table("enriched_click"))
    DeltaTable(str(target)).delete()
    lost = location.run()
    assert lost.success, "what is published is published"
    found = next(item for item in lost.get_asset_check_evaluations() if item.check_name == "adds_up")
    assert (found.passed, found.severity) == (False, dg.AssetCheckSeverity.ERROR)
    assert "holds 0 rows, by the control tables it should be 2" in str(found.metadata["problems"].value)
    assert f"tidegate verify SCRIPT --lake {location.lake}" in str(found.metadata["next"].value)


def test_each_asset_does_its_own_work_and_no_others(location: Location):
    lake = Lake(location.lake)
    location.hand.users(1)
    location.hand.all_users_are_there()
    location.hand.clicks(1)
    assert location.materialize(dg.AssetSelection.assets(CLICKS)).success
    assert lake.watermarks.owners() == ["click_event"]
    assert location.materialize(dg.AssetSelection.assets(USERS)).success
    assert lake.epochs.last(insert_owner("enriched_click")) is None

    assert location.materialize(dg.AssetSelection.assets(STAGED).without_checks()).success
    assert lake.staged.last(insert_owner("enriched_click")) is not None
    assert lake.verdicts.last(insert_owner("enriched_click")) is None

    unjudged = location.materialize(dg.AssetSelection.assets(PUBLISHED))
    assert not unjudged.success
    assert "has no verdict" in failure(unjudged, PUBLISHED).description
    assert location.hand.published() == []

    judged = location.materialize(dg.AssetSelection.checks_for_assets(STAGED))
    assert judged.success
    assert checks(judged) == dict.fromkeys(GATE, True)
    assert location.hand.published() == []
    assert location.materialize(dg.AssetSelection.assets(PUBLISHED)).success
    assert len(location.hand.published()) == 1


def test_a_held_epoch_fails_the_check_and_nothing_is_published_until_a_person_decides(strict: Location):
    strict.hand.users(1)
    strict.hand.all_users_are_there()
    strict.hand.clicks(1, 9)
    held = strict.run()
    assert not held.success
    assert checks(held) == {name: name != "rows" for name in GATE}
    assert [event.asset_key for event in held.get_asset_materialization_events()] == [USERS, CLICKS, STAGED]
    assert strict.hand.published() == []

    strict.hand.clicks(1)
    later = strict.run()
    assert not later.success
    assert not checks(later)["rows"]
    assert (metadata_of(later, STAGED)["verdict"], metadata_of(later, STAGED)["gate passed"]) == ("held", 0)
    assert metadata_of(later, STAGED)["waiting rows"] == 3
    assert len(Lake(strict.lake).verdicts.rows(insert_owner("enriched_click"))) == 1
    assert strict.hand.published() == []


@pytest.mark.thorough
def test_a_held_epoch_is_released_from_the_launchpad_once_its_cause_is_mended(strict: Location):
    def decided(**config: str) -> dg.ExecuteInProcessResult:
        job = strict.definitions.resolve_job_def("clicks")
        run_config = {"ops": {"clicks__enriched_click_staged": {"config": config}}}
        return job.execute_in_process(instance=strict.instance, raise_on_error=False, run_config=run_config)

    def logged(result: dg.ExecuteInProcessResult) -> str:
        return " ".join(entry.user_message for entry in strict.instance.all_logs(result.run_id))

    strict.hand.users(1)
    strict.hand.all_users_are_there()
    strict.hand.clicks(1, 9)
    assert not strict.run().success
    once_more = decided(held="release")
    assert not checks(once_more)["rows"], "user 9 is still not there"
    assert "nothing has changed since epoch 1 of enriched_click was held" in logged(once_more)
    strict.hand.users(9)
    released = decided(held="release")
    assert released.success
    assert "nothing has changed" not in logged(released)
    assert checks(released)["rows"]
    assert (metadata_of(released, PUBLISHED)["epoch"], metadata_of(released, PUBLISHED)["kind"]) == (3, "re-release")
    assert [row["user_id"] for row in strict.hand.published()] == [1, 9]

    nothing_held = decided(held="release")
    assert "no epoch of enriched_click is held" in failure(nothing_held, STAGED).description
    alone = decided(on_unmatched="publish")
    assert "`held: release`" in failure(alone, STAGED).metadata["next"].value

    strict.hand.clicks(7)
    assert not strict.run().success
    assert decided(held="release", on_unmatched="publish").success
    assert [row["user_id"] for row in strict.hand.published()] == [1, 7, 9]
    strict.hand.clicks(8)
    assert not strict.run().success
    given_up = decided(held="discard")
    assert given_up.success
    assert "of enriched_click (1 row) quarantines them." in logged(given_up)
    assert metadata_of(given_up, PUBLISHED)["rows quarantined"] == 1
    assert len(strict.hand.published()) == 3


def test_a_run_publishes_all_that_had_landed_and_not_just_what_a_failed_one_had_staged(location: Location):
    location.hand.users(1, 2)
    location.hand.all_users_are_there()
    location.hand.clicks(1, 3)
    assert location.materialize(dg.AssetSelection.assets(USERS, CLICKS, STAGED)).success
    location.hand.clicks(2, 4, 5)
    result = location.run()
    assert result.success
    assert [row["user_id"] for row in location.hand.published()] == [1, 2]
    published = metadata_of(result, PUBLISHED)
    assert (published["epoch"], published["epochs published"]) == (2, 2)
    assert (published["rows published"], published["rows quarantined"], published["waiting rows"]) == (2, 3, 0)
    assert checks(result)["adds_up"]


def test_the_checks_of_a_run_show_the_worst_of_its_epochs_and_a_held_one_ends_it(strict: Location):
    strict.hand.users(1, 2)
    strict.hand.all_users_are_there()
    strict.hand.clicks(1)
    assert strict.materialize(dg.AssetSelection.assets(USERS, CLICKS, STAGED)).success
    strict.hand.clicks(2, 9)
    result = strict.run()
    assert not result.success
    assert failure(result, PUBLISHED).metadata["tidegate/error"].value == "GateHeld"
    assert [row["user_id"] for row in strict.hand.published()] == [1]
    published = metadata_of(result, PUBLISHED)
    assert (published["epoch"], published["rows published"], published["waiting rows"]) == (1, 1, 2)
    key = dg.AssetCheckKey(STAGED, "rows")
    shown, _ = strict.instance.event_log_storage.get_asset_check_execution_history(key, limit=2)
    assert shown.status.value == "FAILED"
    evaluation = shown.event.dagster_event.asset_check_evaluation_data  # type: ignore[union-attr]
    assert (evaluation.blocking, evaluation.metadata["epoch"].value) == (True, 2)
    run = strict.instance.get_run_by_id(result.run_id)
    assert run is not None
    assert run.tags["dagster/max_retries"] == "0"


def test_a_run_waits_for_another_one_and_then_publishes(location: Location, monkeypatch: pytest.MonkeyPatch):
    """Each of its steps meets the lease of another run, which ends while the step waits."""
    monkeypatch.setattr("tidegate.assets.failures.LONGEST_PAUSE_S", 0.0)
    location.hand.users(1)
    location.hand.all_users_are_there()
    location.hand.clicks(1)
    others = {}
    for owner in ("user_info", "click_event", insert_owner("enriched_click")):
        others[owner] = Lake(location.lake).leases(f"the run of {owner}")
        others[owner].acquire(owner)
    wait = Waits.wait

    def meanwhile(self: Waits, error: LeaseHeld) -> None:
        others[error.owner].close()
        wait(self, error)

    monkeypatch.setattr(Waits, "wait", meanwhile)
    result = location.run()
    assert result.success
    again = result.filter_events(lambda event: event.is_step_up_for_retry)
    assert sorted(str(event.step_key) for event in again) == [
        "clicks__click_event",
        "clicks__enriched_click_staged",
        "clicks__user_info",
    ]
    assert [row["user_id"] for row in location.hand.published()] == [1]
    assert {lease.row.released for lease in read_leases(Lake(location.lake).logs)} == {True}


def test_a_source_that_fails_leaves_the_checks_planned_and_unrun_and_is_run_again_once_mended(location: Location):
    location.hand.users(1, 2)
    location.hand.all_users_are_there()
    location.hand.clicks(1, 3)
    events = location.lake / "_scratch" / "user_info" / "events"
    there = min(events.iterdir())
    gone = there.rename(events / "00000007.arrow")
    result = location.run()
    assert not result.success
    assert "is gone" in failure(result, USERS).description
    assert checks(result) == {}
    assert metadata_of(result, CLICKS)["rows landed"] == 2
    assert location.hand.published() == []

    # From the failed step on, as the UI does it: the clicks have landed already.
    gone.rename(there)
    lake = Lake(location.lake)
    planned = lake.epochs.rows("user_info")
    again = location.materialize(dg.AssetSelection.assets(USERS, STAGED, PUBLISHED))
    assert again.success
    assert lake.epochs.rows("user_info")[: len(planned)] == planned, "what was planned was finished, not planned anew"
    assert metadata_of(again, USERS)["dagster/row_count"] == 2
    assert set(checks(again).values()) == {True}
    assert metadata_of(again, PUBLISHED)["quarantine rows"] == 1
    assert location.hand.published() == [{"user_id": 1, "item_id": 10, "gender": "F"}]


def test_a_snapshot_is_taken_again_while_readers_see_all_that_there_was(location: Location):
    location.hand.users(1)
    location.hand.all_users_are_there()
    location.hand.clicks(1)
    assert location.run().success
    before = location.hand.published()
    assert len(before) == 1
    (location.lake / "_scratch" / "user_info" / "events" / "00000001.json").unlink()  # not all are there, this time
    found = location.definitions
    result = dg.materialize(
        list(found.assets or []),  # type: ignore[arg-type]
        selection=dg.AssetSelection.assets(USERS),
        resources=found.resources,
        instance=location.instance,
        run_config={"ops": {"clicks__user_info": {"config": {"resnapshot": True, "max_epochs": 1}}}},
    )
    assert (metadata_of(result, USERS)["generation"], metadata_of(result, USERS)["flipped"]) == (2, 0)
    assert location.hand.published() == before
    pins = []
    for _ in range(2):
        location.hand.clicks(1)
        assert location.run().success
        plan = Lake(location.lake).epochs.last(insert_owner("enriched_click"))
        assert plan is not None
        pins += [(pin.generation, pin.epoch) for pin in stored_plan(plan).pins]
        location.hand.all_users_are_there()
    assert pins == [(1, 1), (2, 2)], "the old one is read until the new one has flipped"
    assert location.hand.published() == before * 3


def test_a_dry_run_shows_what_comes_next_and_changes_nothing(location: Location):
    location.hand.users(1)
    location.hand.all_users_are_there()
    location.hand.clicks(1, 2)
    assert location.materialize(dg.AssetSelection.assets(USERS, CLICKS)).success
    location.hand.clicks(3)
    before = files(location.lake)
    # Whoever works meanwhile is not in its way.
    other = Lake(location.lake).leases("another")
    other.acquire("click_event")
    try:
        job = location.definitions.resolve_job_def("tidegate_dry_run")
        result = job.execute_in_process(instance=location.instance)
    finally:
        other.close()
    (shown,) = [event.step_output_data.metadata for event in result.all_events if event.is_successful_output]
    sources, inserts = str(shown["sources"].value), str(shown["inserts"].value)
    assert "| click_event | 1/2 | bounded | events 2-2 |" in sources
    assert "| user_info |  |  | nothing to land |" in sources
    assert "| enriched_click | 1/1 | 2 | user_info 1/1 |" in inserts
    assert files(location.lake) == before


MOST_EVENTS, MOST_BYTES = 50, 70_000
OF_A_LAUNCHED_RUN = 5
"""Events of a run that a queue and a process of its own come before: queued, taken, starting, its process, its end."""


@made_once
def at_rest(made: HandmadeLake) -> None:
    """A lake whose sources have no more, and whose one epoch is published."""
    made.landed("clicks", 1, 0)
    made.landed("users", 1, 0, flip=1)
    made.appended("clicks", 1)
    made.appended("users", 1)
    made.released(1, 0, 1)


def test_a_run_with_nothing_new_writes_little(
    tmp_path: Path, home: Path, history: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TidegateResource, "session", no_spark)
    made = at_rest(tmp_path / "lake")
    job = build_pipeline_definitions(made.pipeline, lake=made.lake.root).resolve_job_def("handmade")
    job.execute_in_process(instance=history)  # takes up the script's definitions
    run_id = job.execute_in_process(instance=history).run_id
    with closing(sqlite3.connect(home / "history" / "runs" / f"{run_id}.db")) as database:
        written = database.execute("SELECT length(event) FROM event_logs").fetchall()
    assert len(written) + OF_A_LAUNCHED_RUN <= MOST_EVENTS
    assert sum(length for (length,) in written) + OF_A_LAUNCHED_RUN * 1_000 <= MOST_BYTES
