"""`tidegate release` and `tidegate discard`: what a person decides about an epoch that the gate holds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from tidegate.orchestration.commands.options import (
    AsJson,
    Debug,
    InsertId,
    LakePath,
    Master,
    Script,
    examples,
    insert_of,
    screen_of,
)
from tidegate.orchestration.commands.run import runner
from tidegate.orchestration.console.bars import Bars
from tidegate.orchestration.console.screen import Screen, reported
from tidegate.pipelines.commands import DEFAULT_LAKE

OnUnmatched = Annotated[
    Literal["quarantine", "block", "publish"] | None,
    typer.Option(
        "--on-unmatched",
        help="What becomes of rows without a match this once.",
        show_default="as the script says",
    ),
]

RELEASE_EPILOG = examples(
    "tidegate release pipeline.sql enriched_clicks",
    "tidegate release pipeline.sql enriched_clicks --on-unmatched quarantine",
)
DISCARD_EPILOG = examples("tidegate discard pipeline.sql enriched_clicks")


def release(
    script: Script,
    insert: InsertId,
    lake: LakePath = DEFAULT_LAKE,
    on_unmatched: OnUnmatched = None,
    master: Master = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Take a held epoch through the gate again: the same rows, joined to what the build tables hold now.

    Leaves with status 1 when the gate holds it once more.
    """
    _resolve(screen_of(script, lake, as_json, debug), script, insert, lake, master, on_unmatched=on_unmatched)


def discard(
    script: Script,
    insert: InsertId,
    lake: LakePath = DEFAULT_LAKE,
    master: Master = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Give a held epoch up: its rows go to the quarantine table with the reason `discarded`, and the INSERT goes on."""
    _resolve(screen_of(script, lake, as_json, debug), script, insert, lake, master, discard=True)


def _resolve(
    screen: Screen,
    script: Path,
    insert: str,
    lake: Path,
    master: str | None,
    *,
    discard: bool = False,
    on_unmatched: Literal["quarantine", "block", "publish"] | None = None,
) -> None:
    from tidegate.orchestration.console.views import of_published, published_line
    from tidegate.pipelines.runtime.scripts import load_script

    label = "tidegate discard" if discard else "tidegate release"
    with reported(screen):
        pipeline = load_script(script)
        insert_of(pipeline, insert)
        with Bars(screen.err) as bars, runner(pipeline, lake, master, bars, label) as active:
            published = active.resolve_held(insert, discard=discard, on_unmatched=on_unmatched)
        screen.result(of_published(published), published_line(published))
