"""DAGSTER_HOME of a lake: where Dagster keeps its history and its settings."""

from __future__ import annotations

from pathlib import Path

_SETTINGS = """\
telemetry:
  enabled: false
# The dialog that asks for an address, for news of Dagster.
nux:
  enabled: false
concurrency:
  runs:
    # Runs of one pipeline would wait for each other's leases, and each starts a Spark of its own.
    max_concurrent_runs: 1
"""

_WORKSPACE = """\
load_from:
  - python_module:
      module_name: tidegate.orchestration.definitions
      location_name: tidegate
"""


def prepare(home: Path) -> Path:
    """Make the folder with its settings where they are missing; returns the workspace file that Dagster opens."""
    home.mkdir(parents=True, exist_ok=True)
    for name, text in (("dagster.yaml", _SETTINGS), ("workspace.yaml", _WORKSPACE)):
        if not (home / name).exists():
            (home / name).write_text(text, encoding="utf-8")
    return home / "workspace.yaml"
