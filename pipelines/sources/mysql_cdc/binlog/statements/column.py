"""A column's new definition in MODIFY or CHANGE: whether every value stays as it was."""

from __future__ import annotations

from collections.abc import Sequence

from tidegate.pipelines.sources.mysql_cdc.binlog.statements.query import Token, TokenReader, Unparsed, tokens
from tidegate.pipelines.sources.mysql_cdc.types import INTEGERS, TEXTS, SourceColumn

STRICT = 0x00200000 | 0x00400000
"""Bits of sql_mode under which an ALTER fails where a value would change: STRICT_TRANS_TABLES, STRICT_ALL_TABLES."""

_OTHER_NAMES = {"integer": "int", "numeric": "decimal", "dec": "decimal", "bool": "tinyint", "boolean": "tinyint"}


def keeps_values(definition: Sequence[Token], known: SourceColumn, *, key: bool, sql_mode: int) -> bool:
    """Whether the column `known` has the same values under `definition` (what follows its name): the same type, and
    nothing but NULL, NOT NULL, a default, a comment or another place beside it. `key`: it is in the declared key."""
    kind = known.data_type
    text, strict = kind in TEXTS, bool(sql_mode & STRICT)
    # Without its old character set a text gets the table's: that fails where a character would be lost, if it is
    # strict. A key's collation says which rows are one. A TIMESTAMP may lose its NULLs without a word.
    if kind == "timestamp" or (text and (key or not strict)):
        return False
    reader = TokenReader(definition)
    try:
        if _type_of(reader) != _type_of(TokenReader([*tokens(known.column_type)])):
            return False
        nullable = True
        while not reader.done:
            if reader.accept("NOT"):
                reader.expect("NULL")
                nullable = False
            elif reader.accept("DEFAULT"):
                reader.accept("-", "+")
                reader.take()
                if reader.matches("("):
                    reader.group()
            elif reader.accept("COMMENT", "AFTER"):
                reader.take()
            elif not reader.accept("NULL", "FIRST"):
                return False
    except Unparsed:
        return False
    return nullable or strict or not known.nullable


def _type_of(reader: TokenReader) -> tuple[str, ...]:
    """A type as one way of writing has it: without the width at which whole numbers are shown."""
    name = reader.name().lower()
    name = _OTHER_NAMES.get(name, name)
    details = [token.text for token in reader.group()] if reader.matches("(") else []
    signs = []
    while reader.matches("UNSIGNED", "ZEROFILL", "SIGNED"):
        sign = reader.take().text.lower()
        signs += [sign] if sign != "signed" else []
    return (name, *([] if name in INTEGERS else details), *signs)
