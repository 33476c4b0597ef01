"""What a function computes, taken from its code: the same in every run, another where a helper is another."""

from __future__ import annotations

import importlib.util
import logging
import runpy
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from tests.pipelines.process.windows.test_function import COUNT
from tests.pipelines.runtime.processes import functions as fn
from tidegate.pipelines.process import EventTimeExtension
from tidegate.pipelines.process.identity import _package, definition_of
from tidegate.pipelines.process.windows.function import Aggregate, WindowFunction, session, tumble

MODULE = """
import logging
import runpy
import re
from functools import partial
from tidegate.pipelines.process import OneInputStreamProcessFunction

FACTOR = 3
LIMITS = {"a", "b", "c"}
WORDS = re.compile("x+")
TABLE = [1, 2, 3]

class Rule:
    def __init__(self, least):
        self.least = least

    def fits(self, number):
        return number > self.least

def doubled(number):
    return number * 2

def helped(number):
    return doubled(number) * FACTOR

class Base(OneInputStreamProcessFunction):
    def shown(self, number):
        return (number,)

class Rated(Base):
    def __init__(self):
        self.rule, self.add, self.names = Rule(5), lambda one: one + 1, LIMITS
        self.more = partial(helped, 7)
        self.log = logging.getLogger("rated")

    def process_record(self, record, output, ctx):
        if self.rule.fits(record.number) and WORDS.match(record.name) and record.number in TABLE:
            output.collect(self.shown(helped(record.number)))
"""


def identity(folder: Path, text: str) -> str:
    """Of `Rated` in a module of this text, in a process of its own: addresses and the order of sets are other ones."""
    (folder / "own_module.py").write_text(text)
    code = (
        "import own_module; from tidegate.pipelines.process.identity import definition_of as of;"
        " print(of(own_module.Rated()))"
    )
    root = str(Path(__file__).parents[3])
    environment = {"PYTHONPATH": f"{folder}:{root}", "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True
    ).stdout.strip()


def identity_in(folder: Path, text: str, *, source: bool = True) -> str:
    """Of `Rated` in a module of this text; without its source, as in an interactive session."""
    folder.mkdir()
    path = folder / "own_module.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location("own_module", path)
    sys.modules["own_module"] = module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
        if not source:
            path.unlink()
        return definition_of(module.Rated())
    finally:
        del sys.modules["own_module"]


def test_it_is_the_same_in_every_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = identity(tmp_path, MODULE)
    assert first.startswith("Rated ")
    assert identity(tmp_path, MODULE) == first  # sets and addresses are in another order there
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    logging.getLogger("another")
    assert identity_in(tmp_path / "here", MODULE) == first  # the logger knows of other ones here


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("number * 2", "number * 4"),
        ("FACTOR = 3", "FACTOR = 4"),
        ("return (number,)", "return (number, 1)"),
        ("Rule(5)", "Rule(6)"),
        ("number > self.least", "number >= self.least"),
        ("one + 1", "one + 2"),
        ("helped, 7", "helped, 8"),
        ('"a", "b"', '"a", "d"'),
        ("x+", "y+"),
        ("[1, 2, 3]", "[1, 2, 4]"),
    ],
)
@pytest.mark.parametrize("source", [True, False], ids=["source", "no source"])
def test_another_helper_constant_or_attribute_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: bool, old: str, new: str
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    texts = [MODULE, MODULE.replace(old, new), MODULE]
    found = [identity_in(tmp_path / str(number), text, source=source) for number, text in enumerate(texts)]
    assert found[0] == found[2] != found[1]


def test_windows_are_distinguished_by_what_they_are_given() -> None:
    wrap = EventTimeExtension.wrap_process_function
    other = Aggregate("BIGINT", int, lambda kept, row: kept + 2, COUNT.result, COUNT.merge)
    functions = [
        WindowFunction(tumble(timedelta(minutes=5)), COUNT),
        WindowFunction(tumble(timedelta(minutes=6)), COUNT),
        WindowFunction(session(timedelta(minutes=5)), COUNT),
        WindowFunction(tumble(timedelta(minutes=5)), other),
        fn.Timed(),
        fn.Ruled(),
    ]
    assert len({definition_of(wrap(function)) for function in functions}) == len(functions)
    again = WindowFunction(tumble(timedelta(minutes=5)), COUNT)
    assert definition_of(wrap(again)) == definition_of(wrap(functions[0]))


def meant(folder: Path, text: str, *, run: bool = False) -> str:
    """The definition of `Rated` in a module of this text; `run`: as the file of a pipeline is."""
    if not run:
        return identity_in(folder, text)
    folder.mkdir()
    path = folder / "own_module.py"
    path.write_text(text)
    return definition_of(runpy.run_path(str(path), run_name="tidegate_pipeline")["Rated"]())


