"""CONTRIBUTING.md, "A first change": its lines do what it says, and every file and name in it is there."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from typer.testing import CliRunner

from scripts.options import filled
from tests.pipelines.runtime.handmade import HandmadeLake, no_spark
from tests.pipelines.sql.test_expressions import translated
from tests.quality_checks.staged import Given, stage
from tidegate.assets.text import metadata
from tidegate.orchestration.commands import app as commands
from tidegate.orchestration.console.shown import shown
from tidegate.orchestration.report import render
from tidegate.pipelines.connectors import registry
from tidegate.pipelines.errors import PlanningError
from tidegate.pipelines.facts.report import gather
from tidegate.pipelines.records import kinds
from tidegate.pipelines.runtime.status import InsertStatus, status
from tidegate.pipelines.sinks.protocol import EpochListener, Sink, sink_of
from tidegate.pipelines.sql import compile_script, functions
from tidegate.pipelines.watermarks.watermark import instant
from tidegate.quality_checks import checks, gate
from tidegate.quality_checks.evidence import Check
from tidegate.quality_checks.steps import InsertStep

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "CONTRIBUTING.md").read_text().partition("## A first change")[2].partition("\n## ")[0]


def made(kind: str, name: str = "first") -> ModuleType:
    """The module that the page shows."""
    found = re.search(f"<!-- first {kind} -->\n```python\n(.*?)```", TEXT, re.DOTALL)
    assert found is not None
    module = ModuleType(name)
    exec(compile(found[1], "CONTRIBUTING.md", "exec"), vars(module))
    return module


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`([\w./]+(?:\.\w+|/))`", TEXT)) - {"CONTRIBUTING.md"}))
def test_each_file_is_there(path: str) -> None:
    assert (ROOT / path).exists()


@pytest.mark.parametrize(("name", "path"), re.findall(r"`([A-Z]\w+)` (?:of|in)\s+`([\w./]+)\.py`", TEXT))
def test_each_name_is_in_its_file(name: str, path: str) -> None:
    assert hasattr(import_module(f"tidegate.{path.replace('/', '.')}"), name)


@pytest.mark.parametrize(("dropped", "held"), [(4, []), (6, ["dropped-ratio"])])
def test_a_check_holds_an_epoch(dropped: int, held: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = made("check")
    assert module.NAME not in gate.QUESTIONS
    monkeypatch.setattr(checks, "CHECKS", (*checks.CHECKS, Check(module.NAME, module.check)))
    staged = stage(tmp_path, Given({"matched": 10 - dropped, "dropped:where": dropped}))
    verdict = gate.judge(staged, no_spark)
    assert [check.name for check in verdict.checks if not check.passed] == held
    assert verdict.passed is (not held)


def test_a_function_is_known_to_a_script(monkeypatch: pytest.MonkeyPatch) -> None:
    square = made("function").SQUARE
    assert square.signature == "SQUARE(number)"
    for name in square.names:
        assert name not in functions.FUNCTIONS
        monkeypatch.setitem(functions.FUNCTIONS, name, square)
    value = translated("SQUARE(i)")
    assert (str(value.type.null()), value.sql.startswith("power(")) == ("DOUBLE", True)


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sink of the page, by an entry point."""
    monkeypatch.setitem(sys.modules, "bell", made("sink", "bell"))
    points = {**registry._points(), "bell": EntryPoint("bell", "bell:CONNECTOR", registry.GROUP)}
    monkeypatch.setattr(registry, "_points", lambda: points)


