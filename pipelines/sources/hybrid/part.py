"""One part of a hybrid table: its own source, which sees its own steps, splits and columns only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidegate.pipelines.connectors.protocol import (
    Json,
    Landed,
    Planned,
    PlanRequest,
    Source,
    SourceContext,
    SourcePosition,
    SplitStore,
    Step,
    StoredStep,
)
from tidegate.pipelines.connectors.registry import connector
from tidegate.pipelines.connectors.spec import SEQ_TYPE
from tidegate.pipelines.connectors.table import Table
from tidegate.pipelines.sources.delivered import as_declared
from tidegate.pipelines.sources.hybrid.switch import spoken
from tidegate.pipelines.sql.options import resolve_options
from tidegate.pipelines.sql.tables.metadata import as_delivered

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PHASES = 16
"""`_seq.phase` of a part's rows is its own, plus so many for each part before: what a later part says wins."""


@dataclass(frozen=True)
class PartSplits:
    """The part's rows of the table's split store."""

    store: SplitStore
    prefix: str

    def rows(self) -> list[dict[str, Any]]:
        own = [row for row in self.store.rows() if row["split"].startswith(self.prefix)]
        return [{**row, "split": row["split"].removeprefix(self.prefix)} for row in own]

    def add(self, splits: Sequence[Json]) -> None:
        self.store.add([{**split, "split": self.prefix + split["split"]} for split in splits])

    def cut(self, cuts: Mapping[str, Json]) -> None:
        self.store.cut({self.prefix + name: cut for name, cut in cuts.items()})


class Part:
    """The part with number `place` of the hybrid table of `context`.

    A step of it is stored as the hybrid table's: `part` is its place, `step` its ranges, `first` the part's first step
    (null in that very step), `flipped` whether the part had flipped before, `flips` whether it does with this step.
    """

    def __init__(self, context: SourceContext, table: Table, place: int) -> None:
        self.whole, self.table, self.place = context, table, place
        self.prefix = f"{table.name}/"
        found = connector(table.connector)
        self.tells_time = found.spec.tells_time
        self.context = replace(
            context,
            table=as_delivered(table),
            options=resolve_options(table, found.spec, context.environment, defaults=False),
            splits=PartSplits(context.splits, self.prefix),
            # As if it were read by itself.
            scratch=str(Path(context.scratch).parent / table.name),
            earlier_rows=None if context.earlier_rows is None else self._earlier_rows,
        )
        self.source: Source = found.source(self.context)
        # When the bounded phase is over is the hybrid table's to tell.
        self.source.delegate_watermark_periodic_emit(lambda: None)

    def position(self, whole: SourcePosition) -> SourcePosition:
        """How far the part has come, where that is how far the hybrid table has."""
        last = whole.previous
        if last is None or last.step.ranges["part"] != self.place:
            return SourcePosition()
        first = _made(last.step.ranges["first"] or _told(last), last.generation)
        flipped = last.step.ranges["flipped"] or flips(last)
        return SourcePosition(previous=self.stored(last), first=first, flipped=flipped)

    def plan(self, whole: PlanRequest, start: int | None = None) -> Planned:
        """The part's next step, as one of the hybrid table. `start` (ms, UTC): where the part begins, whatever its
        options say."""
        position = self.position(whole)
        request = replace(
            whole,
            previous=position.previous,
            first=position.first,
            flipped=position.flipped,
            ends=whole.ends["parts"][str(self.place)],
            blocked=self._own_splits(whole.blocked),
            ahead=self._own_splits(whole.ahead),
            start_at=start,
        )
        planned = self.source.plan(request)
        held = {self.prefix + split: at for split, at in planned.held.items()}
        if planned.step is None:
            return Planned(held=held)
        ranges = {
            "part": self.place,
            "step": planned.step.ranges,
            "first": None if position.first is None else _told(position.first, position.first.step.ranges),
            "flipped": position.flipped,
            "flips": planned.step.flips,
        }
        begins = ""
        if start is not None:
            ranges["start_at"] = start  # for people: the part's own ranges say what is read
            begins = f"begins at {spoken(start)}: "
        summary = f"{self.table.name}: {begins}{planned.step.summary}"
        return Planned(replace(planned.step, ranges=ranges, summary=summary), held)

    def stored(self, step: StoredStep) -> StoredStep:
        """A stored step of the hybrid table, as the part's own source planned it."""
        own = replace(step.step, ranges=step.step.ranges["step"], flips=flips(step), blocked=(), quiet=False)
        return replace(step, step=own)

    def landable(self, rows: DataFrame) -> DataFrame:
        """The part's rows as the hybrid table's."""
        return _moved(as_declared(rows, self.table), f"concat('{self.prefix}', _split)", PHASES * self.place)

    def landed(self, step: StoredStep, rows: DataFrame | None) -> Landed:
        """What the part's source says of a committed step, in the words of the hybrid table."""
        landed = self.source.landed(self.stored(step), None if rows is None else self._own(rows))
        watermarks = landed.watermarks
        return replace(
            landed,
            position=f"{self.table.name}: {landed.position}",
            watermarks=None if watermarks is None else [(self.prefix + split, told) for split, told in watermarks],
            idle={self.prefix + split: idle for split, idle in landed.idle.items()},
            splits=frozenset(self.prefix + split for split in landed.splits),
            ended=frozenset(self.prefix + split for split in landed.ended),
        )

    def _earlier_rows(self, step: StoredStep) -> DataFrame:
        """The rows of the part's own steps before `step`, as its source gave them."""
        assert self.whole.earlier_rows is not None
        rows = self.whole.earlier_rows(step)
        return self._own(rows.where(rows["_split"].startswith(self.prefix)))

    def _own(self, rows: DataFrame) -> DataFrame:
        return _moved(rows, f"substring(_split, {len(self.prefix) + 1})", -PHASES * self.place)

    def _own_splits(self, splits: frozenset[str]) -> frozenset[str]:
        return frozenset(name.removeprefix(self.prefix) for name in splits if name.startswith(self.prefix))


def _moved(rows: DataFrame, split: str, phases: int) -> DataFrame:
    others = [f"`{name}`" for name in rows.columns if name not in ("_split", "_seq")]
    names = ("log", "file", "position", "row")
    seq = f"named_struct('phase', _seq.phase + {phases}, {', '.join(f'{name!r}, _seq.{name}' for name in names)})"
    return rows.selectExpr(*others, f"{split} AS _split", f"CAST({seq} AS {SEQ_TYPE}) AS _seq")


def flips(step: StoredStep) -> bool:
    """Whether the part that a step of the hybrid table is of flips with it."""
    return bool(step.step.ranges["flips"])


def _told(step: StoredStep, ranges: Json | None = None) -> Json:
    """The first step of a part as every later one keeps it; by default a step of the hybrid table."""
    own = step.step.ranges["step"] if ranges is None else ranges
    return {"ranges": own, "epoch": step.epoch, "planned_at": step.planned_at}


def _made(told: Json, generation: int) -> StoredStep:
    return StoredStep(Step(told["ranges"]), generation, told["epoch"], told["planned_at"])
