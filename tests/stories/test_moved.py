"""A project goes on wherever it lies: moved, copied, linked, reached by another path. Another folder, or another table,
at its paths is refused by name."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark import SparkContext
from pyspark.sql import SparkSession
from typer.testing import CliRunner, Result

from tests.cases import at_length
from tidegate.assets.components import TidegateComponent
from tidegate.orchestration.commands.app import app
from tidegate.pipelines.sql import SqlError

FILES = """
CREATE FUNCTION twice AS 'MODULE.twice' LANGUAGE PYTHON;
CREATE TABLE src (id INT, doubled AS twice(id)) WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'json');
CREATE TABLE o (id INT, doubled BIGINT) WITH ('connector' = 'delta', 'path' = 'out/o', 'quality.suite' = 'suite.json');
INSERT INTO o SELECT id, doubled FROM src;
"""
DELTA = """
CREATE TABLE names (id INT, name STRING) WITH ('connector' = 'delta', 'path' = 'names');
CREATE TABLE n (id INT, name STRING) WITH ('connector' = 'delta', 'path' = './out/n');
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


NUMBERS = itertools.count()


class Project:
    """A script beside its files, its module, its suite, its targets and its lake. `delta`: whether it reads a Delta
    table, too."""

    def __init__(self, folder: Path, *, delta: bool) -> None:
        self.folder, self.delta = folder, delta
        (folder / "in").mkdir(parents=True)
        self.module = f"moved_{next(NUMBERS)}"  # Spark's Python workers keep the module of another test
        for name, text in ((f"{self.module}.py", FUNCTIONS), ("two.txt", "xx")):
            (folder / name).write_text(text)
        self.reads()
        (folder / "suite.json").write_text(json.dumps(SUITE))
        self.number = 0
        self.more()

    def more(self, into: str = "in", names: str = "names") -> None:
        """A further row of each source."""
        self.number += 1
        file = self.folder / into / f"{self.number}.json"
        file.write_text(json.dumps({"id": self.number}))
        os.utime(file, (1e9 + self.number, 1e9 + self.number))
        if self.delta:
            rows = pa.table({"id": pa.array([self.number], pa.int32()), "name": [str(self.number)]})
            write_deltalake(str(self.folder / names), rows, mode="append")

    @contextmanager
    def process(self, **environment: str) -> Iterator[None]:
        """A process that imports the module from where it lies now: its Python workers are its own, too (Spark keeps a
        worker for those of the same environment)."""
        context = SparkContext._active_spark_context
        assert context is not None
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(context.environment, "PROCESS", str(next(NUMBERS)))
            patch.syspath_prepend(str(self.folder))
            for name, value in environment.items():
                patch.setenv(name, value)
            try:
                yield
            finally:
                sys.modules.pop(self.module, None)

    def run(self, *arguments: str, status: int = 0, command: str = "run", **environment: str) -> Result:
        with self.process(**environment):
            result = CliRunner().invoke(app, [command, str(self.folder / "pipeline.sql"), *arguments])
        assert result.exit_code == status, result.output
        return result

    def dagster(self, **environment: str) -> dg.ExecuteInProcessResult:
        """The job of a code location with this script."""
        with self.process(**environment), dg.instance_for_test() as instance:
            component = TidegateComponent(
                script=str(self.folder / "pipeline.sql"), lake=str(self.folder / ".tidegate" / "lake")
            )
            job = dg.build_defs_for_component(component).resolve_job_def("project")
            return job.execute_in_process(instance=instance, raise_on_error=False)

    def reads(self, *changes: tuple[str, str]) -> None:
        """The script with other paths."""
        text = FILES.replace("MODULE", self.module) + DELTA * self.delta
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        (self.folder / "pipeline.sql").write_text(text)

    def published(self, below: str = "out") -> list[tuple[Any, ...]]:
        """The rows of the targets."""
        columns = {"o": ("id", "doubled"), "n": ("id", "name")} if self.delta else {"o": ("id", "doubled")}
        tables = {name: DeltaTable(str(self.folder / below / name)).to_pyarrow_table().to_pylist() for name in columns}
        return [
            (name, *row) for name in columns for row in sorted(tuple(r[c] for c in columns[name]) for r in tables[name])
        ]

    def whole(self, below: str = "out") -> None:
        """Every row is published, once."""
        numbers = range(1, self.number + 1)
        copied = [("n", number, str(number)) for number in numbers if self.delta]
        assert self.published(below) == [("o", number, 2 * number) for number in numbers] + copied

    def goes_on(self, root: str | None = None) -> None:
        """What is new is published, and what was there once."""
        self.more()
        result = self.run() if root is None else self.run(TIDEGATE_FILES_ROOT=root)
        assert "changes" not in result.output, result.output
        self.whole()


