"""The facts of a report, read from the control tables alone: no Spark, no JVM, nothing is changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from tidegate.pipelines.clock import Clock, system_clock
from tidegate.pipelines.commands import Commands, NextCommand
from tidegate.pipelines.connectors.table import Table
from tidegate.pipelines.facts.problem import Problem, Scope, roots
from tidegate.pipelines.facts.problems import problems
from tidegate.pipelines.lake import Lake, WatermarkRow
from tidegate.pipelines.lake.stream import Stream
from tidegate.pipelines.pictures import LAST_OUTCOMES
from tidegate.pipelines.records.kinds import Column, Count, Moment, Note
from tidegate.pipelines.runtime.epochs.generations import on_lake
from tidegate.pipelines.runtime.epochs.history import ReleasedEpoch, newest_epochs, target_of
from tidegate.pipelines.runtime.ledger import left_waiting
from tidegate.pipelines.runtime.splits import Splits, of_a_file
from tidegate.pipelines.runtime.status import LakeStatus, SourceStatus, status
from tidegate.pipelines.sql.compile import Pipeline
from tidegate.pipelines.sql.model import Insert
from tidegate.pipelines.text import counted
from tidegate.pipelines.watermarks import MAX_TIMESTAMP, MIN_TIMESTAMP
from tidegate.pipelines.watermarks.watermark import instant

LISTED = 12
"""Epochs of an INSERT that have a line, and cuts of a source."""
MOST_POINTS = 400
"""How many epochs of a source a picture shows; of more, every so many-th and the last."""


@dataclass(frozen=True)
class Phase:
    """A generation of a source, in ms, UTC: `began` with its first plan, `flipped` (None before), `until` its newest
    epoch landed."""

    generation: int
    began: int
    flipped: int | None
    until: int


@dataclass(frozen=True)
class Cut:
    """A snapshot chunk and the log position that its read view equals; empty while it is not read."""

    chunk: Annotated[str, Column("chunk")]
    bounds: Annotated[str, Column("keys")]
    position: Annotated[str, Column("cut")]


@dataclass(frozen=True)
class SourceFacts:
    """One source table. `log` are landed epochs of the newest generation, thinned to MOST_POINTS."""

    table: Table
    status: SourceStatus
    log: tuple[WatermarkRow, ...]
    phases: tuple[Phase, ...]
    cuts: tuple[Cut, ...]

    @property
    def flip(self) -> ShownFlip | None:
        at, name = self.status.flip, self.table.name
        if at is None:
            return None
        return ShownFlip(name, f"{self.status.generation}/{at.epoch}", at.at, at.position or "")

    @property
    def watermark(self) -> ShownWatermark:
        found, at = self.status, self.status.watermark
        text = "none yet" if at is None else instant(at)
        if at == MIN_TIMESTAMP and found.use_processing_time:
            text = "none of its own: (MIN, true), processing time from the flip on"
        elif at in (MIN_TIMESTAMP, MAX_TIMESTAMP):
            text = "the least" if at == MIN_TIMESTAMP else "the end of input"
        idle = ", ".join(found.idle_splits) or "none"
        return ShownWatermark(self.table.name, text, found.use_processing_time, idle, found.late)

    @property
    def chunks(self) -> str:
        """How many of its cuts are known, and what its flip waited for."""
        done = sum(bool(cut.position) for cut in self.cuts)
        text = f"{self.table.name}: {done:,} of {counted(len(self.cuts), 'chunk')} read"
        if self.status.flip is not None and self.status.flip.cut:
            text += f"; flip once the log was read past the greatest cut, up to {self.status.flip.position}"
        return text


@dataclass(frozen=True)
class ShownFlip:
    table: Annotated[str, Column("table")]
    epoch: Annotated[str, Column("flip in epoch")]
    at: Annotated[Moment | None, Column("at")]
    position: Annotated[str, Column("read up to")]


@dataclass(frozen=True)
class ShownWatermark:
    table: Annotated[str, Column("table")]
    watermark: Annotated[str, Column("watermark")]
    use_processing_time: Annotated[bool, Column("use processing time")]
    idle: Annotated[str, Column("idle splits")]
    late: Annotated[Count, Column("late rows")]


@dataclass(frozen=True)
class ShownEpoch:
    """An epoch of an INSERT, with its verdict."""

    epoch: Annotated[str, Column("epoch")]
    at: Annotated[Moment, Column("released at")]
    verdict: Annotated[str, Column("verdict")]
    state: Annotated[str, Column("state")]
    rows: Annotated[Count, Column("rows")]
    matched: Annotated[Count, Column("matched")]
    quarantined: Annotated[Count, Column("quarantined")]
    dropped: Annotated[Count, Column("dropped")]
    pins: Annotated[str, Column("pins")]
    why: Annotated[str, Column("why")]

    @classmethod
    def of(cls, found: ReleasedEpoch) -> ShownEpoch:
        counts, verdict = (found.staged.counts if found.staged else {}), found.verdict
        return cls(
            f"{found.plan.generation}/{found.plan.epoch}",
            found.plan.instant,
            "none yet" if verdict is None else "passed" if verdict.passed else "held",
            found.state,
            counts.get("rows", 0),
            counts.get("matched", 0),
            counts.get("to:quarantine", 0),
            counts.get("to:drop", 0),
            ", ".join(map(str, found.plan.pins)),
            " ".join(verdict.reasons) if verdict else "",
        )


@dataclass(frozen=True)
class ShownProblem:
    """A problem. `then`: what to do, or what it follows from."""

    since: Annotated[Moment, Column("since")]
    kind: Annotated[str, Column("kind")]
    title: Annotated[str, Column("what")]
    then: Annotated[str, Column("next")]


@dataclass(frozen=True)
class InsertFacts:
    """One INSERT, how many epochs were `planned`, and the last LAST_OUTCOMES of them, oldest first. `left`: how many
    rows each of these has left waiting, None if that is not known; `waiting`: how many wait now."""

    insert: Insert
    planned: int
    epochs: tuple[ReleasedEpoch, ...]
    left: tuple[int | None, ...]
    waiting: int

    @property
    def title(self) -> str:
        last = f", the last {len(self.epochs)}" if self.planned > len(self.epochs) else ""
        return f"{self.insert.id}: {counted(self.planned, 'epoch')}{last}"

    @property
    def verdicts(self) -> tuple[ShownEpoch, ...]:
        """Its last epochs, the newest first."""
        return tuple(map(ShownEpoch.of, reversed(self.epochs[-LISTED:])))


@dataclass(frozen=True)
class Report:
    """A pipeline on its lake as of `status.at` (ms, UTC)."""

    pipeline: Pipeline
    status: LakeStatus
    sources: tuple[SourceFacts, ...]
    inserts: tuple[InsertFacts, ...]
    problems: tuple[Problem, ...]

    @property
    def verdict(self) -> tuple[str, str]:
        """Its colour, and how the pipeline does in a sentence."""
        found, problems = self.status, roots(self.problems)
        if failing := [problem for problem in problems if problem.fails]:
            return "bad", _first_of(failing)
        if found.awaited:
            waits = " and ".join(sorted(found.awaited))
            return "wait", f"Waiting for {waits}: no row is released before its flip."
        if problems:
            return "wait", _first_of(problems)
        if not any(item.state for item in found.inserts):
            return "wait", "Nothing is published yet."
        return "good", "Everything that may be released is published. Nothing is held."

    def listed(self, commands: Commands) -> tuple[ShownProblem, ...]:
        """All problems, with those that follow from another one."""
        titles = {problem.key: problem.title for problem in self.problems}

        def then(problem: Problem) -> str:
            if problem.explained_by:
                return f"follows from: {titles[problem.explained_by]}"
            return "; ".join(commands.all(problem.next))

        return tuple(ShownProblem(each.since, each.kind, each.title, then(each)) for each in self.problems)

    @property
    def to_do(self) -> tuple[Note, ...]:
        """What a person can do now, with the reasons: enough to go on without reading the rest of the page."""
        return tuple(self._to_do())

    def _to_do(self) -> Iterator[Note]:
        found = self.status
        yield from (problem.note for problem in roots(self.problems))
        yield from found.notes
        if found.notes or self.problems or any(item.state for item in found.inserts):
            return
        yield Note(
            "Nothing has run here yet.", next=NextCommand("run", does="lands what the sources have, and releases")
        )


def _first_of(problems: Sequence[Problem]) -> str:
    title = problems[0].headline
    return title + (f" And {counted(len(problems) - 1, 'problem')} more." if len(problems) > 1 else "")


def gather(lake: Lake, pipeline: Pipeline, clock: Clock = system_clock) -> Report:
    """Everything that the page shows."""
    pipeline = on_lake(lake, pipeline)
    found = status(lake, pipeline, clock)
    sources = tuple(
        SourceFacts(
            table=pipeline.table(item.table),
            status=item,
            log=tuple(Stream(lake, item.table).generation(item.generation).sampled(MOST_POINTS)),
            phases=_phases(lake, item),
            cuts=_cuts(lake, item),
        )
        for item in found.sources
    )
    waiting = {item.insert: item.rows.waiting if item.rows else 0 for item in found.inserts}
    own = {insert.id: insert for insert in pipeline.inserts}
    inserts = tuple(_insert(lake, pipeline, own[name], waiting[name]) for name in waiting if name in own)
    return Report(pipeline, found, sources, inserts, tuple(problems(lake, found.at, Scope.of(lake, pipeline))))


def _insert(lake: Lake, pipeline: Pipeline, insert: Insert, waiting: int) -> InsertFacts:
    epochs = newest_epochs(lake, insert.id, target_of(lake, pipeline, insert.id), LAST_OUTCOMES)
    planned = epochs[-1].plan.epoch if epochs else 0
    return InsertFacts(insert, planned, tuple(epochs), tuple(left_waiting(lake, epochs)), waiting)


def _phases(lake: Lake, source: SourceStatus) -> tuple[Phase, ...]:
    found = []
    for generation in range(1, source.generation + 1):
        first = lake.epochs.rows(source.table, generation=generation, epoch=1)
        last = Stream(lake, source.table).generation(generation).last
        if first:
            began = first[0].planned_at
            found.append(Phase(generation, began, last.flipped_at if last else None, last.landed_at if last else began))
    return tuple(found)


def _cuts(lake: Lake, source: SourceStatus) -> tuple[Cut, ...]:
    rows = Splits(lake, source.table, source.generation).rows()
    return tuple(
        Cut(row["split"], _bounds(row["detail"]), _position(row["cut"])) for row in rows if not of_a_file(row["detail"])
    )


def _bounds(detail: Mapping[str, object] | None) -> str:
    lower = (detail or {}).get("lower")
    return f"from {', '.join(map(str, lower))}" if isinstance(lower, list) else "from the first key"


def _position(cut: Mapping[str, object] | None) -> str:
    if cut is None:
        return ""
    if "file" in cut and "position" in cut:
        return f"{cut['file']}:{cut['position']}"
    return ", ".join(f"{name} {value}" for name, value in cut.items())
