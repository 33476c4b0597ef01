"""Whose a target is: of the INSERT, of whichever lake, that published to it first.

Its rows carry generation and epoch alone, so of two INSERTs' rows nobody could tell whose they are.
"""

from __future__ import annotations

from tidegate.pipelines.commands import NextCommand
from tidegate.pipelines.errors import ConcurrentRun, LakeError
from tidegate.pipelines.generations import generation_of, insert_of, insert_owner, statement_name
from tidegate.pipelines.lake.by_name import TableState
from tidegate.pipelines.lake.lake import Lake
from tidegate.pipelines.lake.records import OF_STATEMENT

_ROLE = "publish"


def applications(table: TableState | None) -> list[tuple[str, str, str]]:
    """(lake, owner, role) of all that has committed to a table; none where there is no table."""
    names = () if table is None else table.applications
    return [parts for name in names if (parts := Lake.application_parts(name)) is not None]


def refuse_other_publisher(table: TableState, application: str) -> None:
    """Raise LakeError if `application` publishes an INSERT's epoch, and the table has epochs of another INSERT and none
    of this one. Does nothing for what is no INSERT's publishing."""
    own = Lake.application_parts(application)
    if own is None or own[2] != _ROLE:
        return
    first = [(lake, owner) for lake, owner, role in applications(table) if role == _ROLE]
    if first and own[:2] not in first:
        other = _called(first[0][1])
        raise LakeError(
            f"{table.root.name} holds rows published by {other} meanwhile, and a target is that of one INSERT",
            where=str(table.root),
            state=f"what is there stays; nothing of {_called(own[1])} was published",
            next_command="write a new INSERT, with its own 'insert.id', into a new target in place of this one",
        )


def swap_mark(lake: str, statement: str) -> str:
    """The transaction whose version says which generation of a statement publishes to a table. It is set where one was
    swapped in; 0: none does any more, since its rows went to another table."""
    return f"{lake}/{insert_owner(statement)}/swap/{OF_STATEMENT}"


def refuse_swapped(table: TableState, application: str) -> None:
    """Raise ConcurrentRun if a generation of a statement would commit to a table in which another one has taken its
    place. Until then two generations commit to tables of their own."""
    own = Lake.application_parts(application)
    insert = insert_of(own[1]) if own is not None else None
    if own is None or insert is None:
        return
    by = table.applications.get(swap_mark(own[0], statement_name(insert)))
    if by is not None and by != generation_of(insert):
        place = f"generation {by} has taken its place" if by else "what it had published was swapped into the target"
        raise ConcurrentRun(
            f"generation {generation_of(insert)} of {statement_name(insert)} publishes here no more: {place}",
            where=str(table.root),
            state="what is there stays; this epoch was not added",
            next_command=NextCommand("run", does="goes on with the generation that is current now"),
        )


def _called(owner: str) -> str:
    return insert_of(owner) or owner
