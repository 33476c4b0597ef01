"""`tidegate explain`: what a script means, without running any of it."""

from __future__ import annotations

import os
from dataclasses import asdict
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
    from rich.text import Text

    from tidegate.orchestration.console.explained import definition_lines, missing_variables, of_pipeline, verdict_lines
    from tidegate.pipelines.clock import system_clock
    from tidegate.pipelines.commands import commands_of, default_lake
    from tidegate.pipelines.lake import Lake
    from tidegate.pipelines.runtime.definitions import Definitions
    from tidegate.pipelines.runtime.scripts import load_script
    from tidegate.pipelines.sql import explain as explained
    from tidegate.pipelines.sql import show_statements

    screen = screen_of(script, lake or default_lake(script), as_json, debug)
    with reported(screen):
        pipeline = load_script(script)
        found = []
        if lake is not None:
            found = Definitions(Lake(lake, create=False), pipeline, os.environ, system_clock).differences()
        compared = {} if lake is None else {"definitions": [asdict(item) for item in found]}
        screen.result(
            of_pipeline(pipeline) | compared | {"missing": missing_variables(pipeline, os.environ)},
            Text(show_statements(pipeline) if statements else explained(pipeline)),
            *([] if lake is None else definition_lines(found, lake)),
            *verdict_lines(
                pipeline, os.environ, commands_of(script, lake or default_lake(script)), None if lake is None else found
            ),
        )
    if any(item.refused for item in found):
        raise typer.Exit(FAILED)
