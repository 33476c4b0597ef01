"""One name, and one module behind each spelling of it."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import tidegate
from tidegate.names import SHORT

ROOT = Path(__file__).parents[2]
ROOMS = {"pipelines", "assets", "orchestration", "quality_checks"}
BARE = re.compile(rf"^\s*(?:from|import)\b.*(?<![\w.])(?:{'|'.join(sorted(ROOMS))})\b", re.MULTILINE)
"""A line that may import one of them by its bare name."""
CODE = ("benchmarks", "examples", "scripts", "tests", "tidegate", *ROOMS)


def imported(code: str) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module)
    return names


def test_nothing_is_imported_by_the_name_of_its_folder() -> None:
    files = [file for folder in CODE for file in (ROOT / folder).rglob("*.py")]
    codes = {str(file): code for file in files if BARE.search(code := file.read_text())}
    bare = {
        file: names
        for file, code in codes.items()
        if (names := {n for n in imported(code) if n.split(".")[0] in ROOMS})
    }
    assert len(files) > 500
    assert bare == {}


@pytest.mark.parametrize(
    "code", ["import assets", "def f():\n    import sys, assets.names", "from pipelines.lake import Lake"]
)
def test_an_import_by_the_name_of_a_folder_is_seen(code: str) -> None:
    assert BARE.search(code)
    assert {name.split(".")[0] for name in imported(code)} & ROOMS


def test_importing_it_loads_nothing_else() -> None:
    code = (
        "import sys; before = set(sys.modules); import tidegate;"
        " print(*sorted({name.split('.')[0] for name in set(sys.modules) - before}))"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert set(loaded) <= {"tidegate", *sys.stdlib_module_names}


@pytest.mark.parametrize("name", tidegate.__all__)
def test_what_is_at_the_top_is_the_thing_itself(name: str) -> None:
    found = getattr(tidegate, name)
    assert getattr(import_module(found.__module__), name) is found
    assert found.__module__.startswith("tidegate.")


@pytest.mark.parametrize(("short", "own"), SHORT.items())
def test_a_short_name_is_the_module_itself(short: str, own: str) -> None:
    assert import_module(short) is import_module(own)


def test_what_lies_below_another_name_is_no_twin() -> None:
    code = """
import pipelines.process.windows, orchestration.cli, assets, quality_checks.gate, tidegate.process.windows
from tidegate.process.watermarks.combining import WatermarkCombiner
import sys, tidegate.pipelines.process.windows as own
from tidegate.pipelines.process.watermarks import combining
assert pipelines.process.windows is own and tidegate.process.windows is own, pipelines.process.windows
assert own.__name__ == own.__spec__.name == "tidegate.pipelines.process.windows"
assert WatermarkCombiner is combining.WatermarkCombiner
for name, module in list(sys.modules.items()):
    if name.split(".")[0] in ("tidegate", "pipelines", "orchestration", "assets", "quality_checks"):
        assert module.__name__.startswith("tidegate"), name
try:
    import pipelines.nothing
except ModuleNotFoundError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout == "No module named 'pipelines.nothing'\n", done.stderr


def test_a_folders_name_runs_as_a_program_too() -> None:
    for module in ("orchestration.cli", "tidegate.orchestration.cli"):
        done = subprocess.run([sys.executable, "-m", module, "--version"], cwd=ROOT, capture_output=True, text=True)
        assert done.stdout.startswith("tidegate "), done.stderr
