"""What a process outside of Dagster publishes, as the sensor reports it: a lake made by hand, without Spark."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import time
from typing import Any

import dagster as dg
import pytest

from tests.assets.clicks import REASON, handmade, pipeline, script
from tests.pipelines.runtime.handmade import HandmadeLake, no_spark
from tidegate.assets import Presentation, build_pipeline_definitions
from tidegate.assets.continuous import Cursor, look
from tidegate.assets.factories import continuous_sensor, location_definitions, on_lake
from tidegate.assets.metadata import of_epochs
from tidegate.assets.names import GATE
from tidegate.assets.resources import TidegateResource
from tidegate.orchestration.sensors import ALERTS
from tidegate.pipelines.lake.layout import Places
from tidegate.pipelines.location import Location
from tidegate.pipelines.runtime.epochs import stored_plan
from tidegate.pipelines.sql import compile_script
from tidegate.pipelines.sql.compile import Pipeline

CLICKS, USERS, STAGED, PUBLISHED = (
    dg.AssetKey(["clicks", name]) for name in ("click_event", "user_info", "enriched_click_staged", "enriched_click")
)
DAEMON_ROUND_S = 5
"""Dagster's daemon goes through all sensors once in so long."""


@dataclass
class Daemon:
    """Looks as the daemon does, and stores what it finds; `now` (s, UTC) is the test's own."""

    lake: Path
    instance: dg.DagsterInstance
    cursor: str | None = None
    now: float = 1_800_000_000.0
    pipelines: set[str] = field(default_factory=set)
    definitions: dg.Definitions = field(init=False)

    def __post_init__(self) -> None:
        self.load(pipeline("block"))

    def load(self, *pipelines: Pipeline, presentation: Presentation | None = None) -> None:
        """Load the code location anew, with these pipelines."""
        self.pipelines = {found.name for found in pipelines}
        made = [build_pipeline_definitions(found, lake=self.lake, look=presentation) for found in pipelines]
        self.definitions = dg.Definitions.merge(*made)

    def look(self, later: float = 10.0) -> list[Any]:
        """One look, `later` seconds after the last one; what it reports."""
        events = self.looked(later)
        for event in events:
            self.instance.report_runless_asset_event(event)
        return events

    def looked(self, later: float = 10.0) -> list[Any]:
        """What a look reports, before it is stored."""
        self.now += later
        repository = self.definitions.get_repository_def()
        context = dg.build_sensor_context(self.instance, cursor=self.cursor, repository_def=repository)
        found = look(context, self.pipelines, self.now)
        self.cursor = found.cursor
        return list(found.asset_events)

    def out_of_date(self) -> set[str]:
        """The assets that were materialised before something that they read was: of those Dagster says so."""
        last = self.instance.get_latest_materialization_event
        specs = self.definitions.resolve_all_asset_specs()
        made = {spec.key: event.timestamp for spec in specs if (event := last(spec.key)) is not None}
        read = {spec.key: [made.get(dep.asset_key, 0.0) for dep in spec.deps] for spec in specs if spec.key in made}
        return {key.path[-1] for key, times in read.items() if any(at > made[key] for at in times)}


@pytest.fixture
def rows(tmp_path: Path) -> HandmadeLake:
    return handmade(tmp_path / "lake")


@pytest.fixture
def daemon(rows: HandmadeLake, instance: dg.DagsterInstance) -> Daemon:
    return Daemon(Path(rows.lake.root), instance)


def publish(rows: HandmadeLake, *epochs: int) -> None:
    for epoch in epochs:
        rows.epoch(epoch, {"rows": 7, "to:publish": 5, "to:quarantine": 2}, publish=True)


def materialised(events: list[Any]) -> list[tuple[Any, ...]]:
    """(asset, epoch, epochs, rows) of the materialisations of the published asset."""
    found = [event for event in made(events) if event.asset_key == PUBLISHED]
    names = ("epoch", "epochs published", "rows published")
    return [(item.asset_key, *map(facts(item.metadata).get, names)) for item in found]


def made(events: list[Any]) -> list[dg.AssetMaterialization]:
    """The materialisations, in order."""
    return [event for event in events if isinstance(event, dg.AssetMaterialization)]


def epochs(events: list[Any]) -> list[tuple[str, Any]]:
    """(asset, epoch) of the materialisations."""
    return [(item.asset_key.path[-1], facts(item.metadata).get("epoch")) for item in made(events)]


