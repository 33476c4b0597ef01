"""How far the newest epoch of an INSERT has come, by the control tables and the target's own log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeVar

from tidegate.pipelines.commands import NextCommand, either, resolving
from tidegate.pipelines.connectors.options import OnUnmatched, on_unmatched
from tidegate.pipelines.connectors.table import Options, Table
from tidegate.pipelines.errors import GateHeld, LakeError, PlanningError
from tidegate.pipelines.lake import Lake, StagedRow, VerdictRow, WatermarkRow, delta_log
from tidegate.pipelines.lake.control import Records
from tidegate.pipelines.lake.stream import Stream, has_order, has_places
from tidegate.pipelines.location import Location
from tidegate.pipelines.process.spec import ProcessSpec
from tidegate.pipelines.runtime.epochs import Pin, ReleasePlan, insert_owner, stored_plan
from tidegate.pipelines.runtime.epochs.history import State, state_of
from tidegate.pipelines.sinks.protocol import Sink, sink_of
from tidegate.pipelines.sql.canonical import computes
from tidegate.pipelines.sql.compile import Pipeline
from tidegate.pipelines.sql.model import Insert, ProcessInsert
from tidegate.pipelines.syntax.durations import parse_duration
from tidegate.pipelines.text import counted
from tidegate.pipelines.watermarks import MIN_TIMESTAMP

OfPlan = TypeVar("OfPlan", StagedRow, VerdictRow)

Landed = Sequence[WatermarkRow | None]
"""The newest row of the log of each branch's table; None of one of which nothing has landed."""


@dataclass(frozen=True)
class Waiting:
    """Nothing can be released.

    Attributes:
        reason: A sentence.
        rows: Landed probe rows that wait.
        unflipped: The builds that still load.
        held_by: The inputs that hold the watermark back.
        reached: The watermark (ms, UTC) up to which no row waits; None where the caller does not need it.
    """

    reason: str
    rows: int
    unflipped: tuple[str, ...] = ()
    reached: int = MIN_TIMESTAMP
    held_by: tuple[str, ...] = ()


@dataclass(frozen=True)
class End:
    """Where a run of an INSERT ends: at what had landed of each input at one moment, as (generation, epoch) by table;
    in event time also at the `watermark` (ms, UTC) that the inputs had reached then."""

    landed: Mapping[str, tuple[int, int]]
    watermark: int = MIN_TIMESTAMP

    def reached(self, plan: ReleasePlan) -> bool:
        """Whether a run may end after this epoch."""
        taken = {item.table: (item.generation, item.upto) for item in plan.takes}
        in_time = plan.watermark >= self.watermark
        return (
            not plan.looks_back
            and in_time
            and all(taken.get(name, (0, 0)) >= epoch for name, epoch in self.landed.items())
        )


@dataclass(frozen=True)
class HeldEpoch:
    """An epoch that the gate holds."""

    plan: ReleasePlan
    staged: StagedRow
    verdict: VerdictRow

    @property
    def given_up(self) -> str:
        """What discarding it does, in a sentence."""
        counts = self.staged.counts
        rows, good = counts.get("rows", 0), counts.get("to:publish", 0)
        fine = f"; {good:,} of them would have been published" if good else ""
        lost = f"Discarding epoch {self.plan.epoch} of {self.plan.insert} ({counted(rows, 'row')})"
        return f"{lost} {self.plan.when_discarded}{fine}."

    def unchanged_in(self, again: ReleasePlan) -> str | None:
        """A sentence where `again`, which takes its place, gives the very rows that were held; else None."""
        mine, theirs = ((plan.pins, plan.computes, plan.on_unmatched) for plan in (self.plan, again))
        if again.discards or mine != theirs:
            return None
        return (
            f"nothing has changed since epoch {self.plan.epoch} of {self.plan.insert} was held, neither the rows that "
            "it joins to nor what the script computes, so it is judged by the same rows again"
        )


@dataclass(frozen=True)
class Position:
    """How far the newest epoch of an INSERT is. All None before the first plan."""

    plan: ReleasePlan | None
    staged: StagedRow | None
    verdict: VerdictRow | None
    published: int

    @property
    def state(self) -> State | None:
        if self.plan is None:
            return None
        return state_of(self.staged, self.verdict, self.published >= self.plan.epoch)

    @property
    def unfinished(self) -> ReleasePlan | None:
        """The newest plan, if its epoch is not published."""
        return None if self.state == "published" else self.plan

    @property
    def held(self) -> HeldEpoch | None:
        """The newest epoch, if the gate holds it."""
        if self.state != "held" or self.plan is None or self.staged is None or self.verdict is None:
            return None
        return HeldEpoch(self.plan, self.staged, self.verdict)


