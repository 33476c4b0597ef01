"""What can be wrong with a binlog, each with its place: nothing here is ever passed over in silence."""

from __future__ import annotations

from tidegate.pipelines.errors import SourceUnreachable
from tidegate.pipelines.sources.mysql_cdc.errors import NOTHING_COMMITTED, ReadError


class BinlogError(ReadError):
    """Base of what follows. `where` is `file:position`, and the table when one is concerned."""


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
    """A row's key has no value here that is its own."""


class BinlogPurged(BinlogError):
    """The server no longer has, or never had, the place that the range begins at."""


class BinlogRefused(BinlogError):
    """The server will not send its binlog to this user."""


class ConnectionLost(BinlogError, SourceUnreachable):
    """The connection broke before the end of the range."""


class SpoolDamaged(BinlogError):
    """What one table read and left for another of the same server is not as it was written. It has been removed."""

    def __init__(
        self,
        what: str,
        *,
        where: object = "",
        state: str = f"{NOTHING_COMMITTED}; the damaged copy is removed",
        next_command: str = "tidegate run …   (reads the same range again, from the server)",
    ) -> None:
        super().__init__(what, where=where, state=state, next_command=next_command)


class BinlogEnded(BinlogError):
    """The binlog ends, or its range does, at a place that the plan did not expect."""
