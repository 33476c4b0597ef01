"""Where a script may read files."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.errors import PlanningError, SourceError
from pipelines.sources import paths


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "root" / "in").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    (tmp_path / "root" / "link").symlink_to(tmp_path / "outside")
    (tmp_path / "root" / "fine").symlink_to(tmp_path / "root" / "in")
    monkeypatch.setenv(paths.VARIABLE, str(tmp_path / "root"))
    return tmp_path / "root"


@pytest.mark.parametrize("path", ["in", "./in", "in/../in", "fine", "{root}/in", "file://{root}/in"])
def test_what_lies_in_the_root(root: Path, path: str) -> None:
    assert paths.allowed(path.format(root=root), "t") == root / "in"


@pytest.mark.parametrize("path", ["..", "../outside", "link", "{root}/../outside", "/", "in/../../outside"])
def test_what_does_not_is_refused_naming_both(root: Path, path: str) -> None:
    with pytest.raises(SourceError, match=r"t: .* outside of ") as caught:
        paths.allowed(path.format(root=root), "t")
    assert str(root) in caught.value.what
    assert paths.VARIABLE in str(caught.value)


@pytest.mark.parametrize("path", ["s3://bucket/x", "hdfs://h/x", "", "file://"])
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
