"""One table of MySQL or MariaDB: what `CdcSource` leaves to the database. The log is the server's binlog."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache, cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

from pymysql.cursors import Cursor
from pyspark.sql import DataFrame, SparkSession

from tidegate.pipelines.commands import RESNAPSHOT, resnapshot, then
from tidegate.pipelines.connectors.protocol import (
    Json,
    Landed,
    LogRetention,
    PlanRequest,
    SourceContext,
    SourcePosition,
    StoredStep,
    Unread,
)
from tidegate.pipelines.connectors.table import Table
from tidegate.pipelines.errors import SourceError
from tidegate.pipelines.sources import planning
from tidegate.pipelines.sources.cdc.chunks import Chunk, SnapshotKey
from tidegate.pipelines.sources.cdc.database import Settings
from tidegate.pipelines.sources.cdc.files import newest_rowtime
from tidegate.pipelines.sources.cdc.snapshot import declared_columns
from tidegate.pipelines.sources.cdc.source import CdcSource
from tidegate.pipelines.sources.mysql_cdc.binlog.model import (
    NO_CASCADES,
    BinlogPosition,
    BinlogRange,
    Cascades,
    WantedTable,
    split_by_file,
)
from tidegate.pipelines.sources.mysql_cdc.binlog.reading import read_binlog
from tidegate.pipelines.sources.mysql_cdc.binlog.rows.table_reader import SPLIT
from tidegate.pipelines.sources.mysql_cdc.binlog.scan import TableName, next_border, shares
from tidegate.pipelines.sources.mysql_cdc.binlog.spool import Spool
from tidegate.pipelines.sources.mysql_cdc.catalog import (
    MysqlKey,
    Server,
    SourceTable,
    read_cascades,
    read_columns,
    read_server,
    read_table,
)
from tidegate.pipelines.sources.mysql_cdc.connection import Session
from tidegate.pipelines.sources.mysql_cdc.errors import BinlogError
from tidegate.pipelines.sources.mysql_cdc.log import (
    Birth,
    birth,
    birth_of_file,
    check_birth,
    check_reachable,
    check_server,
    log_files,
    log_time,
    retention,
    with_number,
)
from tidegate.pipelines.sources.mysql_cdc.names import lowered
from tidegate.pipelines.sources.mysql_cdc.options import Startup, parse
from tidegate.pipelines.sources.mysql_cdc.plan import (
    BinlogStep,
    MysqlSnapshotStep,
    next_piece,
    start_position,
    step_of,
)
from tidegate.pipelines.sources.mysql_cdc.preflight import preflight, prepared, refusal_of_prepared, refused
from tidegate.pipelines.sources.mysql_cdc.snapshot.reading import (
    MysqlCutRule,
    Reader,
    SnapshotQuery,
    Work,
    cut_rule,
    status_position,
)
from tidegate.pipelines.sources.mysql_cdc.types import SourceColumn
from tidegate.pipelines.sources.mysql_cdc.widening import followed
from tidegate.pipelines.syntax.types import quoted
from tidegate.pipelines.watermarks import Watermark

log = logging.getLogger(__name__)

READ_APART = 1 << 20
"""From so many bytes on, a range of the log that several tables of the server read is read by one table after another,
so that the server sends it once. For a shorter one sending it again is cheaper than one more Spark job."""

SHARE_BYTES = 64 << 20
"""A range of the log that is at least twice as long is shared between tasks: scanning it for borders takes a tenth of
the time that decoding and writing do."""


class MysqlCdcSource(CdcSource[BinlogPosition, MysqlSnapshotStep, BinlogStep]):
    """`tidegate.pipelines.connectors.protocol.Source` for one table. Opens its connection when it is first needed."""

    log_split = SPLIT

    def __init__(self, context: SourceContext) -> None:
        options = parse(context.options, f"WITH options of {context.table.name}")
        if context.answer_within is not None:
            options = replace(options, server=replace(options.server, read_timeout=context.answer_within))
        self.options = options
        settings = Settings(
            where=options.where,
            place=(options.database, options.table),
            mode=options.startup.mode,
            chunk_rows=options.chunk_rows,
            time_zone=options.time_zone,
        )
        super().__init__(context, settings, Session(options.server, options.where, context.answer_within))
        self._server: Server | None = None
        self._table: SourceTable | None = None
        self._rule: MysqlCutRule | None = None
        self._log_checked = False
        self._cut: tuple[BinlogPosition, Birth] | None = None
        """The greatest cut so far whose file's birth is known."""

    # --- before a run --------------------------------------------------------------------------------------------

    def preflight(self, position: SourcePosition) -> None:
        """Settings, grants, engine, key, cascades, retention, columns. Raises SourceError that names the fixes."""
        self._preflight(step_of(position.previous.step.ranges) if position.previous else None)

    def _preflight(self, before: MysqlSnapshotStep | BinlogStep | None) -> SourceTable:
        """The preflight after the step `before`; the table as the server has it."""
        followed = {column.name for column in before.columns} if isinstance(before, BinlogStep) else set()
        with self.session.cursor() as cursor:
            checked = preflight(
                cursor, self.options, self.context.table, followed, self.context.progress, begins=before is None
            )
        self._server, self._table = checked.server, checked.table
        new = before is None and self.context.generation == 1
        for note in (*checked.notes, *(checked.of_keys if new else ())):
            _warn_once(note)
        return checked.table

    def source_table(self, before: MysqlSnapshotStep | BinlogStep | None) -> SourceTable:
        return self._table or self._preflight(before)

    def check_log(self, step: MysqlSnapshotStep | BinlogStep) -> None:
        flipped = isinstance(step, BinlogStep) and (step.flips or step.flip_at is None)
        if not self._log_checked:
            self._check_file(step.span.end if isinstance(step, BinlogStep) else step.start, step.birth)
            check_server(step.server, self.server_id, self.context.table.name, self.options.where)
            self._cut = None if flipped else self._greatest_stored_cut()
            self._log_checked = True
        if self._cut is not None and not flipped:  # afterwards the file of the cut may be purged
            self._check_file(*self._cut)

    def _check_file(self, position: BinlogPosition, recorded: Birth) -> None:
        """Raise SourceError unless the server has `position`, in the file that was begun at `recorded`."""
        name, where = self.context.table.name, self.options.where
        with self.session.cursor() as cursor:
            files = log_files(cursor)
        check_reachable(position, files, name, where)
        check_birth(recorded, birth_of_file(self.options.server, position.file, files), position, name, where)

    def _greatest_stored_cut(self) -> tuple[BinlogPosition, Birth] | None:
        cuts = [row["cut"] for row in self.context.splits.rows() if "birth" in (row["cut"] or ())]
        found = [(self.position_of(cut), Birth.from_json(cut["birth"])) for cut in cuts]
        return max(found, key=lambda cut: cut[0].order, default=None)

    def stored_cuts(self, cuts: Mapping[str, BinlogPosition]) -> Mapping[str, Json]:
        """Those in the newest file with its birth: a copy of the server that is restored amid the snapshot may have
        another file of that name."""
        newest = max(cuts.values(), key=lambda cut: cut.order)
        with self.session.cursor() as cursor:
            files = log_files(cursor)
        check_reachable(newest, files, self.context.table.name, self.options.where)
        born = birth_of_file(self.options.server, newest.file, files)
        if self._cut is None or newest.order > self._cut[0].order:
            self._cut = newest, born
        return {
            chunk: {**cut.to_json(), "birth": born.to_json()} if cut.file == newest.file else cut.to_json()
            for chunk, cut in cuts.items()
        }

    # --- a step --------------------------------------------------------------------------------------------------

    @property
    def server_id(self) -> str:
        return self._server_facts().variables.get("server_uuid", "")

    def end(self, cursor: Cursor) -> BinlogPosition:
        return status_position(cursor, self._server_facts())

    def position_of(self, stored: Json) -> BinlogPosition:
        return BinlogPosition.from_json(stored)

    def position_after(self, stored: StoredStep) -> BinlogPosition:
        return step_of(stored.step.ranges).log_after

    def cut_of(self, start: BinlogPosition, place: tuple[int, int]) -> BinlogPosition:
        return with_number(start, *place)

    def step_of(self, ranges: Json) -> MysqlSnapshotStep | BinlogStep:
        return step_of(ranges)

    def snapshot_start(
        self, cursor: Cursor, total: int, key: Json, columns: Sequence[SourceColumn]
    ) -> MysqlSnapshotStep:
        self._log_checked = True  # this very log is what the steps will be of
        start = self.cut_rule().start(cursor)
        # Only now: one that is prepared after this comes in the log after `start`, where the reader refuses it.
        open_ones = prepared(cursor)
        if open_ones:
            raise refused(list(refusal_of_prepared(open_ones)), self.options)
        return MysqlSnapshotStep(
            first=0,
            last=0,
            total=total,
            start=start,
            birth=birth(self.options.server, start),
            key=MysqlKey.from_json(key),
            columns=self._followed(cursor, columns),
            # One that was prepared before `start`, and has committed since, is in every view: none is open yet.
            all_seen_from=start if open_ones == 0 else None,
            cascades=self._cascades,
        )

    def log_start(self, cursor: Cursor, end: BinlogPosition, instant: int) -> BinlogStep:
        self._log_checked = True
        columns = declared_columns(self.source_table(None), self.context.table)
        start = start_position(cursor, self.options, end)
        born = birth(self.options.server, start)
        span, columns = BinlogRange(start, start), self._followed(cursor, columns)
        return BinlogStep(span, (), born, columns, end, end, instant, born, cascades=self._cascades)

    def _followed(self, cursor: Cursor, known: Sequence[SourceColumn]) -> tuple[SourceColumn, ...]:
        """The `known` columns as a step follows them whose end has been queried."""
        now = read_columns(cursor, self.options.database, self.options.table)
        if now and self._server_facts().flavor == "mysql":
            # It logs an ALTER before the catalog shows it, and has the table locked until then.
            cursor.execute(f"SELECT 1 FROM {self.options.quoted} LIMIT 0")  # noqa: S608
            now = read_columns(cursor, self.options.database, self.options.table)
        return followed(known, now, self.context.table.message_columns)

    def log_after(self, snapshot: MysqlSnapshotStep, flip_at: BinlogPosition, began_at: int) -> BinlogStep:
        start = snapshot.start  # the server's end was queried just after the snapshot was planned
        span = BinlogRange(start, start)
        return BinlogStep(
            *(span, (), snapshot.birth, snapshot.columns, flip_at, start, began_at, snapshot.birth),
            all_seen_from=snapshot.all_seen_from,
            cascades=snapshot.cascades,
        )

    def next_piece(
        self, cursor: Cursor, before: BinlogStep, end: BinlogPosition, request: PlanRequest
    ) -> tuple[BinlogStep | None, int | None]:
        if before.all_seen_from is None and prepared(cursor) == 0:
            # Whatever is prepared after that logs its rows behind what has been planned. One that is not prepared any
            # more may commit up to here.
            before = replace(before, all_seen_from=self.end(cursor))
        before = replace(before, earlier_cascades=before.cascades, cascades=self._cascades)
        latest = request.limit if self._commit_time_is_rowtime else None
        spool, name = self._spool(before.birth), self.context.table.name
        database, table = self.options.database, self.options.table
        if self._server_facts().lowers_names:
            database, table = lowered(database), lowered(table)
        logged = TableName(database, table)
        columns = self._followed(cursor, before.columns)
        before = replace(before, columns=columns, columns_before=before.columns if columns != before.columns else ())
        return next_piece(cursor, self.options, name, logged, before, end, request, spool, latest)

    def reads_alone(self, step: StoredStep) -> bool:
        """`protocol.ReadsAlone`: true while other tables of the server read the same range, which this one stores for
        them."""
        ranges = step_of(step.step.ranges)
        if not isinstance(ranges, BinlogStep) or self._spool(ranges.start_birth) is None:
            return False
        start, end = ranges.span.start, ranges.span.end
        return start.file != end.file or end.position - start.position >= READ_APART

    def chunk_reader(
        self,
        columns: Sequence[SourceColumn],
        key: SnapshotKey,
        chunks: Sequence[Chunk],
        start: BinlogPosition | None = None,
        condition: str | None = None,
    ) -> Work:
        rule = self.cut_rule()
        with self.session.cursor() as cursor:
            cut_columns = rule.columns(cursor, start or rule.start(cursor))
        query = SnapshotQuery(
            name=self.context.table.name,
            database=self.options.database,
            table=self.options.table,
            columns=columns,
            key=key,
            cut_columns=cut_columns,
            exact=frozenset(self.context.table.primary_key),
        )
        isolation = self._server_facts().isolation_variable
        reader = Reader(self.options.snapshot_server, isolation, self.options.session_variables)
        return Work.of(reader, query, chunks, condition)

    def quote(self, name: str) -> str:
        return quoted(name)

    def literal(self, table: SourceTable, column: str, value: Any) -> str | None:
        """A text is compared by the column's collation: that may find more rows."""
        key = table.key_column(column)
        if key is None:
            return None
        if key.kind == "number" and not isinstance(value, bool):
            return key.literal(str(value))
        if key.kind == "text" and isinstance(value, str):
            return f"_utf8mb4 X'{value.encode().hex()}'"
        if key.kind == "bytes" and isinstance(value, bytes | bytearray):
            return f"X'{value.hex()}'"
        return None

    def read_log(self, spark: SparkSession, step: BinlogStep, stored: StoredStep) -> DataFrame | None:
        wanted = WantedTable(
            self.options.database,
            self.options.table,
            step.columns,
            tuple(self.context.table.primary_key),
            other_key=self._other_key,
            cascades_logged=self._server_facts().logs_cascades,
            cascades=step.earlier_cascades | step.cascades,
            all_seen_from=step.all_seen_from,
            xa_grant=self._xa_grant,
        )
        spool = self._spool(step.start_birth, step.birth)
        ranges = split_by_file(step.span, list(step.files))
        tasks = spark.sparkContext.defaultParallelism
        if spool is None:  # a range that other tables read too is spooled under its ends, so it is not divided
            ranges = [share for span in ranges for share in self._shares(span, tasks, stored)]
        if len(ranges) == 1:
            wanted = replace(wanted, before=step.columns_before)
        wanted = replace(wanted, columns=tuple(self._without_zeros(column, stored) for column in step.columns))
        return read_binlog(spark, self.options.server, ranges, wanted, spool)

    def _without_zeros(self, column: SourceColumn, stored: StoredStep) -> SourceColumn:
        """`column`; one that became AUTO_INCREMENT as it was before, if earlier rows have a 0 in it: the server gave it
        another number, or will."""
        if not column.numbered:
            return column
        earlier = self.context.earlier_rows
        (name,) = [quoted(each.name) for each in self.declared.message_columns if each.source_name == column.name]
        if earlier is not None and earlier(stored).where(f"{name} = 0").isEmpty():
            return column
        return replace(column, auto_increment=False)

    @property
    def _xa_grant(self) -> str:
        """The statement by which the user sees which XA transactions are prepared. MariaDB shows them to all."""
        server = self._server_facts()
        if server.flavor != "mysql":
            return ""
        return f"GRANT XA_RECOVER_ADMIN ON *.* TO {server.account}"

    @property
    def _other_key(self) -> bool:
        """Whether the declared key is not the table's primary key. As it is now: the log refuses any change of that."""
        declared, found = self.context.table.primary_key, self._table
        if declared and found is None:  # a step of the run before is finished, ahead of the preflight
            with self.session.cursor() as cursor:
                found = read_table(cursor, self.options.database, self.options.table)
        primary = found.keys.get("PRIMARY", ()) if found else ()
        return bool(declared) and {name.lower() for name in primary} != {name.lower() for name in declared}

    @cached_property
    def _cascades(self) -> Cascades:
        """The foreign keys that change rows of the table by themselves, where the server logs what they do. Read once a
        run, which reads the log no further than it went before that."""
        if not self._server_facts().logs_cascades:
            return NO_CASCADES
        with self.session.cursor() as cursor:
            return read_cascades(cursor, self.options.database, self.options.table)

    def explain(self, error: BaseException, step: StoredStep) -> SourceError | None:
        """`protocol.ExplainsFailures`. A table that begins where the script says, and not at a snapshot, would come to
        the same place again: it is to begin behind that."""
        found, startup = super().explain(error, step), self.options.startup
        named = re.match(r"(\S+):(\d+)\b", found.where) if found is not None else None
        anew = found is not None and found.advice.before(lambda command: RESNAPSHOT in command.arguments) is not None
        if found is None or named is None or not anew or startup.mode not in ("specific-offset", "timestamp"):
            return found
        try:
            behind = next_border(self.options.server, BinlogPosition(named.group(1), int(named.group(2))))
        except SourceError:  # of a server that cannot be asked, nothing more can be said
            return found
        begun = Startup("specific-offset", behind.file, behind.position).to_options()
        options = ", ".join(f"'{name}' = '{value}'" for name, value in begun.items())
        instead = "" if startup.mode == "specific-offset" else ", in place of 'scan.startup.timestamp-millis'"
        found.reword(
            next_command=then(
                f"let it begin behind that: write {options} into the CREATE TABLE of {self.context.table.name}"
                f"{instead}",
                resnapshot(self.context.table.name, "begins there"),
            )
        )
        return found

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
        """Whether the log holds the rowtime of what has not been read yet, as far as alignment needs it."""
        return planning.is_rowtime(self.context.table, "op_ts")

    def _spool(self, birth: Birth | None, end: Birth | None = None) -> Spool | None:
        """Where the tables of this server share what they read of ranges that begin in the file of `birth`, and end in
        that of `end`; None for a table that is alone."""
        own = _server_of(self.context.table)
        readers = [peer.name for peer in self.context.peers if _server_of(peer) == own]
        if len(readers) < 2 or birth is None:
            return None
        server = self.options.server
        # The lake does not name a server's address.
        name = sha256(server.where.encode()).hexdigest()[:16]
        folder = Path(self.context.scratch).parent / "_binlog" / name
        return Spool(str(folder), self.context.table.name, tuple(readers), str(birth), str(end or ""))

    # --- after its commit ----------------------------------------------------------------------------------------

    def log_landed(self, step: BinlogStep, rows: DataFrame | None) -> Landed:
        with self.session.cursor() as cursor:
            end = self.end(cursor)
            files = log_files(cursor)
            there = {each.name.lower() for each in read_columns(cursor, self.options.database, self.options.table)}
        behind = files.bytes_between(step.span.end, end)
        lag_ms = max(0, self.context.clock() - self._reached_at(step, rows)) if behind else 0
        bar = self.bar("binlog", "bytes", files.bytes_between(step.span.start, end), 0)
        bar.advance(files.bytes_between(step.span.start, step.span.end), f"{behind:,} bytes behind")
        gone = [column.name for column in step.columns if column.name.lower() not in there]
        dropped = f"; dropped on the server, NULL since then: {', '.join(gone)}" if gone and there else ""
        landed = Landed(
            lag_ms=lag_ms,
            position=f"{step.span.end}{dropped}",
            watermarks=self._log_watermarks(step),
            sole_split=SPLIT,
        )
        if spool := self._spool(step.start_birth):
            spool.leave(step.span.end)
        return landed

    def _reached_at(self, step: BinlogStep, rows: DataFrame | None) -> int:
        """A time (ms, UTC) at which everything that had committed is in with this step. A step that ends before the
        server's end, amid a file, has reached the time of its newest change, if that is when it committed."""
        watermark = self.context.table.watermark
        if rows is None or step.span.end == step.server_end or (watermark and not self._commit_time_is_rowtime):
            return step.reached_at
        return max(step.reached_at, newest_rowtime(rows.inputFiles()) or 0)

    def _log_watermarks(self, step: BinlogStep) -> Sequence[tuple[str, Watermark]] | None:
        """How far the log's own time has come, if SYSTEM_WATERMARK() asks for it: just before the last transaction, of
        any table. Only if the step reaches what the server had; before that the table's own rows are enough, and this
        scans a part of the log again."""
        watermark = self.context.table.watermark
        if watermark is None or not watermark.source or step.span.end != step.server_end:
            return None
        at = log_time(self.options.server, step.span, step.files)
        return None if at is None else [(SPLIT, Watermark(at - 1))]

    def retention(self, position: SourcePosition) -> LogRetention | None:
        """`protocol.KeepsALog`: how long the server still has the binlog after the last step."""
        if position.previous is None:
            return None
        step = step_of(position.previous.step.ranges)
        with self.session.cursor() as cursor:
            return retention(cursor, self._server_facts(), self.options.server, step.log_after, self.context.clock())

    def unread(self, position: SourcePosition) -> Unread | None:
        """`protocol.KnowsItsEnd`: how much of the binlog lies after the last step, of whichever tables it is."""
        if position.previous is None:
            return None
        step = step_of(position.previous.step.ranges)
        if self.options.startup.mode == "snapshot" and position.flipped:
            return Unread()  # it is read no further
        with self.session.cursor() as cursor:
            end = self.end(cursor)
            behind = log_files(cursor).bytes_between(step.log_after, end)
        return Unread(behind, "byte", of="the server's binlog") if behind > 0 else Unread()

    # --- the rest ------------------------------------------------------------------------------------------------

    def _server_facts(self) -> Server:
        if self._server is None:
            with self.session.cursor() as cursor:
                self._server = read_server(cursor)
        return self._server

    def cut_rule(self) -> MysqlCutRule:
        if self._rule is None:
            self._rule = cut_rule(self._server_facts(), self.options.server)
        return self._rule


@cache
def _warn_once(note: str) -> None:
    """Log it once a process: a continuous process checks before each round."""
    log.warning(note)


def _server_of(table: Table) -> tuple[str, ...]:
    """Which server a table's options name, as the script writes them."""
    written = table.options
    return table.connector, written.get("hostname", ""), written.get("port", "3306"), written.get("username", "")
