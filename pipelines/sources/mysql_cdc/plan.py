"""The unbounded phase: where a table without a snapshot begins ('scan.startup.mode' latest-offset, specific-offset,
timestamp), pieces of the binlog, the step that flips; and the steps of either phase as plans store them.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from pymysql.cursors import Cursor

from tidegate.pipelines.connectors.protocol import Json, PlanRequest
from tidegate.pipelines.errors import SourceError
from tidegate.pipelines.sources.cdc.database import SnapshotStep
from tidegate.pipelines.sources.mysql_cdc.binlog.model import NO_CASCADES, BinlogPosition, BinlogRange, Cascades
from tidegate.pipelines.sources.mysql_cdc.binlog.rows.table_reader import SPLIT
from tidegate.pipelines.sources.mysql_cdc.binlog.scan import TableName, end_of_piece, scan_borders
from tidegate.pipelines.sources.mysql_cdc.binlog.spool import Spool
from tidegate.pipelines.sources.mysql_cdc.catalog import MysqlKey
from tidegate.pipelines.sources.mysql_cdc.connection import ServerOptions
from tidegate.pipelines.sources.mysql_cdc.log import (
    Birth,
    LogFiles,
    birth,
    birth_of_file,
    check_reachable,
    is_border,
    log_files,
)
from tidegate.pipelines.sources.mysql_cdc.options import MysqlOptions
from tidegate.pipelines.sources.mysql_cdc.types import SourceColumn


@dataclass(frozen=True)
class MysqlSnapshotStep(SnapshotStep):
    """A batch of chunks. `birth` is of the file that `start` is in; `server` the server_uuid, where there is one.
    `all_seen_from`: of XA transactions, see `WantedTable`. `cascades`: when the snapshot was planned.
    """

    start: BinlogPosition
    key: MysqlKey
    columns: tuple[SourceColumn, ...]
    birth: Birth = field(kw_only=True)
    all_seen_from: BinlogPosition | None = None
    cascades: Cascades = NO_CASCADES

    @property
    def log_after(self) -> BinlogPosition:
        """Where the binlog is read from once it has landed."""
        return self.start

    def to_json(self) -> dict[str, Any]:
        return {
            **super().to_json(),
            "birth": self.birth.to_json(),
            "all_seen_from": _stored(self.all_seen_from),
            "cascades": self.cascades.to_json(),
        }


@dataclass(frozen=True)
class BinlogStep:
    """Transactions that begin in `span`, which lies in `files`.

    `birth` is of the file that the span ends in, `start_birth` of the one that it starts in.
    `flip_at`: the step that reaches this position flips; None after the flip.
    `seen_at`: when the server's end, `server_end`, was queried (ms, UTC). `known_at`: `reached_at` of the step before.
    `all_seen_from`: of XA transactions, see `WantedTable`.
    `columns` as the step follows them (`widening.followed`); `columns_before`: as the step before did, if that was
    otherwise.
    `all_seen_from`: of XA transactions, see `WantedTable`. `cascades`: when the step was planned; `earlier_cascades`:
    when the one before was. What the step reads happened in between.
    """

    span: BinlogRange
    files: tuple[str, ...]
    birth: Birth
    columns: tuple[SourceColumn, ...]
    flip_at: BinlogPosition | None
    server_end: BinlogPosition
    seen_at: int
    start_birth: Birth
    known_at: int = 0
    server: str = ""
    all_seen_from: BinlogPosition | None = None
    columns_before: tuple[SourceColumn, ...] = ()
    cascades: Cascades = NO_CASCADES
    earlier_cascades: Cascades = NO_CASCADES

    @property
    def reached_at(self) -> int:
        """A time (ms, UTC) at which all that had committed lies before the span's end, known without reading the log:
        when the server's end was queried, if the span goes that far; else when the file was begun that it ends in."""
        if self.span.end.order >= self.server_end.order:
            return self.seen_at
        return max(self.known_at, self.birth.timestamp * 1000)

    @property
    def log_after(self) -> BinlogPosition:
        return self.span.end

    @property
    def empty(self) -> bool:
        return self.span.start == self.span.end

    @property
    def flips(self) -> bool:
        return self.flip_at is not None and self.span.end.order >= self.flip_at.order

    def to_json(self) -> Json:
        return {
            "kind": "binlog",
            "span": self.span.to_json(),
            "files": list(self.files),
            "birth": self.birth.to_json(),
            "columns": [column.to_json() for column in self.columns],
            "flip_at": _stored(self.flip_at),
            "server_end": self.server_end.to_json(),
            "seen_at": self.seen_at,
            "start_birth": self.start_birth.to_json(),
            "known_at": self.known_at,
            "server": self.server,
            "all_seen_from": _stored(self.all_seen_from),
            "columns_before": [column.to_json() for column in self.columns_before],
            "cascades": self.cascades.to_json(),
            "earlier_cascades": self.earlier_cascades.to_json(),
        }

    def __str__(self) -> str:
        return str(self.span)


