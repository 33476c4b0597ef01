"""`tidegate status`: the state of a lake, without Spark or Java."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Annotated

import typer

from tidegate.orchestration.commands.options import (
    AsJson,
    Debug,
    LakePath,
    examples,
    screen_of,
    stopped_by_signals,
    stored_pipeline,
)
from tidegate.orchestration.console.screen import FAILED, reported
from tidegate.pipelines.commands import DEFAULT_LAKE

EPILOG = examples(
    "tidegate status",
    "tidegate status pipeline.sql --lake /data/lake",
    "tidegate status --watch",
    "tidegate status --json",
)


def status(
    script: Annotated[
        Path | None,
        typer.Argument(
            metavar="[SCRIPT]", exists=True, dir_okay=False, help="Only what this script names.", show_default=False
        ),
    ] = None,
    lake: LakePath = DEFAULT_LAKE,
    watch: Annotated[bool, typer.Option("--watch", help="Keep running, and refresh until Ctrl-C.")] = False,
    every: Annotated[
        float | None,
        typer.Option(
            "--every", min=0.1, metavar="SECONDS", help="Between two refreshes, with --watch.", show_default="2"
        ),
    ] = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Show how far every source is, where every row is, who works on what, and what the gate holds.

    Leaves with status 1 where rows of an INSERT that nobody works on are in no place, or in two.

    Reads the lake's own tables in well under a second; a run that is under way is not disturbed. With --watch and
    --json every look is one line.
    """
    from tidegate.orchestration.console.watching import watch as keep_showing
    from tidegate.pipelines.facts.problems import looked
    from tidegate.pipelines.lake import Lake

    screen = screen_of(script, lake, as_json, debug)
    with reported(screen):
        if every is not None and not watch:
            raise typer.BadParameter("--every goes with --watch: without it the status is shown once")
        pipeline = None
        if script is not None:
            from tidegate.pipelines.runtime.scripts import load_script

            pipeline = load_script(script)
        if watch:
            stop = threading.Event()
            with stopped_by_signals(stop):
                keep_showing(
                    screen,
                    lambda: looked(Lake(lake, create=False), pipeline),
                    2.0 if every is None else every,
                    stop,
                )
            return
        folder = Lake(lake, create=False)
        if pipeline is not None:
            pipeline = stored_pipeline(screen, pipeline, folder)
        found = looked(folder, pipeline)
        screen.result(found)
    if any(problem.kind == "imbalanced" for problem in found.problems):
        raise typer.Exit(FAILED)
