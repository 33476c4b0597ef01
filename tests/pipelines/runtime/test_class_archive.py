"""Archives of classes that no environment can use any more leave the disk; those of living environments stay."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from tidegate.pipelines.runtime import engine
from tidegate.pipelines.runtime.class_archive import remove_unusable

JAVA = "/opt/no java/bin/java"


def archived(environment: Path, monkeypatch: pytest.MonkeyPatch, machine: str | None = None) -> Path:
    """An archive of an environment, which is none, with its note."""
    (environment / "jars").mkdir(parents=True)
    (environment / "jars" / "spark.jar").write_text("classes")
    monkeypatch.setenv("SPARK_HOME", str(environment))
    path = engine.archive_of(JAVA)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"no archive")
    path.with_suffix(".sha256").write_text(engine.digest_of(path))
    note = [machine or socket.gethostname(), engine.archived_from(JAVA)]
    path.with_suffix(".json").write_text(json.dumps(note))
    return path


def test_archives_of_environments_that_are_gone_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEGATE_HOME", str(tmp_path / "home"))
    living, gone, another, elsewhere, unknown = [
        archived(tmp_path / name, monkeypatch, "another machine" if name == "elsewhere" else None)
        for name in ("living", "gone", "another", "elsewhere", "unknown")
    ]
    unknown.with_suffix(".json").unlink()
    for name in ("gone", "elsewhere", "unknown"):
        (tmp_path / name / "jars" / "spark.jar").unlink()
    (tmp_path / "another" / "jars" / "spark.jar").write_text("another version")
    remove_unusable(living.parent)
    assert [path.exists() for path in (living, gone, another, elsewhere, unknown)] == [True, False, False, True, True]
    assert {path.stem for path in living.parent.iterdir()} == {living.stem, elsewhere.stem, unknown.stem}
    living.with_suffix(".json").write_text("no note")
    remove_unusable(living.parent)
    assert living.exists()
