"""What a process outside of Dagster publishes, as the sensor reports it: a lake made by hand, without Spark."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from tests.assets.clicks import REASON, handmade, pipeline
from tests.pipelines.runtime.handmade import HandmadeLake
from tidegate.assets import build_pipeline_definitions
from tidegate.assets.continuous import Cursor, look
from tidegate.assets.factories import continuous_sensor, location_definitions, on_lake
from tidegate.assets.metadata import of_epochs
from tidegate.orchestration.sensors import ALERTS
from tidegate.pipelines.lake.layout import Places
from tidegate.pipelines.location import Location
from tidegate.pipelines.runtime.epochs import stored_plan

STAGED, PUBLISHED = (dg.AssetKey(["clicks", name]) for name in ("enriched_click_staged", "enriched_click"))
DAEMON_ROUND_S = 5
"""Dagster's daemon goes through all sensors once in so long."""


@dataclass
class Daemon:
    """Looks as the daemon does, and stores what it finds; `now` (s, UTC) is the test's own."""

    lake: Path
    instance: dg.DagsterInstance
    cursor: str | None = None
    now: float = 1_800_000_000.0
    definitions: dg.Definitions = field(init=False)

    def __post_init__(self) -> None:
        self.definitions = build_pipeline_definitions(pipeline("block"), lake=self.lake)

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
        found = look(context, {"clicks", "damaged"}, self.now)
        self.cursor = found.cursor
        return list(found.asset_events)


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
    """(asset, epoch, rows) of the materialisations."""
    found = [event for event in events if isinstance(event, dg.AssetMaterialization)]
    names = ("epoch", "epochs published", "rows published")
    return [(item.asset_key, *map(facts(item.metadata).get, names)) for item in found]


def facts(metadata: Mapping[str, Any]) -> dict[str, Any]:
    shown = {name: value.value for name, value in metadata.items()}
    return {**shown, **shown["details"]}


def checked(events: list[Any]) -> list[tuple[Any, ...]]:
    """(asset, check, passed, epoch) of the gate's results."""
    return [
        (item.asset_key, item.check_name, item.passed, item.metadata["epoch"].value)
        for item in events
        if isinstance(item, dg.AssetCheckEvaluation) and item.check_name == "gate"
    ]


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
    assert checked(first) == [(STAGED, "gate", True, 1)]
    publish(rows, 2)
    assert daemon.look(20) == []
    publish(rows, 3)
    assert daemon.look(20) == []
    later = daemon.look(20)
    assert materialised(later) == [(PUBLISHED, 3, 2, 10)]
    assert checked(later) == [(STAGED, "gate", True, 3)]
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
    (held,) = [item for item in daemon.look() if item.check_name == "gate"]
    assert (held.asset_key, held.passed, held.metadata["epoch"].value) == (STAGED, False, 2)
    assert held.blocking
    assert held.metadata["reasons"].value == "2 rows have no match."
    assert f"--lake {daemon.lake}" in held.metadata["next"].value
    assert daemon.look(600) == []
    daemon.cursor = None
    assert daemon.look(600) == []
    rows.epoch(3, {"rows": 7, "to:publish": 7}, supersedes=2, publish=True)
    over = daemon.look(600)
    assert materialised(over) == [(PUBLISHED, 3, 1, 7)], "what was held is not counted"
    assert checked(over) == [(STAGED, "gate", True, 3)]


def test_a_check_of_ones_own_on_the_staged_asset_is_left_alone(daemon: Daemon, rows: HandmadeLake):
    @dg.asset_check(asset=STAGED)
    def my_own() -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=True)

    daemon.definitions = dg.Definitions.merge(daemon.definitions, dg.Definitions(asset_checks=[my_own]))
    publish(rows, 1)
    first = daemon.look()
    rows.epoch(2, {"rows": 7}, REASON)
    found = [event for event in (*first, *daemon.look()) if isinstance(event, dg.AssetCheckEvaluation)]
    assert [event.check_name for event in found] == ["gate", "gate"]


def test_what_a_run_of_dagster_has_reported_is_not_reported_again(daemon: Daemon, rows: HandmadeLake):
    publish(rows, 1, 2)
    plan = stored_plan(rows.lake.epochs.rows(rows.owner)[-1])
    (staged,) = rows.lake.staged.rows(rows.owner, epoch=2)
    (verdict,) = rows.lake.verdicts.rows(rows.owner, epoch=2)
    shown = of_epochs(plan, [staged], verdict, 0, Places(Location(daemon.lake), rows.insert.id))

    @dg.asset(key=PUBLISHED)
    def published() -> dg.MaterializeResult:
        return dg.MaterializeResult(metadata=shown)

    assert dg.materialize([published], instance=daemon.instance).success
    assert daemon.look(600) == []
    (known,) = Cursor.of(daemon.cursor).reported.values()
    assert known.held == "", "Dagster has no result of the gate at all: no later look asks for one"
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
    publish(other, 1)
    for log in Path(other.lake.control / "epochs" / "_delta_log").glob("*.json"):
        log.write_text("{")
    publish(rows, 1)
    assert materialised(daemon.look()) == [(PUBLISHED, 1, 1, 5)]
    assert set(json.loads(daemon.cursor or "")) == {"clicks/enriched_click", "damaged/enriched_click"}


def test_of_more_epochs_than_are_added_up_only_the_last_is_described(
    daemon: Daemon, rows: HandmadeLake, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("tidegate.assets.continuous.AT_ONCE", 3)
    publish(rows, 1)
    daemon.look()
    publish(rows, 2, 3, 4)
    assert materialised(daemon.look(60)) == [(PUBLISHED, 4, 3, 15)]
    publish(rows, 5, 6, 7, 8)
    assert materialised(daemon.look(60)) == [(PUBLISHED, 8, 1, 5)]
