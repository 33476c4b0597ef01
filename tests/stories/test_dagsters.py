"""The oldest and the newest Dagster that the dependency allows load the definitions, and run a pipeline under their own
daemon. Every other test runs on the one of constraints.txt."""

from __future__ import annotations

import sys
from importlib.metadata import distributions
from pathlib import Path

import pytest

from tests.stories.versions import before, installed, run, tell
from tidegate.pipelines.jars import home

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.long,
    pytest.mark.timeout(0),
    pytest.mark.usefixtures("jvm", "server"),
]

VERSIONS = {"oldest": "1.13.0", "newest": "1.13.29"}
"""Both ends of the range in pyproject.toml; the newest is the newest that there was."""
STORIES = {
    "definitions": ("tests/assets", "tests/orchestration/test_definitions.py", "-m", "not service and not thorough"),
    "run": ("tests/assets/test_run.py", "-m", "not thorough"),
    "ui": ("tests/orchestration/test_demo.py", "-m", "not thorough"),
}


@pytest.fixture(scope="module", params=VERSIONS.values(), ids=VERSIONS)
def environment(request: pytest.FixtureRequest) -> dict[str, str]:
    """The environment of a process that has this Dagster, with all that belongs to it."""
    version = request.param
    names = sorted(item.name for item in distributions() if item.name.startswith("dagster") and item.version[0] != "0")
    wanted = [f"{name}>=1.13,<={version}" for name in names]  # of some the newest comes days after that of dagster
    return before(installed(home() / "test-dagsters" / f"{version}-{sys.implementation.cache_tag}", *wanted))


def test_it_is_that_very_dagster(environment: dict[str, str]) -> None:
    printed = run(environment, "-c", "import dagster; print(dagster.__version__, dagster.__file__)").stdout
    assert any(printed.startswith(version) and version in printed.split()[1] for version in VERSIONS.values()), printed


@pytest.mark.parametrize("story", STORIES)
def test_it_runs_the_story(environment: dict[str, str], story: str, tmp_path: Path) -> None:
    tell(environment, STORIES[story], tmp_path)
