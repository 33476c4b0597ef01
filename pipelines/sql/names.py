"""Names that a table, an INSERT or a column may have: they become folders, assets and columns of Delta tables."""

from __future__ import annotations

from collections.abc import Collection

from tidegate.pipelines.connectors.table import RESERVED_PREFIX
from tidegate.pipelines.syntax.source import Source
from tidegate.pipelines.syntax.statements import Name

FORBIDDEN = " ,;{}()\n\t=.`\r"
"""Characters that Delta Lake refuses in a column's name, and those that would make a path of names ambiguous."""


def check_table_name(source: Source, name: Name) -> None:
    """A table's name is also a folder's and an asset's. Raises SqlError."""
    if name.text.startswith(RESERVED_PREFIX):
        raise source.error(name.span, f"`{name.text}` begins with `_`", "names that begin with `_` are the lake's own")
    if not all(character.isalnum() or character in "_-" for character in name.text):
        raise source.error(name.span, f"`{name.text}` is no name for a table", "use letters, digits, `_` and `-`")


def check_constraint_name(source: Source, name: Name) -> None:
    """A constraint's name is part of reasons, counts and metadata. Raises SqlError."""
    if not all(character.isalnum() or character in "_-" for character in name.text):
        raise source.error(name.span, f"`{name.text}` is no name for a constraint", "use letters, digits, `_` and `-`")


def check_column_name(source: Source, name: Name) -> None:
    """Raises SqlError for a name that the lake cannot have."""
    if name.text.startswith(RESERVED_PREFIX):
        raise source.error(
            name.span,
            f"column `{name.text}` begins with `_`",
            f"columns that begin with `_` are the lake's own: call it `{name.text.lstrip('_') or 'value'}`",
        )
    wrong = [character for character in name.text if character in FORBIDDEN]
    if wrong:
        raise source.error(
            name.span, f"column `{name.text}` holds {wrong[0]!r}", "Delta Lake does not take it in a name"
        )


def unused(name: str, taken: Collection[str]) -> str:
    """`name`, or the first of `name_2`, `name_3`, … that is none of `taken` (casefolded), whatever its case."""
    found, number = name, 1
    while found.casefold() in taken:
        number += 1
        found = f"{name}_{number}"
    return found
