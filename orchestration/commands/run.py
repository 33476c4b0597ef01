"""`tidegate run`: land what the sources have, and release what may leave; once, or tick by tick."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from tidegate.orchestration.commands.options import (
    AsJson,
    AutoWatermarkInterval,
    Debug,
    LakePath,
    Master,
    Script,
    duration,
    examples,
    patience,
    screen_of,
    stopped_by_signals,
)
from tidegate.orchestration.commands.runner import runner, session_ahead
from tidegate.orchestration.console.bars import Bars
from tidegate.orchestration.console.screen import FAILED, Screen, reported
from tidegate.pipelines.commands import DEFAULT_LAKE

if TYPE_CHECKING:
    from tidegate.pipelines.facts.run import Run
    from tidegate.pipelines.runtime.continuous import Tick
    from tidegate.pipelines.sql.compile import Pipeline

EPILOG = examples(
    "tidegate run examples/clicks/pipeline.sql",
    "tidegate run pipeline.sql --lake /data/lake --master spark://host:7077",
    "tidegate run pipeline.sql --continuous --every 2",
    "tidegate run pipeline.sql --resnapshot user_info",
    "tidegate run pipeline.sql --dry-run",
    "tidegate run pipeline.sql --from 2024-01-01 --to 2024-02-01",
    "tidegate run pipeline.sql --from 2024-01-01 --to 2024-01-02 --from 2024-01-08 --to 2024-01-09",
)

KEEP_BY_DEFAULT = "7 d"


def run(
    script: Script,
    lake: LakePath = DEFAULT_LAKE,
    master: Master = None,
    continuous: Annotated[
        bool, typer.Option("--continuous", help="Run tick by tick in one warm process, until SIGTERM or Ctrl-C.")
    ] = False,
    every: Annotated[
        float | None,
        typer.Option(
            "--every", min=0.0, metavar="SECONDS", help="Between two ticks, with --continuous.", show_default="1"
        ),
    ] = None,
    give_up_after: Annotated[
        timedelta | None,
        typer.Option(
            "--give-up-after",
            parser=duration,
            metavar="DURATION",
            help="With --continuous: end once a table or an INSERT has failed for so long ('10 min'; '0 s': at once). "
            "Without it a step that fails is tried again, once a minute at least, while the others go on.",
        ),
    ] = None,
    keep: Annotated[
        timedelta | None,
        typer.Option(
            "--keep",
            parser=duration,
            metavar="DURATION",
            help="With --continuous: files that a version younger than this names stay; the others go.",
            show_default=KEEP_BY_DEFAULT,
        ),
    ] = None,
    interval: AutoWatermarkInterval = None,
    resnapshot: Annotated[
        list[str] | None,
        typer.Option(
            "--resnapshot",
            metavar="TABLE",
            help="Take a new snapshot of this source. Readers stay on the old one until the new one is complete.",
        ),
    ] = None,
    since: Annotated[
        list[str] | None,
        typer.Option(
            "--from",
            metavar="TIME",
            help="Backfill: release the rows of event-time INSERTs whose time is at or after this; UTC, such as "
            "2024-01-31 or 2024-01-31T12:00.",
        ),
    ] = None,
    until: Annotated[
        list[str] | None,
        typer.Option(
            "--to",
            metavar="TIME",
            help="Backfill: and before this. Either may be left out. Several of both: as many spans, in one epoch.",
        ),
    ] = None,
    wait: Annotated[
        timedelta | None,
        typer.Option(
            "--wait",
            parser=patience,
            metavar="DURATION",
            help="Wait so long for tables and INSERTs that another runner works on ('5 min'); without it the command "
            "fails at once and says who works on them.",
        ),
    ] = None,
    dry: Annotated[
        bool,
        typer.Option("--dry-run", help="Only show what would be planned next: nothing is read, stored or released."),
    ] = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Run a pipeline up to what its sources have now.

    Sources land first. An INSERT releases rows only once every table it joins to is proved complete; its rows then
    pass the gate and are published. A run that was interrupted goes on where it stopped. A source that fails stops what
    reads it, and the command fails once all else is through.

    With --from and --to only the rows of that span, or of several, are released, in the place of what was released of
    them before; ahead of the stream or behind it, in any order. A later run without them releases what is left, and
    nothing twice.
    """
    from tidegate.pipelines.runtime.scripts import load_script

    screen = screen_of(script, lake, as_json, debug)
    with reported(screen):
        pipeline = load_script(script)
        known, anew = [table.name for table in pipeline.sources], resnapshot or []
        for table in anew:
            if table not in known:
                raise typer.BadParameter(f"{table} is no source of this script; it reads {', '.join(known)}")
        spans = _spans(since or [], until or [])
        ways = {"--continuous": continuous, "--from and --to": bool(spans), "--dry-run": dry}
        chosen = [name for name, wanted in ways.items() if wanted]
        if len(chosen) > 1:
            raise typer.BadParameter(
                f"{' and '.join(chosen)} exclude each other: --continuous follows the stream, --from and --to release "
                "spans once, --dry-run shows the next step of a run"
            )
        way = next(iter(chosen), "run")
        options = {"--every": every, "--give-up-after": give_up_after, "--keep": keep, "--wait": wait}
        for option, (allowed, why) in _GOES_WITH.items():
            if options[option] is not None and way not in allowed:
                raise typer.BadParameter(why)
        on = On(screen, pipeline, lake, master, interval)
        if dry:
            show_next(on, anew)
        elif continuous:
            follow(on, anew, 1.0 if every is None else every, give_up_after, keep or duration(KEEP_BY_DEFAULT))
        elif spans:
            fill(on, anew, spans, wait)
        else:
            catch_up(on, anew, wait)


