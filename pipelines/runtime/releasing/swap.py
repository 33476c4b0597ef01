"""A generation of a statement beside the current one: it begins, publishes beside it, and takes its place in one commit
of the target, or is given up.

Until the swap both publish, each into its own table. The swap closes the new generation's table, then replaces all
files of the target by those of it and leaves a mark in the target's log. From then on a commit of any other generation
of the statement is refused there (`lake.publishers`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from deltalake.exceptions import CommitFailedError

from tidegate.pipelines.clock import Clock
from tidegate.pipelines.commands import STATUS, NextCommand
from tidegate.pipelines.errors import ConcurrentRun, PlanningError
from tidegate.pipelines.generations import FIRST, insert_owner, name_of
from tidegate.pipelines.lake import Lake, delta_log
from tidegate.pipelines.lake.adopt import REWRITES, WHEN_QUIET, additions, survey, there
from tidegate.pipelines.lake.commits import Removal, commit, until_committed
from tidegate.pipelines.lake.lake import CommitRole
from tidegate.pipelines.lake.layout import beside
from tidegate.pipelines.lake.leases import Leases
from tidegate.pipelines.lake.publishers import swap_mark
from tidegate.pipelines.lake.records import OF_STATEMENT, GenerationRow
from tidegate.pipelines.location import Location
from tidegate.pipelines.runtime import faults
from tidegate.pipelines.runtime.epochs.generations import Generations, generations_of
from tidegate.pipelines.sinks.protocol import EpochListener, Sink, sink_of
from tidegate.pipelines.sql.compile import Pipeline
from tidegate.pipelines.sql.model import ProcessInsert
from tidegate.pipelines.text import counted

CLOSED = 0
"""The swap mark of a table that a generation had beside its target: none publishes there any more."""


def begin(lake: Lake, pipeline: Pipeline, insert: str, clock: Clock) -> int:
    """Begin a generation of an INSERT beside its current one, at the first row. Returns its number, which is never used
    again. Raises ConcurrentRun where another run decides on the statement's generations at the same time."""
    found = generations_of(lake, pipeline, pipeline.insert(insert))
    number = max([FIRST, *(row.of for row in found.decisions)]) + 1
    _decide(found, number, "begun", clock)
    return number


def give_up(lake: Lake, pipeline: Pipeline, insert: str, generation: int, leases: Leases, clock: Clock) -> None:
    """End a generation that publishes beside the current one. What it has published stays in its folder. Raises
    PlanningError where there is no such generation, or its swap was begun."""
    found = generations_of(lake, pipeline, pipeline.insert(insert))
    found.require_beside(generation)
    if found.pending is not None:
        raise _pending(found)
    leases.acquire(insert_owner(name_of(found.statement, generation)))
    _decide(found, generation, "over", clock)


def swap(lake: Lake, pipeline: Pipeline, insert: str, generation: int, leases: Leases, clock: Clock) -> None:
    """Make a generation that publishes beside the current one the current one; goes on where it was interrupted. Raises
    PlanningError where there is no such generation, it has published nothing, or its rows do not fit the target;
    LeaseHeld where a run works on it."""
    own = pipeline.insert(insert)
    target = lake.readers_path(pipeline.table(own.target))
    found = generations_of(lake, pipeline, own)
    if found.pending == generation and found.swapped(generation):
        _decide(found, generation, "current", clock)
        return
    found.require_beside(generation)
    if found.pending not in (None, generation):
        raise _pending(found)
    log = pipeline.table(own.target).name
    if isinstance(own, ProcessInsert) or pipeline.readers_of(own) or lake.watermarks.last(log) is not None:
        kind = "process" if isinstance(own, ProcessInsert) else "INSERT"
        raise PlanningError(
            f"{found.statement} is {'a process' if kind == 'process' else 'read by others'}: readers of its outputs "
            f"would meet the rows of generation {generation} after those of the one before it",
            where=f"{kind} {found.statement}",
            state=f"nothing was swapped; generation {generation} goes on beside the current one",
            next_command=f"declare the {kind} once more under another name, and let its readers read that",
        )
    name = name_of(found.statement, generation)
    leases.acquire(insert_owner(name))
    made = beside(target, generation)
    _require_same_columns(found, made, target, generation)
    if found.pending is None:
        _decide(found, generation, "swapping", clock)
        faults.point("swap.decided", name)
    _close(found, made)
    faults.point("swap.closed", name)
    _replace(found, made, sink_of(replace(pipeline.table(own.target), beside=None), target), generation)
    faults.point("swap.made", name)
    _decide(found, generation, "current", clock)


