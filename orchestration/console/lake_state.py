"""The state of a lake, for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rich.console import RenderableType
from rich.markup import escape

from tidegate.orchestration.console.grid import grid
from tidegate.orchestration.console.screen import Screen
from tidegate.orchestration.words import counted, moment, number, seconds, why
from tidegate.pipelines.commands import AS_WRITTEN, Commands
from tidegate.pipelines.runtime.landing.alignment import Blocked
from tidegate.pipelines.runtime.status import InsertStatus, LakeStatus, SourceStatus

FAR_MS = 2**62
"""Further ahead than this is ahead of a split that has told no watermark."""


def show(screen: Screen, found: LakeStatus) -> int:
    """Write the state as the screen wants it, and say with which exit status to leave: 1 where rows of an INSERT that
    nobody works on are in no place, or in two."""
    screen.result(found.to_json(), *lake_state(found, screen.commands))
    return 1 if found.imbalanced else 0


def lake_state(found: LakeStatus, commands: Commands = AS_WRITTEN) -> Iterator[RenderableType]:
    """Sources, INSERTs, and what waits for a person, with the commands to go on."""
    yield escape(f"{found.lake}   {moment(found.at)} UTC")
    yield ""
    if not found.sources and not found.inserts:
        yield escape(f"Nothing has run here yet.   next:  {commands.filled('tidegate run SCRIPT')}")
        return
    headers = ("source", "rows", "epoch", "state", "position", "landed", "behind by then", "worked on by")
    sources = grid(*headers, right=("rows", "landed", "behind by then"))
    for source in found.sources:
        behind = seconds(source.lag_ms) if source.lag_ms is not None else ""
        sources.add_row(
            escape(source.table),
            number(source.rows),
            f"{source.generation}/{source.epochs}",
            _state(source),
            escape(source.position),
            "" if source.landed_at is None else f"{seconds(max(found.at - source.landed_at, 0))} ago",
            behind,
            escape(_worker(source, found.at)),
        )
    yield sources
    for source in found.sources:
        yield from _time_notes(source, found.at)
    yield ""
    columns = ("INSERT", "epoch", "state", "landed", "published", "quarantined", "dropped", "waiting", "worked on by")
    inserts = grid(*columns, right=columns[3:8])
    for insert in found.inserts:
        inserts.add_row(
            escape(insert.insert),
            f"{insert.generation}/{insert.epoch}" if insert.epoch else "",
            f"[bold red]{insert.state}[/]" if insert.held else insert.state or _waits(insert),
            *_places(insert),
            escape(insert.holder or ""),
        )
    yield inserts
    yield from imbalances(found)
    for item in found.stuck:
        yield f"\n[bold red]{escape(item.owner)} is stuck since {moment(item.since)} UTC:[/] {escape(item.what)}"
        if item.next:
            yield escape(f"  next:  {commands.filled(item.next)}")
    for name, builds in found.holding_back.items():
        told = f"{name} is left out of its script: retention of {' and '.join(builds)} spares what it may still join"
        yield escape(f"\n{told}")
    holders = {source.table: source.holder for source in found.sources}
    for insert in found.inserts:
        yield from _notes(insert, holders, commands)


def imbalances(found: LakeStatus) -> Iterator[RenderableType]:
    """What does not add up, in red."""
    for insert in found.imbalanced:
        rows = insert.rows
        assert rows is not None
        few = "few" if rows.accounted < rows.landed else "many"
        told = f"{insert.insert}: of {counted(rows.landed, 'row')} of {rows.probe} that landed, {rows.accounted:,} are"
        far = f"{abs(rows.landed - rows.accounted):,} too {few}"
        places = "in a place (published, quarantined, dropped, waiting)"
        yield f"[bold red]{escape(told)} {places}: {far}[/]"


def _time_notes(source: SourceStatus, now: int) -> Iterator[RenderableType]:
    if source.idle_splits:
        yield escape(f"\n{source.table}, idle: {', '.join(source.idle_splits)}")
    if source.late:
        yield escape(f"\n{source.table}: {counted(source.late, 'row')} came late")
    if source.since is not None:
        yield escape(
            f"\n{source.table}: rows go back to {moment(source.since)} UTC; {counted(source.removed, 'row')} "
            "that landed before are gone ('landed.retention')"
        )
    if source.rejected:
        yield escape(f"\n{source.table}: {counted(source.rejected, 'message')} did not fit, kept in its quarantine")
    if source.aligned is not None and source.blocked:
        group, drift = source.aligned.group, seconds(source.aligned.max_drift_ms)
        yield escape(f"\n{source.table} waits for its group {group}, which may drift by {drift}:")
        for item in source.blocked:
            yield escape(f"  split {item.split}: {_blocked(item, source.aligned.minimum, now)}")


def _blocked(item: Blocked, minimum: int | None, now: int) -> str:
    """For how long a split is blocked, and by whom. `minimum`: the group's least watermark."""
    by, waits = " split ".join(part for part in item.by if part), seconds(max(now - item.since, 0))
    if item.next_rowtime is not None and minimum is not None:
        return f"at its limit for {waits}, its next row is {seconds(item.next_rowtime - minimum)} ahead of {by}"
    ahead = f"{seconds(item.ahead_ms)} ahead of {by}" if item.ahead_ms < FAR_MS else f"{by} has told nothing yet"
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


def _waits(insert: InsertStatus) -> str:
    return "waits" if insert.waits_for else ""


def _places(insert: InsertStatus) -> list[str]:
    rows = insert.rows
    if rows is None:
        return [""] * 5
    counts = (rows.landed, rows.published, sum(rows.quarantined.values()), sum(rows.dropped.values()), rows.waiting)
    return [number(count) for count in counts]


def _notes(insert: InsertStatus, holders: Mapping[str, str | None], commands: Commands) -> Iterator[RenderableType]:
    if insert.waits_for:
        yield escape(f"\n{insert.insert} waits until {' and '.join(insert.waits_for)} is complete.")
        idle = [build for build in insert.waits_for if not holders.get(build)]
        if idle:
            go_on = commands.filled("tidegate run SCRIPT")
            yield escape(f"  Nobody works on {' and '.join(idle)}.   next:  {go_on}   (goes on where it stopped)")
    if insert.rows is not None and insert.rows.quarantined:
        reasons = ", ".join(f"{count:,} {why(name)}" for name, count in insert.rows.quarantined.items())
        look = commands.filled(f"tidegate quarantine list SCRIPT {insert.insert}")
        yield escape(f"\n{insert.insert}, quarantined: {reasons}   ({look})")
    if insert.held:
        yield f"\n[bold red]Held:[/] epoch {insert.epoch} of {escape(insert.insert)}"
        for reason in insert.reasons:
            yield escape(f"  {commands.filled(reason)}")
        told = (
            f"tidegate release SCRIPT {insert.insert}   (joins again)   or   "
            f"tidegate discard SCRIPT {insert.insert}   ({insert.given_up})"
        )
        yield escape(f"  next:  {commands.filled(told)}")
