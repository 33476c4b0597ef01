"""Errors of reads in Spark tasks, how the driver gets them back as typed errors, and what to do next."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Self

from tidegate.pipelines import commands
from tidegate.pipelines.commands import Advised, NextCommand, advice
from tidegate.pipelines.errors import SourceError, SourceUnreachable
from tidegate.pipelines.syntax.types import spark_string

NOTHING_COMMITTED = "no row of this range was committed; what earlier epochs committed stands"
RETRY = NextCommand("run", does="reads the same range again")
FRESH = commands.resnapshot("TABLE", "a new generation of the table: snapshot, then log")
"""What a reader advises that does not know the table's name in the script; `Advice.of_table` puts it in."""
STATE = "the step is planned, none of its rows are committed; what was committed before stands"
AGAIN = "run the same command again: it goes on at this step"


class ReadError(SourceError):
    """Base of the errors of reading the snapshot or the log. `where` names the place, and the table.

    `first` is to be done before the command is run again. `passing`: the error may be gone at the next run; otherwise
    it comes from the planned range itself. `kept` and `again`: the state and the next command where none is given.
    """

    first: ClassVar[str] = ""
    passing: ClassVar[bool] = True
    kept: ClassVar[str] = NOTHING_COMMITTED
    again: ClassVar[NextCommand] = RETRY

    def __init__(
        self, what: str, *, where: object = "", state: str | None = None, next_command: Advised | None = None
    ) -> None:
        state = self.kept if state is None else state
        next_command = self.again if next_command is None else next_command
        super().__init__(what, where=str(where), state=state, next_command=next_command)

    def at(self, where: object) -> Self:
        """The same error of the place `where`."""
        return type(self)(self.what, where=where, state=self.state, next_command=self.advice)


class SnapshotError(ReadError):
    """Base of the errors of reading a chunk."""


class TableChanged(SnapshotError):
    """The table has changed since the generation began."""


class UnreadableKey(SnapshotError):
    """A row's key has no value of its own in the changelog."""


class ReaderRefused(SnapshotError):
    """The server does not allow the user to read."""

    first = "give the grant back"


class ReaderLost(SnapshotError, SourceUnreachable):
    """The connection broke before the end of the chunk."""


class ServerFailed(SnapshotError):
    """Any other error of the server."""


class MalformedRows(SnapshotError):
    """The server's rows are of another shape than it announced."""


class ValueTooGreat(ReadError):
    """A value of the source is greater than the declared type holds."""

    passing = False

    @classmethod
    def raised_by_sql(cls, column: str, value: str) -> str:
        """Spark SQL that raises it in a task. `column`: its name; `value`: SQL of a text."""
        error = cls(
            f"column {column}: {_VALUE} is a value of a BIGINT UNSIGNED that BIGINT cannot hold",
            where="its rows",
            next_command=f"declare {column} as DECIMAL(20, 0), and run the script in another lake (--lake DIR); or "
            "UPDATE such rows on the server",
        )
        # Lines of their own: Spark writes before and after them.
        before, _, after = f"\n{cls.__module__}.{cls.__name__}: {error}\n".partition(_VALUE)
        return f"RAISE_ERROR(CONCAT({spark_string(before)}, {value}, {spark_string(after)}))"


_VALUE = "\0"
"""Where the value goes."""


class NotWritten(SnapshotError):
    """The lake's disk does not take the file of the chunk."""

    first = "make room on the lake's disk, or mend it"


def resnapshot(table: str) -> NextCommand:
    """The command that reads a table anew, as a new generation."""
    return commands.resnapshot(table, "readers stay on the old generation until the new one has flipped")


def explain(error: BaseException, table: str, step: str, where: str) -> SourceError | None:
    """The typed error for what Spark raised, with `table` and `step`; None for errors that have nothing to do with the
    server.

    It never holds a password.
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


def _next(typed: SourceError, fresh: NextCommand) -> Advised:
    """What to do next, for this table. The advice of `typed` may have come as text, with its commands."""
    text, anew, same = typed.next_command, str(FRESH), str(RETRY)
    if text.endswith(anew):
        return advice(text.removesuffix(anew), fresh)
    first, passing = (typed.first, typed.passing) if isinstance(typed, ReadError) else ("", True)
    again = f"{first}, then {AGAIN}" if first else AGAIN
    if passing:
        mend = text.removesuffix(same)
        return mend + AGAIN if mend and mend != text else again
    if text == same:
        return f"{again}; if it stops at the same place: " + fresh
    # What is mended now leaves the events as they were written.
    return typed.advice + "; then " + fresh


def find(error: BaseException) -> SourceError | None:
    """The typed error that `error` carries: itself, a cause, or the text of one that was raised in a Spark task.

    Spark passes on errors of a Python worker as text only, which holds all that a TidegateError does.
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


def _from_text(text: str) -> ReadError | None:
    """The last ReadError in a traceback, restored from its lines."""
    found: ReadError | None = None
    kinds = {f"{kind.__module__}.{kind.__name__}": kind for kind in _kinds(ReadError)}
    lines = text.splitlines()
    for number, line in enumerate(lines):
        name, colon, what = line.strip().partition(": ")
        kind = kinds.get(name) if colon else None
        if kind is None:
            continue
        parts = {"where": "", "state": "", "next": ""}
        for following in lines[number + 1 : number + 1 + len(parts)]:
            key, _, value = following.strip().partition(":")
            if key in parts:
                parts[key] = value.strip()
        found = kind(what, where=parts["where"], state=parts["state"], next_command=parts["next"])
    return found


def _kinds(base: type[ReadError]) -> Iterator[type[ReadError]]:
    for kind in base.__subclasses__():
        yield kind
        yield from _kinds(kind)
