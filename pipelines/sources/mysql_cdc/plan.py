"""Plans the unbounded phase: where a table without a snapshot begins ('scan.startup.mode' latest-offset,
specific-offset, timestamp), pieces of the binlog, and the step that flips.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace

import numpy as np
from pymysql.cursors import Cursor

from tidegate.pipelines.errors import SourceError
from tidegate.pipelines.sources.cdc.changelog import LOG_EPOCH
from tidegate.pipelines.sources.mysql_cdc.binlog.model import BinlogPosition, BinlogRange
from tidegate.pipelines.sources.mysql_cdc.binlog.scan import scan_borders
from tidegate.pipelines.sources.mysql_cdc.binlog.spool import Spool
from tidegate.pipelines.sources.mysql_cdc.binlog.touching import TableName, end_of_piece
from tidegate.pipelines.sources.mysql_cdc.connection import ServerOptions
from tidegate.pipelines.sources.mysql_cdc.log import Birth, LogFiles, birth, check_reachable, is_border, log_files
from tidegate.pipelines.sources.mysql_cdc.options import MysqlOptions
from tidegate.pipelines.sources.mysql_cdc.steps import BinlogStep
from tidegate.pipelines.sources.mysql_cdc.types import SourceColumn

STEP_BYTES = 2 << 30
"""Bytes of log in one step, about. A step ends with a file (of 1 GB by default) unless the server's end comes first,
so that no border has to be looked for. Rows are streamed: memory does not depend on it."""


def first_piece(
    start: BinlogPosition,
    born: Birth,
    columns: tuple[SourceColumn, ...],
    flip_at: BinlogPosition,
    server_end: BinlogPosition,
    seen_at: int,
) -> BinlogStep:
    """Where the binlog begins, in a file that was `born` then: nothing read yet, the flip at `flip_at`. `server_end` is
    the server's end as of `seen_at` (ms, UTC)."""
    return BinlogStep(
        span=BinlogRange(LOG_EPOCH, start, start),
        files=(),
        birth=born,
        columns=columns,
        flip_at=flip_at,
        server_end=server_end,
        seen_at=seen_at,
    )


@dataclass(frozen=True)
class Piece:
    """`step` is what follows, None where that is nothing. `late` (ms, UTC): when the table's next transaction behind it
    committed, where it was left out for that."""

    step: BinlogStep | None
    late: int | None = None


def next_piece(
    cursor: Cursor,
    options: MysqlOptions,
    table: str,
    before: BinlogStep,
    end: BinlogPosition,
    seen_at: int,
    spool: Spool | None = None,
    latest: int | None = None,
    most: int | None = None,
    least: bool = True,
) -> Piece:
    """What follows `before`, up to `end` and at least to the flip.

    A table of scan.startup.mode snapshot ends at its flip. With a `spool`, a piece ends where those of the other tables
    do. It also ends before the first transaction of the table that committed after `latest` (ms, UTC), or after `most`
    row events of the table, but has one transaction of the table at least, if there is one; without `least` none that
    committed after `latest`.
    """
    start, flip_at = before.span.end, before.flip_at
    if options.startup.mode == "snapshot":
        if flip_at is None:
            return Piece(None)
        end = flip_at
    files = log_files(cursor)
    check_reachable(start, files, table, options.where)
    goal = _within(files, start, max([start, end, flip_at or end], key=lambda position: position.order))
    if spool is not None:
        goal = spool.meeting(start, goal)
    late = None
    if latest is not None or most is not None:
        name, instant = TableName(options.database, options.table), None if latest is None else latest * 1000 + 999
        found = end_of_piece(options.server, start, goal, name, instant=instant, most=most, least=least)
        if found is not None:
            goal, late = found.place, None if found.late is None else found.late // 1000
    step = replace(
        before,
        start_birth=before.birth,
        span=BinlogRange(LOG_EPOCH, start, goal),
        files=tuple(files.crossed(start, goal)),
        server_end=end,
        seen_at=seen_at,
        known_at=before.reached_at,
    )
    if step.empty and not step.flips:
        return Piece(None, late)
    if goal.file != start.file:
        step = replace(step, birth=birth(options.server, goal))
    return Piece(step, late)


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


_NOTHING = "nothing was read"


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
    position = BinlogPosition(options.startup.file or "", options.startup.position or 0)
    files = log_files(cursor)
    size = files.sizes.get(position.file)
    if size is None:
        raise SourceError(
            f"the server has no binlog {position.file}",
            where=f"scan.startup.specific-offset.file of {options.where}",
            state=_NOTHING,
            next_command=f"choose one of {', '.join(files.names[:1])} to {files.names[-1]} (SHOW BINARY LOGS)",
        )
    if position.position > size or position.order > end.order:
        raise SourceError(
            f"{position.file} is {size} bytes long, and {position.position} is after its end",
            where=f"scan.startup.specific-offset.pos of {options.where}",
            state=_NOTHING,
            next_command=f"choose a transaction's first byte (SHOW BINLOG EVENTS IN '{position.file}')",
        )
    if not is_border(options.server, position):
        raise SourceError(
            f"no transaction begins at {position}",
            where=f"scan.startup.specific-offset.pos of {options.where}",
            state=_NOTHING,
            next_command=f"choose the Pos of a Gtid event (SHOW BINLOG EVENTS IN '{position.file}')",
        )
    return position
