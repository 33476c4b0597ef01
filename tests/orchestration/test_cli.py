"""The `tidegate` command as a person and a program meet it: words, JSON, exit statuses."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import socket
import sys
import threading
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession
from rich.console import Console
from typer.testing import CliRunner, Result

from tests.orchestration.services import free_port, until
from tidegate.orchestration import cli
from tidegate.orchestration.commands import runner
from tidegate.orchestration.commands.app import app
from tidegate.orchestration.console.bars import Bars
from tidegate.pipelines.facts.plan import explain
from tidegate.pipelines.runtime.differences import ELSEWHERE, Difference
from tidegate.pipelines.sql import compile_script
from tidegate.pipelines.testing import Harness

SCRIPT = """
CREATE TABLE user_info (user_id INT PRIMARY KEY NOT ENFORCED, gender STRING) WITH (
    'connector' = 'scripted', 'phases' = 'true', 'signals' = 'true');
CREATE TABLE click_event (user_id INT, item_id INT, proctime AS PROCTIME()) WITH ('connector' = 'scripted');
CREATE TABLE enriched (user_id INT, item_id INT, gender STRING) WITH (
    'connector' = 'delta', 'gate.on-unmatched' = '{policy}');
INSERT INTO enriched
SELECT click_event.user_id, item_id, gender FROM click_event
LEFT JOIN user_info FOR SYSTEM_TIME AS OF click_event.proctime ON click_event.user_id = user_info.user_id;
"""

SIGNALS = ", 'phases' = 'true', 'signals' = 'true'"

COMMANDS = ("demo", "run", "explain", "status", "verify", "ui", "maintain", "release", "discard")


def tidegate(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_a_lake_elsewhere_is_refused_and_nothing_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "pipeline.sql"
    script.write_text(SCRIPT.format(policy="quarantine"))
    for command in ("run", "status", "verify", "maintain"):
        refused = tidegate(command, script, "--lake", "s3://bucket/lake")
        assert (refused.exit_code, "s3:// is not a folder" in refused.output) == (2, True), refused.output
    monkeypatch.setenv("TIDEGATE_LAKE", "s3://bucket/lake")
    assert tidegate("run", script).exit_code == 2
    assert tidegate("run", script, "--lake", script).exit_code == 2  # it is a file
    assert list(tmp_path.iterdir()) == [script]


def test_the_lake_is_beside_the_script_wherever_the_command_is_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    home.mkdir()
    elsewhere.mkdir()
    script = home / "pipeline.sql"
    script.write_text(SCRIPT.format(policy="quarantine"))
    lake = home / ".tidegate" / "lake"
    monkeypatch.delenv("TIDEGATE_LAKE", raising=False)
    for folder, named in ((elsewhere, script), (elsewhere, Path("../home/pipeline.sql")), (home, Path("pipeline.sql"))):
        monkeypatch.chdir(folder)
        for command in ("status", "verify", "maintain"):
            where = read(tidegate(command, named, "--json"))["error"]["where"]
            assert Path(where).resolve() == lake, (command, named)
    monkeypatch.chdir(elsewhere)
    assert Path(read(tidegate("status", "--json"))["error"]["where"]).resolve() == elsewhere / ".tidegate" / "lake"
    other = elsewhere / "other.sql"
    other.write_text(script.read_text())
    several = tidegate("ui", script, other)
    assert (several.exit_code, "--lake DIR" in several.output) == (2, True), several.output
    monkeypatch.setenv("TIDEGATE_LAKE", str(tmp_path / "named"))
    assert read(tidegate("status", script, "--json"))["error"]["where"] == str(tmp_path / "named")

    said = io.StringIO()
    for _ in range(2):
        with Bars(Console(file=said, width=500)) as bars:
            runner.runner(compile_script(script.read_text()), lake, None, bars, "a test").close()
    assert said.getvalue().count(f"This is a new lake: {lake}") == 1


def read(result: Result) -> Any:
    return json.loads(result.stdout)


class Pipeline:
    """A script on a lake whose sources say what a test tells them, worked on by the command."""

    def __init__(self, folder: Path, spark: SparkSession, policy: str) -> None:
        self.script = folder / "clicks.sql"
        self.script.write_text(SCRIPT.format(policy=policy))
        self.sources = Harness(self.script.read_text(), spark, folder)
        self.lake = folder / "lake"

    def __call__(self, command: str, *arguments: object) -> Result:
        return tidegate(command, self.script, *arguments, "--lake", self.lake)

    def load(self, *users: int) -> None:
        self.sources.push("user_info", [{"user_id": user, "gender": "f"} for user in users])
        self.sources.end_of_snapshot("user_info")

    def click(self, *users: int) -> None:
        self.sources.push("click_event", [{"user_id": user, "item_id": 1} for user in users])


@pytest.fixture
def pipeline(tmp_path: Path, spark: SparkSession) -> Pipeline:
    return Pipeline(tmp_path, spark, "quarantine")


@pytest.fixture
def blocking(tmp_path: Path, spark: SparkSession) -> Pipeline:
    return Pipeline(tmp_path, spark, "block")


# --- words ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself_with_examples(command: str) -> None:
    result = tidegate(command, "--help")
    assert result.exit_code == 0
    assert f"tidegate {command}" in result.stdout.partition("Examples")[2]


@pytest.mark.parametrize(
    "arguments",
    [
        ("swim",),
        ("run",),
        ("run", "nowhere.sql"),
        ("explain", "--jsno"),
        ("demo", "--rows", "3"),
        ("ui", "--port", "70000"),
        ("run", "{script}", "--keep", "1 d"),
        ("run", "{script}", "--every", "3"),
        ("status", "--every", "1"),
        ("reconcile", "{script}", "--wait", "a while"),
        ("run", "{script}", "--keep", "soon"),
        ("run", "{script}", "--wait", "a while"),
        ("run", "{script}", "--continuous", "--keep", "a week"),
    ],
)
def test_a_wrong_command_line_is_status_2(
    arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "clicks.sql"
    script.write_text(SCRIPT.format(policy="quarantine"))
    assert tidegate(*(each.format(script=script) for each in arguments)).exit_code == 2
    assert list(tmp_path.iterdir()) == [script]


@pytest.mark.parametrize(
    "arguments", [("run", "nowhere.sql"), ("explain",), ("run", "{script}", "--resnapshot", "users")]
)
def test_a_wrong_command_line_is_json_too(
    arguments: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    script = tmp_path / "clicks.sql"
    script.write_text(SCRIPT.format(policy="quarantine"))
    words = [each.format(script=script) for each in arguments]
    monkeypatch.setattr(sys, "argv", ["tidegate", *words, "--json"])
    with pytest.raises(SystemExit, match="2"):
        cli.main()
    error = json.loads(capsys.readouterr().out)["error"]
    assert set(error) == {"kind", "what", "where", "state", "next"}
    assert error["next"] == f"tidegate {arguments[0]} --help"


def test_names_that_the_script_does_not_have_are_status_2(pipeline: Pipeline) -> None:
    for arguments in (("run", "--resnapshot", "users"), ("release", "riched"), ("verify", "--insert", "riched")):
        result = pipeline(*arguments)
        assert result.exit_code == 2
        assert "enriched" in result.stderr or "user_info" in result.stderr


def test_an_error_of_the_script_shows_its_line(tmp_path: Path) -> None:
    script = tmp_path / "clicks.sql"
    script.write_text(SCRIPT.format(policy="quarantine").replace("item_id, gender FROM", "item_id, gendre FROM"))
    result = tidegate("explain", script)
    assert result.exit_code == 1
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert f"{script}:8:" in lines[0]
    place = next(number for number, line in enumerate(lines) if "gendre FROM" in line)
    assert "^" in lines[place + 1]
    assert lines[place + 1].index("^") == lines[place].index("gendre")
    assert "did you mean" in result.stderr
    assert "gender" in result.stderr
    assert "Traceback" not in result.stderr

    found = read(tidegate("explain", script, "--json"))["error"]
    assert found["kind"] == "SqlError"
    assert found["line"] == 8
    assert "gendre" in found["what"]
    assert found["next"]


def test_explain_shows_what_waits_for_what_and_no_secret(tmp_path: Path) -> None:
    script = tmp_path / "clicks.sql"
    text = SCRIPT.format(policy="quarantine").replace(
        "'connector' = 'scripted', 'phases' = 'true', 'signals' = 'true'",
        "'connector' = 'mysql-cdc', 'hostname' = '${SOME_HOST}', 'username' = 'u', 'password' = 'open-sesame', "
        "'database-name' = 'd', 'table-name' = 'user_info'",
    )
    script.write_text(text)
    result = tidegate("explain", script)
    assert result.exit_code == 0
    assert "waits: every row of click_event for user_info to flip" in result.stdout
    assert "(quarantine)\n    Flink would publish it with NULL for all columns of user_info\n" in result.stdout
    assert [line.split(":")[0] for line in result.stdout.splitlines() if line.startswith("table ")] == [
        "table user_info", "table click_event", "table enriched",
    ]  # fmt: skip
    assert not {"DESCRIBE", "CREATE"} & set(result.stdout.split())
    first, export, after = result.stdout.splitlines()[-3:]
    assert first == "The script is right: 3 tables, 1 INSERT. Nothing was run."
    assert export.strip() == "first: export SOME_HOST=…"
    assert "".join(after.split()) == "next:tidegaterun" + "".join(str(script).split())
    found = tidegate("explain", script, "--json")
    assert "open-sesame" not in result.output + found.output
    assert read(found)["environment"] == read(found)["missing"] == ["SOME_HOST"]
    assert [table["role"] for table in read(found)["tables"]] == ["build", "probe", "sink"]
    assert read(found)["inserts"][0]["on_unmatched"] == "quarantine"


def test_reconcile_names_every_variable_that_is_not_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mysql = "'connector' = 'mysql-cdc', 'hostname' = '${{HOST_{0}}}', 'username' = 'u', 'password' = '${{WORD_{0}}}', "
    mysql += "'database-name' = 'd', 'table-name' = 't'"
    script = tmp_path / "two.sql"
    script.write_text(
        f"CREATE TABLE a (id INT PRIMARY KEY NOT ENFORCED) WITH ({mysql.format('A')});\n"
        f"CREATE TABLE b (id INT PRIMARY KEY NOT ENFORCED) WITH ({mysql.format('B')});\n"
        "CREATE TABLE p (id INT, at AS PROCTIME()) WITH ('connector' = 'scripted');\n"
        "CREATE TABLE s (id INT) WITH ('connector' = 'print');\n"
        "INSERT INTO s SELECT p.id FROM p LEFT JOIN a FOR SYSTEM_TIME AS OF p.at ON p.id = a.id\n"
        "LEFT JOIN b FOR SYSTEM_TIME AS OF p.at ON p.id = b.id;\n"
    )
    monkeypatch.setenv("HOST_A", "db")
    found = read(tidegate("reconcile", script, "--lake", tmp_path / "lake", "--json"))["error"]
    assert found["what"] == "the environment has no HOST_B, WORD_A, WORD_B"
    assert found["where"].endswith("WITH options of a, b")
    assert found["next"] == "export HOST_B=… WORD_A=… WORD_B=…"


def test_explain_shows_every_statement_its_watermark_and_its_functions(tmp_path: Path) -> None:
    script = tmp_path / "clicks.sql"
    function = "tests.pipelines.functions.samples.watermark_on_flag"
    declared = f"CREATE FUNCTION on_flag AS '{function}' LANGUAGE PYTHON;\n"
    text = SCRIPT.format(policy="quarantine").replace(
        "item_id INT, ", "item_id INT, at TIMESTAMP(3), flag BOOLEAN, WATERMARK FOR at AS on_flag(at, flag), ", 1
    )
    script.write_text("SET 'pipeline.auto-watermark-interval' = '0 ms';\n" + declared + text)
    result = tidegate("explain", script, "--statements")
    assert result.exit_code == 0, result.stderr
    assert "SET 'pipeline.auto-watermark-interval' = '0 ms';" in result.stdout
    assert f"SHOW CREATE FUNCTION on_flag\nCREATE FUNCTION `on_flag` AS '{function}' LANGUAGE PYTHON;" in result.stdout
    assert "DESCRIBE click_event\nname" in result.stdout
    assert "watermark for at: on_flag(at, flag) (BIGINT)" in result.stdout
    assert "    WATERMARK FOR `at` AS on_flag(at, flag)\n" in result.stdout

    found = read(tidegate("explain", script, "--json"))
    assert found["settings"] == {"pipeline.auto-watermark-interval": "0 ms"}
    assert found["functions"][0]["signature"] == "on_flag(rowtime BIGINT, is_end_of_sequence BOOLEAN) -> BIGINT"
    table = next(table for table in found["tables"] if table["name"] == "click_event")
    assert table["watermark"] == "on_flag(at, flag)"
    assert table["properties"]["schema.watermark.0.strategy.expression"] == "on_flag(`at`, `flag`)"
    assert "WATERMARK FOR `at` AS on_flag(at, flag)" in table["create"]

    script.write_text(declared.replace("watermark_on_flag", "watermark_on_flags") + text)
    assert read(tidegate("explain", script, "--json"))["error"]["line"] == 1


# --- no JVM --------------------------------------------------------------------------------------------------------


def test_explain_says_what_a_run_would_not_do(tmp_path: Path) -> None:
    script = tmp_path / "clicks.sql"
    script.write_text(SCRIPT.format(policy="quarantine").partition("INSERT")[0].partition("CREATE TABLE enriched")[0])
    assert "It has no INSERT, so a run of it lands nothing." in tidegate("explain", script).stdout
    refused = tidegate("explain", script, "--lake", tmp_path / "nothing")
    assert f"tidegate run {script} --lake {tmp_path / 'nothing'}" in refused.stderr


def test_explain_says_how_a_target_that_is_elsewhere_comes_back() -> None:
    """No declaration differs, so none can be put back."""
    pipeline = compile_script(SCRIPT.format(policy="quarantine"), name="clicks")
    there = "the table that e has published to"
    gone = Difference("insert e", "target path", there, f"out/e{ELSEWHERE}", True)
    other = Difference("insert e", "where", "a", "b", True)
    for found, told, advised in (
        ([gone], "e published to is not at the script's 'path'", "bring that table to this place"),
        ([gone, other], "2 definitions of the lake changed", "put the old declarations back"),
    ):
        shown = explain(pipeline, found, Path("lake"), statements=False)
        (note,) = replace(shown, missing=()).notes
        assert told in note.text
        assert str(note.next).startswith(advised)


def test_spark_writes_beside_a_lake_that_can_only_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def log() -> Path:
        return runner.session(tmp_path, None, Bars(Console())).keywords["log"]  # type: ignore[attr-defined]

    assert log() == tmp_path / "_scratch" / "spark.log"
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert not log().is_relative_to(tmp_path)


def test_a_dry_run_shows_what_comes_next_and_makes_no_lake(tmp_path: Path) -> None:
    script, lake = tmp_path / "clicks.sql", tmp_path / "lake"
    script.write_text(SCRIPT.format(policy="block").replace("'scripted'", "'datagen'").replace(SIGNALS, ""))
    result = tidegate("run", script, "--lake", lake, "--dry-run", "--json")
    assert result.exit_code == 0, result.output
    found = read(result)
    assert [(item["table"], item["epoch"]) for item in found["sources"]] == [("user_info", 1), ("click_event", 1)]
    (insert,) = found["inserts"]
    assert (insert["state"], insert["epoch"]) == ("waiting", None)
    assert not lake.exists()
    shown = tidegate("run", script, "--lake", lake, "--dry-run")
    assert "Nothing was stored." in shown.stdout
    assert tidegate("run", script, "--dry-run", "--continuous").exit_code == 2


@pytest.mark.parametrize("mode", [[], ["--continuous"]], ids=["once", "continuous"])
@pytest.mark.parametrize(
    ("arguments", "environment"),
    [(["--auto-watermark-interval", "0"], {}), ([], {"TIDEGATE_AUTO_WATERMARK_INTERVAL": "0"})],
    ids=["option", "variable"],
)
def test_the_auto_watermark_interval_reaches_the_runner(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    mode: list[str],
    arguments: list[str],
    environment: dict[str, str],
) -> None:
    intervals: list[timedelta | None] = []

    def made(*_: object, auto_watermark_interval: timedelta | None, **__: object) -> None:
        intervals.append(auto_watermark_interval)
        raise RuntimeError("that is all there is to see")

    monkeypatch.setattr("tidegate.pipelines.runtime.runner.Runner", made)
    script = tmp_path / "clicks.sql"
    script.write_text(SCRIPT.format(policy="quarantine"))
    command = ["run", str(script), "--lake", str(tmp_path / "lake"), *mode, *arguments]
    CliRunner().invoke(app, command, env=environment)
    assert intervals == [timedelta(0)]


@pytest.mark.parametrize("command", ["status", "maintain"])
def test_without_a_lake_a_command_says_so(command: str, tmp_path: Path) -> None:
    script = tmp_path / "clicks.sql"
    script.write_text(SCRIPT.format(policy="quarantine"))
    result = tidegate(command, script, "--lake", tmp_path / "nothing")
    assert result.exit_code == 1
    assert "there is no lake here" in result.stderr
    assert not (tmp_path / "nothing").exists()


# --- a run ---------------------------------------------------------------------------------------------------------


def test_nothing_leaves_before_the_table_is_loaded_and_what_is_forged_is_found(
    pipeline: Pipeline,
) -> None:
    pipeline.click(1, 2)
    pipeline.sources.push("user_info", [{"user_id": 1, "gender": "f"}])
    first = pipeline("run", "--json")
    assert first.exit_code == 0
    (insert,) = read(first)["inserts"]
    assert insert["published"] == []
    assert insert["waiting"]["rows"] == 2
    assert insert["waiting"]["unflipped"] == ["user_info"]
    printed = pipeline("status").stdout
    assert "waits until user_info is complete" in printed

    pipeline.load(2)
    pipeline.click(3)
    second = pipeline("run")
    assert second.exit_code == 0
    assert "enriched" in second.stdout
    (state,) = read(pipeline("status", "--json"))["inserts"]
    assert (state["rows"]["published"], state["rows"]["quarantined"]) == (2, {"key-absent@user_info": 1})
    assert "1 the key is not in the table (user_info)" in pipeline("status").stdout
    assert read(pipeline("run", "--json"))["moved"] is False
    good = pipeline("verify")
    assert good.exit_code == 0
    assert "3 released rows in 1 epoch recomputed, no row differs" in good.stdout

    result = pipeline("maintain", "--keep", "0 s", "--json")
    assert result.exit_code == 0
    tables = {item["table"]: item for item in read(result)["tables"]}
    assert set(tables) == {"user_info", "click_event", "enriched"}
    assert all(item["skipped"] is None for item in tables.values())
    assert "\nenriched " in pipeline("maintain").stdout
    assert pipeline("maintain", "--keep", "soon").exit_code == 2

    target = pipeline.sources.lake.target_path(pipeline.sources.pipeline.table("enriched"))
    forged = DeltaTable(str(target)).to_pyarrow_table().slice(0, 1)
    forged = forged.set_column(forged.schema.get_field_index("gender"), "gender", pa.array(["m"]))
    write_deltalake(str(target), forged, mode="append")
    bad = pipeline("verify")
    assert bad.exit_code == 1
    assert re.search("1 row is unexpected in the target: user_id = [12], item_id = 1, gender = 'm'", bad.stdout)

    pipeline.load(2)
    result = pipeline("run", "--resnapshot", "user_info", "--json")
    assert result.exit_code == 0
    (users,) = [item for item in read(result)["sources"] if item["table"] == "user_info"]
    assert (users["generation"], users["flipped"]) == (2, True), "the run tells what it has read"


# --- a held epoch --------------------------------------------------------------------------------------------------


def test_a_held_epoch_is_released_by_a_person_or_discarded(blocking: Pipeline) -> None:
    blocking.load(1)
    blocking.click(1, 5)
    held = blocking("run")
    assert held.exit_code == 1
    assert "\nHeld: the gate holds epoch 1 of enriched" in held.stderr
    go_on = f"tidegate release {blocking.script} enriched --lake {blocking.lake}"
    assert go_on in held.stderr, "it can be pasted"
    shown = blocking("status").stdout
    assert f"\n  next:  {go_on}   or   tidegate discard {blocking.script} enriched --lake {blocking.lake}" in shown
    assert "SCRIPT" not in held.stderr + shown
    found = read(blocking("status", "--json"))
    assert (found["held"], [item["kind"] for item in found["problems"]]) == (["enriched"], ["gate-held"])

    again = blocking("release", "enriched")
    assert again.exit_code == 1
    assert "Held: the gate holds epoch 2 of enriched" in again.stderr
    assert "nothing has changed since epoch 1 of enriched was held" in again.output

    blocking.sources.push("user_info", [{"user_id": 5, "gender": "m"}])
    assert blocking.sources.runner.advance("user_info").rows == 1
    blocking.sources.runner.close()
    let_go = blocking("release", "enriched")
    assert let_go.exit_code == 0, let_go.stderr
    assert "is published: 2 rows" in let_go.stdout
    assert "nothing has changed" not in let_go.output
    assert read(blocking("status", "--json"))["held"] == []
    nothing = blocking("release", "enriched")
    assert nothing.exit_code == 1
    assert "no epoch of enriched is held" in nothing.stderr

    blocking.click(1, 6)
    assert blocking("run").exit_code == 1
    done = read(blocking("release", "enriched", "--on-unmatched", "quarantine", "--json"))
    assert (done["rows"], done["quarantined"]) == (1, 1), "this once under another policy"

    blocking.click(1, 7)
    assert blocking("run").exit_code == 1
    done = blocking("discard", "enriched", "--json")
    assert done.exit_code == 0
    assert "of enriched (2 rows) quarantines them; 1 of them would have been published." in done.stderr
    assert (read(done)["rows"], read(done)["quarantined"]) == (0, 2)
    blocking.click(1)
    (insert,) = read(blocking("run", "--json"))["inserts"]
    assert [epoch["rows"] for epoch in insert["published"]] == [1]


def test_upkeep_between_ticks_keeps_dead_files_as_long_as_it_is_asked_to(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[timedelta] = []

    def maintenance(_: object, keep: timedelta) -> None:
        asked.append(keep)
        raise RuntimeError("that is all there is to see")

    monkeypatch.setattr("tidegate.pipelines.runtime.runner.Runner.maintenance", maintenance)
    for options in ((), ("--keep", "5 min")):
        pipeline("run", "--continuous", *options)
    assert asked == [timedelta(days=7), timedelta(minutes=5)]


def test_what_is_held_when_it_is_asked_to_stop_is_its_exit_status(blocking: Pipeline) -> None:
    blocking.load(1)
    blocking.click(1, 5)

    def stop_once_held() -> None:
        lake = blocking.sources.lake
        until(lambda: lake.verdicts.rows("insert enriched") and True, "the gate has judged")
        os.kill(os.getpid(), signal.SIGTERM)

    stopper = threading.Thread(target=stop_once_held)
    stopper.start()
    left = blocking("run", "--continuous", "--every", "0.1")
    stopper.join()
    assert left.exit_code == 1
    assert "Nothing is half done. The gate still holds enriched." in left.stderr


# --- others --------------------------------------------------------------------------------------------------------


def test_one_that_waits_goes_on_when_the_first_one_is_through(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline.load(1)
    pipeline.click(1)
    other = pipeline.sources.lake.leases("tidegate run")
    other.acquire("insert enriched")
    monkeypatch.setattr("tidegate.pipelines.lake.leases.sleep", lambda seconds: other.close())
    (insert,) = read(pipeline("run", "--wait", "5 min", "--json"))["inserts"]
    assert [epoch["rows"] for epoch in insert["published"]] == [1]


def test_a_variable_that_is_not_set_is_named(tmp_path: Path) -> None:
    script = tmp_path / "clicks.sql"
    text = SCRIPT.format(policy="quarantine").replace("'phases' = 'true'", "'phases' = '${NO_SUCH_VARIABLE}'")
    script.write_text(text)
    result = tidegate("run", script, "--lake", tmp_path / "lake")
    assert result.exit_code == 1
    assert "NO_SUCH_VARIABLE" in result.stderr


@pytest.mark.usefixtures("jvm")
def test_a_ui_port_that_is_taken_is_one_sentence() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        result = CliRunner().invoke(app, ["ui", "--port", str(other.getsockname()[1])])
    assert result.exit_code == 1
    assert "cannot be used: address already in use" in " ".join(result.stderr.split())
    assert "--port 3001" in result.stderr


def test_a_ui_without_java_is_reported_before_anything_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def started(*_: object, **__: object) -> None:
        raise AssertionError("Dagster was started")

    monkeypatch.setattr(os, "environ", dict(os.environ))
    monkeypatch.setitem(os.environ, "JAVA_HOME", str(tmp_path / "nothing"))
    monkeypatch.setattr("tidegate.orchestration.commands.ui._serve", started)
    result = CliRunner().invoke(app, ["ui", "--lake", str(tmp_path / "lake"), "--port", str(free_port())])
    assert result.exit_code == 1
    assert "Spark needs Java 17 or later" in result.stderr
    assert list(tmp_path.iterdir()) == []
