"""How long the server still has the binlog from a place on.

A server deletes a file once its last write is older than binlog_expire_logs_seconds, and never the newest. A file is
written to until the next one begins, so the birth of the next file tells when it may go.
"""

from __future__ import annotations

from pymysql.cursors import Cursor

from tidegate.pipelines.connectors.protocol import LogRetention
from tidegate.pipelines.sources.mysql_cdc.binlog.model import BinlogPosition, ServerOptions
from tidegate.pipelines.sources.mysql_cdc.catalog import Server
from tidegate.pipelines.sources.mysql_cdc.errors import BinlogPurged
from tidegate.pipelines.sources.mysql_cdc.headers import birth
from tidegate.pipelines.sources.mysql_cdc.log import log_files
from tidegate.pipelines.sources.mysql_cdc.steps import BinlogStep, MysqlSnapshotStep


def position_after(step: MysqlSnapshotStep | BinlogStep) -> BinlogPosition:
    """Where the binlog is read from after a landed step."""
    return step.span.end if isinstance(step, BinlogStep) else step.start


def retention(
    cursor: Cursor, server: Server, options: ServerOptions, position: BinlogPosition, now: int
) -> LogRetention:
    """How long the binlog after `position` is still there; `now` in ms, UTC. Raises SourceError."""
    files, kept = log_files(cursor), server.retention_seconds
    if position.file not in files.sizes:
        return LogRetention(0.0, kept, str(position))
    following = files.following(position.file)
    if following is None or kept is None:
        return LogRetention(None, kept, str(position))
    try:
        closed = birth(options, BinlogPosition(following, files.sizes[following])).timestamp
    except BinlogPurged:
        return LogRetention(0.0, kept, str(position))
    return LogRetention(max(0.0, closed + kept - now / 1000), kept, str(position))
