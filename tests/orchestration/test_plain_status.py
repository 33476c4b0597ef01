"""`tidegate status` without the other commands: it says what the app of all of them says, and leaves the rest to it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.pipelines.runtime.handmade import HandmadeLake
from tidegate.orchestration.cli import plain_status
from tidegate.orchestration.commands.app import app
from tidegate.pipelines.lake.records import EpochRow


@pytest.fixture
def made(tmp_path: Path) -> HandmadeLake:
    """A lake whose INSERT has published 7 rows of 10 and quarantined 3."""
    lake = HandmadeLake(tmp_path / "a lake")
    lake.one_epoch(matched=7, unmatched_key_absent_u=3)
    return lake


def command(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """The command as people start it."""
    run = [sys.executable, "-m", "tidegate.orchestration.cli", *arguments]
    return subprocess.run(run, capture_output=True, text=True, env={**os.environ, **variables}, check=False)


def plain(*arguments: str) -> list[str]:
    return ["status", *arguments]


def without_times(text: str) -> list[str]:
    """Its lines, but those that say how long ago something was, or when the look was."""
    return [line for line in text.splitlines() if " ago" not in line and " UTC" not in line and '"at"' not in line]


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_it_says_what_the_app_says(
    made: HandmadeLake, options: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = plain("--lake", str(made.root), *options)
    assert plain_status(arguments) == 0
    shown = without_times(capsys.readouterr().out)
    by_app = CliRunner().invoke(app, arguments)
    assert by_app.exit_code == 0
    assert shown == without_times(by_app.stdout)
    assert any("7" in line for line in shown)


def test_the_lake_may_be_named_by_the_environment(
    made: HandmadeLake, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TIDEGATE_LAKE", f"file://{made.root}")
    assert plain_status(plain("--json")) == 0
    assert json.loads(capsys.readouterr().out)["lake"] == str(made.root)


def test_rows_that_are_nowhere_are_status_1(made: HandmadeLake) -> None:
    plan = made.planned(2, 1, 2)
    made.landed("clicks", 2, 10)
    made.staged(plan, matched=4)
    made.judged(plan)
    made.published(plan)
    assert plain_status(plain("--lake", str(made.root))) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "x.sql"],
        plain("--help"),
        plain("-h"),
        plain("pipeline.sql"),
        plain("--watch"),
        plain("--debug"),
        plain("--nothing"),
        plain("--lake"),
        plain("--lake", ""),
        plain("--lake", "s3://bucket/lake"),
        plain("--lake", "no lake is here"),
        [],
    ],
)
def test_all_else_is_left_to_the_app(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert plain_status(arguments) is None
    assert capsys.readouterr() == ("", "")


def test_what_fails_is_told_by_the_app(tmp_path: Path, made: HandmadeLake) -> None:
    missing = command("status", "--lake", str(tmp_path / "none"))
    assert missing.returncode == 1
    assert "there is no lake here" in missing.stderr
    assert command("status", "--lake", "s3://bucket/lake").returncode == 2
    for file in (made.lake.control / EpochRow.table).rglob("*.parquet"):
        file.write_bytes(b"PAR1")
    damaged = command("status", "--json", "--lake", str(made.root))
    assert damaged.returncode == 1
    assert "damaged" in json.loads(damaged.stdout)["error"]["what"]


def test_a_reader_that_has_gone_is_no_error(made: HandmadeLake) -> None:
    """As in `tidegate status | head -1`."""
    reading, writing = os.pipe()
    os.close(reading)
    run = [sys.executable, "-m", "tidegate.orchestration.cli", "status", "--lake", str(made.root)]
    done = subprocess.run(run, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert "Traceback" not in done.stderr
    assert done.returncode == 1
