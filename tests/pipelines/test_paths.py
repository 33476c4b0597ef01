"""Where a script may read files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.pipelines import paths
from tidegate.pipelines.errors import PlanningError, SourceError
from tidegate.pipelines.jars import home
from tidegate.pipelines.lake import Lake
from tidegate.pipelines.lake.lake import Layout
from tidegate.pipelines.location import Location
from tidegate.pipelines.sql import SqlError, compile_script


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "root" / "in").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    (tmp_path / "root" / "link").symlink_to(tmp_path / "outside")
    (tmp_path / "root" / "fine").symlink_to(tmp_path / "root" / "in")
    monkeypatch.setenv(paths.VARIABLE, str(tmp_path / "root"))
    return tmp_path / "root"


@pytest.mark.parametrize("path", ["in", "./in", "in/../in", "fine", "{root}/in", "file://{root}/in", "file:{root}/in"])
def test_what_lies_in_the_root(root: Path, path: str) -> None:
    assert paths.allowed(path.format(root=root), "t") == root / "in"


@pytest.mark.parametrize("path", ["..", "../outside", "link", "{root}/../outside", "/", "in/../../outside"])
def test_what_does_not_is_refused_naming_both(root: Path, path: str) -> None:
    with pytest.raises(SourceError, match=r"t: .* outside of ") as caught:
        paths.allowed(path.format(root=root), "t")
    assert str(root) in caught.value.what
    assert paths.VARIABLE in str(caught.value)


@pytest.mark.parametrize("path", ["s3://bucket/x", "hdfs:/h/x", "", "file://"])
def test_another_file_system_is_refused(root: Path, path: str) -> None:
    with pytest.raises(PlanningError, match="is a folder that this machine can read"):
        paths.allowed(path, "t")


def test_several_roots_and_none(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outside = root.parent / "outside"
    monkeypatch.setenv(paths.VARIABLE, f"{root}:{outside}")
    assert paths.allowed(str(outside), "t") == outside
    assert paths.restricted()
    monkeypatch.delenv(paths.VARIABLE)
    assert not paths.restricted()
    monkeypatch.chdir(root)
    assert paths.allowed("in", "t") == root / "in"
    with pytest.raises(SourceError, match="outside of"):
        paths.allowed(str(outside), "t")


ELSEWHERE = (
    "s3://bucket/x",
    "S3A://bucket/x",
    "s3:/bucket/x",
    "abfss://c@a.dfs.core.windows.net/x",
    "gs://b",
    "hdfs:///x",
    " s3://bucket/x",
)
OTHER_MACHINES = ("file://host/x", "FILE://host/x", "file:x", "file:")


@pytest.mark.parametrize(
    "said", [*ELSEWHERE, *map(Path, ELSEWHERE), "file://host/x", "FILE://host/x", "file:x", "file:"]
)
def test_a_lake_lies_on_this_machine(said: str | Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PlanningError, match=r"is not a folder of this machine|names another machine") as refused:
        Lake(said)
    assert refused.value.next_command
    assert not list(tmp_path.iterdir())


def test_downloads_lie_on_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEGATE_HOME", "s3://bucket/x")
    with pytest.raises(PlanningError, match="s3:// is not a folder of this machine") as refused:
        home()
    assert refused.value.where == "$TIDEGATE_HOME"
    monkeypatch.setenv("TIDEGATE_HOME", f"file://{tmp_path}")
    assert home() == tmp_path


@pytest.mark.parametrize("said", ["{root}/x", "file://{root}/x", "file:{root}/x", "FILE:///{root}/x", "x"])
def test_a_folder_may_be_written_as_an_address(said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert Layout(said.format(root=tmp_path)).root == Location(tmp_path) / "x"
    assert Layout(Path(said.format(root=tmp_path))).root == Location(tmp_path) / "x"
    assert paths.local("x", "", tmp_path / "base") == tmp_path / "base" / "x"
    assert not paths.problem("2024:01/x"), "a colon alone makes no address"


@pytest.mark.parametrize("name", ["a%20b", "a%41b", "x[1]", "a|b", "a^b", "a\\b"])
def test_a_delta_table_lies_where_its_readers_find_it(name: str, tmp_path: Path) -> None:
    """delta-rs decodes a path: it would make the lake, or read the table, in the folder of another name."""
    with pytest.raises(PlanningError, match="takes for something else"):
        Lake(tmp_path / name)
    pipeline = compile_script(TABLES.format(**(GOOD | {"target": f"'delta', 'path' = '{tmp_path / name}'"})))
    with pytest.raises(PlanningError, match=r"takes for something else"):
        Layout(tmp_path).target_path(pipeline.table("o"))
    assert not list(tmp_path.iterdir())
    assert Layout(tmp_path / "100% a+b?").root == Location(tmp_path) / "100% a+b?"


TABLES = """
CREATE TABLE p (k INT) WITH ('connector' = {source});
CREATE TABLE o (k INT) WITH ('connector' = {target});
INSERT INTO o SELECT k FROM p;
"""
GOOD = {"source": "'datagen'", "target": "'delta'"}


@pytest.mark.parametrize(
    "other",
    [
        {"target": "'delta', 'path' = '{path}'"},
        {"source": "'delta', 'path' = '{path}'"},
        {"source": "'filesystem', 'format' = 'json', 'path' = '{path}'"},
    ],
)
def test_a_script_names_folders_of_this_machine(other: dict[str, str], tmp_path: Path) -> None:
    for path in ("s3://bucket/x", "file://host/x"):
        with pytest.raises(SqlError, match=r"'path': .*machine"):
            compile_script(TABLES.format(**(GOOD | {role: each.format(path=path) for role, each in other.items()})))
    fine = {role: each.format(path=f"file://{tmp_path}/x") for role, each in other.items()}
    pipeline = compile_script(TABLES.format(**(GOOD | fine)))
    if "target" in other:
        assert Layout(tmp_path).target_path(pipeline.table("o")) == Location(tmp_path) / "x"
