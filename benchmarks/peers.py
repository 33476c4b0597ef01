"""Peers that Tidegate does not depend on: each runs in a virtual environment of its own, made once from an extra of
pyproject.toml, so that what it needs can not change what Tidegate runs with."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

from pipelines.jars import home, resolve

ROOT = Path(__file__).resolve().parent.parent

FLINK_JARS = (
    "org.apache.flink:flink-sql-parquet:2.3.0",
    "org.apache.hadoop:hadoop-client-api:3.4.2",
    "org.apache.hadoop:hadoop-client-runtime:3.4.2",
    "commons-logging:commons-logging:1.3.0",
)
"""What PyFlink needs to read and write Parquet."""


def python_with(extra: str) -> Path:
    """The Python of an environment that holds the requirements of `extra` and nothing else; made where it is missing.

    Raises subprocess.CalledProcessError where pip can not install them (its own words are on the terminal).
    """
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"][extra]
    told = hashlib.sha256(repr((sys.version, sorted(declared))).encode()).hexdigest()[:12]
    folder = home() / "peers" / f"{extra}-{told}"
    if not (folder / "complete").exists():
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        subprocess.run([str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", *declared], check=True)
        (folder / "complete").touch()
    return folder / "bin" / "python"


def run(extra: str, script: str, *arguments: str) -> float:
    """Run `benchmarks/<script>` in the environment of `extra`; the seconds that it says its work took."""
    # Neither this checkout nor what it runs with may be seen there.
    outside = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    command = [str(python_with(extra)), str(ROOT / "benchmarks" / script), *arguments]
    done = subprocess.run(command, check=True, env=outside, stdout=subprocess.PIPE, text=True)
    return float(done.stdout.split()[-1])


def flink_jars() -> list[str]:
    """The paths of FLINK_JARS. Raises pipelines.jars.JarsUnavailable."""
    return [str(jar) for name in FLINK_JARS for jar in resolve([name], transitive=False, complete=True)]
