"""What `tidegate status` tells a person who has seen nothing else: what waits for whom, and what to type."""

from __future__ import annotations

import io
import json
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from tests.assets.clicks import REASON, handmade, pipeline
from tests.pipelines.runtime.handmade import HandmadeLake
from tidegate.orchestration.console.shown import plainly
from tidegate.orchestration.console.shown import shown as lines
from tidegate.pipelines.commands import RUN, Commands, advice
from tidegate.pipelines.lake import StuckRow
from tidegate.pipelines.runtime.status import Stuck, status

MINUTE = 60_000
HERE = Commands(Path("clicks.sql"), Path("/data/lake"))


def shown(rows: HandmadeLake, now: int) -> str:
    """The lines of a status at this moment (ms, UTC)."""
    console = Console(file=io.StringIO(), width=200)
    for item in lines(status(rows.lake, pipeline("block"), clock=lambda: now), HERE):
        console.print(item, soft_wrap=True)
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_who_is_waited_for_and_whether_anybody_is_at_it(tmp_path: Path) -> None:
    rows = handmade(tmp_path / "lake")
    rows.begun(rows.build, 1, 0)
    rows.landed(rows.probe, 1, 5, at=2 * MINUTE, lag_ms=700)
    reported = shown(rows, 5 * MINUTE)
    assert "enriched_click waits until user_info is complete." in reported
    assert "Nobody works on user_info.\n  next:  tidegate run clicks.sql --lake /data/lake   (goes on" in reported
    assert "nobody for" not in reported, "that a lease was held is not known"
    with closing(rows.lake.leases("tidegate run", clock=lambda: 6 * MINUTE)) as leases:
        leases.acquire(rows.build)
        reported = shown(rows, 7 * MINUTE)
    assert "waits until user_info is complete." in reported
    assert "Nobody works" not in reported
    assert "nobody for" not in reported
    assert "nobody for 10 min" in shown(rows, 16 * MINUTE)


def test_an_epoch_that_nobody_finishes_is_named(tmp_path: Path) -> None:
    """A run failed there, or was stopped: nothing else in the lake shows it."""
    rows = handmade(tmp_path / "lake")
    rows.planned(1, 0, 1)
    rows.begun(rows.probe, 4, 0)
    unfinished = shown(rows, 5 * MINUTE)
    assert "click_event: epoch 4 is not finished, and nobody works on it. Its run failed, or was stopped." in unfinished
    assert "enriched_click: epoch 1 is not finished, and nobody works on it." in unfinished
    assert "  next:  tidegate run clicks.sql --lake /data/lake   (goes on there, or shows why it cannot)" in unfinished
    with closing(rows.lake.leases("tidegate run", clock=lambda: 6 * MINUTE)) as leases:
        leases.acquire(rows.probe)
        leases.acquire(rows.owner)
        assert "is not finished" not in shown(rows, 7 * MINUTE)


def test_how_far_behind_a_source_was_is_reported_with_how_long_ago_that_was(tmp_path: Path) -> None:
    rows = handmade(tmp_path / "lake")
    rows.begun(rows.probe, 1, 0)
    rows.landed(rows.probe, 1, 5, at=2 * MINUTE, lag_ms=700)
    (line,) = [line for line in shown(rows, 5 * MINUTE).splitlines() if line.startswith("click_event")]
    assert line.split()[-5:] == ["3", "min", "ago", "0.7", "s"]


def test_what_is_held_has_its_reasons_and_its_commands(tmp_path: Path) -> None:
    rows = handmade(tmp_path / "lake")
    rows.epoch(1, {"rows": 7}, REASON)
    reported = shown(rows, 5 * MINUTE)
    assert "Held: epoch 1 of enriched_click" in reported
    assert "tidegate release clicks.sql enriched_click --lake /data/lake   (joins again)" in reported
    assert "tidegate discard clicks.sql enriched_click --lake /data/lake   (quarantines them)" in reported


def test_what_is_stuck_has_a_command_where_its_error_had_one(tmp_path: Path) -> None:
    rows = handmade(tmp_path / "lake")
    rows.begun(rows.build, 1, 0)
    stuck = [
        Stuck.of(StuckRow(name, 1, 1, 0, 0, kind="SourceError", what="it is gone", next=advice(command).stored()))
        for name, command in (("clicks", RUN), (rows.build, ""))
    ]
    found = replace(status(rows.lake, pipeline("block"), clock=lambda: 0), stuck=tuple(stuck), inserts=())
    reported = [str(line) for line in lines(found, HERE)]
    assert [line for line in reported if "next:" in line] == ["  next:  tidegate run clicks.sql --lake /data/lake"]
    as_json = json.loads(plainly(found, HERE, as_document=True) or "")
    assert [item["next"] for item in as_json["stuck"]] == ["tidegate run clicks.sql --lake /data/lake", ""]
