"""A lake of an older format is refused by name at every command, and nothing in it changes."""

from __future__ import annotations

import shutil
import tarfile
from pathlib import Path

from tests.stories.changes.bases import state_of, tidegate

FIXTURE = Path("tests/fixtures/lake_of_format_1")


COMMANDS = [
    *(["run", *more] for more in ([], ["--dry-run"], ["--continuous"], ["--resnapshot", "users"])),
    *([name] for name in ("explain", "status", "verify", "report", "maintain")),
    *([name, "enriched"] for name in ("release", "discard", "quarantine show", "quarantine release")),
    ["quarantine list"],
    ["quarantine discard", "enriched", "--because", "nobody asks for them"],
]


def test_a_lake_of_format_1_is_refused(tmp_path: Path) -> None:
    with tarfile.open(FIXTURE / "lake.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    script, lake = Path(shutil.copy(FIXTURE / "pipeline.py", tmp_path)), tmp_path / "lake"
    shutil.rmtree(lake / "_scratch")  # which nobody needs, so any lake may lack it
    before = state_of(lake), folders_of(lake)
    for name, *more in COMMANDS:
        result = tidegate(tmp_path, *name.split(), script, *more, "--lake", lake)
        assert result.exit_code == 1, (name, result.output)
        assert "the lake has format 4 or older, of an older Tidegate" in result.stderr
        assert "use the Tidegate that made it; or begin another lake: --lake DIR" in result.stderr
        assert (state_of(lake), folders_of(lake)) == before


def folders_of(lake: Path) -> set[Path]:
    return {path for path in lake.rglob("*") if path.is_dir()}
