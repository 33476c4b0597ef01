"""The state of a lake, for people: once, or again and again (`watch`)."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tidegate.orchestration.console.grid import FILE_WIDTH, Grid, Line, drawn
from tidegate.pipelines.commands import AS_WRITTEN, RUN, Commands, NextCommand
from tidegate.pipelines.errors import LakeError
from tidegate.pipelines.facts.problem import Problem, roots
from tidegate.pipelines.runtime.landing.alignment import Blocked
from tidegate.pipelines.runtime.status import InsertStatus, LakeStatus, SourceStatus
from tidegate.pipelines.text import counted, document, moment, number, seconds, why

if TYPE_CHECKING:
    from rich.console import Group

    from tidegate.orchestration.console.screen import Screen

FAR_MS = 2**62
"""A split that is this far behind, or more, has emitted no watermark yet."""


Look = tuple[LakeStatus, Sequence[Problem]]
"""The state of a lake, and its problems."""


def show(screen: Screen, look: Look) -> int:
    """Write the state to the screen, and return the exit status: 1 if rows of an INSERT that nobody works on are in no
    place, or in two."""
    shown = () if screen.as_json else lines_of(look, screen.commands)
    screen.result(to_json(look, screen.commands), *shown)
    return status_of(look)


def status_of(look: Look) -> int:
    """The exit status."""
    return 1 if any(problem.kind == "imbalanced" for problem in look[1]) else 0


def to_json(look: Look, commands: Commands) -> dict[str, Any]:
    """The state and its problems as JSON values."""
    found, problems = look
    return {**found.to_json(commands), "problems": [problem.to_json(commands) for problem in problems]}


def plainly(look: Look, commands: Commands, *, as_json: bool) -> str | None:
    """The text that `show` writes to a file or a pipe; None if that needs Rich (`drawn`)."""
    if as_json:
        return document(to_json(look, commands))
    lines = [drawn(item, FILE_WIDTH) for item in lines_of(look, commands)]
    return None if None in lines else "".join(f"{line}\n" for line in lines)


def lines_of(look: Look, commands: Commands) -> Iterator[Line | Grid]:
    """The state and its problems as lines."""
    found, problems = look
    return lake_state(found, commands, problems)


def lake_state(
    found: LakeStatus, commands: Commands = AS_WRITTEN, problems: Iterable[Problem] = ()
) -> Iterator[Line | Grid]:
    """Sources, INSERTs, and what waits for a person, with the commands to go on."""
    yield Line(f"{found.lake}   {moment(found.at)} UTC")
    yield Line("")
    if not found.sources and not found.inserts:
        yield Line(f"Nothing has run here yet.   next:  {commands.shown(RUN)}")
        return
    headers = ("source", "rows", "epoch", "state", "position", "landed", "behind by then", "worked on by")
    sources = Grid(headers, ("rows", "landed", "behind by then"))
    for source in found.sources:
        behind = seconds(source.lag_ms) if source.lag_ms is not None else ""
        sources.add_row(
            source.table,
            number(source.rows),
            f"{source.generation}/{source.epochs}",
            _state(source),
            source.position,
            "" if source.landed_at is None else f"{seconds(max(found.at - source.landed_at, 0))} ago",
            behind,
            _worker(source, found.at),
        )
    yield sources
    for source in found.sources:
        yield from _time_notes(source, found.at)
    yield Line("")
    columns = ("INSERT", "epoch", "state", "landed", "published", "quarantined", "dropped", "waiting", "worked on by")
    inserts = Grid(columns, columns[3:8])
    for insert in found.inserts:
        inserts.add_row(
            insert.insert,
            f"{insert.generation}/{insert.epoch}" if insert.epoch else "",
            _red(insert.state or "") if insert.held else insert.state or ("waits" if insert.waits_for else ""),
            *_places(insert),
            insert.holder or "",
        )
    yield inserts
    yield from problem_lines(problems, commands)
    for name, builds in found.holding_back.items():
        text = f"{name} is left out of its script: retention of {' and '.join(builds)} spares what it may still join"
        yield Line(f"\n{text}")
    holders = {source.table: source.holder for source in found.sources}
    for insert in found.inserts:
        yield from _notes(insert, holders, commands)


def problem_lines(problems: Iterable[Problem], commands: Commands) -> Iterator[Line | Grid]:
    """The problems that no other one explains: what it is in red, since when, what to do."""
    for problem in roots(problems):
        title = problem.title[:1].upper() + problem.title[1:] if problem.kind == "gate-held" else problem.title
        yield _red(f"\n{title}", f"   (since {moment(problem.since)} UTC)")
        for text in problem.text:
            yield Line(f"  {text}")
        for command in commands.all(problem.next):
            yield Line(f"  next:  {command}")


def _red(text: str, more: str = "") -> Line:
    return Line(text + more, len(text))


def _time_notes(source: SourceStatus, now: int) -> Iterator[Line | Grid]:
    if source.idle_splits:
        yield Line(f"\n{source.table}, idle: {', '.join(source.idle_splits)}")
    if source.late:
        yield Line(f"\n{source.table}: {counted(source.late, 'row')} came late")
    if source.since is not None:
        yield Line(
            f"\n{source.table}: rows go back to {moment(source.since)} UTC; {counted(source.removed, 'row')} "
            "that landed before are gone ('landed.retention')"
        )
    if source.rejected:
        text = f"{counted(source.rejected, 'message')} did not fit and went to its quarantine"
        yield Line(f"\n{source.table}: {text}, tables/{source.table}/_quarantine in the lake")
    if source.missing is not None:
        yield Line(f"\n{source.missing.sentence(source.table)}")
    if source.aligned is not None and source.blocked:
        group, drift = source.aligned.group, seconds(source.aligned.max_drift_ms)
        yield Line(f"\n{source.table} waits for its group {group}, which may drift by {drift}:")
        for item in source.blocked:
            yield Line(f"  split {item.split}: {_blocked(item, source.aligned.minimum, now)}")


def _blocked(item: Blocked, minimum: int | None, now: int) -> str:
    """For how long a split is blocked, and by whom. `minimum`: the group's least watermark."""
    by, waits = " split ".join(part for part in item.by if part), seconds(max(now - item.since, 0))
    if item.next_rowtime is not None and minimum is not None:
        return f"at its limit for {waits}, its next row is {seconds(item.next_rowtime - minimum)} ahead of {by}"
    ahead = f"{seconds(item.ahead_ms)} ahead of {by}" if item.ahead_ms < FAR_MS else f"{by} has emitted nothing yet"
    return f"blocked for {waits}, {ahead}"


