"""The commands that the pages for operators name are there, with their options."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer.main

from orchestration.cli import app

DOCS = Path(__file__).parents[2] / "docs"
LINE = re.compile(r"^ {4,}(tidegate .+)$|`(tidegate [^`]+)`", re.MULTILINE)


def commands(page: str) -> list[str]:
    """Every command line of a page, whether it stands by itself or inside a sentence."""
    return [one or other for one, other in LINE.findall((DOCS / page).read_text())]


def problem(line: str) -> str:
    """What is wrong with a command line; empty where nothing is."""
    words = [word for word in shlex.split(line, comments=True)[1:] if word not in ("|", "or")]
    command: Any = typer.main.get_command(app)
    while hasattr(command, "commands") and words:
        name = words.pop(0)
        if name not in command.commands:
            return f"there is no {name}"
        command = command.commands[name]
    known = {option for parameter in command.params for option in parameter.opts} | {"--help"}
    unknown = [word for word in words if word.startswith("-") and word not in known]
    return f"it has no {', '.join(unknown)}" if unknown else ""


@pytest.mark.parametrize(
    "page",
    ["operations.md", "gate.md", "quality.md", "cli.md", "joins.md", "dagster.md", "alerts.md", "process-functions.md"],
)
def test_every_command_is_there_with_its_options(page: str) -> None:
    found = commands(page)
    assert found
    assert {line: told for line in found if (told := problem(line))} == {}


def test_a_command_that_is_not_there_is_seen() -> None:
    assert problem("tidegate quarantine lost pipeline.sql") == "there is no lost"
    assert problem("tidegate run pipeline.sql --resnap users") == "it has no --resnap"
    assert problem("tidegate quarantine list pipeline.sql --by-epoch   # all") == ""
