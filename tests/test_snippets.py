"""What programs in strings import, and the test files that strings name, are there.

Neither pyright nor a rename sees them, and most are run by `make test-all` alone.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = sorted(path for folder in ("tests", "benchmarks", "scripts") for path in (ROOT / folder).rglob("*.py"))
IMPORT = re.compile(r"^[ \t]*from (tidegate[\w.]*|tests[\w.]*) import (?:\(([^)]*)\)|([^\n;(]+))", re.MULTILINE)
TEST_FILE = re.compile(r"\btests/[\w/]+\.py\b")


def missing(text: str) -> list[str]:
    """The names in one string that lead nowhere: an imported name, a test's file."""
    found = [path for path in TEST_FILE.findall(text) if not (ROOT / path).exists()]
    for module, several, few in IMPORT.findall(text):
        for name in re.findall(r"(\w+)(?: as \w+)?\s*(?:,|$)", several or few):
            if not is_there(module, name):
                found.append(f"{module}.{name}")
    return found


def is_there(module: str, name: str) -> bool:
    try:
        return hasattr(import_module(module), name) or import_module(f"{module}.{name}") is not None
    except ModuleNotFoundError:
        return False


def strings(path: Path) -> Iterator[str]:
    """The string literals of a file, those of an f-string with its values left out."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


@pytest.mark.parametrize("path", [path for path in FILES if path != Path(__file__)], ids=lambda path: path.stem)
def test_what_a_string_names_is_there(path: Path) -> None:
    assert [name for text in strings(path) for name in missing(text)] == []


def test_a_name_that_is_gone_is_seen() -> None:
    program = (
        "import os\nfrom tidegate.pipelines.lake import Lake as L, Lakes\nfrom tests.cases import (\n  at_length,\n)\n"
    )
    assert missing(program) == ["tidegate.pipelines.lake.Lakes"]
    assert missing("tests/test_snippets.py tests/gone.py") == ["tests/gone.py"]
    assert missing("from tidegate.gone import name") == ["tidegate.gone.name"]
