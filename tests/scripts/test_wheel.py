"""What a wheel holds: all that the command needs, without the clone."""

from __future__ import annotations

import fnmatch
import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
PACKAGES = ("tidegate", "orchestration", "assets", "quality_checks", "pipelines")
OF_THE_CLONE = {"orchestration/defs/clicks/defs.yaml"}
"""What shows the examples, which a wheel does not have."""


def test_every_file_beside_the_code_is_taken_along() -> None:
    files = [path for name in PACKAGES for path in (ROOT / name).rglob("*") if path.is_file()]
    other = [path for path in files if path.suffix not in (".py", ".pyc")]
    patterns = SETTINGS["package-data"]["*"]
    left = [path for path in other if not any(fnmatch.fnmatch(path.name, pattern) for pattern in patterns)]
    assert {str(path.relative_to(ROOT)) for path in left} == OF_THE_CLONE
    folders = {path.parent for path in files if path.suffix == ".py"}
    assert [folder for folder in folders if not (folder / "__init__.py").exists()] == [], "pip takes packages alone"


@pytest.mark.thorough
def test_the_command_runs_out_of_a_wheel(tmp_path: Path) -> None:
    """Needs the network: pip builds in an environment of its own."""
    clone, site = tmp_path / "clone", tmp_path / "site"
    for name in (*PACKAGES, "pyproject.toml", "README.md", "LICENSE"):
        clone.mkdir(exist_ok=True)
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, clone / name, symlinks=True)
        else:
            shutil.copy(ROOT / name, clone / name)
    pip = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", tmp_path / "dist", clone]
    subprocess.run(pip, check=True, capture_output=True)
    (wheel,) = (tmp_path / "dist").glob("tidegate-*.whl")
    zipfile.ZipFile(wheel).extractall(site)
    for arguments in (["--version"], ["explain", str(ROOT / "examples" / "rates" / "pipeline.sql")]):
        code = "import tidegate.orchestration.cli, sys; print(tidegate.__file__); tidegate.orchestration.cli.main()"
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(site)},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.startswith(str(site))