def _worker(source: SourceStatus, at: int) -> str:
    """Who works on a table, or for how long nobody has."""
    if source.holder is not None:
        return source.holder
    return "" if source.worked_on_at is None else f"nobody for {seconds(max(at - source.worked_on_at, 0))}"


def _state(source: SourceStatus) -> str:
    if source.flip is not None:
        return f"complete since {moment(source.flip.at)}"
    if source.chunks is not None:
        return f"loading: {source.chunks.done} of {counted(source.chunks.total, 'chunk')}"
    return "loading" if source.planned else "not started"


def _places(insert: InsertStatus) -> list[str]:
    rows = insert.rows
    if rows is None:
        return [""] * 5
    counts = (rows.landed, rows.published, rows.rows_quarantined, sum(rows.dropped.values()), rows.waiting)
    return [number(count) for count in counts]


def _notes(insert: InsertStatus, holders: Mapping[str, str | None], commands: Commands) -> Iterator[Line | Grid]:
    if insert.waits_for:
        yield Line(f"\n{insert.insert} waits until {' and '.join(insert.waits_for)} is complete.")
        idle = [build for build in insert.waits_for if not holders.get(build)]
        if idle:
            go_on = commands.shown(NextCommand("run", does="goes on where it stopped"))
            yield Line(f"  Nobody works on {' and '.join(idle)}.   next:  {go_on}")
    if insert.rows is not None and insert.rows.quarantined:
        reasons = ", ".join(f"{count:,} {why(name)}" for name, count in insert.rows.quarantined.items())
        look = commands.shown(NextCommand("quarantine list", (insert.insert,)))
        yield Line(f"\n{insert.insert}, quarantined: {reasons}   ({look})")


def watch(screen: Screen, look: Callable[[], Look], every: float, stop: threading.Event) -> None:
    """Show what `look` returns every so many seconds until `stop` is set: in place in a terminal, one look below the
    other elsewhere, as lines of JSON for a program.

    A lake that does not exist yet is waited for.
    """
    if screen.as_json or not screen.out.is_terminal:
        while not stop.is_set():
            _print(screen, look)
            stop.wait(every)
        return
    from rich.live import Live

    with Live(console=screen.out, auto_refresh=False, screen=True, vertical_overflow="crop") as live:
        while not stop.is_set():
            live.update(_shown(screen, look, every), refresh=True)
            stop.wait(every)


def _shown(screen: Screen, look: Callable[[], Look], every: float) -> Group:
    from rich.console import Group
    from rich.text import Text

    end = Text(f"\nevery {every:g} s; Ctrl-C ends it", style="dim")
    try:
        return Group(*lines_of(look(), screen.commands), end)
    except LakeError as error:
        return Group(Text(f"{error.what}: {error.where}"), end)


def _print(screen: Screen, look: Callable[[], Look]) -> None:
    try:
        found = look()
    except LakeError as error:
        screen.line(f"{error.what}: {error.where}", error=error.what, where=error.where)
        return
    if screen.as_json:
        screen.out.file.write(json.dumps(to_json(found, screen.commands), ensure_ascii=False, default=str) + "\n")
        screen.out.file.flush()
        return
    for item in lines_of(found, screen.commands):
        screen.out.print(item)
    screen.out.print("")