@pytest.mark.usefixtures("installed")
def test_a_sink_is_a_target_that_hears_of_epochs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = """
    CREATE TABLE clicks (id INT) WITH ('connector' = 'datagen');
    CREATE TABLE rung (id INT) WITH ('connector' = 'bell');
    INSERT INTO rung SELECT id FROM clicks
    """
    rung = compile_script(script).table("rung")
    assert (rung.role, rung.connector) == ("sink", "bell")
    context = SimpleNamespace(table=rung)
    with pytest.raises(PlanningError, match="rung cannot be read: bell is a target only"):
        registry.connector("bell").source(context)  # type: ignore[arg-type]
    sink = sink_of(rung, tmp_path)
    assert isinstance(sink, Sink)
    assert isinstance(sink, EpochListener)
    assert sink.path == tmp_path
    sink.published(no_spark)  # type: ignore[arg-type]
    assert capsys.readouterr().out == "\a"
    assert filled("<!-- options: bell -->\n<!-- /options -->").startswith("<!-- options: bell -->\n| option | type |")


def test_each_connector_is_an_entry_point_with_a_section_and_tests_of_its_own() -> None:
    """What the page says of a connector, of all that there are; docs/connectors.md has one, with a test."""
    settings, page = (ROOT / "pyproject.toml").read_text(), (ROOT / "docs" / "sources.md").read_text()
    tested = "".join(path.read_text() for path in (ROOT / "tests" / "pipelines").rglob("test_*conn*.py"))
    tested += "".join(path.read_text() for path in (ROOT / "tests" / "pipelines").rglob("test_conformance.py"))
    classes = set(re.findall(r"^Test(\w+) = .*connector_tests\(", tested, re.MULTILINE))
    for name in registry.names():
        assert f'{name} = "tidegate.' in settings
        assert f"<!-- options: {name} -->" in page
        if registry.connector(name).spec.source:
            assert name.replace("-", "") in {each.lower() for each in classes}


@pytest.fixture
def known_anew() -> Iterator[None]:
    """What is known of the facts of records is found once more, and forgotten after."""
    for known in (kinds.facts_of, kinds.columns_of):
        known.cache_clear()
    yield
    for known in (kinds.facts_of, kinds.columns_of):
        known.cache_clear()


@pytest.mark.usefixtures("known_anew")
def test_a_fact_is_in_terminal_json_dagster_and_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(InsertStatus, "waiting_since", made("fact").waiting_since, raising=False)
    rows = HandmadeLake(tmp_path / "lake")
    rows.landed("users", 1, 5, flip=1)
    rows.landed("clicks", 1, 10)
    rows.planned(1, 0, 1)
    found = status(rows.lake, rows.pipeline, clock=lambda: 60_000)
    planned_at = found.inserts[0].planned_at
    table = next(str(each) for each in shown(found) if "waits since" in str(each))
    assert table.splitlines()[1].rstrip().endswith("s ago")
    assert found.to_json()["inserts"][0]["waiting_since"] == planned_at
    in_dagster = metadata(InsertStep(summary="", at_once=(), status=found.inserts[0]))["details"].value
    assert in_dagster["status"]["waits since"] == instant(planned_at or 0)
    page = render(gather(rows.lake, rows.pipeline, clock=lambda: 60_000))
    assert "<th class=n>waits since</th>" in page


def test_a_command_is_listed_and_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = made("command", "tables")
    monkeypatch.setattr(commands.app, "registered_commands", [*commands.app.registered_commands])
    commands.app.command(epilog=module.EPILOG)(module.tables)
    listed = CliRunner().invoke(commands.app, ["--help"])
    assert "List what has landed." in listed.output
    made_by_hand = HandmadeLake(tmp_path / "lake")
    made_by_hand.landed("users", 1, 3, flip=1)
    made_by_hand.landed("clicks", 1, 3)
    result = CliRunner().invoke(commands.app, ["tables", "--lake", str(tmp_path / "lake")])
    listed_tables = [line.split()[0] for line in result.output.splitlines() if "/1 " in line]
    assert (result.exit_code, listed_tables) == (0, ["clicks", "users"])
    as_json = CliRunner().invoke(commands.app, ["tables", "--json", "--lake", str(tmp_path / "lake")])
    assert [item["table"] for item in json.loads(as_json.stdout)["sources"]] == ["clicks", "users"]
    helped = CliRunner().invoke(commands.app, ["tables", "--help"])
    assert (helped.exit_code, "tidegate tables" in helped.output) == (0, True)
