"""`tidegate maintain`: retention, OPTIMIZE and VACUUM."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

import typer

from tidegate.orchestration.commands.options import (
    AsJson,
    Debug,
    LakePath,
    Master,
    Script,
    duration,
    examples,
    screen_of,
)
from tidegate.orchestration.commands.runner import runner
from tidegate.orchestration.console.bars import Bars
from tidegate.orchestration.console.screen import reported
from tidegate.pipelines.commands import DEFAULT_LAKE

EPILOG = examples("tidegate maintain pipeline.sql", "tidegate maintain pipeline.sql --keep '1 d'")


def maintain(
    script: Script,
    lake: LakePath = DEFAULT_LAKE,
    keep: Annotated[
        timedelta,
        typer.Option(parser=duration, metavar="DURATION", help="Files that a version younger than this names stay."),
    ] = "7 d",  # type: ignore[assignment]
    master: Master = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Let rows go ('changelog.retention', 'landed.retention', 'quarantine.retention'), put small files together, and
    free the disk of dead ones.

    No row that anybody can still ask for changes. What another runner works on is passed over, and named.
    """
    from tidegate.pipelines.facts.maintenance import maintain as maintained
    from tidegate.pipelines.lake import Lake
    from tidegate.pipelines.runtime.scripts import load_script

    screen = screen_of(script, lake, as_json, debug)
    with reported(screen):
        pipeline = load_script(script)
        Lake(lake, create=False)
        with (
            Bars(screen.err) as bars,
            runner(pipeline, lake, master, bars, "tidegate maintain") as active,
        ):
            found = maintained(active, keep)
        screen.result(found)
