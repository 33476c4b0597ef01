"""What a statement and its generations are called.

A generation of a statement is an owner of its own: plans, verdicts, leases, quarantine, state and staged files are
stored under its name. The first one has the statement's name, `enriched`; the second one is `enriched~2`. No table and
no 'insert.id' can have a `~` in its name.
"""

from __future__ import annotations

FIRST = 1
"""The number of a statement's first generation. It is current until another one is swapped in."""

_MARK = "~"


def name_of(statement: str, generation: int) -> str:
    """The name of a generation of a statement: the id of the INSERT that writes it."""
    return statement if generation == FIRST else f"{statement}{_MARK}{generation}"


def statement_name(insert_id: str) -> str:
    """The name of the statement whose generation has this name."""
    return insert_id.partition(_MARK)[0]


def generation_of(insert_id: str) -> int:
    """The number of the generation that has this name."""
    number = insert_id.partition(_MARK)[2]
    return int(number) if number else FIRST


def insert_owner(insert_id: str) -> str:
    """The owner name of a generation in control tables; no source table can have such a name."""
    return f"insert {insert_id}"


def insert_of(owner: str) -> str | None:
    """The id of the INSERT with this owner name; None for the name of a source table."""
    return owner.removeprefix("insert ") if owner.startswith("insert ") else None
