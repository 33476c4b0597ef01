"""`tidegate run`: land what the sources have, and release what may leave; once, or tick by tick."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Annotated, Any

import typer
from rich.markup import escape

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
from tidegate.orchestration.console.bars import Bars
from tidegate.orchestration.console.screen import FAILED, Screen, reported
from tidegate.pipelines.commands import DEFAULT_LAKE

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
        known = [table.name for table in pipeline.sources]
        for table in resnapshot or []:
            if table not in known:
                raise typer.BadParameter(f"{table} is no source of this script; it reads {', '.join(known)}")
        between = _spans(since or [], until or [])
        if every is not None and not continuous:
            raise typer.BadParameter("--every goes with --continuous: a single run has no ticks")
        if give_up_after is not None and not continuous:
            raise typer.BadParameter("--give-up-after goes with --continuous: a single run tries nothing again")
        if keep is not None and not continuous:
            raise typer.BadParameter("--keep goes with --continuous; 'tidegate maintain --keep' does it once")
        if continuous and between:
            raise typer.BadParameter("--continuous follows the stream; --from and --to release a span once")
        if wait is not None and (continuous or dry):
            raise typer.BadParameter("--wait is for a single run, without --continuous and --dry-run")
        if dry and (continuous or between):
            raise typer.BadParameter("--dry-run shows the next step of a run, without --continuous, --from and --to")
        if dry:
            _dry_run(screen, pipeline, lake, master, resnapshot or [])
            return
        with session_ahead(lake, master, certain=continuous) as spark:
            if continuous:
                _continuous(
                    screen,
                    pipeline,
                    lake,
                    master,
                    1.0 if every is None else every,
                    resnapshot or [],
                    interval,
                    give_up_after,
                    duration(KEEP_BY_DEFAULT) if keep is None else keep,
                    spark,
                )
                return
            with (
                Bars(screen.err) as bars,
                runner(pipeline, lake, master, bars, "tidegate run", interval, spark(bars)) as active,
            ):
                inserts = _to_fill(pipeline) if between else None
                seconds = wait.total_seconds() if wait else 0.0
                report = active.run(inserts=inserts, between=between, resnapshot=resnapshot or [], wait=seconds)
        from tidegate.orchestration.console.lake_state import problem_lines
        from tidegate.orchestration.console.views import of_run, run_tables
        from tidegate.pipelines.facts.problem import roots
        from tidegate.pipelines.facts.problems import looked
        from tidegate.pipelines.lake import Lake
        from tidegate.pipelines.runtime.epochs import insert_owner

        done = {item.table for item in report.advances} | {insert_owner(item.insert) for item in report.releases}
        found = roots(looked(Lake(lake), pipeline)[1])
        wrong = [item for item in found if item.fails and (item.owner in done or item.kind == "imbalanced")]
        imbalanced = [item.details["insert"] for item in wrong if item.kind == "imbalanced"]
        shown = [item.to_json(screen.commands) for item in wrong]
        screen.result(
            of_run(pipeline, report) | {"imbalanced": imbalanced, "problems": shown},
            *run_tables(pipeline, report, lake),
            *problem_lines(wrong, screen.commands),
        )
    if wrong:
        raise typer.Exit(FAILED)


def _dry_run(screen: Screen, pipeline: Any, lake: Path, master: str | None, resnapshot: list[str]) -> None:
    from tidegate.orchestration.console.explained import dry_run_tables, of_dry_run
    from tidegate.pipelines.lake import Layout
    from tidegate.pipelines.runtime.dry_run import dry_run

    with contextlib.ExitStack() as stack:
        # A lake that is not there is not made: its place is taken by an empty one, for as long as this lasts.
        there = (Layout(lake).root / "_control").is_there()
        folder = lake if there else Path(stack.enter_context(TemporaryDirectory(prefix="tidegate-")))
        bars = stack.enter_context(Bars(screen.err))
        found = dry_run(
            stack.enter_context(runner(pipeline, folder, master, bars, "tidegate run --dry-run", announced=False)),
            resnapshot,
        )
    screen.result(of_dry_run(pipeline, found), *dry_run_tables(found))


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


def _to_fill(pipeline: Any) -> list[str] | None:
    """The INSERTs that can be released by spans; if there are none, all, so that the first one's error says why."""
    return [insert.id for insert in pipeline.inserts if insert.time == "event"] or None