def _stored(position: BinlogPosition | None) -> Json | None:
    return position.to_json() if position else None


def _position(stored: Json | None) -> BinlogPosition | None:
    return BinlogPosition.from_json(stored) if stored else None


def step_of(ranges: Mapping[str, Any]) -> MysqlSnapshotStep | BinlogStep:
    """A plan's ranges, read back."""
    columns, before = (tuple(map(SourceColumn.from_json, ranges.get(key, ()))) for key in ("columns", "columns_before"))
    birth = Birth.from_json(ranges["birth"])
    if ranges["kind"] == "snapshot":
        return MysqlSnapshotStep(
            first=int(ranges["first"]),
            last=int(ranges["last"]),
            total=int(ranges["total"]),
            start=BinlogPosition.from_json(ranges["start"]),
            birth=birth,
            key=MysqlKey.from_json(ranges["key"]),
            columns=columns,
            server=ranges.get("server", ""),
            all_seen_from=_position(ranges["all_seen_from"]),
            cascades=Cascades.from_json(ranges["cascades"]),
        )
    return BinlogStep(
        span=BinlogRange.from_json(ranges["span"]),
        files=tuple(ranges["files"]),
        birth=birth,
        columns=columns,
        flip_at=_position(ranges["flip_at"]),
        server_end=BinlogPosition.from_json(ranges["server_end"]),
        seen_at=int(ranges["seen_at"]),
        start_birth=Birth.from_json(ranges["start_birth"]),
        known_at=int(ranges["known_at"]),
        server=ranges["server"],
        all_seen_from=_position(ranges["all_seen_from"]),
        columns_before=before,
        cascades=Cascades.from_json(ranges["cascades"]),
        earlier_cascades=Cascades.from_json(ranges["earlier_cascades"]),
    )


STEP_BYTES = 2 << 30
"""Bytes of log in one step, about. A step ends with a file (of 1 GB by default) unless the server's end comes first,
so that no border has to be looked for. Rows are streamed: memory does not depend on it."""


def next_piece(
    cursor: Cursor,
    options: MysqlOptions,
    table: str,
    name: TableName,
    before: BinlogStep,
    end: BinlogPosition,
    request: PlanRequest,
    spool: Spool | None,
    latest: int | None,
) -> tuple[BinlogStep | None, int | None]:
    """What follows `before`, up to `end` and at least to the flip; None where that is nothing. Also when the table's
    next transaction behind it committed (ms, UTC), where it was left out for that.

    A table of scan.startup.mode snapshot ends at its flip. With a `spool`, a piece ends where those of the other tables
    do. It also ends before the first transaction of the table that committed after `latest` (ms, UTC), or after as many
    row events of the table as the request allows, but has one transaction of the table at least, if there is one; of a
    table that is ahead none that committed after `latest`.
    """
    start, flip_at = before.span.end, before.flip_at
    if options.startup.mode == "snapshot":
        if flip_at is None:
            return None, None
        end = flip_at
    files = log_files(cursor)
    check_reachable(start, files, table, options.where)
    goal = _within(files, start, max([start, end, flip_at or end], key=lambda position: position.order))
    births = {start.file: before.birth}

    def birth_at(position: BinlogPosition) -> Birth:
        if position.file not in births:
            births[position.file] = birth_of_file(options.server, position.file, files)
        return births[position.file]

    if spool is not None:
        # Others may have read a log that this server no longer has: it was restored since.
        goal = spool.meeting(
            start,
            goal,
            lambda end, born: end.position <= files.sizes.get(end.file, 0) and born == str(birth_at(end)),
        )
    late = None
    most = request.max_rows
    least = latest is None or SPLIT not in request.ahead
    if latest is not None or most is not None:
        instant = None if latest is None else latest * 1000 + 999
        found = end_of_piece(options.server, start, goal, name, instant=instant, most=most, least=least)
        if found is not None:
            goal, late = found.place, None if found.late is None else found.late // 1000
    step = replace(
        before,
        start_birth=before.birth,
        span=BinlogRange(start, goal),
        files=tuple(files.crossed(start, goal)),
        server_end=end,
        seen_at=request.instant,
        known_at=before.reached_at,
    )
    if step.empty and not step.flips:
        return None, late
    return replace(step, birth=birth_at(goal)), late


