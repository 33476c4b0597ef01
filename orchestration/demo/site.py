"""Where the demo lies, and what its script finds in the environment."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

DATABASE = "example_database"
USER = "tidegate"
GENDERS = ("f", "m", "x")

DEFAULT_DEMO = Path(".tidegate/demo")
"""The folder of a demo that is given none."""

SCRIPT = Path(__file__).parents[2] / "examples" / "clicks" / "pipeline.sql"


@dataclass(frozen=True)
class Sizes:
    """How big the demo is. `rows` of user_info, `clicks` there from the start, changes the writer makes a second."""

    rows: int = 1_000_000
    clicks: int = 500_000
    writes_per_second: int = 2_000

    @property
    def greatest_user_id(self) -> int:
        """Clicks name users up to this id: about one in a hundred names one who is not in the table."""
        return self.rows + max(self.rows // 100, 1)


@dataclass(frozen=True)
class Site:
    """The demo's folder.

    database/       the server's data: kept from run to run
    lake/           the pipeline's state: new in every run
    dagster/        DAGSTER_HOME with the history of the runs: new in every run
    journal.jsonl   what the writer committed
    """

    root: Path

    @property
    def database(self) -> Path:
        return self.root / "database"

    @property
    def lake(self) -> Path:
        return self.root / "lake"

    @property
    def dagster(self) -> Path:
        return self.root / "dagster"

    @property
    def journal(self) -> Path:
        return self.root / "journal.jsonl"

    @property
    def engine_log(self) -> Path:
        """The file with the output of Spark's JVM."""
        return self.root / "spark.log"

    @property
    def sizes(self) -> Path:
        """The sizes of the newest run, for those who open its lake later."""
        return self.root / "sizes.json"


def environment(site: Site, sizes: Sizes, host: str, port: int, password: str) -> Mapping[str, str]:
    """What the script, Dagster and the `tidegate` command find in the environment."""
    return {
        "MYSQL_HOST": host,
        "MYSQL_PORT": str(port),
        "MYSQL_USER": USER,
        "MYSQL_PASSWORD": password,
        "CLICKS_AT_START": str(sizes.clicks),
        "GREATEST_USER_ID": str(sizes.greatest_user_id),
        "TIDEGATE_LAKE": str(site.lake.absolute()),
        "DAGSTER_HOME": str(site.dagster.absolute()),
    }


def export(variables: Mapping[str, str]) -> None:
    """Put them into this process's environment, which its children inherit."""
    os.environ.update(variables)


def next_commands(site: Site) -> Mapping[str, str]:
    """What to type after the demo, and what it does."""
    here, program = Path.cwd(), _program()
    script = SCRIPT.relative_to(here) if SCRIPT.is_relative_to(here) else SCRIPT
    lake = f"--lake {shlex.quote(str(site.lake))}"
    return {
        typed(site, "ui", "ui --demo"): "opens Dagster on this lake: assets, checks, history",
        f"{program} status {lake}": "shows where every row is",
        f"{program} verify {shlex.quote(str(script))} {lake}": "recomputes every published row from its pins",
    }


def typed(site: Site, target: str, command: str) -> str:
    """How a command is typed for this folder: as a target of make, in the clone and for the default folder."""
    if Path.cwd() == SCRIPT.parents[2] and site.root == DEFAULT_DEMO:
        return f"make {target}"
    return f"{_program()} {command} --folder {shlex.quote(str(site.root))}"


def _program() -> str:
    """How the command is called from the working folder."""
    here = Path.cwd()
    return ".venv/bin/tidegate" if here == SCRIPT.parents[2] and Path(sys.prefix) == here / ".venv" else "tidegate"
