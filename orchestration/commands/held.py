"""`tidegate release` and `tidegate discard`: what a person decides about an epoch that the gate holds."""

from __future__ import annotations

import sys
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
from tidegate.orchestration.commands.runner import runner
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
DISCARD_EPILOG = examples(
    "tidegate discard pipeline.sql enriched_clicks",
    "tidegate discard pipeline.sql enriched_clicks --yes",
)


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
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    master: Master = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Give a held epoch up: its rows go to the quarantine table with the reason `discarded`, and the INSERT goes on.

    All of its rows go, also those that nothing is wrong with: how many is shown first, and a terminal is asked.
    """
    ask = not yes and not as_json and sys.stdin.isatty()
    _resolve(screen_of(script, lake, as_json, debug), script, insert, lake, master, discard=True, ask=ask)


def _resolve(
    screen: Screen,
    script: Path,
    insert: str,
    lake: Path,
    master: str | None,
    *,
    discard: bool = False,
    on_unmatched: Literal["quarantine", "block", "publish"] | None = None,
    ask: bool = False,
) -> None:
    from tidegate.pipelines.facts.run import given_up, resolve
    from tidegate.pipelines.lake import Lake
    from tidegate.pipelines.runtime.scripts import load_script

    label = "tidegate discard" if discard else "tidegate release"
    with reported(screen):
        pipeline = load_script(script)
        target = insert_of(pipeline, insert)
        lost = given_up(Lake(lake, create=False), pipeline, target) if discard else None
        if lost is not None:
            screen.say(lost)
            if ask:
                typer.confirm("Discard all of them?", abort=True)
        with Bars(screen.err) as bars, runner(pipeline, lake, master, bars, label) as active:
            done = resolve(active, insert, discard=discard, on_unmatched=on_unmatched)
        screen.result(done)
