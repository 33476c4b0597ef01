"""A lake of an older format is refused by name at every command, and nothing in it changes."""

from __future__ import annotations

import shutil
import tarfile
from pathlib import Path

import pytest

from tests.stories.changes.bases import state_of, tidegate

FIXTURE = Path("tests/fixtures/lake_of_format_1")


@pytest.mark.parametrize(
    "command", [["run"], ["status"], ["verify"], ["report"], ["release", "enriched"], ["quarantine list"], ["maintain"]]
)
def test_a_lake_of_format_1_is_refused(command: list[str], tmp_path: Path) -> None:
    with tarfile.open(FIXTURE / "lake.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    script, lake = Path(shutil.copy(FIXTURE / "pipeline.py", tmp_path)), tmp_path / "lake"
    before = state_of(lake)
    result = tidegate(tmp_path, *command[0].split(), script, *command[1:], "--lake", lake)
    assert result.exit_code == 1, result.output
    assert "the lake has format 4 or older, of an older Tidegate" in result.stderr
    assert "use the Tidegate that made it; or begin another lake: --lake DIR" in result.stderr
    assert state_of(lake) == before
