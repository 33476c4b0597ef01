"""What can be wrong with a binlog, each with its place: nothing here is ever passed over in silence."""

from __future__ import annotations

from pipelines.errors import SourceError

NOTHING_COMMITTED = "no row of this range was committed; what earlier epochs committed stands"
RETRY = "tidegate run …   (reads the same range again)"
FRESH = "tidegate run … --resnapshot TABLE   (a new generation of the table: snapshot, then binlog)"


class BinlogError(SourceError):
    """Base of what follows. `where` is `file:position`, and the table when one is concerned."""

    def __init__(
        self, what: str, *, where: object = "", state: str = NOTHING_COMMITTED, next_command: str = RETRY
    ) -> None:
        super().__init__(what, where=str(where), state=state, next_command=next_command)


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


class BinlogPurged(BinlogError):
    """The server no longer has, or never had, the place that the range begins at."""


class BinlogRefused(BinlogError):
    """The server will not send its binlog to this user."""


class ConnectionLost(BinlogError):
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


def find(error: BaseException) -> SourceError | None:
    """The typed error that `error` carries: itself, a cause, or the text of one that was raised in a Spark task.

    Spark hands over what a Python worker raised as text only. The text says all that a TidegateError does.
    """
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, SourceError):
            return seen
        found = _from_text(str(seen))
        if found is not None:
            return found
        seen = seen.__cause__ or seen.__context__
    return None


def _from_text(text: str) -> BinlogError | None:
    """The last error of this module in a traceback, made anew from its lines."""
    found: BinlogError | None = None
    lines = text.splitlines()
    for number, line in enumerate(lines):
        name, colon, what = line.strip().partition(": ")
        kind = _KINDS.get(name.rpartition(".")[2]) if colon and name.startswith(__name__) else None
        if kind is None:
            continue
        parts = {"where": "", "state": "", "next": ""}
        for following in lines[number + 1 : number + 1 + len(parts)]:
            key, _, value = following.strip().partition(":")
            if key in parts:
                parts[key] = value.strip()
        found = kind(what, where=parts["where"], state=parts["state"], next_command=parts["next"])
    return found


_KINDS = {kind.__name__: kind for kind in BinlogError.__subclasses__()}