_GOES_WITH = {
    "--every": (("--continuous",), "--every goes with --continuous: a single run has no ticks"),
    "--give-up-after": (
        ("--continuous",),
        "--give-up-after goes with --continuous: a single run tries nothing again",
    ),
    "--keep": (("--continuous",), "--keep goes with --continuous; 'tidegate maintain --keep' does it once"),
    "--wait": (("run", "--from and --to"), "--wait is for a single run, without --continuous and --dry-run"),
}
"""An option -> the ways to run that know it, and what is said to the others."""


@dataclass(frozen=True)
class On:
    """A pipeline on its lake, for a command that writes to `screen`."""

    screen: Screen
    pipeline: Pipeline
    lake: Path
    master: str | None
    interval: timedelta | None


def catch_up(on: On, resnapshot: Sequence[str], wait: timedelta | None) -> None:
    """Land what the sources have now, and release what may leave."""
    _shown(on, _once(on, resnapshot, wait))


def fill(on: On, resnapshot: Sequence[str], spans: Sequence[tuple[int, int]], wait: timedelta | None) -> None:
    """Release the rows of these spans (ms, UTC) of every INSERT in event time, again or ahead of the stream."""
    in_event_time = [insert.id for insert in on.pipeline.inserts if insert.by_spans]
    # If there are none, all, so that the first one's error says why.
    _shown(on, _once(on, resnapshot, wait, in_event_time or None, spans))


def _once(
    on: On,
    resnapshot: Sequence[str],
    wait: timedelta | None,
    inserts: Sequence[str] | None = None,
    between: Sequence[tuple[int, int]] = (),
) -> Run:
    from tidegate.pipelines.facts.run import run_once

    with (
        session_ahead(on.lake, on.master, certain=False) as spark,
        Bars(on.screen.err) as bars,
        runner(on.pipeline, on.lake, on.master, bars, "tidegate run", on.interval, spark(bars)) as active,
    ):
        return run_once(active, inserts, between, resnapshot, wait.total_seconds() if wait else 0.0)


def _shown(on: On, found: Run) -> None:
    on.screen.result(found)
    if found.problems:
        raise typer.Exit(FAILED)


def show_next(on: On, resnapshot: Sequence[str]) -> None:
    """Show what would be planned next."""
    from tidegate.pipelines.facts.plan import next_steps
    from tidegate.pipelines.lake import Layout

    with contextlib.ExitStack() as stack:
        # A lake that is not there is not made: its place is taken by an empty one, for as long as this lasts.
        there = (Layout(on.lake).root / "_control").is_there()
        folder = on.lake if there else Path(stack.enter_context(TemporaryDirectory(prefix="tidegate-")))
        bars = stack.enter_context(Bars(on.screen.err))
        active = runner(on.pipeline, folder, on.master, bars, "tidegate run --dry-run", announced=False)
        found = next_steps(stack.enter_context(active), resnapshot)
    on.screen.result(found)