CLASS = "class Rated(Base):\n"
WRITTEN = [
    (CLASS, CLASS + '    """Says what it is."""\n\n'),
    ("return number * 2", "# twice\n    return (\n        number * 2\n    )"),
    ("def doubled(number)", 'def doubled(number: "int") -> "int"'),
    ("def helped(number):\n", 'def helped(number):\n    """Help."""\n'),
    ("lambda one: one + 1", "lambda one:   one+1"),
]
MEANS_ANOTHER = [
    ("number * 2", "number * 4"),
    ("FACTOR = 3", "FACTOR = 4"),
    ("Rule(5)", "Rule(6)"),
    ("one + 1", "one + 2"),
    ("helped, 7", "helped, 8"),
    ("x+", "y+"),
    (CLASS, CLASS + "    least = 4\n"),
]


@pytest.mark.parametrize("run", [False, True], ids=["imported", "run"])
def test_a_definition_is_of_what_code_means(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: bool) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    first = meant(tmp_path / "first", MODULE, run=run)
    for number, (old, new) in enumerate(WRITTEN):
        assert meant(tmp_path / f"same{number}", MODULE.replace(old, new), run=run) == first, new
    for number, (old, new) in enumerate(MEANS_ANOTHER):
        assert meant(tmp_path / f"other{number}", MODULE.replace(old, new), run=run) != first, new
    moved = (
        MODULE.replace("def doubled(number):\n    return number * 2\n", "")
        + "\ndef doubled(number):\n    return number * 2\n"
    )
    assert meant(tmp_path / "moved", moved, run=run) == first


def test_a_version_replaces_the_code_and_a_package_counts_by_its_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    versioned = MODULE.replace(CLASS, CLASS + "    version = 3\n\n")
    assert meant(tmp_path / "a", versioned) == meant(tmp_path / "b", versioned.replace("number * 2", "number * 4"))
    assert meant(tmp_path / "c", versioned) != meant(tmp_path / "d", versioned.replace("version = 3", "version = 4"))
    packaged = MODULE.replace("import re\n", "import re\nimport numpy as np\n").replace(
        "number * 2", "np.int64(number)"
    )
    first = meant(tmp_path / "e", packaged)
    monkeypatch.setattr("tidegate.pipelines.process.identity.version", lambda name: "0.0")
    _package.cache_clear()
    assert meant(tmp_path / "f", packaged) != first
    _package.cache_clear()


HELD = "import numpy as np\nfrom collections import deque\nfrom functools import cache, cached_property\n"
ELSEWHERE = {
    "a module's function": "import other_module\ndef f(x): return other_module.g(x)",
    "a module's constant": "import other_module\ndef f(x): return other_module.L + x",
    "a package's module": "import other_package.more\ndef f(x): return other_package.more.g(x)",
    "an import inside": "def f(x):\n    import other_module\n    return other_module.g(x)",
    "a name that is imported inside": "def f(x):\n    from other_module import g\n    return g(x)",
}
HELPERS = "L = 1\ndef g(x): return x * 1\n"
HERE = {
    "behind a cache": "@cache\ndef g(x): return x * 1\ndef f(x): return g(x)",
    "itself behind a cache": "@cache\ndef f(x): return x * 1",
    "an array": "A = np.array([2, 1])\ndef f(x): return A[x]",
    "a deque": "D = deque([2, 1])\ndef f(x): return D[x]",
    "a complex number": "C = 1j\ndef f(x): return C",
    "slots": "class S:\n    __slots__ = 'v'\n    def __init__(self, v): self.v = v\ns = S(1)\ndef f(x): return s.v",
    "a cached property": "class P:\n    @cached_property\n    def v(self): return 1\np = P()\ndef f(x): return p.v",
}


@pytest.mark.parametrize("held", [*ELSEWHERE, *HERE])
def test_what_a_function_takes_from_elsewhere_is_part_of_it(
    held: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.syspath_prepend(str(tmp_path))
    modules = ("main_module", "other_module", "other_package", "other_package.more")
    (tmp_path / "other_package").mkdir()

    def defined(here: str, more: str) -> str:
        for name in modules:
            sys.modules.pop(name, None)
        (tmp_path / "main_module.py").write_text(HELD + here)
        for file in ("other_module.py", "other_package/more.py"):
            (tmp_path / file).write_text(more)
        (tmp_path / "other_package/__init__.py").touch()
        return definition_of(importlib.import_module("main_module").f)

    text = ELSEWHERE.get(held) or HERE[held]
    first = defined(text, HELPERS)
    assert defined(text, f"# moved\n{HELPERS}") == first
    assert defined(text.replace("1", "3"), HELPERS.replace("1", "3")) != first
    for name in modules:
        sys.modules.pop(name, None)


def test_where_a_module_lies_is_no_part_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A text that is made of `__file__` begins with its folder, which is another one when a project is moved."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    placed = MODULE.replace("FACTOR = 3", "import os\nHERE = os.path.dirname(__file__)\nDATA = [HERE + '/data', 3]")
    placed = placed.replace("doubled(number) * FACTOR", "len(open(__file__).read() + HERE + DATA[0])")
    first = identity_in(tmp_path / "one", placed)
    assert identity_in(tmp_path / "two", placed) == first
    assert identity_in(tmp_path / "three", placed.replace("/data", "/date")) != first
