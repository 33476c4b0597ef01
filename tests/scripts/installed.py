"""An environment of its own with Tidegate's wheel in it, as a person has it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

from tests.tidegate.test_names import ROOMS

ROOT = Path(__file__).parents[2]
FOLDERS = ("tidegate", *sorted(ROOMS))


@dataclass(frozen=True)
class Installed:
    """An environment with the wheel in it, and the folder of a project, where commands are typed."""

    wheel: Path
    bin: Path
    project: Path
    more: Mapping[str, str] = field(default_factory=dict)
    """Environment variables beside those of the tests."""

    def environment(self) -> Mapping[str, str]:
        """Nothing of the clone: the project alone is on the path, with its `src`, as `pip install -e .` has it."""
        return {
            **os.environ,
            **self.more,
            "PYTHONPATH": f"{self.project}:{self.project / 'src'}",
            "PATH": f"{self.bin}:{os.environ['PATH']}",
            "DAGSTER_HOME": str(self.project / "home"),
            "VIRTUAL_ENV": str(self.bin.parent),
        }

    def run(self, command: str, *arguments: str, status: int = 0) -> str:
        done = subprocess.run(
            [self.bin / command, *arguments],
            cwd=self.project,
            env=self.environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout + done.stderr

    def add(self, *what: str | Path) -> None:
        """Install these into the environment, and nothing that they need: it is there."""
        pip = [sys.executable, "-m", "pip", "--python", self.bin / "python", "install", "--no-deps"]
        subprocess.run([*pip, *what], check=True, capture_output=True)


def build(into: Path) -> Path:
    """The wheel, of a copy of the clone: what setuptools leaves behind would be found by every other test."""
    clone = into / "clone"
    clone.mkdir(parents=True)
    for name in (*FOLDERS, "pyproject.toml", "README.md", "LICENSE"):
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, clone / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, clone / name)
    # `make install` puts the setuptools that the wheel needs into .venv; in an older environment pip fetches one.
    own = ["--no-build-isolation"] if int(version("setuptools").partition(".")[0]) >= 77 else []
    pip = [sys.executable, "-m", "pip", "wheel", "--no-deps", *own, "--wheel-dir", into, clone]
    subprocess.run(pip, check=True, capture_output=True)
    (wheel,) = into.glob("tidegate-*.whl")
    return wheel


def installed_in(folder: Path, project: Path) -> Installed:
    """The environment, made below `folder`; `project` is there, or will be."""
    wheel, venv = build(folder / "built"), folder / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    (site,) = venv.glob("lib/python*/site-packages")
    # All other packages are those of this environment. Its .pth files, one of which leads to the clone, are not read.
    (site / "shared.pth").write_text(sysconfig.get_path("purelib") + "\n")
    made = Installed(wheel, venv / "bin", project)
    made.add("--no-index", "--ignore-installed", wheel)
    for name in ("dg", "dagster", "dagster-webserver", "dagster-daemon"):  # whose first line names its environment
        text = (Path(sys.executable).parent / name).read_text().partition("\n")[2]
        (venv / "bin" / name).write_text(f"#!{venv / 'bin' / 'python'}\n{text}")
        (venv / "bin" / name).chmod(0o755)
    return made
