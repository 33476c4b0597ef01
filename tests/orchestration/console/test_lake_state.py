"""What `tidegate status` tells a person who has seen nothing else: what waits for whom, and what to type."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

from rich.console import Console
from typer.testing import CliRunner, Result

from tests.assets.clicks import REASON, handmade, pipeline
from tests.pipelines.runtime.handmade import HandmadeLake, no_spark
from tidegate.orchestration.commands.app import app
from tidegate.orchestration.console.shown import shown as lines
from tidegate.pipelines.commands import VERIFY, Commands
from tidegate.pipelines.errors import SourceError
from tidegate.pipelines.facts.problem import Scope
from tidegate.pipelines.facts.problems import LakeState, looked, problems
from tidegate.pipelines.lake.records import EpochRow
from tidegate.pipelines.runtime.runner import Runner
from tidegate.pipelines.runtime.status import status

MINUTE = 60_000
HERE = Commands(Path("clicks.sql"), Path("/data/lake"))


def shown(rows: HandmadeLake, now: int) -> str:
    """The lines of a status at this moment (ms, UTC)."""
    console = Console(file=io.StringIO(), width=200)
    found = vars(status(rows.lake, pipeline("block"), clock=lambda: now))
    listed = problems(rows.lake, now, Scope.of(rows.lake, pipeline("block")))
    for item in lines(LakeState(**found, problems=tuple(listed)), HERE):
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
    assert looked(rows.lake, pipeline("block")).unfinished == {"click_event": 4, "enriched_click": 1}
    unfinished = shown(rows, 5 * MINUTE)
    assert "\nclick_event: epoch 4 is not finished, and nobody works on it." in unfinished
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
    assert f"\nThe gate holds epoch 1 of enriched_click (7 rows). {REASON}   (since 1970-01-01" in reported
    release, discard = (
        f"tidegate {verb} clicks.sql enriched_click --lake /data/lake" for verb in ("release", "discard")
    )
    assert f"  next:  {release}   or   {discard}" in reported


def test_what_is_stuck_has_a_command_and_is_in_the_json(tmp_path: Path) -> None:
    rows = handmade(tmp_path / "lake")
    rows.begun(rows.build, 1, 0)
    for owner, command in ((rows.probe, VERIFY), (rows.build, "")):
        error = SourceError("it is gone. It was there", next_command=command)
        with Runner(pipeline("block"), rows.lake, spark=no_spark, clock=lambda: 0) as runner:
            runner.stuck(owner, error)
    text, look = shown(rows, 1000), looked(rows.lake, pipeline("block"))
    assert "\nclick_event is stuck since 1970-01-01 00:00:00 UTC: it is gone; it was there." in text
    assert [line for line in text.splitlines() if "next:  tidegate verify" in line or "(tries it again)" in line] == [
        "  next:  tidegate run clicks.sql --lake /data/lake   (tries it again)",
        "  next:  tidegate verify clicks.sql --lake /data/lake",
    ]
    as_json = look.to_json(HERE)
    assert [item["next"] for item in as_json["stuck"]] == ["", "tidegate verify clicks.sql --lake /data/lake"]
    stuck = [item for item in as_json["problems"] if item["kind"] == "stuck"]
    assert [(item["owner"], item["explained_by"]) for item in stuck] == [(rows.build, ""), (rows.probe, "")]
    assert stuck[1]["next"] == ["tidegate verify clicks.sql --lake /data/lake"]


def of(lake: Path | str, *options: str) -> Result:
    return CliRunner().invoke(app, ["status", "--lake", str(lake), *options])


def test_rows_that_are_nowhere_are_status_1(tmp_path: Path) -> None:
    rows = HandmadeLake(tmp_path / "lake")
    rows.one_epoch(matched=7, unmatched_key_absent_u=3)
    assert of(rows.root).exit_code == 0
    plan = rows.planned(2, 1, 2)
    rows.landed("clicks", 2, 10)
    rows.staged(plan, matched=4)
    rows.judged(plan)
    rows.published(plan)
    assert of(rows.root).exit_code == 1


def test_a_lake_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    missing = of(tmp_path / "none")
    assert (missing.exit_code, "there is no lake here" in missing.stderr) == (1, True)
    assert of("s3://bucket/lake").exit_code == 2
    rows = HandmadeLake(tmp_path / "lake")
    rows.one_epoch(matched=7)
    for file in Path(rows.lake.control).rglob(f"{EpochRow.table}-*.parquet"):
        file.write_bytes(b"PAR1")
    damaged = of(rows.root, "--json")
    assert damaged.exit_code == 1
    assert "damaged" in json.loads(damaged.stdout)["error"]["what"]


def test_a_reader_that_has_gone_is_no_error(tmp_path: Path) -> None:
    """As in `tidegate status | head -1`."""
    rows = HandmadeLake(tmp_path / "lake")
    rows.one_epoch(matched=7)
    reading, writing = os.pipe()
    os.close(reading)
    run = [sys.executable, "-m", "tidegate.orchestration.cli", "status", "--lake", str(rows.root)]
    done = subprocess.run(run, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert "Traceback" not in done.stderr
    assert done.returncode == 1
