"""The facts of a report, read from the control tables alone: no Spark, no JVM, nothing is changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidegate.pipelines.clock import Clock, system_clock
from tidegate.pipelines.connectors.table import Table
from tidegate.pipelines.facts.problem import Problem, Scope
from tidegate.pipelines.facts.problems import problems
from tidegate.pipelines.lake import Lake, WatermarkRow
from tidegate.pipelines.lake.stream import Stream
from tidegate.pipelines.pictures import LAST_OUTCOMES
from tidegate.pipelines.runtime.epochs.history import ReleasedEpoch, newest_epochs, target_of
from tidegate.pipelines.runtime.ledger import left_waiting
from tidegate.pipelines.runtime.splits import Splits, of_a_file
from tidegate.pipelines.runtime.status import LakeStatus, SourceStatus, status
from tidegate.pipelines.sql.compile import Pipeline
from tidegate.pipelines.sql.model import Insert

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

    chunk: str
    bounds: str
    position: str


@dataclass(frozen=True)
class SourceFacts:
    """One source table. `log` are landed epochs of the newest generation, thinned to MOST_POINTS."""

    table: Table
    status: SourceStatus
    log: tuple[WatermarkRow, ...]
    phases: tuple[Phase, ...]
    cuts: tuple[Cut, ...]


@dataclass(frozen=True)
class InsertFacts:
    """One INSERT, how many epochs were `planned`, and the last LAST_OUTCOMES of them, oldest first. `left`: how many
    rows each of these has left waiting, None if that is not known; `waiting`: how many wait now."""

    insert: Insert
    planned: int
    epochs: tuple[ReleasedEpoch, ...]
    left: tuple[int | None, ...]
    waiting: int


@dataclass(frozen=True)
class Facts:
    """A pipeline on its lake as of `status.at` (ms, UTC)."""

    pipeline: Pipeline
    status: LakeStatus
    sources: tuple[SourceFacts, ...]
    inserts: tuple[InsertFacts, ...]
    problems: tuple[Problem, ...]


def gather(lake: Lake, pipeline: Pipeline, clock: Clock = system_clock) -> Facts:
    """Everything that the page shows."""
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
    inserts = tuple(_insert(lake, pipeline, insert, waiting[insert.id]) for insert in pipeline.inserts)
    return Facts(pipeline, found, sources, inserts, tuple(problems(lake, found.at, Scope.of(lake, pipeline))))


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
