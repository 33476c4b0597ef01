"""What a run would do next, without storing anything, also of sources that store something beside their plans."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Database
from tests.pipelines.runtime.handmade import store
from tidegate.pipelines.connectors.protocol import Step
from tidegate.pipelines.errors import PlanningError
from tidegate.pipelines.lake import Lake
from tidegate.pipelines.runtime.dry_run import DryRun, dry_run
from tidegate.pipelines.runtime.epochs import source_row
from tidegate.pipelines.runtime.runner import Runner
from tidegate.pipelines.sql import compile_script

SCRIPT = (
    "CREATE TABLE item (id INT PRIMARY KEY NOT ENFORCED, name STRING) WITH ({options});"
    "CREATE TABLE visit (id INT, proctime AS PROCTIME()) WITH ('connector' = 'datagen', 'rows-per-second' = '5');"
    "CREATE TABLE seen (id INT, name STRING) WITH ('connector' = 'delta');"
    "INSERT INTO seen SELECT visit.id, name FROM visit "
    "JOIN item FOR SYSTEM_TIME AS OF visit.proctime ON visit.id = item.id;"
)


def next_steps(lake: Path, options: str, *resnapshot: str) -> DryRun:
    with Runner(compile_script(SCRIPT.format(options=options)), Lake(lake)) as runner:
        return dry_run(runner, resnapshot)


def stored(lake: Path) -> list[Path]:
    return [path for path in lake.rglob("*") if path.is_file()]


def test_the_chunks_of_a_snapshot_are_planned_and_forgotten(database: Database, tmp_path: Path) -> None:
    database.execute(
        "CREATE TABLE item (id INT PRIMARY KEY, name VARCHAR(9))", "INSERT INTO item SELECT seq, 'a' FROM seq_1_to_40"
    )
    options = database.clause("item", 10)
    found = next_steps(tmp_path, options)
    item, visit = found.sources
    assert (item.generation, item.epoch, item.step.phase, item.step.flips) == (1, 1, "bounded", False)
    assert "chunks 1-4 of 4" in item.step.summary
    assert visit.epoch == 1
    (insert,) = found.inserts
    assert (insert.state, insert.plan) == ("waiting", None)
    assert "item is still loading" in insert.reason
    assert stored(tmp_path) == []
    assert next_steps(tmp_path, options).sources[0].step is not None, "and once more"


def test_files_are_not_taken_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEGATE_FILES_ROOT", str(tmp_path))
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "a.json").write_text('{"id": 1, "name": "a"}\n')
    options = f"'connector' = 'filesystem', 'path' = '{folder}', 'format' = 'json'"
    step = next_steps(tmp_path / "lake", options).sources[0].step
    assert (step.ranges["from"], step.ranges["to"]) == (0, 1)
    assert stored(tmp_path / "lake") == []


def test_a_table_that_the_script_does_not_have(tmp_path: Path) -> None:
    with pytest.raises(PlanningError, match="itm is no source of this script"):
        next_steps(tmp_path, "'connector' = 'datagen', 'number-of-rows' = '5'", "itm")


def test_an_unfinished_step_goes_on_first_and_a_new_generation_is_planned_beside_it(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    step = Step({"to": 3, "from": 0, "base": 0, "ends": {"at": 0}}, "unbounded", summary="rows 1-3")
    plan = source_row("item", 1, 1, 0, step)
    store(lake, plan)
    options = "'connector' = 'datagen', 'number-of-rows' = '5', 'rows-per-second' = '5'"
    item = next_steps(tmp_path, options).sources[0]
    assert (item.unfinished, item.epoch, item.step and item.step.summary) == (True, 1, "rows 1-3")
    anew = next_steps(tmp_path, options, "item").sources[0]
    assert (anew.unfinished, anew.generation, anew.epoch) == (False, 2, 1)
