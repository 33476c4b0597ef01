"""`tidegate status`: what is where, without Spark or Java."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from orchestration.commands.options import DEFAULT_LAKE, AsJson, Debug, LakePath, examples
from orchestration.console import Screen, reported

EPILOG = examples("tidegate status", "tidegate status pipeline.sql --lake /data/lake", "tidegate status --json")


def status(
    script: Annotated[
        Path | None,
        typer.Argument(
            metavar="[SCRIPT]", exists=True, dir_okay=False, help="Only what this script names.", show_default=False
        ),
    ] = None,
    lake: LakePath = DEFAULT_LAKE,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Show how far every source is, where every row is, who works on what, and what the gate holds.

    Reads the lake's own tables in well under a second; a run that is under way is not disturbed.
    """
    from orchestration.console.standing import standing
    from pipelines.lake import Lake
    from pipelines.runtime.scripts import load_script
    from pipelines.runtime.status import status as read_status

    screen = Screen(as_json, debug)
    with reported(screen):
        pipeline = load_script(script) if script else None
        found = read_status(Lake(lake, create=False), pipeline)
        screen.result(found.to_json(), *standing(found))
