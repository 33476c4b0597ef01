"""Spans of time in a time zone: none is left out and none comes twice, whatever the clock does. Without Spark."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import dagster as dg
import pytest

from tests.assets.clicks import pipeline
from tests.pipelines.runtime.test_event_time import RATES
from tidegate.assets.components import TidegateComponent
from tidegate.assets.factories import build_pipeline_definitions
from tidegate.assets.names import VERDICT
from tidegate.assets.operations.partitions import partitions_of
from tidegate.assets.presentation import Partitions, Presentation, Steps, since
from tidegate.pipelines.errors import PlanningError
from tidegate.pipelines.sql import compile_script

BERLIN = "Europe/Berlin"
KEY = dg.AssetKey(["shop", "converted_by_time"])


def windows(start: str, every: Any, timezone: str, until: str) -> list[tuple[str, datetime, datetime]]:
    """Name, begin and end (UTC) of every partition there is at `until`."""
    definition = partitions_of(Partitions(since(start, timezone), every), timezone)
    names = definition.get_partition_keys(current_time=datetime.fromisoformat(until))
    spans = [definition.time_window_for_partition_key(name) for name in names]
    times = [(span.start.astimezone(UTC), span.end.astimezone(UTC)) for span in spans]
    return [(name, *time) for name, time in zip(names, times, strict=True)]


@pytest.mark.parametrize("timezone", ["UTC", BERLIN, "America/Havana", "America/St_Johns", "Asia/Kolkata"])
@pytest.mark.parametrize("every", ["hour", "day", "week", "month"])
@pytest.mark.parametrize(
    ("start", "until"),
    [("2026-10-20", "2026-12-10T00:00+00:00"), ("2026-03-05T13:20", "2026-05-10T00:00+00:00")],
    ids=["autumn", "spring"],
)
def test_every_moment_from_the_start_on_is_in_one_partition(timezone: str, every: str, start: str, until: str):
    found = windows(start, every, timezone, until)
    assert len({name for name, _, _ in found}) == len(found) > 0
    assert found[0][1] <= since(start, timezone) < found[0][2], "the first is the one that the start lies in"
    assert [end for _, _, end in found[:-1]] == [begin for _, begin, _ in found[1:]]


@pytest.mark.parametrize(
    ("day", "hours"), [("2026-03-29", 23), ("2026-10-25", 25), ("2026-10-24", 24), ("2026-03-30", 24)]
)
def test_a_day_in_berlin_has_as_many_hours_as_the_clock_makes_it(day: str, hours: int):
    found = {name: (begin, end) for name, begin, end in windows("2026-03-01", "day", BERLIN, "2026-11-01T00:00+00:00")}
    begin, end = found[day]
    assert begin == datetime.fromisoformat(day).replace(tzinfo=ZoneInfo(BERLIN)).astimezone(UTC)
    assert end - begin == timedelta(hours=hours)
    inside = [name for name, at, _ in windows(day, "hour", BERLIN, "2026-11-01T00:00+00:00") if begin <= at < end]
    assert len(inside) == hours


@pytest.mark.parametrize(
    ("start", "every", "first"),
    [
        ("2026-10-20", "month", "2026-10-01"),
        ("2026-10-20", "week", "2026-10-18"),
        ("2026-10-20T23:30+00:00", "day", "2026-10-21"),
        ("2026-10-20T13:20", "hour", "2026-10-20-13:00"),
    ],
)
def test_a_start_inside_of_a_period_begins_with_that_period(start: str, every: str, first: str):
    assert windows(start, every, BERLIN, "2026-12-10T00:00+00:00")[0][0] == first


def test_the_second_of_two_equal_hours_is_one_of_its_own():
    names = [name for name, _, _ in windows("2026-10-25T01:00", "hour", BERLIN, "2026-10-25T04:00+00:00")]
    assert names == [f"2026-10-25-{hour}" for hour in ("01:00", "02:00", "02:00+0100", "03:00", "04:00")]


def test_cron_is_that_of_berlin_for_schedules_and_conditions(tmp_path: Path):
    look = Presentation(cron="30 2 * * *", timezone=BERLIN, automation=True)
    defs = build_pipeline_definitions(pipeline(), lake=tmp_path, look=look)
    repository = defs.get_repository_def()
    assert {schedule.execution_timezone for schedule in repository.schedule_defs} == {BERLIN}
    condition = defs.resolve_asset_graph().get(dg.AssetKey(["clicks", "user_info"])).automation_condition
    assert condition == dg.AutomationCondition.on_cron(look.cron, BERLIN) & ~dg.AutomationCondition.in_progress()


@pytest.mark.parametrize(
    ("timezone", "every", "wrong"),
    [
        ("Europe/Belin", "day", "there is no time zone 'Europe/Belin'"),
        ("../etc/passwd", "day", "there is no time zone"),
        ("Australia/Lord_Howe", "hour", "changes its clock by part of an hour"),
    ],
)
def test_what_cannot_be_partitions_is_refused(timezone: str, every: Any, wrong: str, tmp_path: Path):
    (tmp_path / "shop.sql").write_text(RATES.format(policy="quarantine", kind="LEFT", more=""))
    component = TidegateComponent(
        script=str(tmp_path / "shop.sql"), timezone=timezone, partitions_from="2026-10-20", partitions_every=every
    )
    with pytest.raises(PlanningError, match=wrong):
        dg.build_defs_for_component(component)


def test_a_partition_has_its_own_verdict_and_the_policy_of_its_backfills(tmp_path: Path):
    steps = Steps(backfill_policy=dg.BackfillPolicy.multi_run(7))
    look = Presentation(partitions=Partitions(since("2026-10-20", BERLIN), "month"), timezone=BERLIN, steps=steps)
    text = RATES.format(policy="quarantine", kind="LEFT", more="")
    graph = build_pipeline_definitions(
        compile_script(text, name="shop"), lake=tmp_path, look=look
    ).resolve_asset_graph()
    asset, check = graph.get(KEY), graph.get(dg.AssetCheckKey(KEY, VERDICT))
    assert asset.backfill_policy == dg.BackfillPolicy.multi_run(7)
    assert check.partitions_def == asset.partitions_def
    assert asset.partitions_def is not None
