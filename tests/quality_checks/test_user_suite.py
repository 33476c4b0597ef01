"""'quality.suite': what the compiler says of a file, and what the suite does to an epoch."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.cases import at_length
from tests.pipelines.runtime.plans import STATE, release, taken
from tidegate.pipelines.errors import GateHeld
from tidegate.pipelines.location import Location
from tidegate.pipelines.sql import SqlError, compile_script
from tidegate.pipelines.testing import Harness
from tidegate.quality_checks import docs, user_suite

SCRIPT = """
CREATE TABLE users (id INT PRIMARY KEY NOT ENFORCED, name STRING)
WITH ('connector' = 'scripted', 'phases' = 'true', 'signals' = 'true');
CREATE TABLE clicks (id INT, n INT, proctime AS PROCTIME()) WITH ('connector' = 'scripted');
CREATE TABLE enriched (n INT PRIMARY KEY NOT ENFORCED, name STRING)
WITH ('connector' = 'scripted', 'quality.suite' = 'suites/enriched.json');
INSERT INTO enriched SELECT n, u.name FROM clicks
LEFT JOIN users FOR SYSTEM_TIME AS OF clicks.proctime AS u ON clicks.id = u.id
"""


def between(column: str, least: int, greatest: int, **more: Any) -> dict[str, Any]:
    kwargs = {"column": column, "min_value": least, "max_value": greatest}
    return {"type": "expect_column_values_to_be_between", "kwargs": kwargs, **more}


SUITE = {
    "name": "enriched",
    "expectations": [
        between("n", 0, 100),
        {"type": "expect_column_values_to_be_unique", "kwargs": {"column": "n"}},
        between("n", 0, 10, meta={"on_violation": "warn"}),
        {"type": "expect_column_values_to_be_in_set", "kwargs": {"column": "name", "value_set": ["ann"]},
         "severity": "warning"},
    ],
}  # fmt: skip


def write(folder: Path, suite: object) -> Path:
    path = folder / "suites" / "enriched.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(suite if isinstance(suite, str) else json.dumps(suite))
    return path


def compiled(folder: Path):
    return compile_script(SCRIPT, path=str(folder / "pipeline.sql"))


WRONG = {
    "no JSON": ("{", "the suite is no JSON", "to_json_dict"),
    "no object": ([], "the suite has no expectations", "expectations"),
    "no expectations": ({"name": "x", "expectations": []}, "the suite has no expectations", "expectations"),
    "no type": ({"expectations": [{"kwargs": {}}]}, "expectation 1 of the suite has no type", "expect_"),
    "an unknown type": (
        {"expectations": [between("n", 0, 1), {"type": "expect_column_to_exists", "kwargs": {}}]},
        "expectation 2 of the suite: there is no `expect_column_to_exists`",
        "did you mean `expect_column_to_exist`",
    ),
    "an unknown column": (
        {"expectations": [between("m", 0, 1)]},
        "unknown column `m` of enriched",
        "its columns: `n`, `name`",
    ),
    "kwargs that are none": (
        {"expectations": [{"type": "expect_column_to_exist", "kwargs": 1}]},
        "kwargs and meta are objects",
        "",
    ),
    "an unknown action": (
        {"expectations": [between("n", 0, 1, meta={"on_violation": "drop"})]},
        "on_violation is 'drop'",
        "'fail' or 'warn'",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_suite_is_an_error_at_its_place(tmp_path: Path, case: str) -> None:
    suite, message, hint = WRONG[case]
    write(tmp_path, suite)
    with pytest.raises(SqlError) as caught:
        compiled(tmp_path)
    assert message in caught.value.what
    assert hint in (caught.value.hint or "")
    assert (caught.value.line, caught.value.column) == (6, 51)


def test_a_suite_that_is_not_there_is_an_error_that_says_where_it_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(SqlError, match="cannot be read: No such file") as caught:
        compiled(tmp_path)
    assert str(tmp_path / "suites" / "enriched.json") in (caught.value.hint or "")


def test_a_suite_outside_of_the_allowed_folders_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, SUITE)
    monkeypatch.setenv("TIDEGATE_FILES_ROOT", str(tmp_path / "elsewhere"))
    with pytest.raises(SqlError, match="outside of"):
        compiled(tmp_path)


def test_a_suite_comes_from_a_file_and_not_from_the_environment(tmp_path: Path) -> None:
    with pytest.raises(SqlError, match="cannot come from the environment"):
        compile_script(SCRIPT.replace("suites/enriched.json", "${SUITE}"))


def test_a_suite_judges_every_epoch(spark: SparkSession, tmp_path: Path) -> None:
    path = write(tmp_path, SUITE)
    harness = Harness(compiled(tmp_path), spark, tmp_path)
    path.unlink()  # the suite that was read stays the one that judges
    harness.push("users", [{"id": 1, "name": "ann"}, {"id": 2, "name": "bob"}])
    harness.end_of_snapshot("users")
    harness.push("clicks", [{"id": 1, "n": 5}, {"id": 2, "n": 50}, {"id": 9, "n": 51}])
    harness.run()
    home = harness.lake.root / "_quality" / "enriched"
    kept = json.loads(Path(home / "suite-g1-e1.json").read_text())
    assert (kept["epoch"], len(kept["result"]["results"])) == (1, 4)
    check = _suite(harness, 1)
    assert check["passed"]
    assert check["warning"] == (
        "suites/enriched.json: expect_column_values_to_be_between(n): 1 of 2 rows does not; "
        "expect_column_values_to_be_in_set(name): 1 of 2 rows does not"
    )
    assert Path(check["observed"]["page"]).read_text().count("<html") == 1

    harness.push("clicks", [{"id": 1, "n": 7}, {"id": 1, "n": 7}, {"id": 1, "n": 101}])
    with pytest.raises(GateHeld) as caught:
        harness.run()
    assert "expect_column_values_to_be_between(n): 1 of 3 rows does not" in str(caught.value)
    assert "expect_column_values_to_be_unique(n): 2 of 3 rows do not" in str(caught.value)
    assert Path(home / "suite-g1-e2.html").exists()
    assert sorted(row["n"] for row in harness.published("enriched")) == [5, 50]
    harness.runner.resolve_held("enriched", discard=True)  # an epoch without a row to publish is judged, too
    assert _suite(harness, 3)["passed"]
    assert sorted(row["n"] for row in harness.published("enriched")) == [5, 50]


@pytest.mark.parametrize(
    "answers", at_length([[0, 0, 2, 3], [0, 1, 2], []]), ids=["one is answered twice", "one is missing", "none"]
)
def test_a_suite_that_does_not_answer_for_every_expectation_holds_the_epoch(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answers: list[int]
) -> None:
    write(tmp_path, SUITE)
    harness = Harness(compiled(tmp_path), spark, tmp_path)
    whole = user_suite.run

    def some(*arguments: Any) -> Any:
        result = whole(*arguments)
        result.results = [result.results[place] for place in answers]
        return result

    monkeypatch.setattr(user_suite, "run", some)
    harness.push("users", [{"id": 1, "name": "ann"}])
    harness.end_of_snapshot("users")
    harness.push("clicks", [{"id": 1, "n": 5}])
    with pytest.raises(GateHeld, match=f"4 expectations were asked, {len(answers)} answered"):
        harness.run()
    assert harness.published("enriched") == []


def test_an_epoch_that_only_says_how_far_its_statement_is_is_not_asked(tmp_path: Path) -> None:
    write(tmp_path, SUITE)
    plan = release("enriched", 1, taken("clicks", 0, 1, 3))
    assert not plan.says_only_how_far
    assert not replace(plan.without_rows(), state=STATE).says_only_how_far, "a process gives rows of its timers"
    staged = SimpleNamespace(target=compiled(tmp_path).table("enriched"), plan=plan.without_rows())
    evidence: Any = SimpleNamespace(staged=staged)
    assert user_suite.check(evidence, lambda: pytest.fail("no Spark is needed")).passed


def _suite(harness: Harness, epoch: int) -> dict[str, Any]:
    (verdict,) = harness.lake.verdicts.rows("insert enriched", generation=1, epoch=epoch)
    return next(check for check in verdict.checks if check["name"] == "suite")


IMPORT = "import great_expectations, os; os.write(1, b'imported')"


@pytest.mark.thorough
def test_the_suite_can_be_imported_by_a_process_without_a_main_file():
    """`python -c` has neither a spec nor a file, just as a spawned process."""
    named = f"from tidegate.quality_checks.suite import name_main_module; name_main_module(); {IMPORT}"
    done = subprocess.run([sys.executable, "-c", named], capture_output=True, check=False)
    assert done.stdout.endswith(b"imported"), done.stderr[-2000:]


def test_results_of_one_suite_take_no_place_of_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(docs, "KEEP", 2)
    for number in (1, 2, 10):
        (tmp_path / f"g1-e{number}.json").touch()
        (tmp_path / f"suite-g1-e{number}.json").touch()
    docs._forget(Location(tmp_path), "suite-")
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"g1-e1.json", "g1-e2.json", "g1-e10.json", "suite-g1-e2.json", "suite-g1-e10.json"}
