"""A project goes on wherever it lies: moved, copied, linked, reached by another path. Another folder, or another table,
at its paths is refused by name."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession
from typer.testing import CliRunner, Result

from tidegate.orchestration.commands.app import app

SCRIPT = """
CREATE FUNCTION twice AS 'moved_functions.twice' LANGUAGE PYTHON;
CREATE TABLE src (id INT) WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'json');
CREATE TABLE names (id INT, name STRING) WITH ('connector' = 'delta', 'path' = 'names');
CREATE TABLE o (id INT, doubled INT) WITH ('connector' = 'delta', 'path' = 'out/o', 'quality.suite' = 'suite.json');
CREATE TABLE n (id INT, name STRING) WITH ('connector' = 'delta', 'path' = './out/n');
INSERT INTO o SELECT id, twice(id) FROM src;
INSERT INTO n SELECT id, name FROM names;
"""
FUNCTIONS = """
import os
HERE = os.path.dirname(os.path.abspath(__file__))


def twice(number: int) -> int:
    return number * len(open(os.path.join(HERE, "two.txt")).read())
"""
SUITE = {
    "name": "o",
    "expectations": [{"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "id"}}],
}


class Project:
    """A script beside its files, its module, its suite, its targets and its lake."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "in").mkdir(parents=True)
        for name, text in (("pipeline.sql", SCRIPT), ("moved_functions.py", FUNCTIONS), ("two.txt", "xx")):
            (folder / name).write_text(text)
        (folder / "suite.json").write_text(json.dumps(SUITE))
        self.number = 0
        self.more()

    def more(self) -> None:
        """A further row of each source."""
        self.number += 1
        file = self.folder / "in" / f"{self.number}.json"
        file.write_text(json.dumps({"id": self.number}))
        os.utime(file, (1e9 + self.number, 1e9 + self.number))
        rows = pa.table({"id": pa.array([self.number], pa.int32()), "name": [str(self.number)]})
        write_deltalake(str(self.folder / "names"), rows, mode="append")

    def run(self, *arguments: str, status: int = 0, command: str = "run", **environment: str) -> Result:
        sys.modules.pop("moved_functions", None)
        with pytest.MonkeyPatch.context() as patch:
            patch.syspath_prepend(str(self.folder))
            for name, value in environment.items():
                patch.setenv(name, value)
            result = CliRunner().invoke(app, [command, str(self.folder / "pipeline.sql"), *arguments])
        assert result.exit_code == status, result.output
        return result

    def published(self, below: str = "out") -> tuple[list[Any], list[Any]]:
        tables = [DeltaTable(str(self.folder / below / name)).to_pyarrow_table().to_pylist() for name in ("o", "n")]
        return sorted((r["id"], r["doubled"]) for r in tables[0]), sorted((r["id"], r["name"]) for r in tables[1])

    def goes_on(self, **environment: str) -> None:
        """What is new is published, and what was there once."""
        self.more()
        result = self.run(**environment)
        assert "changes" not in result.output, result.output
        numbers = range(1, self.number + 1)
        assert self.published() == ([(n, 2 * n) for n in numbers], [(n, str(n)) for n in numbers])


@pytest.fixture
def project(spark: SparkSession, tmp_path: Path) -> Iterator[Project]:
    found = Project(tmp_path / "a" / "project")
    assert "This is a new lake" in found.run().output
    yield found
    sys.modules.pop("moved_functions", None)


def test_a_project_that_moves_goes_on(project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = project.folder
    second = tmp_path / "b" / "deeper" / "project"
    second.parent.mkdir(parents=True)
    project.folder = first.rename(second)
    project.goes_on()
    (tmp_path / "link").symlink_to(second)  # as it is mounted elsewhere
    monkeypatch.chdir(tmp_path / "a")
    project.folder = tmp_path / "link"
    project.goes_on()
    # `cp -r`: every file has another inode and another time.
    project.folder = Path(shutil.copytree(second, first, copy_function=shutil.copyfile))
    project.goes_on()
    shutil.rmtree(second)
    project.folder = first.rename(second)
    project.goes_on(TIDEGATE_FILES_ROOT=str(second))  # as a code location of Dagster may set it
    assert project.run(command="verify").exit_code == 0
    # The script names the same folders by other paths.
    text = SCRIPT.replace("'in'", f"'file://{second}/in'").replace("'names'", f"'{tmp_path}/link/names'")
    (second / "pipeline.sql").write_text(text.replace("'out/o'", f"'{second}/out/o'"))
    project.more()
    result = project.run()
    for what in ("source path: in -> ", "source path: names -> ", "target path: out/o -> "):
        assert what in result.output, result.output
    (second / "in").rename(second / "moved")
    (second / "names").rename(second / "moved names")
    (second / "out").rename(second / "moved out")
    text = SCRIPT.replace("'in'", "'moved'").replace("'names'", "'moved names'").replace("out/", "moved out/")
    (second / "pipeline.sql").write_text(text)
    result = project.run()
    numbers = range(1, project.number + 1)
    assert project.published("moved out") == ([(n, 2 * n) for n in numbers], [(n, str(n)) for n in numbers])


def test_other_folders_at_its_paths_are_refused(project: Project, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    before = project.published()
    for name, why in (
        ("in", "src: the folder is another one than was read"),
        ("names", "another Delta table lies here"),
    ):
        (project.folder / name).rename(kept / name)
        project.more() if name == "names" else (project.folder / "in").mkdir()
        if name == "in":
            (project.folder / "in" / "9.json").write_text('{"id": 9}')
            os.utime(project.folder / "in" / "9.json", (1e9, 1e9))
        result = project.run(status=1)
        assert why in result.output, result.output
        assert project.published() == before
        shutil.rmtree(project.folder / name)
        (kept / name).rename(project.folder / name)
        (project.folder / "in" / "2.json").unlink(missing_ok=True)
    project.number = 1
    for other in (None, "another"):
        (project.folder / "out" / "o").rename(kept / "o")
        if other:
            rows = pa.table({"id": pa.array([7], pa.int32()), "doubled": pa.array([7], pa.int32())})
            write_deltalake(str(project.folder / "out" / "o"), rows)
        result = project.run(status=1)
        assert "what insert o published to is not at the script's 'path'" in " ".join(result.output.split())
        assert f"{project.folder}/out/o, where it is not" in result.output
        if other:
            assert DeltaTable(str(project.folder / "out" / "o")).version() == 0
            shutil.rmtree(project.folder / "out" / "o")
        assert not (project.folder / "out" / "o").exists(), "nothing was made"
        (kept / "o").rename(project.folder / "out" / "o")
    # Elsewhere lie neither its files nor its targets.
    result = project.run(status=1, TIDEGATE_FILES_ROOT=str(kept))
    assert "is not at the script's 'path'" in " ".join(result.output.split())
    assert list(kept.iterdir()) == []
    project.goes_on()
