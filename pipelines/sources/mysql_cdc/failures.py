"""What a failed read means: the table, the step, the state that is kept, and what to do."""

from __future__ import annotations

import re

from pipelines.errors import SourceError
from pipelines.sources.mysql_cdc.binlog.errors import FRESH, find
from pipelines.sources.mysql_cdc.log import resnapshot

STATE = "the step is planned, none of its rows are committed; what was committed before stands"
AGAIN = "run the same command again: it goes on at this step"

_SAID = re.compile(r"(?:java\.sql|org\.mariadb)\.\S*Exception: (?:\(conn=\d+\) )?(.+)")
_LOST = re.compile(
    r"connection reset|socket error|could not connect|broken pipe|end of stream|connection (is|was) (closed|killed)"
    r"|connection refused|timed out|server has gone away|query execution was interrupted|shutdown in progress",
    re.IGNORECASE,
)
_GONE = re.compile(r"Table '.+' doesn't exist|Unknown column|Unknown database", re.IGNORECASE)
_DENIED = re.compile(r"access denied|command denied", re.IGNORECASE)


def explain(error: BaseException, table: str, step: str, where: str) -> SourceError | None:
    """The typed error of what Spark threw, `table` and `step` named; None for what has nothing to do with the server.

    The binlog reader's errors come out of a worker as text, and are found in it. The driver's are told apart by what
    they say. Neither ever holds a password.
    """
    typed = find(error)
    if typed is not None:
        fresh = typed.next_command == FRESH
        return type(typed)(
            f"{table}: {typed.what}",
            where=f"{typed.where}; {step}; {where}",
            state=STATE,
            next_command=resnapshot(table) if fresh else AGAIN,
        )
    # Spark keeps what the driver said of a failed connection to the Java stack.
    said = _SAID.findall(f"{getattr(error, '_stackTrace', None) or ''}\n{error}")
    if not said:
        return None
    text = said[-1].strip()[:300]
    place = f"{step}; {where}"
    if any(_GONE.search(line) for line in said):
        return SourceError(
            f"{table}: the table is not what it was when this snapshot began: {text}",
            where=place,
            state=STATE,
            next_command=resnapshot(table),
        )
    if any(_DENIED.search(line) for line in said):
        return SourceError(
            f"{table}: the server refuses the user: {text}",
            where=place,
            state=STATE,
            next_command=f"give the grant back, then {AGAIN}",
        )
    if any(_LOST.search(line) for line in said):
        return SourceError(
            f"{table}: the connection to the server was lost: {text}", where=place, state=STATE, next_command=AGAIN
        )
    return SourceError(f"{table}: the server says: {text}", where=place, state=STATE, next_command=AGAIN)
