"""Input of scripted tables: a test appends rows, watermarks and idleness, in order."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from tidegate.pipelines.clock import Clock, system_clock
from tidegate.pipelines.connectors.table import Table
from tidegate.pipelines.errors import SourceError
from tidegate.pipelines.sources.arrow_types import arrow_schema
from tidegate.pipelines.sources.scripted.source import EventLog, Rows, WatermarkEvent, emits_watermarks
from tidegate.pipelines.watermarks import MAX_TIMESTAMP, MIN_TIMESTAMP, Watermark, WatermarkToDataOutput

OPS = ("+I", "-U", "+U", "-D")


class ScriptedInput:
    """Appends events to a scripted table. They are stored, and seen by later objects too.

    Args:
        directory: The table's own folder (SourceContext.scratch).
        table: The table; its connector is `scripted`.
        clock: ms, UTC. A watermark in processing time may not be behind a time that was emitted already.
        only_grows: Whether it takes +I alone, as what reads it needs (`harness.only_grows`).
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        table: Table,
        clock: Clock = system_clock,
        *,
        only_grows: bool = False,
    ) -> None:
        self._log = EventLog(directory)
        self._table = table
        self._clock = clock
        self._only_grows = only_grows

    def rows(self, rows: pa.Table | Sequence[Mapping[str, Any]], op: str = "+I") -> None:
        """Append `rows` with `op`: +I, -U, +U or -D. This ends idleness.

        A row is a dict by column; a missing key is NULL. TIMESTAMP(3) is a naive datetime in UTC, TIMESTAMP_LTZ(3) an
        aware one (or a naive one in UTC). Many rows are better given as an Arrow table. Raises SourceError for an op, a
        column or a value that the table does not have, and for an update or a delete of one that only grows; nothing is
        appended then.
        """
        if self._table.role == "sink":
            raise self._refuse("it is a target, no source", next_command="append rows to a table that is read")
        if op not in OPS:
            raise self._refuse(f"there is no op {op!r}", next_command=f"use one of {', '.join(OPS)}")
        if self._only_grows and op != "+I":
            raise self._refuse(
                f"{op}, and what reads it needs a table that only grows: an update or a delete would be taken as one "
                "more row, or be joined at another time than the row that it changes",
                next_command="append +I alone; or declare WATERMARK FOR on both sides and join in event time",
            )
        table = self._cast(rows) if isinstance(rows, pa.Table) else self._arrow(rows)
        if table.num_rows:
            self._log.append(Rows(op, table))

    def watermark(self, timestamp: int, use_processing_time: bool = False) -> None:
        """Make the source emit Watermark(timestamp in ms, use_processing_time). This ends idleness.

        One that does not move time forward is not sent on. Raises WatermarkError (FLIP-326, change 5), and SourceError
        where the watermark follows from the rows.
        """
        if not use_processing_time and not emits_watermarks(self._table.options):
            raise self._refuse("its watermark follows from its rows", next_command="append a row that is later")
        self._output().emit_watermark(Watermark(timestamp, use_processing_time))

    def idle(self) -> None:
        """Make the source idle until its next row or watermark."""
        self._output().mark_idle()

    def _output(self) -> WatermarkToDataOutput:
        """The source's own output, as it is after all events so far."""
        event, rows_after = self._log.last_watermark_event()
        recorder = _Recorder(self._log, event)
        output = WatermarkToDataOutput(recorder, lambda: self._clock() if recorder.recording else MAX_TIMESTAMP)
        output.emit_watermark(Watermark(event.emitted.timestamp))
        if event.emitted.use_processing_time:
            output.emit_watermark(Watermark(MIN_TIMESTAMP, True))
        if event.idle and not rows_after:
            output.mark_idle()
        recorder.recording = True
        return output

    def _check_names(self, names: Sequence[str]) -> None:
        known = [column.name for column in self._table.physical_columns]
        for name in dict.fromkeys(names):
            if name in known:
                continue
            if any(column.name == name for column in self._table.columns):
                raise self._refuse(f"column {name} is computed", next_command=f"leave {name} out of the rows")
            near = difflib.get_close_matches(name, known, 1)
            raise self._refuse(
                f"there is no column {name}",
                next_command=f"did you mean {near[0]}?" if near else f"its columns are {', '.join(known)}",
            )

    def _cast(self, rows: pa.Table) -> pa.Table:
        self._check_names(rows.column_names)
        schema = arrow_schema(self._table.physical_columns)
        there = [
            rows[field.name] if field.name in rows.column_names else pa.nulls(rows.num_rows, field.type)
            for field in schema
        ]
        try:
            return pa.Table.from_arrays(there, names=schema.names).cast(schema)
        except (pa.ArrowException, ValueError) as error:
            raise self._refuse(str(error), next_command="give values of the table's types") from error

    def _arrow(self, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
        self._check_names([name for row in rows for name in row])
        schema = arrow_schema(self._table.physical_columns)
        arrays = []
        for field, column in zip(schema, self._table.physical_columns, strict=True):
            try:
                arrays.append(pa.array([row.get(field.name) for row in rows], field.type))
            except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
                raise self._refuse(
                    f"column {field.name} is {column.type}: {error}", next_command="give values of that type"
                ) from error
        return pa.Table.from_arrays(arrays, schema=schema)

    def _refuse(self, what: str, *, next_command: str) -> SourceError:
        return SourceError(
            f"{self._table.name}: {what}",
            where=f"scripted table {self._table.name}",
            state="nothing of this call was appended; what was appended before stands",
            next_command=next_command,
        )


class _Recorder:
    """Writes what the output sends to the log, once `recording` is set."""

    def __init__(self, log: EventLog, last: WatermarkEvent) -> None:
        self._log = log
        self._emitted = last.emitted
        self.recording = False

    def emit_watermark(self, watermark: Watermark) -> None:
        if self.recording:
            greatest = max(self._emitted.timestamp, watermark.timestamp)
            self._emitted = Watermark(greatest, watermark.use_processing_time)
            self._log.append(WatermarkEvent(watermark, self._emitted))

    def mark_idle(self) -> None:
        if self.recording:
            self._log.append(WatermarkEvent(None, self._emitted, idle=True))

    def mark_active(self) -> None:
        if self.recording:
            self._log.append(WatermarkEvent(None, self._emitted))
