"""`tidegate quarantine list | show | release | discard`: rows that a gate has quarantined, and what becomes of them."""

from __future__ import annotations

import getpass
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from tidegate.orchestration.commands.held import OnUnmatched
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
    stored_pipeline,
)
from tidegate.orchestration.commands.runner import runner
from tidegate.orchestration.console.bars import Bars
from tidegate.orchestration.console.screen import FAILED, Screen, reported
from tidegate.pipelines.commands import DEFAULT_LAKE

if TYPE_CHECKING:
    from tidegate.pipelines.facts.quarantine import Taking
    from tidegate.pipelines.lake import Lake
    from tidegate.pipelines.sql.compile import Pipeline

app = typer.Typer(
    help="List the rows that a gate has quarantined, look at them, release them again, or discard them.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

Reasons = Annotated[
    list[str] | None,
    typer.Option(
        "--reason",
        metavar="REASON",
        help="Only rows with this reason, such as key-absent@u or violated:priced; may be repeated.",
        show_default="all",
    ),
]
Epochs = Annotated[
    list[int] | None,
    typer.Option(
        "--epoch",
        metavar="EPOCH",
        help="Only rows that this epoch has quarantined; may be repeated.",
        show_default="all",
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show which rows would be taken, and change nothing.")]
State = Literal["open", "released", "discarded", "all"]

LIST_EPILOG = examples(
    "tidegate quarantine list pipeline.sql",
    "tidegate quarantine list pipeline.sql enriched_clicks --by-epoch",
    "tidegate quarantine list pipeline.sql --json",
)
SHOW_EPILOG = examples(
    "tidegate quarantine show pipeline.sql enriched_clicks",
    "tidegate quarantine show pipeline.sql enriched_clicks --reason key-absent --limit 5",
    "tidegate quarantine show pipeline.sql enriched_clicks --state discarded --json",
)
RELEASE_EPILOG = examples(
    "tidegate quarantine release pipeline.sql enriched_clicks --dry-run",
    "tidegate quarantine release pipeline.sql enriched_clicks --reason key-absent@user_info",
    "tidegate quarantine release pipeline.sql enriched_clicks --epoch 12 --epoch 13",
)
DISCARD_EPILOG = examples(
    "tidegate quarantine discard pipeline.sql enriched_clicks --epoch 12 --because 'clicks of a load test'",
    "tidegate quarantine discard pipeline.sql enriched_clicks --reason key-null --because 'no user' --yes",
)


@app.command("list", epilog=LIST_EPILOG)
def list_(
    script: Script,
    insert: Annotated[
        str | None,
        typer.Argument(metavar="[INSERT]", help="Only this INSERT: its target's name, or the target's 'insert.id'."),
    ] = None,
    lake: LakePath = DEFAULT_LAKE,
    by_epoch: Annotated[bool, typer.Option("--by-epoch", help="A line for every epoch.")] = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Show how many rows are in quarantine, by reason, and since when; what was released or discarded since, apart.

    Reads the lake's control tables in well under a second, without Spark or Java.
    """
    from tidegate.pipelines.facts.quarantine import by_reason, quarantine

    screen = screen_of(script, lake, as_json, debug)
    with reported(screen):
        pipeline, folder = _shown(screen, script, lake)
        wanted = pipeline.inserts if insert is None else (insert_of(pipeline, insert),)
        if as_json:
            screen.result(quarantine(folder, pipeline, wanted))
        else:
            screen.result(*by_reason(folder, pipeline, wanted, by_epoch=by_epoch))


@app.command(epilog=SHOW_EPILOG)
def show(
    script: Script,
    insert: InsertId,
    lake: LakePath = DEFAULT_LAKE,
    reasons: Reasons = None,
    epochs: Epochs = None,
    state: Annotated[State, typer.Option("--state", help="What has become of the rows.")] = "open",
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, metavar="ROWS", help="At most so many.")] = 20,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Show quarantined rows: when and why they were quarantined, what they are, and which version comes nearest.

    Rows of the same epoch and reason stand together, the oldest first. Values of rows are shown as they are.
    """
    from tidegate.pipelines.facts.quarantine import rows

    screen = screen_of(script, lake, as_json, debug)
    with reported(screen):
        pipeline, folder = _shown(screen, script, lake)
        found = insert_of(pipeline, insert)
        shown = rows(folder, pipeline, found, reasons or (), epochs or (), state, limit)
        screen.result(shown, *(() if as_json else shown.groups))


@app.command(epilog=RELEASE_EPILOG)
def release(
    script: Script,
    insert: InsertId,
    lake: LakePath = DEFAULT_LAKE,
    reasons: Reasons = None,
    epochs: Epochs = None,
    on_unmatched: OnUnmatched = None,
    dry_run: DryRun = False,
    master: Master = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Join quarantined rows again, to what the build tables hold now, and publish those that may leave.

    It is an epoch like any other, through the gate. A processing-time join takes the newest versions, an event-time
    join those of each row's own time. Rows that still may not leave go back to quarantine, under the new epoch. What
    was released or discarded before is passed over, so the same command again does nothing twice.
    """
    screen = screen_of(script, lake, as_json, debug)
    with reported(screen):
        wanted = _taking(script, insert, lake, False, reasons, epochs)
        _take(screen, wanted, lake, master, dry_run=dry_run, on_unmatched=on_unmatched)


@app.command(epilog=DISCARD_EPILOG)
def discard(
    script: Script,
    insert: InsertId,
    because: Annotated[str, typer.Option("--because", metavar="TEXT", help="Why; it is stored with the decision.")],
    lake: LakePath = DEFAULT_LAKE,
    reasons: Reasons = None,
    epochs: Epochs = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    dry_run: DryRun = False,
    master: Master = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Give quarantined rows up: they stay where they are and stay counted, as discarded, and are not released again.

    Who did it, when and why is stored; `list` and `show --state discarded` show it.
    """
    if not because.strip():
        raise typer.BadParameter("--because must say why")
    if as_json and not yes and not dry_run:
        raise typer.BadParameter("--json asks nothing: add --yes or --dry-run")
    screen = screen_of(script, lake, as_json, debug)
    with reported(screen):
        wanted = _taking(script, insert, lake, True, reasons, epochs, because.strip())
        _take(screen, wanted, lake, master, dry_run=dry_run, ask=not yes)


def _taking(
    script: Path,
    insert: str,
    lake: Path,
    discards: bool,
    reasons: list[str] | None,
    epochs: list[int] | None,
    because: str = "",
) -> tuple[Pipeline, Taking]:
    from tidegate.pipelines.facts.quarantine import taking

    pipeline, folder = _opened(script, lake)
    target, only = insert_of(pipeline, insert), {"reasons": reasons or (), "epochs": epochs or ()}
    return pipeline, taking(folder, pipeline, target, discards=discards, **only, by=_who(), because=because)


def _take(
    screen: Screen,
    wanted: tuple[Pipeline, Taking],
    lake: Path,
    master: str | None,
    *,
    dry_run: bool,
    ask: bool = False,
    on_unmatched: Literal["quarantine", "block", "publish"] | None = None,
) -> None:
    pipeline, taking = wanted
    if dry_run:
        screen.result(taking.would)
        return
    if ask and taking.wanted:
        for note in taking.would.head:
            screen.say(note)
        if not typer.confirm("Discard them?", err=True):
            screen.say("Nothing was changed.")
            raise typer.Exit(FAILED)
    label = f"tidegate quarantine {'discard' if taking.request.discards else 'release'}"
    with Bars(screen.err) as bars, runner(pipeline, lake, master, bars, label) as active:
        done = taking.do(active, on_unmatched)
    screen.result(done)


def _opened(script: Path, lake: Path) -> tuple[Pipeline, Lake]:
    from tidegate.pipelines.lake import Lake
    from tidegate.pipelines.runtime.scripts import load_script

    return load_script(script), Lake(lake, create=False)


def _shown(screen: Screen, script: Path, lake: Path) -> tuple[Pipeline, Lake]:
    """The same, by the definitions that the lake keeps."""
    pipeline, folder = _opened(script, lake)
    return stored_pipeline(screen, pipeline, folder), folder


def _who() -> str:
    """The user and the machine."""
    try:
        user: Any = getpass.getuser()
    except (KeyError, OSError):  # a user id without a name, as in containers
        user = os.getuid()
    return f"{user}@{socket.gethostname()}"