def _decide(found: Generations, generation: int, decided: str, clock: Clock) -> None:
    """Store a decision, if nothing was decided since `found` was read."""
    lake, owner, rows = found.lake, insert_owner(found.statement), found.decisions
    row = GenerationRow(owner, OF_STATEMENT, len(rows) + 1, generation, decided, clock())
    application = lake.application(owner, "generation", OF_STATEMENT)
    if not lake.generations.append([row], application=application, version=row.epoch, guarded=False):
        raise ConcurrentRun(
            f"another run has decided on the generations of {found.statement} at the same time",
            where=str(lake.logs.of(owner).path),
            state="what it has decided holds; this run decided nothing",
            next_command=STATUS,
        )


def _close(found: Generations, made: Location) -> None:
    """Let nothing more into the table that the generation has beside the target: what came after the swap has read it
    would be lost."""
    mark = swap_mark(found.lake.id, found.statement)

    def close() -> None:
        delta = there(made)
        if mark not in delta.applications:
            commit(delta, [], marks={mark: CLOSED}, note="swapped")

    _committed(found, made, close)


def _replace(found: Generations, made: Location, sink: Sink, generation: int) -> None:
    """The commit of the target that swaps: all its files out, all of the generation's in, with the marks of both."""
    lake, target, own = found.lake, sink.path, there(made)
    files, owner = survey(made, list(own.files)), insert_owner(name_of(found.statement, generation))
    epoch = own.applications.get(lake.application(owner, "publish", generation))
    roles: list[CommitRole] = ["publish", "notified"] if isinstance(sink, EpochListener) else ["publish"]
    marks = {lake.application(owner, role, generation): epoch for role in roles if epoch is not None}
    marks[swap_mark(lake.id, found.statement)] = generation

    def exchange() -> None:
        delta = there(target)
        actions = [*additions(delta, made, files), *map(Removal, delta.files.values())]
        commit(delta, actions, marks=marks, note=f"generation {generation}")

    _committed(found, target, exchange)


def _committed(found: Generations, path: Location, step: Callable[[], None]) -> None:
    """Make a commit of a swap, also where other writers change the table meanwhile."""
    try:
        until_committed(step, attempts=REWRITES)
    except CommitFailedError as error:
        raise ConcurrentRun(
            f"the table changed {counted(REWRITES, 'time')} while a generation of {found.statement} was being "
            "swapped in",
            where=str(path),
            state="nothing was swapped",
            next_command=WHEN_QUIET,
        ) from error


def _require_same_columns(found: Generations, made: Location, target: Location, generation: int) -> None:
    new, old = delta_log.opened(made), delta_log.opened(target)
    if new is None or old is None:
        raise PlanningError(
            f"generation {generation if new is None else found.current} of {found.statement} has released nothing yet",
            where=f"INSERT {found.statement}",
            state="nothing was swapped",
            next_command=NextCommand("run", does="releases it"),
        )
    columns = [{field.name: str(field.type) for field in table.schema.fields} for table in (old, new)]
    if columns[0] != columns[1]:
        differs = sorted(name for name in {**columns[0], **columns[1]} if columns[0].get(name) != columns[1].get(name))
        raise PlanningError(
            f"generation {generation} of {found.statement} has other columns than the target: {', '.join(differs)}",
            where=f"INSERT {found.statement}",
            state=f"nothing was swapped; generation {generation} goes on beside the current one",
            next_command="write a new INSERT into a new target, which begins at the first row",
        )


def _pending(found: Generations) -> PlanningError:
    return PlanningError(
        f"generation {found.pending} of {found.statement} is being swapped in",
        where=f"INSERT {found.statement}",
        state="nothing was changed",
        next_command="let that swap end first",
    )
