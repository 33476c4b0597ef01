"""A column's new definition in MODIFY or CHANGE: whether every value stays as it was."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tidegate.pipelines.sources.mysql_cdc.binlog.statements.query import Token, TokenReader, Unparsed
from tidegate.pipelines.sources.mysql_cdc.binlog.statements.shape import Shape, charset_holds, read_shape, shape_of
from tidegate.pipelines.sources.mysql_cdc.types import TEXTS, SourceColumn

STRICT = 0x00200000 | 0x00400000
"""Bits of sql_mode under which an ALTER fails where a value would change: STRICT_TRANS_TABLES, STRICT_ALL_TABLES."""


@dataclass(frozen=True)
class Definition:
    """What a definition says beside defaults, comments and places. `charset`: the one that it names."""

    shape: Shape
    nullable: bool = True
    auto_increment: bool = False
    charset: str | None = None


def read_definition(definition: Sequence[Token]) -> Definition:
    """What follows a column's name. Raises Unparsed where more is said than `Definition` has."""
    reader = TokenReader(definition)
    found = Definition(read_shape(reader))
    while not reader.done:
        if reader.accept("NOT"):
            reader.expect("NULL")
            found = replace(found, nullable=False)
        elif reader.accept("DEFAULT"):
            reader.accept("-", "+")
            if not reader.matches("("):
                reader.take()
            if reader.matches("("):
                reader.group()
        elif reader.accept("COMMENT", "AFTER"):
            reader.take()
        elif reader.accept("AUTO_INCREMENT"):
            found = replace(found, auto_increment=True)
        elif reader.matches("CHARACTER", "CHAR", "CHARSET"):
            found = replace(found, charset=read_charset(reader))
        elif reader.accept("COLLATE"):
            reader.take()
        elif not reader.accept("NULL", "FIRST"):
            raise Unparsed
    return found


def read_charset(reader: TokenReader) -> str:
    """CHARACTER SET name, or another way to write that."""
    if not reader.accept("CHARSET"):
        reader.take()
        reader.expect("SET")
    name = reader.take().text.lower()
    return {"utf8": "utf8mb3"}.get(name, name)


def shape_after(
    definition: Sequence[Token],
    before: Shape,
    known: SourceColumn,
    *,
    key: bool,
    in_primary: bool,
    computed: bool,
    sql_mode: int,
) -> Shape | None:
    """The column's shape under `definition` (what follows its name); None where a value may have become another one.

    `before`: the widest shape that it may have had. `known`: the column as it is followed, which no later statement
    has left behind: what is said must lie between the two. `key`: it is in the declared key; `in_primary`: also in the
    primary key, so that it is never NULL. `computed`: a declared column is computed, perhaps of this one.
    """
    try:
        found = read_definition(definition)
    except Unparsed:
        return None
    text, strict = known.data_type in TEXTS, bool(sql_mode & STRICT)
    shape = replace(found.shape, charset=found.charset or before.charset)
    # A key's collation says which rows are one, and a computed value may follow from it. A TIMESTAMP may lose its NULLs
    # without a word.
    if known.data_type == "timestamp" or (text and (key or computed)):
        return None
    if not shape.holds(before) or not shape_of(known).holds(shape):
        return None
    if text and not (charset_holds(shape.charset, before.charset) and charset_holds(known.charset, shape.charset)):
        return None
    # Without its old character set a text gets the table's: that fails where a character would be lost, if it is
    # strict. What `utf8` is depends on the server's settings.
    if text and not strict and found.charset in (None, "utf8mb3"):
        return None
    # In other bytes a TEXT may have no room, and then the blanks at its end are cut off without a word, in any mode. So
    # its character set is the same one to the end, and no other statement may have named one in between.
    if text and shape.counts_bytes:
        if known.recoded:
            return None
        shape = replace(shape, charset=found.charset)
    # One that becomes AUTO_INCREMENT gives another number to a NULL, and to a 0: whether there is one was looked up.
    if found.auto_increment != known.auto_increment or (known.numbered and known.nullable and not in_primary):
        return None
    if found.nullable:
        return shape if known.nullable or in_primary or found.auto_increment else None
    return shape if strict or not known.nullable else None
