"""What can go wrong while a chunk is read, each with the chunk and the table."""

from __future__ import annotations

import pymysql

from tidegate.pipelines.errors import SourceUnreachable
from tidegate.pipelines.sources.mysql_cdc.errors import FRESH, ReadError

_GONE = frozenset({1049, 1054, 1146, 1176})
"""No such database, column, table, index."""
_TOO_OLD = 1412
"""The table was altered or truncated since the read view was opened."""
_DENIED = frozenset({1044, 1045, 1142, 1143, 1227, 1698})
_LOST = frozenset({0, 1053, 1152, 1158, 1159, 1160, 1161, 1317, 1927, 2002, 2003, 2006, 2013, 2014, 2055})


class SnapshotError(ReadError):
    """Base of what follows."""


class TableChanged(SnapshotError):
    """The table is no longer what the generation began with."""


class UnreadableKey(SnapshotError):
    """A row's key has no value here that is its own."""


class ViewTooOld(SnapshotError):
    """The table was altered between the opening of a read view and its first row.

    A new view may do: what of the statement cannot be followed, the log stops at, since it is read from before.
    """


class ReaderRefused(SnapshotError):
    """The server does not let the user read."""


class ReaderLost(SnapshotError, SourceUnreachable):
    """The connection broke before the end of the chunk."""


class ServerSays(SnapshotError):
    """Anything else that the server says."""


class MalformedRows(SnapshotError):
    """The server's rows are of another shape than it said."""


class NotWritten(SnapshotError):
    """The lake's disk does not take the chunk's file."""


def typed(error: pymysql.err.MySQLError | OSError, where: str) -> SnapshotError:
    """The server's or the network's error as ours. Neither ever holds a password."""
    code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
    text = str(error.args[1] if len(error.args) > 1 else error)[:300]
    if code in _GONE:
        what = f"the table is not what it was when this snapshot began: {text}"
        return TableChanged(what, where=where, next_command=FRESH)
    if code == _TOO_OLD:
        return ViewTooOld(f"the table was altered while its rows were asked for: {text}", where=where)
    if code in _DENIED:
        return ReaderRefused(f"the server refuses the user: {text}", where=where)
    if code in _LOST or isinstance(error, OSError):
        return ReaderLost(f"the connection to the server was lost: {text}", where=where)
    return ServerSays(f"the server says: {text} ({code})", where=where)
