"""What a failed read means: the table, the step, the state that is kept, and what to do."""

from __future__ import annotations

from collections.abc import Mapping

from tidegate.pipelines.errors import SourceError
from tidegate.pipelines.sources.mysql_cdc.binlog.errors import BinlogError, BinlogRefused, ConnectionLost, SpoolDamaged
from tidegate.pipelines.sources.mysql_cdc.errors import FRESH, RETRY, find
from tidegate.pipelines.sources.mysql_cdc.log import resnapshot
from tidegate.pipelines.sources.mysql_cdc.snapshot.errors import NotWritten, ReaderRefused

STATE = "the step is planned, none of its rows are committed; what was committed before stands"
AGAIN = "run the same command again: it goes on at this step"
_FIRST: Mapping[type[SourceError], str] = {
    ReaderRefused: "give the grant back",
    BinlogRefused: "give the grant back",
    NotWritten: "make room on the lake's disk, or mend it",
}
"""What is to be done before the command is run again."""

_PASSING = (ConnectionLost, SpoolDamaged, BinlogRefused)
"""What may be gone at the next run. Anything else that a binlog holds stays where it is, in the planned range."""


def explain(error: BaseException, table: str, step: str, where: str) -> SourceError | None:
    """The typed error of what Spark threw, `table` and `step` named; None for what has nothing to do with the server.

    What a task raised comes out of its worker as text, and is found in it. It never holds a password.
    """
    typed = find(error)
    if typed is None:
        return None
    return type(typed)(
        f"{table}: {typed.what}",
        where=f"{typed.where}; {step}; {where}",
        state=STATE,
        next_command=_next(typed, resnapshot(table)),
    )


def _next(typed: SourceError, fresh: str) -> str:
    if typed.next_command == FRESH:
        return fresh
    first = _FIRST.get(type(typed))
    again = f"{first}, then {AGAIN}" if first else AGAIN
    if not isinstance(typed, BinlogError) or isinstance(typed, _PASSING):
        return again
    if typed.next_command == RETRY:
        return f"{again}; if it stops at the same place: {fresh}"
    # What is mended now leaves the events as they were written.
    return f"{typed.next_command}; then {fresh}"
