"""The events of a scripted table, as files that outlive every object of the process, read in steps.

An event is one file in `events/`, named by its number, which is never changed: rows as an Arrow file, a watermark or
idleness as JSON. It appears under its name when it is whole. A step ends at the event that flips the table, so that the
flip is exact: a table that declares WATERMARK FOR flips at its first (t, false); any other at its first (t, true).
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather

from tidegate.pipelines.connectors.options import flag
from tidegate.pipelines.connectors.protocol import (
    Json,
    Landed,
    Planned,
    PlanRequest,
    Source,
    SourceContext,
    SourcePosition,
    Step,
    StoredStep,
)
from tidegate.pipelines.connectors.spec import ConnectorSpec, OptionSpec
from tidegate.pipelines.errors import SourceError
from tidegate.pipelines.sources.arrow_types import SOURCE_TYPES, seq_array
from tidegate.pipelines.sources.rows import no_rows, schema
from tidegate.pipelines.watermarks import BEGINNING, Watermark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_OP = b"op"


@dataclass(frozen=True)
class Rows:
    """Rows with one op: +I, -U, +U or -D. `table` has the scripted table's physical columns."""

    op: str
    table: pa.Table


@dataclass(frozen=True)
class WatermarkEvent:
    """What a table's output sent: `watermark`, or None if only its idleness changed.

    `emitted` is the greatest timestamp sent so far, and whether processing time was; `idle` is the current idleness.
    """

    watermark: Watermark | None
    emitted: Watermark = BEGINNING
    idle: bool = False


Event = Rows | WatermarkEvent


class EventLog:
    """The events of one scripted table, numbered from 0. Several objects may use one folder."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.folder = Path(directory) / "events"

    def __len__(self) -> int:
        return len(self._names())

    def append(self, event: Event) -> None:
        """Add `event` after all that are there."""
        self.folder.mkdir(parents=True, exist_ok=True)
        whole = self.folder / f".{uuid.uuid4().hex}"
        try:
            kind = _write(event, whole)
            self._name(whole, kind)
        finally:
            whole.unlink(missing_ok=True)

    def _name(self, whole: Path, kind: str) -> None:
        """Link, unlike rename, fails where another object has just taken the number."""
        while True:
            try:
                os.link(whole, self.folder / f"{len(self):08d}.{kind}")
            except FileExistsError:
                continue
            return

    def read(self, start: int, stop: int | None = None) -> list[Event]:
        """The events from number `start` on, up to and without `stop`. Raises SourceError if one is gone."""
        return [self._read(name) for name in self._names()[start:stop]]

    def watermark_events(self, start: int, stop: int | None = None) -> list[tuple[int, WatermarkEvent]]:
        """Those of these events that are watermarks or idleness, each with its number."""
        named = list(enumerate(self._names()))[start:stop]
        return [(number, _read_watermark_event(self.folder / name)) for number, name in named if name.endswith("json")]

    def within(self, start: int, stop: int, rows: int) -> int:
        """Where events from `start` on, up to and without `stop`, have reached `rows` rows; at least one event."""
        for number, event in enumerate(self.read(start, stop), start + 1):
            rows -= event.table.num_rows if isinstance(event, Rows) else 0
            if rows <= 0:
                return number
        return stop

    def last_watermark_event(self) -> tuple[WatermarkEvent, bool]:
        """The last of them (or the initial state), and whether rows came after it."""
        rows_after = False
        for name in reversed(self._names()):
            if name.endswith("json"):
                return _read_watermark_event(self.folder / name), rows_after
            rows_after = True
        return WatermarkEvent(None), rows_after

    def _read(self, name: str) -> Event:
        path = self.folder / name
        if name.endswith("json"):
            return _read_watermark_event(path)
        table = feather.read_table(path)
        return Rows((table.schema.metadata or {})[_OP].decode(), table.replace_schema_metadata(None))

    def _names(self) -> list[str]:
        try:
            names = sorted(name for name in os.listdir(self.folder) if not name.startswith("."))
        except FileNotFoundError:
            return []
        for number, name in enumerate(names):
            if int(name[:8]) != number:
                raise SourceError(
                    f"event {number} is gone",
                    where=str(self.folder),
                    state="the events before it stand",
                    next_command="append all events again in a new directory",
                )
        return names


def _write(event: Event, path: Path) -> str:
    if isinstance(event, Rows):
        feather.write_feather(
            event.table.replace_schema_metadata({_OP: event.op}), str(path), compression="uncompressed"
        )
        return "arrow"
    stored = {
        "watermark": event.watermark and asdict(event.watermark),
        "standing": asdict(event.emitted),
        "idle": event.idle,
    }
    path.write_text(json.dumps(stored))
    return "json"


def _read_watermark_event(path: Path) -> WatermarkEvent:
    found: dict[str, Any] = json.loads(path.read_text())
    watermark = found["watermark"]
    emitted = Watermark(**found["standing"])
    return WatermarkEvent(Watermark(**watermark) if watermark else None, emitted, found["idle"])


SPLIT = "0"
_BUILD_OPS = {"+I": "c", "+U": "u", "-D": "d"}
"""A build's update is one atomic replacement, so its -U is ignored."""

