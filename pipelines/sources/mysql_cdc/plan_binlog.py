"""Plans the unbounded phase: pieces of the binlog, and the step that flips."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pymysql.cursors import Cursor

from tidegate.pipelines.sources.cdc.changelog import LOG_EPOCH
from tidegate.pipelines.sources.mysql_cdc.binlog.model import BinlogPosition, BinlogRange
from tidegate.pipelines.sources.mysql_cdc.binlog.spool import Spool
from tidegate.pipelines.sources.mysql_cdc.binlog.touching import TableName, end_of_piece
from tidegate.pipelines.sources.mysql_cdc.headers import birth
from tidegate.pipelines.sources.mysql_cdc.log import Birth, LogFiles, check_reachable, log_files
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