def runner(
    pipeline: Any,
    lake: Path,
    master: str | None,
    bars: Bars,
    label: str,
    interval: timedelta | None = None,
    spark: Callable[[], Any] | None = None,
    *,
    announced: bool = True,
) -> Any:
    """The runner that a command uses; close it to let its leases go. `announced`: a lake that it makes is said."""
    from tidegate.pipelines.lake import Lake, Layout
    from tidegate.pipelines.runtime.runner import Runner

    if announced and not (Layout(lake).root / "_control").is_there():
        bars.console.print(f"This is a new lake: {escape(str(lake))}", soft_wrap=True)
    return Runner(
        pipeline,
        Lake(lake),
        say=lambda line: bars.console.print(escape(line), soft_wrap=True),
        spark=spark or session(lake, master, bars),
        progress=bars,
        label=label,
        auto_watermark_interval=interval,
    )


def session(lake: Path, master: str | None, bars: Bars) -> Callable[[], Any]:
    """A function that returns the Spark session. The JVM's output goes into a file of the lake, not between the bars;
    into one in a new temporary folder if the lake can only be read."""
    from tidegate.pipelines.location import Location
    from tidegate.pipelines.runtime.session import start_session

    only_read = Location(lake).is_there() and not os.access(lake, os.W_OK)
    folder = Path(mkdtemp(prefix="tidegate-")) if only_read else lake / "_scratch"
    return partial(start_session, master=master, progress=bars, log=folder / "spark.log")


@contextlib.contextmanager
def session_ahead(lake: Path, master: str | None, certain: bool) -> Iterator[Callable[[Bars], Callable[[], Any]]]:
    """The same, with the session started at once, in the background, if it is `certain` to be needed or the lake is
    new. Not if jars have to be downloaded, whose progress is shown."""
    from tidegate.pipelines.jars import is_complete
    from tidegate.pipelines.lake import Layout

    if not is_complete() or not (certain or not (Layout(lake).root / "_control").is_there()):
        yield partial(session, lake, master)
        return
    from tidegate.pipelines.runtime.session import SessionAhead

    with SessionAhead(master=master, log=lake / "_scratch" / "spark.log") as start:
        yield lambda bars: partial(start, bars)


def _continuous(
    screen: Screen,
    pipeline: Any,
    lake: Path,
    master: str | None,
    every: float,
    resnapshot: list[str],
    interval: timedelta | None,
    give_up_after: timedelta | None,
    keep: timedelta,
    spark: Callable[[Bars], Callable[[], Any]],
) -> None:
    from tidegate.orchestration.console.views import of_tick, stuck_lines, tick_line
    from tidegate.pipelines.errors import GateHeld
    from tidegate.pipelines.progress import SilentProgress
    from tidegate.pipelines.runtime.continuous import Continuous, Tick

    stop = threading.Event()
    shown: set[str] = set()
    stuck: dict[str, str] = {}

    def show(tick: Tick) -> None:
        now = {item.owner: item.error.what for item in tick.stuck}
        if tick.moved or now != stuck:
            screen.line(tick_line(tick), **of_tick(tick))
        for line in stuck_lines(tick, stuck, screen.commands):
            screen.say(escape(line))
        stuck.clear()
        stuck.update(now)
        for held in tick.held:
            _show_once(screen, held, shown)
        shown.intersection_update(str(held) for held in tick.held)

    def _show_once(screen: Screen, held: GateHeld, shown: set[str]) -> None:
        if str(held) not in shown:
            shown.add(str(held))
            screen.say(escape(held.text(screen.commands)))

    label = "tidegate run --continuous"
    with Bars(screen.err) as bars, runner(pipeline, lake, master, bars, label, interval, spark(bars)) as active:
        # Spark puts a handler of its own in place when it starts, so it starts before ours.
        active.session()
        with stopped_by_signals(stop):
            for table in resnapshot:
                active.advance(table, max_epochs=1, resnapshot=True)
            bars.clear()
            active.progress = SilentProgress()
            names = ", ".join(insert.id for insert in pipeline.inserts)
            screen.say(f"Running {names} every {every:g} s. Ctrl-C or SIGTERM ends it.")
            upkeep = active.maintenance(keep).upkeep()
            limit = None if give_up_after is None else give_up_after.total_seconds()
            loop = Continuous(active, every=every, stop=stop, on_tick=show, give_up_after=limit, upkeep=upkeep)
            ending = loop.run()
            left_held = loop.still_held()
    if ending == "abandoned":
        ended = f"Stopped inside a step, which the next run finishes ({loop.abandoned_by})."
    else:
        ended = "Stopped between two steps. Nothing is half done."
    held = f" The gate still holds {', '.join(left_held)}." if left_held else ""
    failing = f" Stuck, and to be tried again by the next run: {', '.join(loop.stuck)}." if loop.stuck else ""
    screen.say(escape(ended + held + failing))
    if left_held or loop.stuck:
        raise typer.Exit(FAILED)