def _within(files: LogFiles, start: BinlogPosition, goal: BinlogPosition) -> BinlogPosition:
    """`goal`, or the last end of a file before it that leaves the step short enough, one file at least."""
    if files.bytes_between(start, goal) <= STEP_BYTES:
        return goal
    best: BinlogPosition | None = None
    for name in files.crossed(start, goal)[1:]:
        border = BinlogPosition(name)
        if best is not None and files.bytes_between(start, border) > STEP_BYTES:
            break
        best = border
    return best or goal


def start_position(cursor: Cursor, options: MysqlOptions, end: BinlogPosition) -> BinlogPosition:
    """The first position to read. `end` is the server's end as of the first plan. Raises SourceError."""
    startup = options.startup
    if startup.mode == "specific-offset":
        return _specific(cursor, options, end)
    if startup.mode == "timestamp":
        return _first_at(options.server, log_files(cursor), startup.timestamp or 0, end)
    return end


def _first_at(server: ServerOptions, files: LogFiles, timestamp: int, end: BinlogPosition) -> BinlogPosition:
    """Where the first transaction begins that committed at or after `timestamp` (ms, UTC); `end` when none did."""
    names = files.names
    # Not by halving: a file has the time of the session that began it, which may have SET its timestamp (mysqlbinlog
    # does, where it replays a log). One that is older than a file before it says nothing. To begin too early gives
    # rows more; to begin too late would lose some.
    first, newest = 0, 0
    for at, name in enumerate(names):
        begun = birth(server, BinlogPosition(name)).timestamp * 1000
        if begun >= timestamp:
            break
        if begun >= newest:
            first, newest = at, begun
    # Transactions at the end of that file may still be after `timestamp`.
    with closing(scan_borders(server, BinlogPosition(names[first]), end)) as found:
        for borders in found:
            late = np.flatnonzero(borders.times >= timestamp * 1000)
            if len(late):
                return borders.place(int(late[0]))
    return end


def _specific(cursor: Cursor, options: MysqlOptions, end: BinlogPosition) -> BinlogPosition:
    def refused(what: str, option: str, choose: str) -> SourceError:
        where = f"scan.startup.specific-offset.{option} of {options.where}"
        return SourceError(what, where=where, state="nothing was read", next_command=f"choose {choose}")

    position = BinlogPosition(options.startup.file or "", options.startup.position or 0)
    files = log_files(cursor)
    size = files.sizes.get(position.file)
    shown = f"(SHOW BINLOG EVENTS IN '{position.file}')"
    if size is None:
        names = f"one of {files.names[0]} to {files.names[-1]} (SHOW BINARY LOGS)"
        raise refused(f"the server has no binlog {position.file}", "file", names)
    if position.position > size or position.order > end.order:
        what = f"{position.file} is {size} bytes long, and {position.position} is after its end"
        raise refused(what, "pos", f"a transaction's first byte {shown}")
    if not is_border(options.server, position):
        raise refused(f"no transaction begins at {position}", "pos", f"the Pos of a Gtid event {shown}")
    return position
