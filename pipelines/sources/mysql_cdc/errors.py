"""What can be wrong with a binlog or a chunk, each with its place: nothing is ever passed over in silence."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pymysql

from tidegate.pipelines.commands import NextCommand
from tidegate.pipelines.errors import SourceUnreachable
from tidegate.pipelines.sources.cdc.errors import (
    FRESH,
    NOTHING_COMMITTED,
    ReaderLost,
    ReaderRefused,
    ReadError,
    ServerFailed,
    SnapshotError,
    TableChanged,
)

if TYPE_CHECKING:
    from tidegate.pipelines.sources.mysql_cdc.types import SourceColumn

GONE = frozenset({1049, 1054, 1146, 1176})
"""No such database, column, table, index."""
DENIED = frozenset({1044, 1045, 1142, 1143, 1227, 1370, 1401, 1698})
"""The user may not do this; 1401 answers XA RECOVER so."""
UNREACHABLE = frozenset({2002, 2003, 2005})
"""No connection came about."""
LOST = frozenset({1053, 1152, 1158, 1159, 1160, 1161, 1927, 2006, 2013, 2014, 2055})
"""A connection broke."""
_CUT_OFF = UNREACHABLE | LOST | {0, 1317}
"""A chunk cannot be read to its end: also where an error has no number, or somebody ended the query."""
LOCKED = 1205
"""Another session holds a lock for longer than a statement waits."""
LOCK_WAIT_S = 30
"""A statement waits so long (s) for a lock on a table; the servers' own default is a day, or a year."""
IS_LOCKED = f"another session holds a lock on the table for longer than is waited ({LOCK_WAIT_S} s)"
UNLOCK = (
    "see who holds the lock (SHOW FULL PROCESSLIST: LOCK TABLES, or an ALTER TABLE that waits for a long transaction), "
    "and let that session end"
)
_TOO_OLD = 1412
"""The table was altered or truncated since the read view was opened."""


class BinlogError(ReadError):
    """Base of what can be wrong with a binlog. `where` is `file:position`, and the table when one is concerned."""

    passing = False


class ChecksumMismatch(BinlogError):
    """An event's bytes are not those that its CRC32 was computed of."""


class MalformedEvent(BinlogError):
    """An event is shorter, longer or of another shape than its own header or table map says."""


class UnknownEvent(BinlogError):
    """An event type that this reader has never heard of."""


class UnsupportedEvent(BinlogError):
    """A known event type, row image or column format that lacks what a changelog needs."""


class StatementEvent(BinlogError):
    """Rows were changed by a statement that the binlog holds as text, not as rows."""


class SchemaChanged(BinlogError):
    """The wanted table is no longer what the generation began with."""


class UnreadableKey(BinlogError):
    """A row's key has no value of its own in the changelog."""


class BinlogPurged(BinlogError):
    """The server no longer has, or never had, the place that the range begins at."""


class BinlogRefused(BinlogError):
    """The server will not send its binlog to this user."""

    first = "give the grant back"
    passing = True


class ConnectionLost(BinlogError, SourceUnreachable):
    """The connection broke before the end of the range."""

    passing = True


class SpoolDamaged(BinlogError):
    """What one table read and left for another of the same server is not as it was written. It has been removed."""

    passing = True
    kept = f"{NOTHING_COMMITTED}; the damaged copy is removed"
    again = NextCommand("run", does="reads the same range again, from the server")


class BinlogEnded(BinlogError):
    """The binlog ends, or its range does, at a place that the plan did not expect."""


class TableLocked(SnapshotError):
    """Another session holds a lock on the table for longer than is waited."""

    first = UNLOCK


class ViewTooOld(SnapshotError):
    """The table was altered between the opening of a read view and its first row.

    A new view may do: what of the statement cannot be followed, the log stops at, since it is read from before.
    """


def unreadable_key(column: SourceColumn) -> tuple[str, str]:
    """What is wrong with a key whose value in `column` is none of its own, and what mends it."""
    mend = "on the server: UPDATE the rows that have such a value in the key"
    if column.data_type == "enum":
        what, mend = "the error value of an ENUM, which is shown as its member '' is,", f"{mend}, and keep {_STRICT}"
    elif column.charset is not None:
        what = f"a text with a code of {column.charset} that is no character, or has another code, too,"
    else:
        what = "a date that does not exist (0000-00-00, 2024-02-31, …)"
        mend = f"{mend}, and keep NO_ZERO_DATE, NO_ZERO_IN_DATE and {_STRICT}"
    return f"a row has {what} in the key column {column.name}: keys that differ on the server would be one here", mend


_STRICT = "strict mode in sql_mode"


def code_and_text(error: BaseException) -> tuple[int, str]:
    """The number (0 for none) and the text of an error of the server or the network. Neither ever holds a password."""
    code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
    return code, str(error.args[1] if len(error.args) > 1 else error)


def typed(error: pymysql.err.MySQLError | OSError, where: str) -> SnapshotError:
    """The server's or the network's error as ours."""
    code, text = code_and_text(error)
    text = text[:300]
    if code in GONE:
        what = f"the table is not what it was when this snapshot began: {text}"
        return TableChanged(what, where=where, next_command=FRESH)
    if code == _TOO_OLD:
        return ViewTooOld(f"the table was altered while its rows were asked for: {text}", where=where)
    if code == LOCKED:
        return TableLocked(IS_LOCKED, where=where)
    if code in DENIED:
        return ReaderRefused(f"the server refuses the user: {text}", where=where)
    if code in _CUT_OFF or isinstance(error, OSError):
        return ReaderLost(f"the connection to the server was lost: {text}", where=where)
    return ServerFailed(f"the server says: {text} ({code})", where=where)