_ROW_BITS = 32


class ScriptedSource(Source):
    """One scripted table."""

    asks_rows = False

    def __init__(self, context: SourceContext) -> None:
        self._context = context
        self._table = context.table
        self._log = EventLog(context.scratch)
        self._emits_watermarks = emits_watermarks(context.options)

    def preflight(self, position: SourcePosition) -> None:
        """All events can be read."""

    def ends(self, position: SourcePosition) -> Json:
        return {"to": len(self._log)}

    def plan(self, request: PlanRequest) -> Planned:
        start = request.previous.step.ranges["to"] if request.previous else 0
        stop = request.ends["to"]
        if start >= stop:
            return Planned()
        if request.max_rows is not None:
            stop = self._log.within(start, stop, request.max_rows)
        flips = False
        if not self._emits_watermarks and not CONNECTOR.spec.phases(self._context.options):
            flips = not request.flipped
        elif not request.flipped:
            events = self._log.watermark_events(start, stop)
            flip = next((number for number, event in events if self._flips(event)), None)
            if flip is not None:
                stop, flips = flip + 1, True
        step = Step(
            {"from": start, "to": stop},
            phase="bounded" if not request.flipped and self._is_loaded else "unbounded",
            flips=flips,
            summary=f"events {start + 1}-{stop}",
        )
        return Planned(step)

    def read(self, spark: SparkSession, step: StoredStep) -> DataFrame:
        start, stop = step.step.ranges["from"], step.step.ranges["to"]
        numbered = enumerate(self._log.read(start, stop), start)
        rows = [self._rows(number, event) for number, event in numbered if isinstance(event, Rows)]
        tables = [table for table in rows if table is not None]
        if not tables:
            return no_rows(spark, self._table)
        of = schema(self._table)
        return spark.createDataFrame(pa.concat_tables(tables).select(of.names), of)

    def landed(self, step: StoredStep, rows: DataFrame | None) -> Landed:
        start, stop = step.step.ranges["from"], step.step.ranges["to"]
        events = self._log.watermark_events(start, stop)
        emitted = [(SPLIT, event.watermark) for _, event in events if event.watermark is not None]
        watermarks = emitted if self._emits_watermarks else None
        # Rows at its end have ended the idleness.
        idle = bool(events) and events[-1][0] == stop - 1 and events[-1][1].idle
        return Landed(position=f"event {stop}", watermarks=watermarks, idle={SPLIT: idle})

    def delegate_watermark_periodic_emit(self, on_watermark_emit: Callable[[], None]) -> bool:
        """Watermarks move by the script only, or by the rows."""
        return self._emits_watermarks

    @property
    def _is_loaded(self) -> bool:
        """Whether it has a bounded phase: else what it emits, idleness too, is seen before its first watermark."""
        return self._table.watermark is None or CONNECTOR.spec.phases(self._context.options)

    def _flips(self, event: WatermarkEvent) -> bool:
        event_time = self._table.watermark is not None
        return event.watermark is not None and event.watermark.use_processing_time != event_time

    def _rows(self, number: int, event: Rows) -> pa.Table | None:
        op = _BUILD_OPS.get(event.op) if self._table.role == "build" else event.op
        if op is None:
            return None
        count = event.table.num_rows
        index = np.arange(count)
        source = {
            "_op": pa.repeat(op, count),
            "_seq": seq_array(count, phase=1, log=0, file=0, position=number, row=pa.array(index, pa.int32())),
            "_rowtime": pa.nulls(count, SOURCE_TYPES["_rowtime"]),
            "_split": pa.repeat(SPLIT, count),
            "_offset": pa.array((number << _ROW_BITS) + index, pa.int64()),
        }
        table = event.table
        for name, values in source.items():
            table = table.append_column(name, values)
        return table


def emits_watermarks(options: Mapping[str, str]) -> bool:
    """Whether a test sets the table's watermarks; otherwise they follow from its rows."""
    return flag(options, "tells-time", "true")


class ScriptedConnector:
    """`'connector' = 'scripted'`."""

    spec = ConnectorSpec(
        name="scripted",
        doc="A source that emits what a test appends to it, and a target like any other.",
        options=(
            OptionSpec(
                "phases",
                "boolean",
                default="false",
                doc="The table has a bounded phase before its unbounded one.",
                changes="rows",
            ),
            OptionSpec(
                "signals",
                "boolean",
                default="false",
                doc="The table reports when its bounded phase is over.",
                changes="rows",
            ),
            OptionSpec(
                "tells-time",
                "boolean",
                default="true",
                doc="true: the test emits the watermarks. false: the table's strategy makes them from the rows, and a "
                "table without phases flips with its first row.",
                changes="rows",
            ),
        ),
        source=True,
        sink=True,
        tells_time=True,
        phases=lambda options: flag(options, "phases"),
        signals=lambda options: flag(options, "signals"),
    )

    def source(self, context: SourceContext) -> Source:
        return ScriptedSource(context)


CONNECTOR = ScriptedConnector()
