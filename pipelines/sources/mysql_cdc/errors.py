"""Errors of a read that a Spark task makes, and how the driver gets them back."""

from __future__ import annotations

from collections.abc import Iterator

from tidegate.pipelines.errors import SourceError

NOTHING_COMMITTED = "no row of this range was committed; what earlier epochs committed stands"
RETRY = "tidegate run …   (reads the same range again)"
FRESH = "tidegate run … --resnapshot TABLE   (a new generation of the table: snapshot, then binlog)"


class ReadError(SourceError):
    """Base of what a read of the snapshot or of the binlog raises. `where` names the place, and the table."""

    def __init__(
        self, what: str, *, where: object = "", state: str = NOTHING_COMMITTED, next_command: str = RETRY
    ) -> None:
        super().__init__(what, where=str(where), state=state, next_command=next_command)


def no_such_date(column: str) -> str:
    """What is wrong with a key whose date is none."""
    return (
        f"a row has a date that does not exist (0000-00-00, 2024-02-31, …) in the key column {column}: keys that differ"
        " on the server would be one here"
    )


MEND_DATES = (
    "on the server: UPDATE the rows that have such a date in the key, and keep NO_ZERO_DATE, NO_ZERO_IN_DATE and strict"
    " mode in sql_mode; then "
)


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


def _from_text(text: str) -> ReadError | None:
    """The last ReadError in a traceback, made anew from its lines."""
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
