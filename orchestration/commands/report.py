"""`tidegate report`: one page to hand on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from tidegate.orchestration.commands.options import (
    AsJson,
    Debug,
    LakePath,
    Script,
    examples,
    screen_of,
    stored_pipeline,
)
from tidegate.orchestration.console.screen import reported
from tidegate.pipelines.commands import DEFAULT_LAKE
from tidegate.pipelines.records.kinds import Note

EPILOG = examples(
    "tidegate report pipeline.sql",
    "tidegate report pipeline.sql --out /srv/www/clicks.html",
    "tidegate report pipeline.sql --name shop",
)


def report(
    script: Script,
    lake: LakePath = DEFAULT_LAKE,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", dir_okay=False, help="The page.", show_default="PIPELINE-report.html"),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(
            "--name",
            help="The pipeline's name on the page.",
            show_default="the script's file name",
        ),
    ] = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Write one HTML page of a pipeline: flow, phases, watermarks, cuts, verdicts, quarantine, problems.

    The page holds all that it shows, pictures as well, so it can be mailed or printed. It is read from the lake's own
    tables, without Spark; a run that is under way is not disturbed.
    """
    from tidegate.orchestration.report import render
    from tidegate.pipelines.commands import Commands
    from tidegate.pipelines.errors import TidegateError
    from tidegate.pipelines.facts.report import gather
    from tidegate.pipelines.lake import Lake
    from tidegate.pipelines.runtime.scripts import load_script

    screen = screen_of(script, lake, as_json, debug)
    with reported(screen):
        folder = Lake(lake, create=False)
        pipeline = stored_pipeline(screen, load_script(script, name), folder)
        # It is read elsewhere: paths are whole.
        page = render(gather(folder, pipeline), Commands(script.absolute(), lake.absolute()))
        path = out or Path(f"{pipeline.name}-report.html")
        try:
            path.write_text(page, encoding="utf-8")
        except OSError as error:
            raise TidegateError(
                f"the page cannot be written: {(error.strerror or str(error)).lower()}",
                where=str(path),
                state="nothing was changed",
                next_command="give a file that you may write: --out FILE",
            ) from error
        screen.result(Written(str(path), len(page.encode())))


@dataclass(frozen=True)
class Written:
    """The page, of so many `bytes`."""

    page: str
    bytes: int

    @property
    def notes(self) -> tuple[Note, ...]:
        return (Note(f"{self.page} is written."),)
