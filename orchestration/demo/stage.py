"""Sets the stage: the database runs, the environment is what the script and Dagster look into."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from tidegate.orchestration.dagster_home import prepare
from tidegate.orchestration.demo.database import fill, is_filled, serving
from tidegate.orchestration.demo.site import SCRIPT, Site, Sizes, environment, export
from tidegate.pipelines.errors import TidegateError
from tidegate.pipelines.jars import java
from tidegate.pipelines.location import Location
from tidegate.pipelines.progress import Progress
from tidegate.pipelines.sources.mysql_cdc.server import EmbeddedMariaDb

_BYTES_PER_ROW = 600
_FREE_BYTES = 500 * 2**20


@contextlib.contextmanager
def opened(site: Site, sizes: Sizes, progress: Progress, port: int | None = None) -> Iterator[EmbeddedMariaDb]:
    """A database with a new `user_info`, an empty lake, and the environment for them.

    Raises JavaMissing, ServerUnavailable, JarsUnavailable, and TidegateError where there is no room.
    """
    java()
    _require_script()
    site.root.mkdir(parents=True, exist_ok=True)
    _require_room(site.root, sizes)
    with serving(site.database, progress, port) as (server, password):
        for folder in (site.lake, site.dagster):
            shutil.rmtree(folder, ignore_errors=True)
        prepare(site.dagster)
        fill(server, sizes.rows, progress)
        site.sizes.write_text(json.dumps(asdict(sizes)), encoding="utf-8")
        export(environment(site, sizes, server.host, server.port, password))
        yield server


@contextlib.contextmanager
def reopened(site: Site, progress: Progress) -> Iterator[EmbeddedMariaDb]:
    """The database of the newest demo as it was left, and the environment for its lake.

    Raises TidegateError when there was no demo.
    """
    if not Location(site.lake).is_there() or not site.sizes.exists():
        raise TidegateError(
            "there is no demo to open yet", where=str(site.root), state="nothing was started", next_command="make demo"
        )
    sizes = Sizes(**json.loads(site.sizes.read_text(encoding="utf-8")))
    with serving(site.database, progress) as (server, password):
        if not is_filled(server):
            raise TidegateError(
                "the demo's database has no user_info: its last run did not get that far",
                where=str(site.database),
                state="nothing was changed",
                next_command="make demo",
            )
        prepare(site.dagster)
        export(environment(site, sizes, server.host, server.port, password))
        yield server


def _require_script() -> None:
    if not SCRIPT.exists():
        raise TidegateError(
            "the demo's pipeline is not part of an installed package",
            where=str(SCRIPT),
            state="nothing was started",
            next_command="make demo   (in a clone of the repository)",
        )


def _require_room(folder: Path, sizes: Sizes) -> None:
    needed = _FREE_BYTES + _BYTES_PER_ROW * (sizes.rows + sizes.clicks)
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise TidegateError(
            f"the demo needs {needed // 2**20} MB of disk and {free // 2**20} MB are free",
            where=str(folder.absolute()),
            state="nothing was changed",
            next_command="free some space and run the same command again, or make it smaller: "
            "tidegate demo --rows 100000 --clicks 50000",
        )
