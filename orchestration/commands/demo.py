"""`tidegate demo`: see it work, and see it proved."""

from __future__ import annotations

from typing import Annotated

import typer

from tidegate.orchestration.commands.options import AsJson, Debug, DemoFolder, examples
from tidegate.orchestration.console.bars import Bars
from tidegate.orchestration.console.screen import Screen, reported
from tidegate.orchestration.demo.site import DEFAULT_DEMO

EPILOG = examples("tidegate demo", "tidegate demo --rows 100000 --clicks 50000", "tidegate demo --json")


def demo(
    rows: Annotated[int, typer.Option("--rows", min=1000, help="Rows of user_info.")] = 1_000_000,
    clicks: Annotated[int, typer.Option("--clicks", min=1, help="Clicks that are there from the start.")] = 500_000,
    writes_per_second: Annotated[
        int, typer.Option("--writes-per-second", min=1, help="Changes that the writer makes to user_info.")
    ] = 2_000,
    port: Annotated[
        int | None,
        typer.Option("--port", min=1, max=65535, help="MariaDB's port on loopback.", show_default="a free one"),
    ] = None,
    folder: DemoFolder = DEFAULT_DEMO,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Join clicks to a MariaDB table that is still loading, and prove the result.

    Starts a real MariaDB without root or Docker, fills user_info, keeps a writer busy, lets clicks arrive before the
    table is loaded, runs examples/clicks/pipeline.sql through its Dagster assets, and compares every output row with a
    replay of the writer's own log. Leaves with status 1 when anything is not as promised.

    The database server and all downloads are kept for the next run; the lake and its history are new each time.
    """
    screen = Screen(as_json, debug)
    with reported(screen), Bars(screen.err) as bars:
        from tidegate.orchestration.demo.play import play
        from tidegate.orchestration.demo.site import Site, Sizes
        from tidegate.orchestration.demo.stage import announce

        site = Site(folder)
        announce(site, screen.say)
        found = play(site, Sizes(rows, clicks, writes_per_second), bars, screen.say, port)
        screen.result(found)
    if not found.holds:
        raise typer.Exit(1)