def ran(folder: Path, *, delta: bool = True) -> Project:
    """A project that has run, in a root of its own."""
    project = Project(folder, delta=delta)
    assert "This is a new lake" in project.run(TIDEGATE_FILES_ROOT=str(folder)).output
    return project


@pytest.fixture
def project(spark: SparkSession, tmp_path: Path) -> Project:
    return ran(tmp_path / "a" / "project")


@pytest.mark.parametrize("delta", at_length([False, True]))
@pytest.mark.usefixtures("spark")
def test_a_project_that_moves_goes_on(tmp_path: Path, delta: bool) -> None:
    """By the command line first, then under Dagster with another root, where its folders and all that it reads and
    writes have other names, too. A root that does not hold them is refused."""
    project, moved = ran(tmp_path / "a" / "project", delta=delta), tmp_path / "b" / "deeper" / "project"
    moved.parent.mkdir(parents=True)
    project.folder = project.folder.rename(moved)
    (moved / "suites").mkdir()
    for name, other in (("in", "moved in"), ("out", "moved out"), ("suite.json", "suites/o")):
        (moved / name).rename(moved / other)
    names = [("'names'", f"'{moved}/moved names'")] if delta else []
    for _ in names:
        (moved / "names").rename(moved / "moved names")
    project.reads(("'in'", "'moved in'"), ("out/", "moved out/"), ("suite.json", "suites/o"), *names)
    project.more("moved in", "moved names")
    (tmp_path / "elsewhere").mkdir()
    with pytest.raises(SqlError, match=r"'quality.suite' is .* outside of"):
        project.dagster(TIDEGATE_FILES_ROOT=str(tmp_path / "elsewhere"))
    assert list((tmp_path / "elsewhere").iterdir()) == []
    assert project.published("moved out") == [("o", 1, 2), *[("n", 1, "1")] * delta]
    result = project.dagster(TIDEGATE_FILES_ROOT=str(moved))
    assert result.success
    assert all(check.passed for check in result.get_asset_check_evaluations())
    project.whole("moved out")


@pytest.mark.thorough
def test_it_goes_on_wherever_it_lies(project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = project.folder
    second = tmp_path / "b" / "project"
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
    project.goes_on(root=str(second))
    # The script names the same folders by other paths.
    project.reads(
        ("'in'", f"'file://{second}/in'"), ("'names'", f"'{tmp_path}/link/names'"), ("'out/o'", f"'{second}/out/o'")
    )
    project.more()
    result = project.run()
    for what in ("source path: in -> ", "source path: names -> ", "target path: out/o -> "):
        assert what in result.output, result.output
    project.whole()
    project.run(command="verify")


@pytest.mark.thorough
def test_other_folders_at_its_paths_are_refused(project: Project, tmp_path: Path) -> None:
    folder, kept, before = project.folder, tmp_path / "kept", project.published()
    kept.mkdir()
    (folder / "in").rename(kept / "in")
    (folder / "in").mkdir()
    (folder / "in" / "9.json").write_text('{"id": 9}')
    os.utime(folder / "in" / "9.json", (1e9, 1e9))
    assert "src: the folder is another one than was read" in project.run(status=1).output
    shutil.rmtree(folder / "in")
    (kept / "in").rename(folder / "in")
    (folder / "names").rename(kept / "names")
    write_deltalake(str(folder / "names"), pa.table({"id": pa.array([9], pa.int32()), "name": ["9"]}))
    assert "another Delta table lies here" in project.run(status=1).output
    shutil.rmtree(folder / "names")
    (kept / "names").rename(folder / "names")
    assert project.published() == before
    for other in (False, True):
        (folder / "out" / "o").rename(kept / "o")
        if other:
            rows = pa.table({"id": pa.array([7], pa.int32()), "doubled": pa.array([7], pa.int64())})
            write_deltalake(str(folder / "out" / "o"), rows)
        said = " ".join(project.run(status=1).output.split())
        assert "the table that o has published to" in said
        assert f"{folder}/out/o, where it is not" in said
        if other:
            assert DeltaTable(str(folder / "out" / "o")).version() == 0
            shutil.rmtree(folder / "out" / "o")
        assert not (folder / "out" / "o").exists(), "nothing was made"
        (kept / "o").rename(folder / "out" / "o")
    project.goes_on()
