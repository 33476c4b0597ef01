"""`tidegate status` without the other commands: it says what the app of all of them says, and leaves the rest to it."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from typer.testing import CliRunner

from tests.pipelines.runtime.handmade import HandmadeLake
from tidegate.orchestration.cli import plain_status
from tidegate.orchestration.commands.app import app
from tidegate.orchestration.console.grid import FILE_WIDTH, Grid, Line, drawn
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
    moving = (" ago", " UTC", '"at"', '"lag_ms"')
    return [line for line in text.splitlines() if not any(part in line for part in moving)]


SCRIPT = """
CREATE TABLE users (id BIGINT NOT NULL, name STRING, PRIMARY KEY (id) NOT ENFORCED)
    WITH ('connector' = 'datagen', 'rows-per-second' = '1');
CREATE TABLE clicks (id BIGINT, n INT, proctime AS PROCTIME()) WITH ('connector' = 'datagen', 'rows-per-second' = '1');
CREATE TABLE enriched (id BIGINT NOT NULL, n INT, name STRING, PRIMARY KEY (id) NOT ENFORCED)
    WITH ('connector' = 'delta');
INSERT INTO enriched SELECT c.id, c.n, u.name FROM clicks AS c
LEFT JOIN users FOR SYSTEM_TIME AS OF c.proctime AS u ON c.id = u.id;
"""


@pytest.mark.parametrize("options", [(), ("--json",)])
@pytest.mark.parametrize("script", [False, True])
def test_it_says_what_the_app_says(
    made: HandmadeLake, options: tuple[str, ...], script: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    if script:
        (made.root.parent / "p.sql").write_text(SCRIPT)
        options = (str(made.root.parent / "p.sql"), *options)
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


def test_a_script_that_the_lake_does_not_take_as_it_is_is_left_to_the_app(
    made: HandmadeLake, capsys: pytest.CaptureFixture[str]
) -> None:
    script = made.root.parent / "p.sql"
    script.write_text("CREATE TABLE")
    assert plain_status(plain(str(script), "--lake", str(made.root))) is None
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("grown", [False, True])
def test_what_goes_to_a_pipe_is_written_without_the_libraries_of_other_commands(
    made: HandmadeLake, grown: bool
) -> None:
    """Also of a lake whose tables have had a hundred commits, so that their logs have a checkpoint."""
    for log in made.lake.logs.there() if grown else ():
        DeltaTable(str(log.path)).create_checkpoint()
    script = made.root.parent / "p.sql"
    script.write_text(SCRIPT)
    others = ("rich", "typer", "pydantic", "numpy", "pyarrow.compute", "pyspark", "pandas")
    code = f"""
import sys
from tidegate.orchestration.cli import plain_status
assert plain_status(["status", {str(script)!r}, "--lake", {str(made.root)!r}]) == 0
print([name for name in {others!r} if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "quarantined: 3 the key is not in the table" in done.stdout
    assert done.stdout.splitlines()[-1] == "[]"


@settings(deadline=None)  # a busy machine is no failure
@given(
    st.lists(st.tuples(*[st.text("ab [/]\\:-", max_size=9).map(str.strip)] * 3), max_size=4),
    st.text("ab [/red]\\:-\n", max_size=30),
    st.integers(0, 9),
)
def test_tables_and_lines_are_as_rich_draws_them(rows: list[tuple[str, str, str]], line: str, red: int) -> None:
    table = Grid(("first", "second", "x"), ("second",))
    for row in rows:
        table.add_row(Line(row[0], red), *row[1:])
    for item in (table, Line(line, red)):
        console = Console(file=io.StringIO(), width=FILE_WIDTH)
        console.print(item, soft_wrap=isinstance(item, Line))
        shown = [line.rstrip() for line in console.file.getvalue().splitlines()]  # type: ignore[attr-defined]
        assert [line.rstrip() for line in f"{drawn(item, FILE_WIDTH)}\n".splitlines()] == shown


@pytest.mark.parametrize("wide", ["x" * FILE_WIDTH, "\u6771\u4eac", "a\tb", "a\nb", "\x1b[31m", " a"])
def test_what_needs_more_than_plain_letters_is_left_to_rich(wide: str) -> None:
    table = Grid(("first", "second"))
    table.add_row("a", wide)
    assert drawn(table, FILE_WIDTH) is None


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


def test_what_fails_is_reported_by_the_app(tmp_path: Path, made: HandmadeLake) -> None:
    missing = command("status", "--lake", str(tmp_path / "none"))
    assert missing.returncode == 1
    assert "there is no lake here" in missing.stderr
    assert command("status", "--lake", "s3://bucket/lake").returncode == 2
    for file in Path(made.lake.control).rglob(f"{EpochRow.table}-*.parquet"):
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