def facts(metadata: Mapping[str, Any]) -> dict[str, Any]:
    shown = {name: value.value for name, value in metadata.items()}
    return {**shown, **shown.get("details", {})}


def checked(events: list[Any]) -> list[tuple[Any, ...]]:
    """(asset, passed, epoch) of the gate's results: its four checks are reported together."""
    found = [item for item in events if isinstance(item, dg.AssetCheckEvaluation)]
    assert [item.check_name for item in found] == [*GATE] * (len(found) // 4)
    return [(item.asset_key, item.passed, item.metadata["epoch"].value) for item in found if item.check_name == "rows"]


def test_an_epoch_is_seen_and_a_held_gate_alerted_within_ten_seconds():
    for sensor in (continuous_sensor("tidegate", []), *ALERTS):
        assert (sensor.minimum_interval_seconds or 0) + DAEMON_ROUND_S <= 10
        assert sensor.default_status == dg.DefaultSensorStatus.RUNNING


def test_nothing_has_run_yet(tmp_path: Path, instance: dg.DagsterInstance):
    daemon = Daemon(tmp_path / "none", instance)
    assert daemon.look() == []
    assert not (tmp_path / "none").exists()


def test_the_first_epoch_at_once_and_then_one_materialisation_a_minute(daemon: Daemon, rows: HandmadeLake):
    publish(rows, 1)
    first = daemon.look()
    assert materialised(first) == [(PUBLISHED, 1, 1, 5)]
    assert checked(first) == [(STAGED, True, 1)]
    publish(rows, 2)
    assert daemon.look(20) == []
    publish(rows, 3)
    assert daemon.look(20) == []
    later = daemon.look(20)
    assert materialised(later) == [(PUBLISHED, 3, 2, 10)]
    assert checked(later) == [(STAGED, True, 3)]
    assert daemon.look(600) == []


def test_a_look_that_has_lost_its_cursor_reports_nothing_twice(daemon: Daemon, rows: HandmadeLake):
    publish(rows, 1, 2)
    assert materialised(daemon.look()) == [(PUBLISHED, 2, 1, 5)]
    for lost in (None, "", "no cursor of ours", '{"clicks/enriched_click": 4}'):
        daemon.cursor = lost
        assert daemon.look(600) == []
    publish(rows, 3)
    daemon.cursor = None
    assert materialised(daemon.look(600)) == [(PUBLISHED, 3, 1, 5)]


def test_a_second_code_location_on_the_lake_finds_it_reported(daemon: Daemon, rows: HandmadeLake):
    other = Daemon(daemon.lake, daemon.instance, now=daemon.now)
    publish(rows, 1)
    assert len(materialised(daemon.look())) == 1
    assert other.look() == []


def test_a_held_epoch_is_a_failed_check_at_once_and_once(daemon: Daemon, rows: HandmadeLake):
    publish(rows, 1)
    daemon.look()
    rows.epoch(2, {"rows": 7, "unmatched:key-absent@user_info": 2}, REASON)
    shown = daemon.look()
    assert epochs(shown) == [("enriched_click_staged", 2)]
    (held,) = [item for item in shown if isinstance(item, dg.AssetCheckEvaluation) and item.check_name == "rows"]
    assert (held.asset_key, held.passed, held.metadata["epoch"].value) == (STAGED, False, 2)
    assert held.blocking
    assert held.metadata["reasons"].value == "2 rows have no match."
    assert f"--lake {daemon.lake}" in str(held.metadata["next"].value)
    assert daemon.look(600) == []
    daemon.cursor = None
    assert checked(daemon.look(600)) == [(STAGED, False, 2)], "who has forgotten what he has shown shows it again"
    rows.epoch(3, {"rows": 7, "to:publish": 7}, supersedes=2, publish=True)
    over = daemon.look(600)
    assert materialised(over) == [(PUBLISHED, 3, 1, 7)], "what was held is not counted"
    assert checked(over) == [(STAGED, True, 3)]


def test_a_check_of_ones_own_on_the_staged_asset_is_left_alone(daemon: Daemon, rows: HandmadeLake):
    @dg.asset_check(asset=STAGED)
    def my_own() -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=True)

    daemon.definitions = dg.Definitions.merge(daemon.definitions, dg.Definitions(asset_checks=[my_own]))
    publish(rows, 1)
    first = daemon.look()
    rows.epoch(2, {"rows": 7}, REASON)
    found = [event for event in (*first, *daemon.look()) if isinstance(event, dg.AssetCheckEvaluation)]
    assert [event.check_name for event in found] == [*GATE, *GATE]


