"""What several commands share: arguments and options; the signals that end a command (SIGTERM; SIGINT, Ctrl-C)."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from tidegate.orchestration.console.screen import Screen
from tidegate.pipelines.commands import DEFAULT_LAKE, commands_of, common_lake

if TYPE_CHECKING:
    from tidegate.pipelines.lake import Lake
    from tidegate.pipelines.sql.compile import Pipeline
    from tidegate.pipelines.sql.model import Insert

Script = Annotated[
    Path,
    typer.Argument(
        metavar="SCRIPT",
        exists=True,
        dir_okay=False,
        readable=True,
        help="The pipeline: a SQL script, or a Python file.",
    ),
]
InsertId = Annotated[
    str, typer.Argument(metavar="INSERT", help="The INSERT's id: its target's name, or the target's 'insert.id'.")
]


def folder(text: str | Path) -> Path:
    """A folder of this machine, as it was written. Raises typer.BadParameter for what is none."""
    from tidegate.pipelines.paths import plain, problem

    if why := problem(text):
        raise typer.BadParameter(why)
    found = Path(plain(str(text)))
    if found.is_file():
        raise typer.BadParameter(f"{found} is a file")
    return found


def beside_script(context: typer.Context, lake: Path) -> Path:
    """The lake that was named, else the one beside the command's script. Raises typer.BadParameter where several
    scripts lie in several folders."""
    source = context.get_parameter_source("lake")
    if source is None or source.name != "DEFAULT":
        return lake
    given = context.params.get("scripts") or [context.params.get("script")]
    found = common_lake(given)
    if found is None:
        raise typer.BadParameter("the scripts lie in several folders: name their lake, --lake DIR")
    return found


LakePath = Annotated[
    Path,
    typer.Option(
        "--lake",
        envvar="TIDEGATE_LAKE",
        metavar="DIR",
        parser=folder,
        callback=beside_script,
        help="The folder of the state.",
        show_default=f"{DEFAULT_LAKE} in the folder of the script",
    ),
]
Master = Annotated[
    str | None,
    typer.Option(
        "--master",
        envvar="TIDEGATE_MASTER",
        metavar="URL",
        help="Spark master, such as spark://host:7077.",
        show_default="all cores of this machine",
    ),
]
DemoFolder = Annotated[
    Path,
    typer.Option("--folder", metavar="DIR", parser=folder, help="The folder of the demo's database, lake and history."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the stack of an error.")]


def duration(text: str) -> timedelta:
    """A duration as scripts write them. Raises typer.BadParameter that says what is wrong with it."""
    from tidegate.pipelines.syntax.durations import parse_duration

    try:
        return parse_duration(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def patience(text: str) -> timedelta:
    """The same; a number alone is seconds."""
    try:
        return timedelta(seconds=float(text))
    except (ValueError, OverflowError):
        return duration(text)


AutoWatermarkInterval = Annotated[
    timedelta | None,
    typer.Option(
        "--auto-watermark-interval",
        envvar="TIDEGATE_AUTO_WATERMARK_INTERVAL",
        parser=duration,
        metavar="DURATION",
        help="0 emits watermarks row by row (punctuated); otherwise at the end of every epoch.",
    ),
]


def screen_of(script: Path | None, lake: Path, as_json: bool, debug: bool) -> Screen:
    """Where a command of a script and a lake writes."""
    return Screen(as_json, debug, commands_of(script, lake))


def stored_pipeline(screen: Screen, pipeline: Pipeline, lake: Lake) -> Pipeline:
    """The pipeline as the lake defines it. Prints where the script differs."""
    from tidegate.pipelines.runtime.definitions import as_stored

    stored, changed = as_stored(lake, pipeline)
    for line in changed:
        screen.say(line)
    return stored


def insert_of(pipeline: Pipeline, name: str) -> Insert:
    """The INSERT of this id. Raises typer.BadParameter where there is none."""
    known = [item.id for item in pipeline.inserts]
    if name not in known:
        raise typer.BadParameter(f"the script has no INSERT {name}; it has {', '.join(known)}")
    return pipeline.insert(name)


def examples(*lines: str) -> str:
    """What a command's help ends with."""
    return "[bold]Examples[/]\n\n" + "\n\n".join(f"  {line}" for line in lines)


ENDING = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def asked_to_end(leave: Callable[[], None]) -> Iterator[None]:
    """Each of the signals calls `leave`; after the block they do what they did before."""

    def received(number: int, frame: FrameType | None) -> None:
        leave()

    before = {number: signal.signal(number, received) for number in ENDING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def stopped_by_signals(stop: threading.Event) -> Iterator[None]:
    """The first signal sets `stop`; a second one ends the process at once, which is as safe as a crash."""

    def leave() -> None:
        stop.set()
        for number in ENDING:
            signal.signal(number, signal.SIG_DFL)

    with asked_to_end(leave):
        yield
