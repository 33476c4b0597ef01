"""A reader of the pages: who types what they show, into the real command, and looks at what comes of it."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt
from typer.testing import CliRunner

from tests.oracle.pins import rows_of
from tidegate.orchestration.commands.app import app

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"


@dataclass(frozen=True)
class Block:
    """Lines of code of a page; `line` is where they begin."""

    page: str
    line: int
    language: str
    text: str

    @property
    def commands(self) -> tuple[str, ...]:
        """Its lines, without comments, where they are to be typed into a shell; else none: it shows what is printed."""
        if self.language not in ("", "sh", "bash", "shell", "console"):
            return ()
        lines: list[str] = []
        for text in self.text.splitlines():
            line = re.sub(r"\s+# .*", "", text).strip()
            if lines and _open(lines[-1]):
                lines[-1] += f" {line}"
            elif line:
                lines.append(line)
        return tuple(lines) if lines and COMMAND.match(f"{lines[0]} ") else ()


COMMAND = re.compile(
    r"(tidegate|make|cd|export|\.|git|dg|(create-)?dagster\S*|pip|python\S*|cp|du|\S*/bin/\S+|[A-Z_]+=\S+) "
)
"""How a line begins that is to be typed."""


def _open(line: str) -> bool:
    """Whether a quotation goes on in the next line."""
    return line.count('"') % 2 == 1


def blocks(page: str) -> list[Block]:
    """All code blocks of a page, indented and fenced ones, in order; `page` from the top folder."""
    tokens = MarkdownIt("commonmark").parse((ROOT / page).read_text(encoding="utf-8"))
    found = [token for token in tokens if token.type in ("code_block", "fence")]
    return [Block(page, (token.map or [0])[0] + 1, token.info, token.content) for token in found]


class Story:
    """A person at a terminal, who types one command after another, from the top folder on.

    `tidegate` is the real command, but in this process, whose Spark session the tests share: to start one for every
    line would take most of the time. $TIDEGATE_LAKE puts the lake into the test's folder, so that a clone stays clean.
    Whatever else is typed is left to the system's shell.
    """

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.lake, self.monkeypatch = folder, folder / "lake", monkeypatch
        for name in [name for name in os.environ if name.startswith("TIDEGATE_")]:
            if name not in ("TIDEGATE_HOME", "TIDEGATE_MARIADBD"):
                monkeypatch.delenv(name)
        monkeypatch.setenv("TIDEGATE_LAKE", str(self.lake))
        monkeypatch.chdir(ROOT)

    def type(self, line: str, status: int = 0) -> str:
        """Type one line, which has to end with this exit status, and return what it shows on stdout."""
        words = shlex.split(line)
        match words:
            case ["cd", place]:
                self.monkeypatch.chdir(place)
            case ["export", *settings]:
                for name, _, value in (setting.partition("=") for setting in settings):
                    self.monkeypatch.setenv(name, value)
            case ["tidegate", *arguments]:
                done = CliRunner().invoke(app, arguments, input="y\n")
                assert done.exit_code == status, f"{line}\n{done.output}\n{done.exception}"
                return done.stdout
            case _:
                ended = subprocess.run(line, shell=True, capture_output=True, text=True, check=False)
                assert ended.returncode == status, f"{line}\n{ended.stdout}{ended.stderr}"
                return ended.stdout
        return ""

    def typing(self, page: str, elsewhere: Collection[str]) -> list[str]:
        """The command lines of a page that a story has to type, in order."""
        lines = [line for block in blocks(page) for line in block.commands]
        return [line for line in lines if line not in elsewhere]

    def follow(self, block: Block, placeholders: Mapping[str, object] | None = None) -> str:
        """Type every line of a block, and return what all of them show; `placeholders`: what the page leaves open."""
        return "".join(self.type(filled(line, placeholders or {})) for line in block.commands)

    def rows(self, target: str) -> list[tuple[Any, ...]]:
        """What was published to a target, its own columns, in order; read without Spark."""
        rows = rows_of(str(self.lake / "targets" / target))
        return sorted((tuple(row[name] for name in row if not name.startswith("_")) for row in rows), key=str)


def filled(line: str, placeholders: Mapping[str, object]) -> str:
    """A line, or a script, with what its reader has to put in."""
    for placeholder, value in placeholders.items():
        line = line.replace(placeholder, str(value))
    return line


def printed(shown: str) -> list[str]:
    """The published rows that the target `print` shows, in order."""
    return sorted(line for line in shown.splitlines() if "+I[" in line)


def contents(folder: Path) -> dict[str, tuple[int, int]]:
    """Every file below a folder, with its size and the time of its last change."""
    files = [path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in files}


def other_way_round(script: str) -> str:
    """A script with its CREATE statements in reverse; a table that is made of others comes after them, every other
    statement stays where it is."""
    text = re.sub(r"^--.*\n", "", script, flags=re.MULTILINE)
    statements = [part.strip().rstrip(";") for part in text.split(";\n") if part.strip()]
    created = [part for part in statements if part.startswith("CREATE")]
    created.sort(key=lambda part: "'hybrid.sources'" not in part)
    assert len(created) > 1
    return "".join(f"{created.pop() if part.startswith('CREATE') else part};\n" for part in statements)


def read(folder: str) -> list[dict[str, Any]]:
    """The lines of an example's files, in order."""
    return [json.loads(line) for file in sorted(Path(folder).glob("*.json")) for line in file.read_text().splitlines()]


def put(path: str, rows: Iterable[Mapping[str, Any]]) -> None:
    """Another file of an example, finished long ago."""
    Path(path).write_text("".join(json.dumps(row) + "\n" for row in rows))
    shutil.copystat(EXAMPLES / "limits" / "pipeline.py", path)