def described(rows: HandmadeLake, epoch: int) -> dict[str, Any]:
    """The metadata of the published asset after an epoch."""
    plan = stored_plan(rows.lake.epochs.rows(rows.owner)[-1])
    (staged,) = rows.lake.staged.rows(rows.owner, epoch=epoch)
    (verdict,) = rows.lake.verdicts.rows(rows.owner, epoch=epoch)
    return of_epochs(plan, [staged], verdict, 0, Places(Location(rows.root), rows.insert.id))


def test_what_a_run_of_dagster_has_reported_is_not_reported_again(daemon: Daemon, rows: HandmadeLake):
    publish(rows, 1, 2)
    shown = described(rows, 2)

    @dg.asset(key=PUBLISHED)
    def published() -> dg.MaterializeResult:
        return dg.MaterializeResult(metadata=shown)

    assert dg.materialize([published], instance=daemon.instance).success
    assert PUBLISHED not in [event.asset_key for event in daemon.look(600)]
    assert daemon.look(600) == []
    known = Cursor.of(daemon.cursor).reported["clicks/enriched_click"]
    assert known.gate == "", "no later look asks what Dagster shows of the gate"
    publish(rows, 3)
    assert materialised(daemon.look(600)) == [(PUBLISHED, 3, 1, 5)]


@pytest.mark.parametrize(("label", "reported"), [("dagster run 1234", 0), ("tidegate run --continuous", 1)])
def test_nothing_is_reported_while_a_run_of_dagster_is_about_to(
    daemon: Daemon, rows: HandmadeLake, label: str, reported: int
):
    leases = rows.lake.leases(label)
    leases.acquire(rows.owner)
    publish(rows, 1)
    assert len(materialised(daemon.look())) == reported
    rows.epoch(2, {"rows": 7}, REASON)
    assert len(checked(daemon.look())) == reported
    leases.abandon()  # its process was killed before it reported it
    assert len(materialised(daemon.look())) == 1 - reported


def test_a_lake_that_cannot_be_read_keeps_no_other_from_being_reported(daemon: Daemon, rows: HandmadeLake):
    other = handmade(daemon.lake.parent / "other")
    damaged = on_lake(pipeline("block", name="damaged"), lake=other.lake.root)
    daemon.definitions = location_definitions([damaged, on_lake(pipeline("block"), lake=daemon.lake)])
    daemon.pipelines.add("damaged")
    publish(other, 1)
    for log in Path(other.lake.logs.of(other.owner).path / "_delta_log").glob("*.json"):
        log.write_text("{")
    publish(rows, 1)
    assert materialised(daemon.look()) == [(PUBLISHED, 1, 1, 5)]
    assert {"clicks/enriched_click", "damaged/enriched_click"} <= set(json.loads(daemon.cursor or ""))


