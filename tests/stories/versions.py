"""Another version of a package that Tidegate runs on, which pip has put into a folder of the cache, once: a process
finds it before the one of the environment, by its PYTHONPATH."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.stories.story import ROOT


def installed(folder: Path, *wanted: str) -> Path:
    """`wanted`, without what they need, built by the setuptools that is here."""
    if folder.exists():
        return folder
    half = folder.with_name(f"{folder.name}.{os.getpid()}")
    pip = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-build-isolation", "--target", half]
    done = subprocess.run([*pip, *wanted], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        shutil.rmtree(half, ignore_errors=True)
        last = "\n".join(done.stderr.splitlines()[-5:])
        pytest.fail(
            f"{wanted[0]} could not be installed; the package index must be reachable once (PIP_INDEX_URL):\n{last}"
        )
    return half.rename(folder)


def before(folder: Path) -> dict[str, str]:
    """The environment of a process that finds what is in this folder first, and all else where this test runs."""
    path = [str(folder), str(ROOT), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path))}


def tell(environment: dict[str, str], story: tuple[str, ...], folder: Path) -> None:
    """Run a story's tests."""
    alone = ["-n0", "-q", "-p", "no:cacheprovider", "--timeout=0", f"--basetemp={folder / 'its'}"]
    done = run(environment, "-m", "pytest", *alone, *story)
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-5_000:]


def run(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
