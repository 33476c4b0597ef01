"""A failing, crashing, hanging or missing check never lets a row out: every way to break one, from the staged epoch to
what is in the tables. No Spark: the epoch is made by hand, judged and published by the real runner."""

from __future__ import annotations

import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.pipelines.runtime.handmade import HandmadeLake, made_once, no_spark, pipeline, store
from tests.quality_checks import broken
from tests.quality_checks.staged import Given, constrained, stage
from tidegate.pipelines.connectors.table import Constraint, Options
from tidegate.pipelines.errors import TidegateError
from tidegate.pipelines.lake import Lake
from tidegate.pipelines.runtime.runner import Runner
from tidegate.quality_checks.gate import judge

BREAKS = tomllib.loads((Path(__file__).parents[1] / "fixtures" / "gate" / "broken.toml").read_text())["break"]
GIVEN = Given({"matched": 3, "unmatched:deleted@u": 2}, constraints=(
    Constraint("positive", "(`n` > -1)", "fail", "n > -1"),
    Constraint("small", "(`n` < 9)", "warn", "n < 9"),
))  # fmt: skip


def test_the_table_names_every_way_once() -> None:
    named = [case["how"] for case in BREAKS]
    ways = [name for name, item in vars(broken).items() if callable(item) and not name.startswith("_")
            and getattr(item, "__module__", "") == broken.__name__ and name != "Case"]  # fmt: skip
    assert sorted(named) == sorted(ways)
    assert len(named) >= 30


@pytest.fixture
def case(tmp_path: Path) -> Iterator[broken.Case]:
    with pytest.MonkeyPatch.context() as patch:
        made = broken.Case(patch, lambda: tmp_path / "lake" / "targets" / "enriched")
        yield made
        made.let_go.set()


@pytest.mark.parametrize("expected", BREAKS, ids=[case["how"] for case in BREAKS])
def test_no_row_leaves(expected: dict[str, str], case: broken.Case, tmp_path: Path) -> None:
    getattr(broken, expected["how"])(case)
    runner = staged(case, tmp_path)
    words = _tried(case, runner, expected["how"])
    assert expected["says"] in words, words
    assert published(runner) == (0, 0)
    states = {"no verdict": ("staged",), "held": ("held",), "lost": ("staged", "passed")}[expected["ends"]]
    assert runner.releasing("enriched").position().state in states
    case.patch.undo()
    case.let_go.set()
    runner.close()
    with Runner(constrained(pipeline(), GIVEN.constraints), runner.lake, spark=no_spark, gate=judge) as again:
        if expected["ends"] == "no verdict":
            again.judge("enriched")
            again.publish("enriched")
            assert published(again) == (3, 2)
        else:
            with pytest.raises(TidegateError):
                again.publish("enriched")
            assert published(again) == (0, 0)


def test_a_whole_check_lets_them_out(case: broken.Case, tmp_path: Path) -> None:
    runner = staged(case, tmp_path)
    assert _tried(case, runner) == ""
    assert published(runner) == (3, 2)


def staged(case: broken.Case, root: Path) -> Runner:
    """The lake of a case, its epoch staged and not judged."""
    landed(root / "lake")
    found = pipeline()
    tables = dict(found.tables)
    tables["enriched"] = replace(
        tables["enriched"], options=Options({"connector": "scripted", "gate.timeout": case.timeout})
    )
    staged = stage(root, replace(GIVEN, pipeline=replace(found, tables=tables)))
    made = HandmadeLake(root / "lake", staged.pipeline)
    store(made.lake, case.change_row(staged.staged))
    case.files()
    return Runner(staged.pipeline, made.lake, spark=no_spark, gate=case.gate)


@made_once
def landed(made: HandmadeLake) -> None:
    """What has landed in the lake of every case."""
    for epoch, rows in ((1, 7), (2, 2), (3, 3)):
        made.landed("clicks", epoch, rows)
    for epoch in range(1, 6):
        made.landed("users", epoch, 2, flip=4 if epoch >= 4 else None)
    made.appended("clicks", 3)
    made.appended("users", 5)


def _tried(case: broken.Case, runner: Runner, how: str = "") -> str:
    """Judge and publish as a run does, each although the other failed; what was said."""
    words = []
    if case.elsewhere:
        _in_a_process(runner, how)
    else:
        try:
            runner.judge("enriched")
        except Exception as error:
            words.append(str(error))
    case.after(runner)
    try:
        runner.publish("enriched")
    except TidegateError as error:
        words.append(str(error))
    return "\n".join(words)


def _in_a_process(runner: Runner, how: str) -> None:
    """Another process judges, and comes to its end by it."""
    code = "import sys; from tests.quality_checks.test_broken import child; child(*sys.argv[1:])"
    done = subprocess.run([sys.executable, "-c", code, str(runner.lake.root), how], capture_output=True, check=False)
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    assert b"came back" not in done.stdout


def child(lake: str, how: str) -> None:
    """What that process does."""
    with pytest.MonkeyPatch.context() as patch:
        case = broken.Case(patch, lambda: Path(lake))
        getattr(broken, how)(case)
        Runner(constrained(pipeline(), GIVEN.constraints), Lake(lake), spark=no_spark, gate=case.gate).judge("enriched")
    sys.stdout.write("came back")
    sys.stdout.flush()


def published(runner: Runner) -> tuple[int, int]:
    """Rows in the target and in the quarantine."""
    target, insert = runner.pipeline.table("enriched"), runner.pipeline.insert("enriched")
    paths = (runner.lake.target_path(target), runner.lake.quarantine_path(target, insert))
    counts = [DeltaTable(str(path)).count() for path in paths]
    return counts[0], counts[1]
