"""Each change of `cases.toml`, made to a script that has a history: refused, or taken up aloud; never in silence.

Each case has a copy of its script's lake. A refusal must leave every file of it as it was, so one test a script refuses
all fast ones, and shows that the old script goes on after them.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from tests.stories.changes.bases import BASES, Story, tidegate

pytestmark = pytest.mark.long

Stories = Callable[[str], Story]

CASES: list[dict[str, Any]] = tomllib.loads(Path(__file__).with_name("cases.toml").read_text())["case"]


def named(cases: list[dict[str, Any]]) -> list[Any]:
    seen: dict[str, int] = {}
    found = []
    for case in cases:
        name = f"{case['script']}: {case['row']}"
        seen[name] = seen.get(name, 0) + 1
        marks = () if case.get("fast") else (pytest.mark.thorough,)
        found.append(grouped(case, case["script"], f"{name} {seen[name]}", marks))
    return found


def grouped(value: Any, script: str, name: str | None = None, marks: Sequence[pytest.MarkDecorator] = ()) -> Any:
    """A parameter of a test whose script's history is made once, by one worker."""
    return pytest.param(value, id=name, marks=(*marks, pytest.mark.xdist_group(f"changes of {script}")))


def changes(case: dict[str, Any]) -> dict[str, Any]:
    return {case.get("file", BASES[case["script"]].script): case["change"]}


REFUSED = [case for case in CASES if "refused" in case]


def refuse(case: dict[str, Any], story: Story) -> None:
    """Run the changed script: status 1, both versions and the ways out shown, each file of the lake as it was."""
    story.write(changes(case))
    before = story.files()
    result = story.run(*case.get("options", ()))
    assert result.exit_code == 1, result.output
    assert story.files() == before
    for word in (*case["refused"], "old declaration", "--lake", "new target"):
        assert word.lower() in result.stderr.lower(), result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.thorough
@pytest.mark.parametrize("case", named(REFUSED))
def test_refused(case: dict[str, Any], stories: Stories, tmp_path: Path) -> None:
    """Each on a copy of its own; `test_the_old_script_goes_on_after_refusals` shows the fast ones one after another."""
    story = stories(case["script"])
    with story.on_a_copy(tmp_path / "lake"):
        refuse(case, story)


FAST = ("clicks", "grades", "rates")
"""Their changes are one of each kind that is refused: a table, an INSERT, a function's code."""


@pytest.mark.parametrize(
    "script",
    [
        grouped(script, script, marks=() if script in FAST else (pytest.mark.thorough,))
        for script in sorted({case["script"] for case in REFUSED})
    ],
)
def test_the_old_script_goes_on_after_refusals(script: str, stories: Stories, tmp_path: Path) -> None:
    story = stories(script)
    with story.on_a_copy(tmp_path / "lake"):
        for case in REFUSED:
            if case["script"] == script and case.get("fast"):
                try:
                    refuse(case, story)
                except AssertionError as error:
                    error.add_note(f"{script}: {case['row']}")
                    raise
        story.write({})
        result = story.run()
        assert result.exit_code == 0, result.output
        assert story.targets() == story.wanted()


PLAN_OR_WRITE = (
    ["run", "--dry-run"],
    ["release", "converted"],
    ["discard", "converted"],
    ["quarantine", "release", "converted"],
    ["quarantine", "discard", "converted", "--because", "nobody wants them", "--yes"],
    ["maintain"],
)
LOOK = (["verify"], ["status"], ["quarantine", "list", "converted"], ["report", "--out", "report.html"])


@pytest.mark.xdist_group("changes of rates")
def test_what_plans_or_writes_is_refused_and_what_looks_goes_by_the_lake(stories: Stories, tmp_path: Path) -> None:
    story = stories("rates")
    with story.on_a_copy(tmp_path / "lake"):
        story.write({"rates.sql": [["LEFT JOIN", "INNER JOIN"]]})
        before = story.files()
        for command in PLAN_OR_WRITE:
            result = command_of(story, command)
            assert result.exit_code == 1, (command, result.output)
            assert "defines insert converted differently" in result.stderr, (command, result.stderr)
            assert story.files() == before, command
        for command in LOOK:
            result = command_of(story, [word.replace("report.html", str(tmp_path / word)) for word in command])
            assert result.exit_code == 0, (command, result.output)
            assert "definition in the lake" in result.output or "as the lake defines it" in result.output, (
                command,
                result.output,
            )
            assert story.files() == before, command


