"""The connector `hybrid`: several tables one after another, each up to its flip, the last one for ever (FLIP-326).

The switch to the last one is the flip of the hybrid table. A step's stored ranges alone decide which part it belongs
to, so that a restart goes on in the same part. A part is its own source, which sees only its own steps, splits and
columns. The last one begins at the greatest rowtime of the rows before it ('hybrid.switch'). That time is computed
once, from committed rows, so a restart before the first step of the last table finds the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidegate.pipelines.commands import resnapshot, then
from tidegate.pipelines.connectors.options import resolve_options
from tidegate.pipelines.connectors.protocol import (
    ExplainsFailures,
    FieldsSeen,
    Json,
    KeepsALog,
    KnowsItsEnd,
    Landed,
    LogRetention,
    Planned,
    PlanRequest,
    ReadsAlone,
    ShowsFields,
    Source,
    SourceContext,
    SourcePosition,
    SplitStore,
    Step,
    StoredStep,
    Unread,
)
from tidegate.pipelines.connectors.registry import connector
from tidegate.pipelines.connectors.spec import SEQ_TYPE, ConnectorSpec, OptionSpec
from tidegate.pipelines.connectors.table import Table
from tidegate.pipelines.errors import SourceError
from tidegate.pipelines.syntax.durations import parse_duration
from tidegate.pipelines.syntax.types import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PHASES = 16
"""`_seq.phase` of a part's rows is its own, plus so many for each earlier part: later parts win."""


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

    def restate(self, splits: Sequence[Json]) -> None:
        self.store.restate([{**split, "split": self.prefix + split["split"]} for split in splits])

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
            table=table.delivered,
            options=resolve_options(table, found.spec, context.environment),
            splits=PartSplits(context.splits, self.prefix),
            # As if it were read by itself.
            scratch=str(Path(context.scratch).parent / table.name),
            earlier_rows=None if context.earlier_rows is None else self._earlier_rows,
            latest_rows=None if context.latest_rows is None else self._latest_rows,
        )
        self.source: Source = found.source(self.context)
        # When the bounded phase is over is decided by the hybrid table.
        self.source.delegate_watermark_periodic_emit(lambda: None)

    def position(self, whole: SourcePosition) -> SourcePosition:
        """How far the part has come, if the hybrid table has come so far."""
        last = whole.previous
        if last is None or last.step.ranges["part"] != self.place:
            return SourcePosition()
        first = _from_json(last.step.ranges["first"] or _to_json(last), last.generation)
        flipped = last.step.ranges["flipped"] or flips(last)
        return SourcePosition(previous=self.stored(last), first=first, flipped=flipped)

    def plan(self, whole: PlanRequest, start: int | None = None) -> Planned:
        """The part's next step, as one of the hybrid table. `start` (ms, UTC): where the part begins, whatever its
        options say."""
        position = self.position(whole)
        request = replace(
            whole,
            **vars(position),
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
            "first": None if position.first is None else _to_json(position.first, position.first.step.ranges),
            "flipped": position.flipped,
            "flips": planned.step.flips,
        }
        begins = ""
        if start is not None:
            ranges["start_at"] = start  # for people: the part's own ranges say what is read
            begins = f"begins at {utc_text(start)}: "
        summary = f"{self.table.name}: {begins}{planned.step.summary}"
        return Planned(replace(planned.step, ranges=ranges, summary=summary), held)

    def stored(self, step: StoredStep) -> StoredStep:
        """A stored step of the hybrid table, as the part's own source planned it."""
        own = replace(step.step, ranges=step.step.ranges["step"], flips=flips(step), blocked=(), quiet=False)
        return replace(step, step=own)

    def landable(self, rows: DataFrame) -> DataFrame:
        """The part's rows as the hybrid table's."""
        return _moved(self.table.as_declared(rows), f"concat('{self.prefix}', _split)", PHASES * self.place)

    def landed(self, step: StoredStep, rows: DataFrame | None) -> Landed:
        """What the part's source reports of a committed step, as the hybrid table's."""
        landed = self.source.landed(self.stored(step), None if rows is None else self._own(rows))
        watermarks = landed.watermarks
        return replace(
            landed,
            position=f"{self.table.name}: {landed.position}",
            watermarks=None
            if watermarks is None
            else [(self.prefix + split, watermark) for split, watermark in watermarks],
            idle={self.prefix + split: idle for split, idle in landed.idle.items()},
            splits=frozenset(self.prefix + split for split in landed.splits),
            sole_split=landed.sole_split and self.prefix + landed.sole_split,
            ended=frozenset(self.prefix + split for split in landed.ended),
        )

    def _earlier_rows(self, step: StoredStep) -> DataFrame:
        """The rows of the part's own steps before `step`, as its source gave them."""
        assert self.whole.earlier_rows is not None
        rows = self.whole.earlier_rows(step)
        return self._own(rows.where(rows["_split"].startswith(self.prefix)))

    def _latest_rows(self, step: StoredStep, keys: DataFrame) -> DataFrame:
        """A key whose last row is another part's has none of this one: parts follow one another."""
        assert self.whole.latest_rows is not None
        rows = self.whole.latest_rows(step, keys)
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
    """Whether the part that a step of the hybrid table belongs to flips with it."""
    return bool(step.step.ranges["flips"])


