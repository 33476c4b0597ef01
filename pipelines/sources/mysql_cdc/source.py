"""Reads one MySQL or MariaDB table: chunks of a snapshot, then the binlog, in steps that `plan` decides.

The bounded phase is over when the binlog has been read up to the greatest cut of any chunk: that is the flip, and the
step that gets there carries it, however little it holds.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from hashlib import sha256
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidegate.pipelines.connectors.protocol import (
    Json,
    Landed,
    LogRetention,
    Planned,
    PlanRequest,
    SourceContext,
    SourcePosition,
    Step,
    StoredStep,
    Unread,
)
from tidegate.pipelines.connectors.table import Table
from tidegate.pipelines.errors import SourceError
from tidegate.pipelines.progress import Task
from tidegate.pipelines.sources import source_time
from tidegate.pipelines.sources.mysql_cdc.binlog.datasource import read_binlog
from tidegate.pipelines.sources.mysql_cdc.binlog.errors import BinlogError
from tidegate.pipelines.sources.mysql_cdc.binlog.model import BinlogPosition, BinlogRange, WantedTable, split_by_file
from tidegate.pipelines.sources.mysql_cdc.binlog.rows.output import SPLIT
from tidegate.pipelines.sources.mysql_cdc.binlog.scan import shares
from tidegate.pipelines.sources.mysql_cdc.binlog.spool import Spool
from tidegate.pipelines.sources.mysql_cdc.catalog import Server, SourceTable, column_names, read_server, read_table
from tidegate.pipelines.sources.mysql_cdc.chunks import Chunk, chunk_name
from tidegate.pipelines.sources.mysql_cdc.compare import MysqlComparison
from tidegate.pipelines.sources.mysql_cdc.connection import Session
from tidegate.pipelines.sources.mysql_cdc.declared import declared_rows, empty_rows
from tidegate.pipelines.sources.mysql_cdc.failures import explain
from tidegate.pipelines.sources.mysql_cdc.headers import birth
from tidegate.pipelines.sources.mysql_cdc.log import (
    Birth,
    check_birth,
    check_reachable,
    check_server,
    log_files,
    resnapshot,
    with_number,
)
from tidegate.pipelines.sources.mysql_cdc.log_time import log_time
from tidegate.pipelines.sources.mysql_cdc.options import parse
from tidegate.pipelines.sources.mysql_cdc.plan_binlog import from_options, from_snapshot, next_piece
from tidegate.pipelines.sources.mysql_cdc.preflight import preflight
from tidegate.pipelines.sources.mysql_cdc.retention import position_after, retention
from tidegate.pipelines.sources.mysql_cdc.snapshot.cut import CutRule, cut_rule, status_position
from tidegate.pipelines.sources.mysql_cdc.snapshot.files import (
    Files,
    Span,
    file_columns,
    newest_rowtime,
    spans_of,
    write_chunks,
)
from tidegate.pipelines.sources.mysql_cdc.snapshot.plan import (
    chunks_of,
    declared_columns,
    first_batch,
    greatest_cut,
    next_batch,
)
from tidegate.pipelines.sources.mysql_cdc.snapshot.query import SnapshotQuery
from tidegate.pipelines.sources.mysql_cdc.snapshot.reading import Work
from tidegate.pipelines.sources.mysql_cdc.snapshot.rows import read_chunks
from tidegate.pipelines.sources.mysql_cdc.snapshot.view import reader
from tidegate.pipelines.sources.mysql_cdc.steps import LOG_EPOCH, BinlogStep, SnapshotStep, step_of
from tidegate.pipelines.watermarks import Watermark

log = logging.getLogger(__name__)

READ_APART = 1 << 20
"""A range of the log that other tables of the server read too is read by one table after another from so many bytes on,
so that the server sends it once. To send a shorter one again costs less than a Spark job more."""

SHARE_BYTES = 64 << 20
"""A range of the log that is at least twice as long is shared between tasks: to scan it for borders takes a tenth of
the time that decoding and writing do."""


class MysqlCdcSource:
    """`tidegate.pipelines.connectors.protocol.Source` for one table. Opens its connection when it is first needed."""

    def __init__(self, context: SourceContext) -> None:
        self.context = context
        self.options = parse(context.options)
        if context.answer_within is not None:
            server = replace(self.options.server, read_timeout=context.answer_within)
            self.options = replace(self.options, server=server)
        self._session = Session(self.options.server, self.options.where, context.answer_within)
        self._server: Server | None = None
        self._table: SourceTable | None = None
        self._rule: CutRule | None = None
        self._chunks: Sequence[Chunk] | None = None
        self._log_checked = False
        self._bars: dict[str, Task] = {}
        self._read_at = time.monotonic()
        self._on_watermark_emit: Callable[[], None] = lambda: None

    # --- before a run --------------------------------------------------------------------------------------------

    def preflight(self, position: SourcePosition) -> None:
        """Settings, grants, engine, key, cascades, retention, columns. Raises SourceError that names the fixes."""
        self._preflight(step_of(position.previous.step.ranges) if position.previous else None)

    def _preflight(self, before: SnapshotStep | BinlogStep | None) -> SourceTable:
        """The preflight after the step `before`; the table as the server has it."""
        followed = {column.name for column in before.columns} if isinstance(before, BinlogStep) else set()
        with self._session.cursor() as cursor:
            checked = preflight(cursor, self.options, self.context.table, followed)
        self._server, self._table = checked.server, checked.table
        for note in checked.notes:
            _say_once(note)
        return checked.table

    def ends(self, position: SourcePosition) -> Json:
        """Where the server's binlog ends now. Raises SourceError if it is not the log that the plans before are of."""
        if position.previous is not None:
            self._check_log(step_of(position.previous.step.ranges))
        with self._session.cursor() as cursor:
            end = status_position(cursor, self._server_facts())
        return end.to_json()

    def _check_log(self, step: SnapshotStep | BinlogStep) -> None:
        """Once a run, before anything is taken from it: the server's log is the one that the stored steps are of."""
        if self._log_checked:
            return
        position = step.span.end if isinstance(step, BinlogStep) else step.start
        name, where = self.context.table.name, self.options.where
        with self._session.cursor() as cursor:
            files = log_files(cursor)
        check_reachable(position, files, name, where)
        newest = replace(position, position=files.sizes[position.file])
        check_birth(step.birth, birth(self.options.server, newest), position, name, where)
        check_server(step.server, self._uuid, name, where)
        self._log_checked = True

    # --- a step --------------------------------------------------------------------------------------------------

    @property
    def _uuid(self) -> str:
        return self._server_facts().variables.get("server_uuid", "")

    def plan(self, request: PlanRequest) -> Planned:
        """The next batch of chunks, or piece of the binlog. See `protocol.Source.plan`."""
        end = BinlogPosition.from_json(request.ends)
        previous = request.previous
        before = self._whole(step_of(previous.step.ranges)) if previous else None
        if before is None:
            self._log_checked = True  # this very log is what the steps will be of
        with self._session.cursor() as cursor:
            if before is None and self.options.startup.phases:
                table = self._table_facts(None)
                return self._snapshot(first_batch(cursor, self.context, self.options, table, self._cut_rule()))
            if isinstance(before, SnapshotStep) and not before.done:
                return self._snapshot(next_batch(before, self.options))
            if before is None:
                table = self._table_facts(None)
                before = from_options(cursor, self.options, self.context.table, table, end, request.instant)
            elif isinstance(before, SnapshotStep):
                began_at = request.first.planned_at if request.first else 0
                before = from_snapshot(before, greatest_cut(self.context, before, self.options.where), began_at)
            elif before.flips or request.flipped:
                before = replace(before, flip_at=None)
            latest = request.limit if self._commit_time_is_rowtime else None
            ahead = latest is not None and SPLIT in request.ahead
            piece = next_piece(
                cursor,
                self.options,
                self.context.table.name,
                before,
                end,
                request.instant,
                self._spool(before.birth),
                latest,
                request.max_rows,
                least=not ahead,
            )
        held = {} if piece.late is None else {SPLIT: piece.late}
        step = piece.step
        if step is None:
            return Planned(held=held)
        ranges = replace(step, server=self._uuid).to_json()
        return Planned(Step(ranges, "unbounded", step.flips, f"binlog {step}"), held)

    def _snapshot(self, step: SnapshotStep) -> Planned:
        self._bar("snapshot", "chunks", step.total, step.first)
        return Planned(Step(replace(step, server=self._uuid).to_json(), "bounded", False, str(step)))

    def _whole(self, step: SnapshotStep | BinlogStep) -> SnapshotStep | BinlogStep:
        """A step with every declared column. Those that a table without rows was given after its generation began are
        described as the server has them now."""
        known = {column.name for column in step.columns}
        if all(column.metadata is not None or column.name in known for column in self.context.table.physical_columns):
            return step
        declared = declared_columns(self._table_facts(step), self.context.table)
        return replace(step, columns=(*step.columns, *(column for column in declared if column.name not in known)))

    def read(self, spark: SparkSession, step: StoredStep) -> DataFrame:
        """The step's rows; Spark reads them when they are written."""
        self._read_at = time.monotonic()
        ranges = self._whole(step_of(step.step.ranges))
        self._check_log(ranges)
        rows = (
            read_chunks(spark, self._work(ranges))
            if isinstance(ranges, SnapshotStep)
            else self._read_log(spark, ranges, step)
        )
        if rows is None:
            return empty_rows(spark, self.context.table)
        return declared_rows(rows, self.context.table, ranges.columns, self.options)

    def write(self, spark: SparkSession, step: StoredStep, folder: str) -> Sequence[str] | None:
        """`protocol.WritesFiles`: chunks, where the script declares what the server has; and nothing of an empty step,
        which the flip often is."""
        ranges = self._whole(step_of(step.step.ranges))
        if isinstance(ranges, BinlogStep):
            self._check_log(ranges)
            return [] if ranges.empty else None
        columns = file_columns(self.context.table, ranges.columns, self.options)
        if columns is None:
            return None
        self._read_at = time.monotonic()
        self._check_log(ranges)
        return write_chunks(spark, self._work(ranges), Files(folder, step.generation, step.epoch, columns))

    def reads_alone(self, step: StoredStep) -> bool:
        """`protocol.ReadsAlone`: what other tables of the server read too is there for them once this one has it."""
        ranges = step_of(step.step.ranges)
        if not isinstance(ranges, BinlogStep) or self._spool(ranges.start_birth) is None:
            return False
        start, end = ranges.span.start, ranges.span.end
        return start.file != end.file or end.position - start.position >= READ_APART

    def _work(self, step: SnapshotStep) -> Work:
        with self._session.cursor() as cursor:
            cut_columns = self._cut_rule().columns(cursor, step.start)
        query = SnapshotQuery(
            database=self.options.database,
            table=self.options.table,
            columns=step.columns,
            key=step.key,
            cut_columns=cut_columns,
            log=LOG_EPOCH,
            exact=frozenset(self.context.table.primary_key),
        )
        if self._chunks is None:
            self._chunks = chunks_of(self.context.splits.rows())
        settings = reader(self.options, self._server_facts().isolation_variable)
        return Work.of(settings, query, self._chunks[step.first : step.last])

    def _read_log(self, spark: SparkSession, step: BinlogStep, stored: StoredStep) -> DataFrame | None:
        if step.empty:
            return None
        wanted = WantedTable(
            self.options.database,
            self.options.table,
            step.columns,
            tuple(self.context.table.primary_key),
            other_key=self._other_key,
            cascades_logged=self._server_facts().logs_cascades,
        )
        spool = self._spool(step.start_birth)
        ranges = split_by_file(step.span, list(step.files))
        tasks = spark.sparkContext.defaultParallelism
        if spool is None:  # what others read too is kept and met by its ends, so it stays whole
            ranges = [share for span in ranges for share in self._shares(span, tasks, stored)]
        return read_binlog(spark, self.options.server, ranges, wanted, spool)

    @property
    def _other_key(self) -> bool:
        """Whether the declared key is not the table's primary key. As it is now: the log refuses any change of that."""
        declared, found = self.context.table.primary_key, self._table
        if declared and found is None:  # a step of the run before is finished, ahead of the preflight
            with self._session.cursor() as cursor:
                found = read_table(cursor, self.options.database, self.options.table)
        primary = found.keys.get("PRIMARY", ()) if found else ()
        return bool(declared) and {name.lower() for name in primary} != {name.lower() for name in declared}

    def _shares(self, span: BinlogRange, tasks: int, stored: StoredStep) -> Sequence[BinlogRange]:
        """A long range of one file in parts for that many tasks. Raises SourceError."""
        parts = 1
        if span.start.file == span.end.file:
            parts = min(tasks, (span.end.position - span.start.position) // SHARE_BYTES)
        try:
            return shares(self.options.server, span, parts) if parts > 1 else [span]
        except BinlogError as error:
            raise self.explain(error, stored) or error from error

    @property
    def _commit_time_is_rowtime(self) -> bool:
        """Whether the log tells the rowtime of what has not been read yet, as far as alignment wants to know it."""
        return source_time.is_rowtime(self.context.table, "op_ts")

    def _spool(self, birth: Birth | None) -> Spool | None:
        """Where the tables of this server share what they read; None for a table that is alone."""
        own = _server_of(self.context.table)
        readers = [peer.name for peer in self.context.peers if _server_of(peer) == own]
        if len(readers) < 2 or birth is None:
            return None
        server = self.options.server
        # The lake tells nobody where a server is.
        name = sha256(server.where.encode()).hexdigest()[:16]
        folder = Path(self.context.scratch).parent / "_binlog" / name
        return Spool(str(folder), self.context.table.name, tuple(readers), str(birth))

    # --- after its commit ----------------------------------------------------------------------------------------

    def landed(self, step: StoredStep, rows: DataFrame | None) -> Landed:
        """Record the cuts of a batch of chunks; tell the watermark at the flip; say how far behind the server is."""
        ranges = step_of(step.step.ranges)
        self._check_log(ranges)
        landed = (
            self._chunks_landed(step, ranges, rows)
            if isinstance(ranges, SnapshotStep)
            else self._log_landed(ranges, rows)
        )
        if isinstance(ranges, BinlogStep) and (spool := self._spool(ranges.start_birth)):
            spool.leave(ranges.span.end)
        if step.step.flips:
            self._on_watermark_emit()
        return landed

    def _chunks_landed(self, stored: StoredStep, step: SnapshotStep, rows: DataFrame | None) -> Landed:
        rule = self._cut_rule()
        found: dict[str, BinlogPosition] = {}
        count = 0
        for split, span in self._spans(stored, rows).items() if rows is not None else ():
            if span.least != span.greatest:
                raise self._torn(step, split)
            found[split] = with_number(step.start, *span.greatest)
            count += span.rows
        names = [chunk_name(ordinal) for ordinal in range(step.first, step.last)]
        if not rule.exact or len(found) < len(names):
            with self._session.cursor() as cursor:
                after = rule.after(cursor)
            found = {name: found[name] if rule.exact and name in found else after for name in names}
        self.context.splits.cut({name: cut.to_json() for name, cut in found.items()})
        seconds = max(time.monotonic() - self._read_at, 1e-3)
        bar = self._bar("snapshot", "chunks", step.total, step.first)
        bar.advance(step.last - step.first, f"{count / seconds:,.0f} rows/s")
        return Landed(position=f"chunk {step.last} of {step.total}")

    def _spans(self, stored: StoredStep, rows: DataFrame) -> dict[str, Span]:
        told = spans_of(rows.inputFiles(), stored.generation, stored.epoch)
        if told is not None:
            # The files are the whole table's, which this one may be a part of.
            return {split.removeprefix(self.context.splits.prefix): span for split, span in told.items()}
        cut = F.struct("_seq.file", "_seq.position")
        totals = rows.groupBy("_split").agg(
            F.min(cut).alias("least"), F.max(cut).alias("greatest"), F.count(F.lit(1)).alias("rows")
        )
        found = totals.collect()  # one row a chunk
        return {row["_split"]: Span(tuple(row["least"]), tuple(row["greatest"]), row["rows"]) for row in found}

    def _torn(self, step: SnapshotStep, split: str) -> SourceError:
        return SourceError(
            f"{self.context.table.name}: rows of {split} were read in more than one read view",
            where=f"{step}; {self.options.where}",
            state="the rows are committed and cannot be trusted; no flip follows from them",
            next_command=resnapshot(self.context.table.name),
        )

    def _log_landed(self, step: BinlogStep, rows: DataFrame | None) -> Landed:
        with self._session.cursor() as cursor:
            end = status_position(cursor, self._server_facts())
            files = log_files(cursor)
            there = column_names(cursor, self.options.database, self.options.table)
        behind = files.bytes_between(step.span.end, end)
        lag_ms = max(0, self.context.clock() - self._reached_at(step, rows)) if behind else 0
        bar = self._bar("binlog", "bytes", files.bytes_between(step.span.start, end), 0)
        bar.advance(files.bytes_between(step.span.start, step.span.end), f"{behind:,} bytes behind")
        gone = [column.name for column in step.columns if column.name.lower() not in there]
        told = f"; dropped on the server, NULL since then: {', '.join(gone)}" if gone and there else ""
        return Landed(lag_ms=lag_ms, position=f"{step.span.end}{told}", watermarks=self._told(step))

    def _reached_at(self, step: BinlogStep, rows: DataFrame | None) -> int:
        """A time (ms, UTC) at which all that had committed is in with this step. A step that ends short of the server's
        end, amid a file, has got as far as its newest change, where that tells when it committed."""
        watermark = self.context.table.watermark
        if rows is None or step.span.end == step.server_end or (watermark and not self._commit_time_is_rowtime):
            return step.reached_at
        return max(step.reached_at, newest_rowtime(rows.inputFiles()) or 0)

    def _told(self, step: BinlogStep) -> Sequence[tuple[str, Watermark]] | None:
        """How far the log's own time has come, where SYSTEM_WATERMARK() asks for it: just before the last transaction,
        of whatever table. Only where the step reaches what the server had: before that the table's own rows tell
        enough, and a part of the log is scanned again for it."""
        watermark = self.context.table.watermark
        if watermark is None or not watermark.source or step.span.end != step.server_end:
            return None
        at = log_time(self.options.server, step)
        return None if at is None else [(SPLIT, Watermark(at - 1))]

    def retention(self, position: SourcePosition) -> LogRetention | None:
        """`protocol.KeepsALog`: how long the server still has the binlog after the last step."""
        if position.previous is None:
            return None
        step = step_of(position.previous.step.ranges)
        with self._session.cursor() as cursor:
            return retention(
                cursor, self._server_facts(), self.options.server, position_after(step), self.context.clock()
            )

    def unread(self, position: SourcePosition) -> Unread | None:
        """`protocol.KnowsItsEnd`: how much of the binlog lies after the last step, of whichever tables it is."""
        if position.previous is None:
            return None
        step = step_of(position.previous.step.ranges)
        if self.options.startup.mode == "snapshot" and position.flipped:
            return Unread()  # it is read no further
        with self._session.cursor() as cursor:
            end = status_position(cursor, self._server_facts())
            behind = log_files(cursor).bytes_between(position_after(step), end)
        return Unread(behind, "byte", of="the server's binlog") if behind > 0 else Unread()

    def comparison(self, position: SourcePosition) -> MysqlComparison:
        """`protocol.Comparable`: the table as it is now."""
        server = self._server_facts()
        table = self._table_facts(step_of(position.previous.step.ranges) if position.previous else None)
        return MysqlComparison(self._session, self.options, self.context, server, table, self._cut_rule())

    # --- the rest ------------------------------------------------------------------------------------------------

    def delegate_watermark_periodic_emit(self, on_watermark_emit: Callable[[], None]) -> bool:
        """The source owns the emit: it tells the watermark at the flip, and not before."""
        self._on_watermark_emit = on_watermark_emit
        return True

    def explain(self, error: BaseException, step: StoredStep) -> SourceError | None:
        """`protocol.ExplainsFailures`: what a failed read of `step` means."""
        place = f"generation {step.generation}, epoch {step.epoch}: {step.step.summary}"
        return explain(error, self.context.table.name, place, self.options.where)

    def close(self) -> None:
        """Let go of the connection."""
        self._session.close()

    def _server_facts(self) -> Server:
        if self._server is None:
            with self._session.cursor() as cursor:
                self._server = read_server(cursor)
        return self._server

    def _table_facts(self, before: SnapshotStep | BinlogStep | None) -> SourceTable:
        """The table as the server has it. `before`: a step that was read, whose columns it may have dropped since."""
        return self._table or self._preflight(before)

    def _cut_rule(self) -> CutRule:
        if self._rule is None:
            self._rule = cut_rule(self._server_facts(), self.options.server)
        return self._rule

    def _bar(self, phase: str, unit: str, total: int, done: int) -> Task:
        if phase not in self._bars:
            self._bars[phase] = self.context.progress.task(f"{self.context.table.name} {phase}", total, unit)
            if done:
                self._bars[phase].advance(done)
        return self._bars[phase]


@cache
def _say_once(note: str) -> None:
    """A process that goes on asks before each round; a person is told once."""
    log.warning(note)


def _server_of(table: Table) -> tuple[str, ...]:
    """Which server a table's options name, as the script writes them."""
    written = table.options
    return table.connector, written.get("hostname", ""), written.get("port", "3306"), written.get("username", "")