def command_of(story: Story, words: Sequence[str]) -> Result:
    """A command, or one of a group, on the story's script and lake."""
    count = 2 if words[0] == "quarantine" else 1
    command, rest = words[:count], words[count:]
    return tidegate(story.folder, *command, story.folder / story.base.script, *rest, "--lake", story.lake)


SAID = [case for case in CASES if "says" in case and "options" not in case]


@pytest.mark.parametrize("case", [grouped(case, case["script"], f"{case['script']}: {case['row']}") for case in SAID])
def test_explain_says_what_goes_on(case: dict[str, Any], stories: Stories) -> None:
    """`explain --lake` reads the lake, and finds what a run would find; it starts nothing and changes nothing."""
    story = stories(case["script"])
    before = story.files()
    story.write(changes(case))
    result = story.run(command="explain")
    story.write({})
    assert result.exit_code == 0, result.output
    assert story.files() == before
    found = result.output.rpartition("\n\n")[2]
    assert ("keeps the same definitions" in found) == (not case["says"] or case.get("by") == "run"), found
    for word in case["says"] if "by" not in case else ():
        assert word.lower() in found.lower(), found


@pytest.mark.parametrize("case", named([case for case in CASES if "says" in case]))
def test_goes_on(case: dict[str, Any], stories: Stories, tmp_path: Path) -> None:
    story = stories(case["script"])
    with story.on_a_copy(tmp_path / "lake"):
        story.write(changes(case))
        result = story.run(*case.get("options", ()))
        assert result.exit_code == 0, result.output
        for word in case["says"]:
            assert word.lower() in result.output.lower(), result.output
        assert story.targets() == story.wanted(case.get("targets"))
        if case.get("back"):
            story.write({})
            assert story.run().exit_code == 0
            assert story.targets() == story.wanted()
        if case["says"]:
            result = story.run(command="verify")
            assert result.exit_code == 0, result.output


ELSEWHERE = {
    "column of a source that becomes longer": "../../pipelines/runtime/test_definitions.py",
    "anything of a source of which no row has ever landed, such as one whose first run fails at a value": (
        "test_advice.py"
    ),
    "anything of an INSERT of which no epoch was ever staged, such as one whose first run fails at a value": (
        "test_advice.py"
    ),
    "where a source begins (`scan.startup.*`, `hybrid.switch`)": ("../../pipelines/sources/mysql_cdc/test_advice.py"),
    "expression that fails at a row": "test_mending.py",
    "INSERT left out whose target another statement reads": "../../pipelines/runtime/test_chains.py",
    "table that two scripts share and declare differently": "test_two_scripts.py",
    "an alias that has meant another build; with `'gate.proof' = 'columns'` and several joins any alias": (
        "../../pipelines/runtime/test_definitions.py"
    ),
}
"""Rows of the page that have a file of tests to themselves."""


def test_every_row_of_the_page_is_tried() -> None:
    page = Path("docs/changing.md").read_text()
    table = page.partition("## What happens today")[2].partition("\n\n")[2].split("\n\n")[0].splitlines()[2:]
    rows = [line.split(" | ")[0].removeprefix("| ") for line in table]
    assert len(rows) == len(set(rows))
    assert set(rows) == {case["row"] for case in CASES} | set(ELSEWHERE)
    assert all((Path(__file__).parent / file).exists() for file in ELSEWHERE.values())
    said = {row: line.split(" | ")[1] for row, line in zip(rows, table, strict=True)}
    for case in CASES:
        word = "refused" if "refused" in case else "goes on" if case["says"] else ""
        assert word in said[case["row"]], case["row"]