def _to_json(step: StoredStep, ranges: Json | None = None) -> Json:
    """The first step of a part as every later one stores it; by default a step of the hybrid table."""
    own = step.step.ranges["step"] if ranges is None else ranges
    return {"ranges": own, "epoch": step.epoch, "planned_at": step.planned_at}


def _from_json(stored: Json, generation: int) -> StoredStep:
    return StoredStep(Step(stored["ranges"]), generation, stored["epoch"], stored["planned_at"])


def start_at(context: SourceContext, request: PlanRequest) -> int | None:
    """The time (ms, UTC) at which the last table begins; None if its own options say it, or if no row came before.

    Both arguments are the hybrid table's, whose last step is that of the table before. Raises SourceError when the time
    lies past the plan's instant, as all live rows would be left out.
    """
    if context.options.get("hybrid.switch", "options") != "rowtime":
        return None
    previous, instant, watermark = request.previous, request.instant, context.table.watermark
    assert previous is not None
    assert watermark is not None
    assert context.earlier_rows is not None
    rows = context.earlier_rows(replace(previous, epoch=previous.epoch + 1))
    path = ".".join(map(quoted, watermark.path))
    # A delete's own rowtime column is that of the row it takes away.
    newest = f"unix_millis(max(CAST({path} AS TIMESTAMP))) AS at"
    greatest = rows.where("_op IN ('c', 'r', 'u', '+I', '+U')").selectExpr(newest).collect()[0]["at"]
    if greatest is None:
        return None
    overlap = parse_duration(context.options.get("hybrid.switch.overlap", "0 s"))
    start = greatest - overlap // timedelta(milliseconds=1)
    if start > instant:
        name, last = context.table.name, context.table.parts[-1].name
        reach = f"reach up to {utc_text(greatest)} by {watermark.column}, which is yet to come"
        raise SourceError(
            f"{name}: the rows before {last} {reach}",
            where=f"generation {previous.generation}, after epoch {previous.epoch}; it is {utc_text(instant)} now",
            state=f"the rows before {last} have landed, nothing of it is planned",
            next_command=then(
                "correct the rows",
                resnapshot(name, f"or let {last} begin where its own options say: 'hybrid.switch' = 'options'"),
            ),
        )
    return start


def utc_text(at: int) -> str:
    """A time (ms, UTC) for people."""
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=at)).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


