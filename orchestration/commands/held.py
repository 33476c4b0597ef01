"""`tidegate release` and `tidegate discard`: what a person decides about an epoch that the gate holds."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

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
from tidegate.pipelines.text import counted

if TYPE_CHECKING:
    from tidegate.pipelines.runtime.epochs.position import HeldEpoch

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


def given_up(insert: str, held: HeldEpoch) -> str:
    """What discarding a held epoch does, in a sentence."""
    counts = held.staged.counts
    rows, good = counts.get("rows", 0), counts.get("to:publish", 0)
    fine = f"; {good:,} of them would have been published" if good else ""
    return f"Discarding epoch {held.plan.epoch} of {insert} ({counted(rows, 'row')}) {held.plan.when_discarded}{fine}."


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
    from tidegate.orchestration.console.views import of_published, published_line
    from tidegate.pipelines.lake import Lake
    from tidegate.pipelines.runtime.epochs.position import InsertOnLake
    from tidegate.pipelines.runtime.scripts import load_script

    label = "tidegate discard" if discard else "tidegate release"
    with reported(screen):
        pipeline = load_script(script)
        target = insert_of(pipeline, insert)
        held = InsertOnLake(Lake(lake, create=False), pipeline, target).position().held if discard else None
        if held is not None:
            screen.say(given_up(target.id, held))
            if ask:
                typer.confirm("Discard all of them?", abort=True)
        with Bars(screen.err) as bars, runner(pipeline, lake, master, bars, label) as active:
            published = active.resolve_held(insert, discard=discard, on_unmatched=on_unmatched)
        screen.result(of_published(published), published_line(published))
