"""Where a table that has no snapshot begins: scan.startup.mode latest-offset, specific-offset, timestamp."""

from __future__ import annotations

from pymysql.cursors import Cursor

from pipelines.errors import SourceError
from pipelines.sources.mysql_cdc.binlog.model import BinlogPosition
from pipelines.sources.mysql_cdc.headers import first_at, is_border
from pipelines.sources.mysql_cdc.log import log_files
from pipelines.sources.mysql_cdc.options import MysqlOptions

_NOTHING = "nothing was read"


def start_position(cursor: Cursor, options: MysqlOptions, end: BinlogPosition) -> BinlogPosition:
    """The first position to read. `end` is the server's end as of the first plan. Raises SourceError."""
    startup = options.startup
    if startup.mode == "specific-offset":
        return _specific(cursor, options, end)
    if startup.mode == "timestamp":
        files = log_files(cursor)
        found = first_at(options.server, files, startup.timestamp or 0, options.where)
        # A transaction that is written after `end` was asked for belongs to the next run.
        return end if found is None or found.order > end.order else found
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
    if not is_border(options.server, position, options.where):
        raise SourceError(
            f"no transaction begins at {position}",
            where=f"scan.startup.specific-offset.pos of {options.where}",
            state=_NOTHING,
            next_command=f"choose the Pos of a Gtid event (SHOW BINLOG EVENTS IN '{position.file}')",
        )
    return position
