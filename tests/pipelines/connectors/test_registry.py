"""Connectors are loaded when a script names them, and not before."""

from __future__ import annotations

import re
from importlib.metadata import EntryPoint
from types import SimpleNamespace
from typing import Any

import pytest

from tests.pipelines.sql.connectors import CONNECTORS
from tidegate.pipelines.clock import system_clock
from tidegate.pipelines.connectors import registry
from tidegate.pipelines.connectors.protocol import Step
from tidegate.pipelines.connectors.registry import InstalledConnectors
from tidegate.pipelines.connectors.spec import never_signalling, ways_out
from tidegate.pipelines.errors import PlanningError, SourceError
from tidegate.pipelines.runtime.landing.planning import EpochPlanner
from tidegate.pipelines.sql import SqlError, compile_script

POINTS = {
    "broken": EntryPoint("broken", "no.such.module:CONNECTOR", registry.GROUP),
    "older": EntryPoint("older", "tidegate.pipelines.sources.protocol:CONNECTOR", registry.GROUP),
    "scripted": EntryPoint("scripted", "tidegate.pipelines.sources.scripted:CONNECTOR", registry.GROUP),
}


@pytest.fixture(autouse=True)
def points(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_points", lambda: POINTS)
    registry._installed.cache_clear()


def test_a_broken_connector_is_in_nobodys_way() -> None:
    assert compile_script("CREATE TABLE t (a INT) WITH ('connector' = 'scripted')").table("t").connector == "scripted"


def test_a_broken_connector_is_an_error_where_it_is_used() -> None:
    with pytest.raises(SqlError) as caught:
        compile_script("CREATE TABLE t (a INT) WITH ('connector' = 'broken')")
    assert "the connector 'broken' cannot be loaded: ModuleNotFoundError" in caught.value.what
    assert (caught.value.line, caught.value.column) == (1, 44)


@pytest.mark.parametrize(
    ("name", "remedy"), [("broken", "reinstall"), ("older", "install a version of the package .* docs/connectors.md")]
)
def test_what_to_do_about_one_that_cannot_be_loaded(name: str, remedy: str) -> None:
    with pytest.raises(PlanningError) as caught:
        registry.connector(name)
    assert re.match(remedy, caught.value.next_command)


@pytest.mark.parametrize("returned", [None, Step({})])
def test_a_plan_as_older_connectors_returned_it_is_refused_by_name(returned: Step | None) -> None:
    table = compile_script("CREATE TABLE t (a INT) WITH ('connector' = 'scripted')").table("t")
    nothing: Any = None
    planner = EpochPlanner(nothing, table, nothing, nothing, system_clock)
    source: Any = SimpleNamespace(plan=lambda request: returned)
    with pytest.raises(SourceError, match=f"the connector 'scripted' planned {type(returned).__name__}") as caught:
        planner._planned(source, nothing)
    assert "docs/connectors.md" in caught.value.next_command


def test_an_unknown_connector_is_compared_with_the_installed_names() -> None:
    with pytest.raises(SqlError) as caught:
        compile_script("CREATE TABLE t (a INT) WITH ('connector' = 'scripte')")
    assert caught.value.hint == "did you mean `scripted`?"


def test_the_installed_connectors_are_a_mapping() -> None:
    known = InstalledConnectors()
    assert list(known) == ["broken", "older", "scripted"]
    assert len(known) == 3
    assert "scripted" in known
    assert "delta" not in known
    assert known["scripted"].name == "scripted"
    with pytest.raises(KeyError):
        known["delta"]
    with pytest.raises(PlanningError, match="cannot be loaded"):
        known["broken"]


def test_what_never_signals_is_found_with_the_options_that_would_help() -> None:
    scripted, moded = CONNECTORS["scripted"], CONNECTORS["moded"]
    assert not never_signalling(scripted, {"connector": "scripted"})
    assert not never_signalling(scripted, {"phases": "true", "signals": "true"})
    assert never_signalling(scripted, {"phases": "true"})
    assert ways_out(scripted, {"phases": "true"}) == [("phases", "false"), ("signals", "true")]
    assert ways_out(moded, {}) == [("mode", "stream")]