def follow(on: On, resnapshot: Sequence[str], every: float, give_up_after: timedelta | None, keep: timedelta) -> None:
    """Run tick by tick, `every` seconds, until a signal."""
    from tidegate.pipelines.progress import SilentProgress
    from tidegate.pipelines.runtime.continuous import Continuous

    screen, stop, ticks = on.screen, threading.Event(), _Ticks(on.screen)
    label = "tidegate run --continuous"
    with (
        session_ahead(on.lake, on.master, certain=True) as spark,
        Bars(screen.err) as bars,
        runner(on.pipeline, on.lake, on.master, bars, label, on.interval, spark(bars)) as active,
    ):
        # Spark puts a handler of its own in place when it starts, so it starts before ours.
        active.session()
        with stopped_by_signals(stop):
            for table in resnapshot:
                active.advance(table, max_epochs=1, resnapshot=True)
            bars.clear()
            active.progress = SilentProgress()
            names = ", ".join(insert.id for insert in on.pipeline.inserts)
            screen.say(f"Running {names} every {every:g} s. Ctrl-C or SIGTERM ends it.")
            upkeep = active.maintenance(keep).upkeep()
            limit = None if give_up_after is None else give_up_after.total_seconds()
            loop = Continuous(active, every=every, stop=stop, on_tick=ticks.show, give_up_after=limit, upkeep=upkeep)
            ending = loop.run()
            left_held = loop.still_held()
    if ending == "abandoned":
        ended = f"Stopped inside a step, which the next run finishes ({loop.abandoned_by})."
    else:
        ended = "Stopped between two steps. Nothing is half done."
    held = f" The gate still holds {', '.join(left_held)}." if left_held else ""
    failing = f" Stuck, and to be tried again by the next run: {', '.join(loop.stuck)}." if loop.stuck else ""
    screen.say(ended + held + failing)
    if left_held or loop.stuck:
        raise typer.Exit(FAILED)


class _Ticks:
    """Shows ticks: those in which something moved or failed, and each held epoch once."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._held: set[str] = set()
        self._stuck: dict[str, str] = {}

    def show(self, tick: Tick) -> None:
        from tidegate.pipelines.facts.run import TickDone

        found = TickDone.of(tick)
        now = {item.owner: item.what for item in found.stuck}
        if tick.moved or now != self._stuck:
            self._screen.line(found)
        for note in found.news(self._stuck):
            self._screen.say(note)
        self._stuck = now
        held = {str(error): error for error in tick.held}
        for text in held.keys() - self._held:
            self._screen.say(held[text].text(self._screen.commands))
        self._held = set(held)


def _spans(since: list[str], until: list[str]) -> list[tuple[int, int]]:
    """The spans that each --from and its --to ask for, in ms, UTC; none where neither is there."""
    from tidegate.pipelines.watermarks import MAX_TIMESTAMP, MIN_TIMESTAMP
    from tidegate.pipelines.watermarks.watermark import parse_moment

    def moment(option: str, text: str) -> int:
        try:
            return parse_moment(text)
        except ValueError as error:
            shown = "2024-01-31, 2024-01-31T12:00 or 2024-01-31T12:00:00.500+01:00"
            raise typer.BadParameter(f"{option}: {text!r} is no time, for example {shown}") from error

    if max(len(since), len(until)) > 1 and len(since) != len(until):
        raise typer.BadParameter("several spans have a --from and a --to each")
    lows = [moment("--from", text) for text in since] or [MIN_TIMESTAMP] * len(until)
    highs = [moment("--to", text) for text in until] or [MAX_TIMESTAMP] * len(since)
    for number, (low, high) in enumerate(zip(lows, highs, strict=True)):
        if low >= high:
            raise typer.BadParameter(f"--from {since[number]} is not before --to {until[number]}")
    return list(zip(lows, highs, strict=True))
