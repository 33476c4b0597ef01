"""Reads one table of a database: chunks of a snapshot, then its log of changes, in steps that `plan` decides.

The bounded phase is over when the log has been read up to the greatest cut of any chunk: the step that gets there
carries the flip, however few rows it has.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidegate.pipelines.connectors.protocol import (
    Json,
    Landed,
    Planned,
    PlanRequest,
    SourceContext,
    SourcePosition,
    Step,
    StoredStep,
)
from tidegate.pipelines.errors import SourceError
from tidegate.pipelines.progress import Task
from tidegate.pipelines.sources.cdc.chunks import Chunk, chunk_name
from tidegate.pipelines.sources.cdc.database import ChunkReader, Database, L, P, S, Session, Settings, SnapshotStep
from tidegate.pipelines.sources.cdc.errors import explain, resnapshot
from tidegate.pipelines.sources.cdc.files import Files, Span, file_columns, spans_of, write_chunks
from tidegate.pipelines.sources.cdc.snapshot import (
    TableComparison,
    chunks_of,
    cuts_of,
    declared_columns,
    declared_rows,
    new_splits,
    next_batch,
    read_chunks,
)
from tidegate.pipelines.sources.rows import no_rows


class CdcSource(Database[P, S, L]):
    """`tidegate.pipelines.connectors.protocol.Source` for one table, whatever its database."""

    def __init__(self, context: SourceContext, settings: Settings, session: Session) -> None:
        super().__init__(context, settings, session)
        self._chunks: Sequence[Chunk] | None = None
        self._bars: dict[str, Task] = {}
        self._read_at = time.monotonic()
        self._on_watermark_emit: Callable[[], None] = lambda: None

    # --- before a run --------------------------------------------------------------------------------------------

    def ends(self, position: SourcePosition) -> Json:
        """Where the server's log ends now. Raises SourceError if it is another log than earlier plans name."""
        if position.previous is not None:
            self.check_log(self.step_of(position.previous.step.ranges))
        with self.session.cursor() as cursor:
            return self.end(cursor).to_json()

    # --- a step --------------------------------------------------------------------------------------------------

    def plan(self, request: PlanRequest) -> Planned:
        """The next batch of chunks, or piece of the log. See `protocol.Source.plan`."""
        end = self.position_of(request.ends)
        previous = request.previous
        before = self._whole(self.step_of(previous.step.ranges)) if previous else None
        with self.session.cursor() as cursor:
            if before is None and self.settings.phases:
                return self._snapshot(self._first_batch(cursor))
            if isinstance(before, SnapshotStep):
                if not before.done:
                    return self._snapshot(next_batch(before, self.settings.chunk_rows))
                began_at = request.first.planned_at if request.first else 0
                before = self.log_after(before, self._greatest_cut(before), began_at)
            elif before is None:
                before = self.log_start(cursor, end, request.instant)
            elif before.flips or request.flipped:
                before = replace(before, flip_at=None)
            step, late = self.next_piece(cursor, before, end, request)
        held = {} if late is None else {self.log_split: late}
        if step is None:
            return Planned(held=held)
        ranges = replace(step, server=self.server_id).to_json()
        return Planned(Step(ranges, "unbounded", step.flips, f"{self.log_split} {step}"), held)

    def _first_batch(self, cursor: Any) -> S:
        """Plan all chunks, take the position that the log will be read from, and plan the first batch.

        Chunks that a crashed run has left without a plan are used: whatever their bounds, they divide all possible
        keys.
        """
        found = self.source_table(None)
        splits = self.context.splits.rows()
        if not splits:
            self.context.splits.add(new_splits(found.snapshot_key, list(self.bounds(cursor, found))))
            splits = self.context.splits.rows()
        columns = declared_columns(found, self.context.table)
        whole = self.snapshot_start(cursor, len(splits), splits[0]["detail"]["key"], columns)
        return next_batch(whole, self.settings.chunk_rows)

    def _greatest_cut(self, step: S) -> P:
        cuts = [step.start, *(self.position_of(cut) for cut in cuts_of(self.context, self.settings.where))]
        return max(cuts, key=lambda cut: cut.order)

    def _snapshot(self, step: S) -> Planned:
        self.bar("snapshot", "chunks", step.total, step.first)
        return Planned(Step(replace(step, server=self.server_id).to_json(), "bounded", False, str(step)))

    def _whole(self, step: S | L) -> S | L:
        """A step with every declared column. Columns added after the generation began are described as the server has
        them now; the table had no rows then."""
        known = {column.name for column in step.columns}
        if all(column.name in known for column in self.context.table.message_columns):
            return step
        declared = declared_columns(self.source_table(step), self.context.table)
        return replace(step, columns=(*step.columns, *(column for column in declared if column.name not in known)))

    def read(self, spark: SparkSession, step: StoredStep) -> DataFrame:
        """The step's rows; Spark reads them when they are written."""
        self._read_at = time.monotonic()
        ranges = self._whole(self.step_of(step.step.ranges))
        self.check_log(ranges)
        if isinstance(ranges, SnapshotStep):
            rows = read_chunks(spark, self.step_reader(ranges))
        else:
            rows = None if ranges.empty else self.read_log(spark, ranges, step)
        if rows is None:
            return no_rows(spark, self.declared)
        return declared_rows(rows, self.declared, ranges.columns, self.settings)

    def write(self, spark: SparkSession, step: StoredStep, folder: str) -> Sequence[str] | None:
        """`protocol.WritesFiles`: chunks, where the script declares what the server has; and nothing of an empty step,
        which the flip often is."""
        ranges = self._whole(self.step_of(step.step.ranges))
        if not isinstance(ranges, SnapshotStep):
            self.check_log(ranges)
            return [] if ranges.empty else None
        columns = file_columns(self.declared, ranges.columns, self.settings.place)
        if columns is None:
            return None
        self._read_at = time.monotonic()
        self.check_log(ranges)
        return write_chunks(spark, self.step_reader(ranges), Files(folder, step.generation, step.epoch, columns))

    def step_reader(self, step: SnapshotStep) -> ChunkReader:
        """Reads the step's chunks."""
        if self._chunks is None:
            self._chunks = chunks_of(self.context.splits.rows())
        return self.chunk_reader(step.columns, step.key, self._chunks[step.first : step.last], step.start)

    # --- after its commit ----------------------------------------------------------------------------------------

    def landed(self, step: StoredStep, rows: DataFrame | None) -> Landed:
        """Store the cuts of a batch of chunks; emit the watermark at the flip; report the lag."""
        ranges = self.step_of(step.step.ranges)
        self.check_log(ranges)
        if isinstance(ranges, SnapshotStep):
            landed = self._chunks_landed(step, ranges, rows)
        else:
            landed = self.log_landed(ranges, rows)
        if step.step.flips:
            self._on_watermark_emit()
        return landed

    def _chunks_landed(self, stored: StoredStep, step: S, rows: DataFrame | None) -> Landed:
        rule = self.cut_rule()
        found: dict[str, P] = {}
        count = 0
        for split, span in self._spans(stored, rows).items() if rows is not None else ():
            if span.least != span.greatest:
                raise self._torn(step, split)
            found[split] = self.cut_of(step.start, span.greatest)
            count += span.rows
        names = [chunk_name(ordinal) for ordinal in range(step.first, step.last)]
        if not rule.exact or len(found) < len(names):
            with self.session.cursor() as cursor:
                after = rule.after(cursor)
            found = {name: found[name] if rule.exact and name in found else after for name in names}
        self.context.splits.cut(self.stored_cuts(found))
        seconds = max(time.monotonic() - self._read_at, 1e-3)
        bar = self.bar("snapshot", "chunks", step.total, step.first)
        bar.advance(step.last - step.first, f"{count / seconds:,.0f} rows/s")
        return Landed(position=f"chunk {step.last} of {step.total}")

    def _spans(self, stored: StoredStep, rows: DataFrame) -> dict[str, Span]:
        in_files = spans_of(rows.inputFiles(), stored.generation, stored.epoch)
        if in_files is not None:
            # The files are the whole table's, which this one may be a part of.
            return {split.removeprefix(self.context.splits.prefix): span for split, span in in_files.items()}
        cut = F.struct("_seq.file", "_seq.position")
        totals = rows.groupBy("_split").agg(
            F.min(cut).alias("least"), F.max(cut).alias("greatest"), F.count(F.lit(1)).alias("rows")
        )
        found = totals.collect()  # one row a chunk
        return {row["_split"]: Span(tuple(row["least"]), tuple(row["greatest"]), row["rows"]) for row in found}

    def _torn(self, step: SnapshotStep, split: str) -> SourceError:
        return SourceError(
            f"{self.context.table.name}: rows of {split} were read in more than one read view",
            where=f"{step}; {self.settings.where}",
            state="the rows are committed and cannot be trusted; no flip follows from them",
            next_command=resnapshot(self.context.table.name),
        )

    def comparison(self, position: SourcePosition) -> TableComparison[P]:
        """`protocol.Comparable`: the table as it is now."""
        before = self.step_of(position.previous.step.ranges) if position.previous else None
        return TableComparison(self, self.source_table(before))

    # --- the rest ------------------------------------------------------------------------------------------------

    def delegate_watermark_periodic_emit(self, on_watermark_emit: Callable[[], None]) -> bool:
        """The source owns the emit: the watermark is emitted at the flip, and not before."""
        self._on_watermark_emit = on_watermark_emit
        return True

    def explain(self, error: BaseException, step: StoredStep) -> SourceError | None:
        """`protocol.ExplainsFailures`: what a failed read of `step` means."""
        return explain(error, self.context.table.name, step.place, self.settings.where)

    def close(self) -> None:
        """Let go of the connection."""
        self.session.close()

    def bar(self, phase: str, unit: str, total: int, done: int) -> Task:
        """The progress bar of a phase; `total` and `done` as it begins."""
        if phase not in self._bars:
            self._bars[phase] = self.context.progress.task(f"{self.context.table.name} {phase}", total, unit)
            if done:
                self._bars[phase].advance(done)
        return self._bars[phase]
