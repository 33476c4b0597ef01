"""What an ALTER TABLE of the wanted table means for its rows: whether they are followed past it, and what is new."""

from __future__ import annotations

from collections.abc import MutableMapping

from tidegate.pipelines.sources.mysql_cdc.binlog.model import WantedTable
from tidegate.pipelines.sources.mysql_cdc.binlog.statements.alter import Alteration, shown
from tidegate.pipelines.sources.mysql_cdc.binlog.statements.column import shape_after
from tidegate.pipelines.sources.mysql_cdc.binlog.statements.shape import Shape, charset_holds, shape_of
from tidegate.pipelines.sources.mysql_cdc.names import lowered
from tidegate.pipelines.sources.mysql_cdc.types import TEXTS

Shapes = MutableMapping[str, Shape]
"""The shapes that declared columns got in what has been read, by their lowered names."""


def obstacle(done: Alteration, table: WantedTable, shapes: Shapes, sql_mode: int) -> str:
    """Why the table's rows are not followed past `done`; empty where they are. Brings `shapes` up to date."""
    if done.unknown:
        return shown(done.unknown)
    if done.rewrites:
        return done.rewrites
    if done.adds_cascade and not table.cascades_logged:
        return "a foreign key was added whose cascades the binlog does not show"
    if done.drops_index and table.other_key:
        return index_dropped(table)
    return _of_columns(done, table) or _of_definitions(done, table, shapes, sql_mode)


def index_dropped(table: WantedTable) -> str:
    """Why a table whose declared key is not its primary key is not followed past the end of an index."""
    return (
        f"an index was dropped, and the declared key ({', '.join(table.primary_key)}) is not its primary key: without a"
        " unique index over it two rows may have had one key"
    )


def news(done: Alteration, table: WantedTable) -> str:
    """A sentence for people about columns that came, or that were declared and went; empty where none did."""
    declared = {lowered(column.name): column.name for column in table.columns}
    came = [name for name, _ in done.added if lowered(name) not in declared]
    went = [declared[lowered(name)] for name in done.dropped if lowered(name) in declared]
    return "; ".join(
        [f"column {name} was added and is not declared: passed over" for name in came]
        + [f"column {name} was dropped: it reads NULL from here on" for name in went]
    )


def _of_columns(done: Alteration, table: WantedTable) -> str:
    """Why columns that came, went or were renamed are not followed.

    `WantedTable.columns` say which were gone when the range was planned. A column that went, and was there again by
    then, stops at its end: what filled it is not in the log.
    """
    known = {lowered(column.name): column for column in table.columns}
    keys = {lowered(name) for name in table.primary_key}
    for old, new, part in done.renamed:
        if lowered(old) in known or lowered(new) in known:
            return shown(part)
    for name, unless_there in done.added:
        column = known.get(lowered(name))
        if column is not None and (column.dropped or not unless_there):
            return f"the declared column {name} was added; rows from before have its default"
    for name in done.dropped:
        column = known.get(lowered(name))
        if column is not None and lowered(name) in keys:
            return f"the column {column.name} was dropped, which is declared as its primary key"
        if column is not None and not column.dropped:
            return f"the declared column {column.name} was dropped and added anew; rows from before have its default"
    return ""


def _of_definitions(done: Alteration, table: WantedTable, shapes: Shapes, sql_mode: int) -> str:
    known = {lowered(column.name): column for column in table.columns}
    before = {lowered(column.name): column for column in table.before or table.columns}
    keys = {lowered(name) for name in table.primary_key}
    computed = any(column.generated for column in table.columns)
    for name, definition, part in done.modified:
        column = known.get(lowered(name))
        if column is None:
            if computed:
                return f"{shown(part)} (a declared column is computed, perhaps of this one)"
            continue
        key = lowered(name) in keys
        shape = shape_after(
            definition,
            shapes.get(lowered(name)) or shape_of(before.get(lowered(name), column)),
            column,
            key=key,
            in_primary=key and not table.other_key,
            computed=computed,
            sql_mode=sql_mode,
        )
        if shape is None:
            return shown(part)
        shapes[lowered(name)] = shape
    if done.converts is None:
        return ""
    charset, part = done.converts
    for name, column in known.items():
        if column.data_type not in TEXTS or column.dropped:
            continue
        was = shapes.get(name) or shape_of(before.get(name, column))
        kept = charset_holds(charset, was.charset) and charset_holds(column.charset, charset)
        if name in keys or computed or not kept:
            return shown(part)
        shapes[name] = shape_of(column)  # it may have become a longer type: at most the one that is followed
    return ""