class HybridSource(Source):
    """One hybrid table."""

    def __init__(self, context: SourceContext) -> None:
        self._context = context
        self._parts: dict[int, Part] = {}

    @property
    def _last(self) -> int:
        return len(self._context.table.parts) - 1

    def _current(self, position: SourcePosition) -> int:
        """The number of the part that the next step belongs to."""
        previous = position.previous
        if previous is None:
            return 0
        place = previous.step.ranges["part"]
        return place + 1 if flips(previous) and place < self._last else place

    def _part(self, place: int) -> Part:
        if place not in self._parts:
            self._parts[place] = Part(self._context, self._context.table.parts[place], place)
        return self._parts[place]

    def _not_over(self, position: SourcePosition) -> list[Part]:
        return [self._part(place) for place in range(self._current(position), self._last + 1)]

    def preflight(self, position: SourcePosition) -> None:
        """Every part that is not over can be read."""
        for part in self._not_over(position):
            part.source.preflight(part.position(position))

    def ends(self, position: SourcePosition) -> Json:
        return {
            "parts": {str(part.place): part.source.ends(part.position(position)) for part in self._not_over(position)}
        }

    def plan(self, request: PlanRequest) -> Planned:
        place, previous = self._current(request), request.previous
        begins = place == self._last and previous is not None and previous.step.ranges["part"] != place
        planned = self._part(place).plan(request, start_at(self._context, request) if begins else None)
        if planned.step is None:
            return planned
        if place == self._last:
            return replace(planned, step=replace(planned.step, flips=False))
        flips_with = planned.step.flips and place == self._last - 1
        return replace(planned, step=replace(planned.step, phase="bounded", flips=flips_with))

    def read(self, spark: SparkSession, step: StoredStep) -> DataFrame:
        part = self._of(step)
        return part.landable(part.source.read(spark, part.stored(step)))

    def reads_alone(self, step: StoredStep) -> bool:
        """`protocol.ReadsAlone`: as the part's own source has it."""
        part = self._of(step)
        return isinstance(part.source, ReadsAlone) and part.source.reads_alone(part.stored(step))

    def landed(self, step: StoredStep, rows: DataFrame | None) -> Landed:
        part = self._of(step)
        landed = part.landed(step, rows)
        if part.place == self._last:
            return landed
        # Its splits belong to the bounded phase. As going on they would hold back the last part's watermark; as ended
        # they would let it run ahead of what the last part still has.
        passed_on = landed if part.tells_time else replace(landed, watermarks=None, idle={})
        return replace(passed_on, splits=frozenset(), ended=frozenset())

    def fields(self, spark: SparkSession, step: StoredStep) -> FieldsSeen:
        """`protocol.ShowsFields`: as the part's own source has it; all columns where it cannot lack one."""
        part = self._of(step)
        if isinstance(part.source, ShowsFields):
            asked = {column.name: column.source_name for column in part.table.columns}
            return replace(part.source.fields(spark, part.stored(step)), asked=asked)
        return FieldsSeen(frozenset(column.name for column in part.table.columns))

    def retention(self, position: SourcePosition) -> LogRetention | None:
        """`protocol.KeepsALog`: of the part that the next step is of."""
        part = self._part(self._current(position))
        return part.source.retention(part.position(position)) if isinstance(part.source, KeepsALog) else None

    def unread(self, position: SourcePosition) -> Unread | None:
        """`protocol.KnowsItsEnd`: of the part that the next step is of, where that can be asked."""
        part = self._part(self._current(position))
        return part.source.unread(part.position(position)) if isinstance(part.source, KnowsItsEnd) else None

    def _of(self, step: StoredStep) -> Part:
        return self._part(step.step.ranges["part"])

    def explain(self, error: BaseException, step: StoredStep) -> SourceError | None:
        """The error as the part's own source explains it; None where it does not."""
        part = self._of(step)
        return part.source.explain(error, part.stored(step)) if isinstance(part.source, ExplainsFailures) else None

    def close(self) -> None:
        for part in self._parts.values():
            part.source.close()


SOURCES = OptionSpec(
    "hybrid.sources",
    required=True,
    doc="The names of tables of the script, in order: `history, live`. All tables except the last are read up to their "
    "flip.",
    changes="identity",
)
SWITCH = OptionSpec(
    "hybrid.switch",
    "choice",
    default="options",
    choices=("options", "rowtime"),
    doc="Where the last table begins. options: as its own options set it. rowtime: at the greatest rowtime of the rows "
    "of the tables before it, by the record times of a topic.",
    changes="start",
)
OVERLAP = OptionSpec(
    "hybrid.switch.overlap",
    "duration",
    default="0 s",
    doc="For rowtime: begin earlier by this much. The rows of that time come twice.",
    changes="start",
)


def parts(options: Mapping[str, str]) -> Sequence[str]:
    """The names that the option lists."""
    return [name.strip() for name in options[SOURCES.name].split(",")]


def check(table: Table) -> Sequence[str]:
    """What is wrong with where the last table begins."""
    if table.options.get(SWITCH.name, "options") == "options":
        return [f"'{OVERLAP.name}' is for '{SWITCH.name}' = 'rowtime'"] if OVERLAP.name in table.options else []
    last, option = table.parts[-1], f"'{SWITCH.name}' = 'rowtime'"
    start = connector(last.connector).spec.start_options
    watermark = table.watermark
    if not start:
        return [f"{option}: {last.name} is a {last.connector} table, which cannot begin at a time"]
    if watermark is None or table.column(watermark.column).source_time:
        return [f"{option} needs WATERMARK FOR a column of {table.name}, which names the rowtime that its rows carry"]
    given = next((name for name in start if name in last.options), None)
    return [f"{option}: {last.name} begins there, and its '{given}' says otherwise: leave one out"] if given else []


class HybridConnector:
    """`'connector' = 'hybrid'`."""

    spec = ConnectorSpec(
        name="hybrid",
        doc="Several tables of the script, one after another: bounded ones, then one that goes on.",
        options=(SOURCES, SWITCH, OVERLAP),
        system_time=True,
        system_watermark=True,
        phases=lambda options: True,
        signals=lambda options: True,
        parts=parts,
        check=check,
    )

    def source(self, context: SourceContext) -> Source:
        return HybridSource(context)


CONNECTOR = HybridConnector()
