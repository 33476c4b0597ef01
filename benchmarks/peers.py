"""Peers that Tidegate does not depend on: each runs in a virtual environment of its own, made once from an extra of
pyproject.toml, so that what it needs cannot change what Tidegate runs with."""

from __future__ import annotations

import hashlib
import math
import os
import shutil
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

from tidegate.pipelines.jars import home, resolve

ROOT = Path(__file__).resolve().parent.parent

LONGEST_S = 300
"""A peer that holds every pair of a hot key's rows together would never end."""

FLINK_JARS = (
    "org.apache.flink:flink-sql-parquet:2.3.0",
    "org.apache.hadoop:hadoop-client-api:3.4.2",
    "org.apache.hadoop:hadoop-client-runtime:3.4.2",
    "commons-logging:commons-logging:1.3.0",
)
"""What PyFlink needs to read and write Parquet."""


def python_with(extra: str) -> Path:
    """The Python of an environment that holds the requirements of `extra` and nothing else; made where it is missing.

    Raises subprocess.CalledProcessError where pip cannot install them (its own words are on the terminal).
    """
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"][extra]
    environment = hashlib.sha256(repr((sys.version, sorted(declared))).encode()).hexdigest()[:12]
    folder = home() / "peers" / f"{extra}-{environment}"
    if not (folder / "complete").exists():
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        subprocess.run([str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", *declared], check=True)
        (folder / "complete").touch()
    return folder / "bin" / "python"


def run(extra: str, script: str, *arguments: str) -> float:
    """Run `benchmarks/<script>` in the environment of `extra`; the seconds that it says its work took, infinite where
    it is not done after LONGEST_S."""
    # Neither this checkout nor what it runs with may be seen there.
    outside = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    command = [str(python_with(extra)), str(ROOT / "benchmarks" / script), *arguments]
    peer = subprocess.Popen(command, env=outside, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        output, _ = peer.communicate(timeout=LONGEST_S)
    except subprocess.TimeoutExpired:
        os.killpg(peer.pid, signal.SIGKILL)  # its JVM, too
        peer.wait()
        return math.inf
    if peer.returncode:
        raise subprocess.CalledProcessError(peer.returncode, command)
    return float(output.split()[-1])


def flink_jars() -> list[str]:
    """The paths of FLINK_JARS. Raises tidegate.pipelines.jars.JarsUnavailable."""
    return [str(jar) for name in FLINK_JARS for jar in resolve([name], transitive=False, complete=True, pinned=False)]