def test_of_more_epochs_than_are_added_up_only_the_last_is_described(
    daemon: Daemon, rows: HandmadeLake, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("tidegate.pipelines.facts.news.AT_ONCE", 3)
    publish(rows, 1)
    daemon.look()
    publish(rows, 2, 3, 4)
    assert materialised(daemon.look(60)) == [(PUBLISHED, 4, 3, 15)]
    publish(rows, 5, 6, 7, 8)
    assert materialised(daemon.look(60)) == [(PUBLISHED, 8, 1, 5)]


ASSETS = ("click_event", "user_info", "enriched_click_staged", "enriched_click")


def landed(rows: HandmadeLake, *epochs: int) -> None:
    """Epochs of both source tables, of which the first one of the build flips it."""
    for epoch in epochs:
        rows.landed("user_info", epoch, 3, flip=1, at=round(time() * 1000))
        rows.landed("click_event", epoch, 7, at=round(time() * 1000))


def test_what_is_published_outside_of_dagster_is_up_to_date(daemon: Daemon, rows: HandmadeLake):
    landed(rows, 1)
    publish(rows, 1)
    assert epochs(daemon.look()) == [(name, 1) for name in ASSETS]
    assert daemon.out_of_date() == set()
    landed(rows, 2)
    publish(rows, 2)
    assert daemon.look() == [], "at most once a minute"
    assert epochs(daemon.look(60)) == [(name, 2) for name in ASSETS]
    assert daemon.out_of_date() == set()
    daemon.cursor = None
    assert daemon.look(600) == [], "the service, or Dagster, was started again"


def test_what_has_landed_is_shown_before_anything_is_published(daemon: Daemon, rows: HandmadeLake):
    landed(rows, 1, 2)
    found = daemon.look()
    assert epochs(found) == [("click_event", 2), ("user_info", 2)]
    shown = facts(made(found)[1].metadata)
    assert shown["summary"] == "flipped; 6 rows landed in 2 epochs, outside of Dagster"
    assert (shown["dagster/row_count"], shown["flipped"], shown["lag (ms)"]) == (6, 1, 5)
    landed(rows, 3)
    assert daemon.look() == []
    assert [facts(event.metadata)["rows landed"] for event in made(daemon.look(60))] == [7, 3]


def test_a_table_to_which_nothing_came_is_up_to_date_too(daemon: Daemon, rows: HandmadeLake):
    rows.landed("click_event", 1, 7)
    assert epochs(daemon.look()) == [("click_event", 1)], "nobody has begun to read the other one"
    publish(rows, 1)
    assert epochs(daemon.look()) == [("user_info", None), ("enriched_click_staged", 1), ("enriched_click", 1)]
    assert daemon.out_of_date() == set()
    assert daemon.look(600) == []


def test_a_run_of_dagster_that_finds_nothing_new(daemon: Daemon, rows: HandmadeLake, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(TidegateResource, "session", lambda *_: no_spark())
    landed(rows, 1)
    publish(rows, 1)
    daemon.look()
    assert daemon.definitions.resolve_job_def("clicks").execute_in_process(instance=daemon.instance).success
    assert daemon.out_of_date() == set()
    daemon.cursor = None
    assert daemon.look(600) == []
    landed(rows, 2)
    publish(rows, 2)
    assert epochs(daemon.look(600)) == [(name, 2) for name in ASSETS]
    assert daemon.out_of_date() == set()


def test_what_the_gate_holds_is_staged_and_not_published(daemon: Daemon, rows: HandmadeLake):
    landed(rows, 1)
    rows.epoch(1, {"rows": 7}, REASON)
    assert epochs(daemon.look()) == [(name, 1) for name in ASSETS if name != "enriched_click"]
    rows.epoch(2, {"rows": 7, "to:publish": 7}, supersedes=1, publish=True)
    daemon.look()
    assert daemon.out_of_date() == set()
    rows.epoch(3, {"rows": 7}, REASON)
    daemon.look()
    assert daemon.out_of_date() == {"enriched_click"}


def test_what_is_published_before_a_held_epoch_leaves_the_held_one_staged(daemon: Daemon, rows: HandmadeLake):
    landed(rows, 1)
    publish(rows, 1)
    daemon.look()
    publish(rows, 2)
    rows.epoch(3, {"rows": 7}, REASON)
    assert epochs(daemon.look(20)) == [("enriched_click_staged", 3)]
    assert epochs(daemon.look(60)) == [("enriched_click", 2)]
    assert checked(daemon.look()) == []


def test_keys_that_a_person_has_chosen(daemon: Daemon, rows: HandmadeLake):
    def under_mart(asset: Any) -> dg.AssetSpec:
        return asset.spec.replace_attributes(key=asset.spec.key.with_prefix("mart"))

    daemon.load(pipeline("block"), presentation=Presentation(translate=under_mart))
    landed(rows, 1)
    publish(rows, 1)
    assert {event.asset_key.path[0] for event in made(daemon.look())} == {"mart"}
    assert daemon.out_of_date() == set()


def test_a_table_that_is_made_elsewhere(daemon: Daemon, rows: HandmadeLake):
    daemon.load(pipeline("block"), presentation=Presentation(exclude=("user_info",)))
    landed(rows, 1)
    publish(rows, 1)
    daemon.instance.report_runless_asset_event(dg.AssetMaterialization(USERS))
    assert epochs(daemon.look()) == [(name, 1) for name in ASSETS if name != "user_info"]
    assert daemon.out_of_date() == set()


def test_two_inserts_of_one_table(daemon: Daemon, rows: HandmadeLake):
    text = script("block")
    made_by, insert = text[text.index("CREATE TABLE enriched_click") :].split("INSERT", 1)
    second = f"{made_by}INSERT{insert}".replace("enriched_click", "again")
    both = replace(compile_script(text + second), name="clicks")
    daemon.load(both)
    other = HandmadeLake(rows.root, replace(both, inserts=both.inserts[1:]), watermark=None)
    landed(rows, 1)
    publish(rows, 1)
    assert len(made(daemon.look())) == 4
    publish(other, 1)
    assert epochs(daemon.look()) == [("again_staged", 1), ("again", 1)]
    assert daemon.out_of_date() == set()
