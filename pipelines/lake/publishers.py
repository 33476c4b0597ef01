"""Whose a target is: of the INSERT, of whichever lake, that published to it first.

Its rows carry generation and epoch alone, so of two INSERTs' rows nobody could tell whose they are.
"""

from __future__ import annotations

from tidegate.pipelines.errors import LakeError
from tidegate.pipelines.lake.by_name import TableState
from tidegate.pipelines.lake.delta_log import Table, files_of
from tidegate.pipelines.lake.lake import Lake
from tidegate.pipelines.lake.layout import PUBLISHED
from tidegate.pipelines.location import Address, Location

_ROLE = "publish"


def applications(table: Table | None) -> list[tuple[str, str, str]] | None:
    """(lake, owner, role) of all that has committed to a table; none where there is no table, None where its log cannot
    be read by names."""
    if table is None:
        return []
    if not isinstance(table, TableState):
        return None
    return [parts for name in table.applications if (parts := Lake.application_parts(name)) is not None]


def refuse_other_publisher(table: Table, path: Address, application: str) -> None:
    """Raise LakeError if `application` publishes an INSERT's epoch, and the table at `path`, as it is in `table`, has
    epochs of another INSERT and none of this one. Does nothing for what is no INSERT's publishing."""
    own = Lake.application_parts(application)
    if own is None or own[2] != _ROLE or table.transaction_version(application) is not None:
        return
    made = applications(table)
    if made is None:
        others = _by_files(table, own[1], whole_life=application.endswith("/1"))
    else:
        first = [(lake, owner) for lake, owner, role in made if role == _ROLE]
        others = [] if own[:2] in first else [owner for _, owner in first]
    if others:
        raise LakeError(
            f"{Location(path).name} holds rows published by {_called(others[0])} meanwhile, and a target is that of "
            "one INSERT",
            where=str(path),
            state=f"what is there stays; nothing of {_called(own[1])} was published",
            next_command="write a new INSERT, with its own 'insert.id', into a new target in place of this one",
        )


def _by_files(table: Table, own: str, *, whole_life: bool) -> list[str]:
    """The same of a table whose log does not name its writers: by the folders of its files, which another writer may
    have rewritten. `whole_life`: this is the first generation of `own`, so that not even files of its name are its
    own."""
    folders = [file["path"].split("/") for file in files_of(table, "path")]
    found = [f"insert {parts[1]}" for parts in folders if len(parts) > 2 and parts[0] == PUBLISHED]
    return [] if own in found and not whole_life else found


def _called(owner: str) -> str:
    return owner.removeprefix("insert ")
