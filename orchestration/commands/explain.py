"""`tidegate explain`: what a script means, without running any of it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from tidegate.orchestration.commands.options import AsJson, Debug, Script, examples, screen_of
from tidegate.orchestration.console.screen import FAILED, reported

EPILOG = examples(
    "tidegate explain pipeline.sql",
    "tidegate explain pipeline.sql --statements",
    "tidegate explain pipeline.sql --json",
    "tidegate explain pipeline.sql --lake /data/lake",
)


def explain(
    script: Script,
    lake: Annotated[
        Path | None,
        typer.Option(
            "--lake", metavar="DIR", file_okay=False, help="Also show what this lake keeps as another definition."
        ),
    ] = None,
    statements: Annotated[
        bool, typer.Option("--statements", help="Show DESCRIBE and SHOW CREATE of each table and function instead.")
    ] = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Check a script; show its tables, watermarks, functions, joins and what its gate does; then the verdict.

    It connects to nothing and runs nothing; modules that CREATE FUNCTION names are imported.

    With --lake, the script is held against the definitions that a lake keeps; status 1 where a run would refuse it.

    Whatever can be known before running is found here, with its line and column.
    """
    from tidegate.pipelines.clock import system_clock
    from tidegate.pipelines.commands import default_lake
    from tidegate.pipelines.facts.plan import explain as explained
    from tidegate.pipelines.lake import Lake
    from tidegate.pipelines.runtime.definitions import Definitions
    from tidegate.pipelines.runtime.scripts import load_script

    screen = screen_of(script, lake or default_lake(script), as_json, debug)
    with reported(screen):
        pipeline, differing = load_script(script), None
        if lake is not None:
            differing = Definitions(Lake(lake, create=False), pipeline, os.environ, system_clock).differences()
        found = explained(pipeline, differing, lake, statements=statements)
        screen.result(found)
    if found.refused:
        raise typer.Exit(FAILED)