@dataclass(frozen=True)
class InsertOnLake:
    """One INSERT on a lake: its names there, and what the lake stores of it. Writes nothing."""

    lake: Lake
    pipeline: Pipeline
    insert: Insert

    @property
    def owner(self) -> str:
        return insert_owner(self.insert.id)

    @property
    def target(self) -> Table:
        return self.pipeline.table(self.insert.target)

    @property
    def process(self) -> ProcessSpec:
        """Its process: the function, its inputs and outputs. Raises PlanningError if the INSERT is no process."""
        if not isinstance(self.insert, ProcessInsert):
            raise PlanningError(
                f"{self.insert.id} is an INSERT of the script, and no process",
                where=f"line {self.insert.location.line} of the script",
                state="nothing was changed",
                next_command="give the process back to the pipeline, or give the INSERT another target",
            )
        return self.insert.process

    @cached_property
    def computes(self) -> str:
        """Identifies what the INSERT computes."""
        return computes(self.pipeline, self.insert)

    @property
    def on_unmatched(self) -> OnUnmatched:
        return on_unmatched(self.target)

    @property
    def gate_timeout_s(self) -> float:
        """How long the checks of an epoch may take."""
        return parse_duration(self._option("gate.timeout", "10 min")).total_seconds()

    @property
    def max_rows(self) -> int:
        """About how many rows an epoch releases at most."""
        return int(self._option("release.max-rows", "10000000"))

    def _option(self, name: str, default: str) -> str:
        """One option of the target, `${VAR}` in it replaced. Raises PlanningError."""
        return Options({name: self.target.options.get(name, default)}).resolve()[name]

    @cached_property
    def probes(self) -> tuple[Stream, ...]:
        """The table of each branch; the probe's alone where there is no UNION ALL."""
        return tuple(Stream.of(self.lake, self.pipeline, name) for name in self.insert.taken)

    @property
    def never_staged(self) -> bool:
        """Whether no epoch was ever staged, so that nothing is published, quarantined or held either."""
        return self.lake.staged.last(self.owner) is None

    @property
    def landed(self) -> Landed:
        """How far each of them has landed."""
        return [self.takable(stream) for stream in self.probes]

    def takable(self, stream: Stream) -> WatermarkRow | None:
        """How far a table has landed whose rows it takes; None too where the rows of that generation are not for it."""
        row = stream.newest
        return row if row is not None and self.reads(stream.name, row.generation, "probe") else None

    @property
    def is_logged(self) -> bool:
        """Whether its outputs have a log of their own, by which statements read them. A target that was ever read, or
        prepared for it, stays so: a log with a gap would hide rows from a reader that comes back. Looked at each time:
        another runner may have given the rows places (`lake.places`)."""
        if has_places(delta_log.opened(self.target_path)):
            return True
        return bool(self.pipeline.readers_of(self.insert)) and self.never_staged

    @property
    def is_build(self) -> bool:
        """Whether statements join its target, or ever did: then its rows have an order (see `ORDERED`)."""
        if has_order(delta_log.opened(self.target_path)):
            return True
        return any(self.insert.target in each.builds for each in self.pipeline.inserts) and self.never_staged

    @property
    def target_path(self) -> Location:
        return self.lake.target_path(self.target)

    @property
    def sink(self) -> Sink:
        return sink_of(self.target, self.target_path)

    @property
    def quarantine_path(self) -> Location:
        return self.lake.quarantine_path(self.target, self.insert)

    def reads(self, table: str, generation: int, role: Literal["build", "probe"]) -> bool:
        """Whether a generation of a table serves a role, and has every column that the script declares. One that has
        begun for another role, or with more columns, says nothing of those before it."""
        rows = [row for row in self.lake.definitions.rows(table) if row.generation <= generation]
        columns = {column.name for column in self.pipeline.table(table).stored_columns}
        return not rows or (role in rows[-1].form["role"] and columns <= set(rows[-1].form["columns"]))

    def position(self) -> Position:
        """The newest epoch, read from the control tables alone."""
        row = self.lake.epochs.last(self.owner)
        if row is None:
            return Position(None, None, None, 0)
        plan = stored_plan(row)
        published = self.sink.committed(self.lake.application(self.owner, "publish", plan.generation))
        return Position(plan, self._of(self.lake.staged, plan), self._of(self.lake.verdicts, plan), published)

    def pinned(self, pin: Pin) -> WatermarkRow:
        """The log row of a pin. Raises LakeError if it is gone: only an epoch that has one can be pinned."""
        row = Stream(self.lake, pin.table).generation(pin.generation).epoch(pin.epoch)
        if row is None:
            path = self.lake.logs.of(pin.table).path
            raise LakeError(
                f"the watermark log of {pin.table} has no row of epoch {pin.epoch}, generation {pin.generation}",
                where=str(path),
                state="nothing was planned or released; what is published stays",
                next_command=f"bring {path} back from a backup, then run the same command again",
            )
        return row

    def _of(self, table: Records[OfPlan], plan: ReleasePlan) -> OfPlan | None:
        """The row of this very plan. None without one, and with two: it is not known then which one counts."""
        rows = table.rows(self.owner, generation=plan.generation, epoch=plan.epoch)
        found = [row for row in rows if row.plan_digest == plan.digest]
        return found[0] if len(found) == 1 else None

    def waiting(self, position: Position) -> int:
        """How many landed probe rows are in no commit yet: not released, staged, or held."""
        return sum(waiting_rows(self.landed, position.plan, position.state == "published"))


def waiting_rows(landed: Landed, plan: ReleasePlan | None, published: bool = True) -> list[int]:
    """How many rows of each branch that have landed are in no commit of an INSERT yet; `plan` is its newest."""
    done = [item.taken if published else item.earlier for item in plan.takes] if plan else [0] * len(landed)
    return [(row.sums.rows if row else 0) - taken for row, taken in zip(landed, done, strict=False)]


def gate_held(insert: Insert, plan: ReleasePlan, verdict: VerdictRow | None) -> GateHeld:
    """Why an epoch may not be published, and the two ways out."""
    if verdict is None:
        return GateHeld(
            f"epoch {plan.epoch} of {insert.id} has no verdict, so it is not published",
            state="it is staged; the target is unchanged",
            next_command=NextCommand("run", does="judges it"),
        )
    again = plan.out_of_quarantine
    return GateHeld(
        f"the gate holds epoch {plan.epoch} of {insert.id}: {'; '.join(verdict.reasons)}",
        where=f"probe {plan.probe}, epochs {plan.reads[0] + 1} to {plan.reads[1]}",
        state="its rows are in quarantine, as they were; the target is unchanged"
        if again
        else "its rows are staged and count as waiting; the target is unchanged",
        next_command=either(*resolving(insert.id, "joins again against newer pins", plan.when_discarded)),
    )
