"""A person who types what an error advises: the commands in it, read from what the command shows, into the real command
line."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tidegate.orchestration.commands.app import app

_COMMAND = re.compile(r"tidegate .+?(?=\s{3}\(|\s{3}or\s{3}|[;,]\s| and |\)|$)", re.MULTILINE)
"""A command in a line of advice: up to what it does, in brackets, or to the next way."""


def commands_in(shown: str) -> list[str]:
    """The commands that an output shows, each as it is to be typed."""
    return [found.group().strip() for found in _COMMAND.finditer(shown)]


def advice_in(shown: str) -> str:
    """What comes next, by the last error that an output shows."""
    return shown.rpartition("  next:  ")[2].strip()


class Person:
    """Types commands in a folder of its own, where the script `pipeline.sql` and its data lie."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.shown = folder, ""
        monkeypatch.chdir(folder)

    def write(self, script: str) -> None:
        """The script, from now on."""
        (self.folder / "pipeline.sql").write_text(script)

    def put(self, name: str, text: str, seconds: int = 1) -> None:
        """A file, last written at so many seconds, long ago."""
        file = self.folder / name
        file.parent.mkdir(exist_ok=True, parents=True)
        file.write_text(text)
        os.utime(file, (1e9 + seconds, 1e9 + seconds))

    def type(self, line: str, status: int = 0) -> Result:
        """Type a line, which has to end with this exit status."""
        name, *words = shlex.split(line)
        assert name == "tidegate"
        result = CliRunner().invoke(app, words)
        assert result.exit_code == status, f"{line}\n{result.output}\n{result.exception!r}"
        self.shown = result.stderr if status else result.output
        return result

    def refused(self, line: str, *words: str) -> str:
        """Type a line that fails with these words in its error; returns what to do next."""
        self.type(line, 1)
        for word in words:
            assert word in self.shown, self.shown
        return advice_in(self.shown)

    def follow(self, advice: str, containing: str = "", status: int = 0) -> str:
        """Type the command of an advice (the one with `containing`), and return what it shows."""
        found = [line for line in commands_in(advice) if containing in line]
        assert found, f"no command with {containing!r} in: {advice}"
        self.type(found[0], status)
        return self.shown
