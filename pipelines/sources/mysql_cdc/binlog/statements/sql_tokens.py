"""The tokens of a statement in a binlog, by the lexical rules of MySQL and MariaDB.

Executable comments (`/*!50100 … */`, `/*M! … */`) count as what they hold, for the server ran it. SQL parsers drop
them, which would hide an ALTER.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

ANSI_QUOTES = 0x00000004
NO_BACKSLASH_ESCAPES = 0x00100000
"""Bits of sql_mode that change where tokens end (MySQL `sql/system_variables.h`)."""


class Kind(Enum):
    """What a token is."""

    WORD = "word"
    NAME = "quoted name"
    STRING = "string"
    SYMBOL = "symbol"


@dataclass(frozen=True)
class Token:
    """`text` is without quotes; a WORD may be a keyword or a name."""

    kind: Kind
    text: str

    def says(self, *keywords: str) -> bool:
        """Whether this is one of the `keywords` (upper case), not a quoted name."""
        return self.kind is not Kind.NAME and self.kind is not Kind.STRING and self.text.upper() in keywords

    @property
    def names(self) -> bool:
        """Whether it can be the name of a table or column."""
        return self.kind in (Kind.WORD, Kind.NAME)


def tokens(sql: str, sql_mode: int = 0) -> Iterator[Token]:
    """The tokens of `sql`. What is not closed reaches to the end."""
    at, size = 0, len(sql)
    while at < size:
        character = sql[at]
        if character.isspace() or character == "\0":
            at += 1
        elif sql.startswith(("/*!", "/*M!"), at):
            at = _past_version(sql, sql.index("!", at) + 1)
        elif sql.startswith("*/", at):
            at += 2  # the end of an executable comment
        elif sql.startswith("/*", at):
            at = _after(sql, "*/", at + 2)
        elif character == "#" or _line_comment(sql, at):
            at = _after(sql, "\n", at)
        elif character in "'\"`":
            quoted_name = character == "`" or (character == '"' and bool(sql_mode & ANSI_QUOTES))
            escapes = not quoted_name and not sql_mode & NO_BACKSLASH_ESCAPES
            text, at = _quoted(sql, at, escapes)
            yield Token(Kind.NAME if quoted_name else Kind.STRING, text)
        elif _in_word(character):
            end = at
            while end < size and _in_word(sql[end]):
                end += 1
            yield Token(Kind.WORD, sql[at:end])
            at = end
        else:
            yield Token(Kind.SYMBOL, character)
            at += 1


def _in_word(character: str) -> bool:
    return character.isalnum() or character in "_$" or character > "\x7f"


def _line_comment(sql: str, at: int) -> bool:
    return sql.startswith("--", at) and (at + 2 == len(sql) or sql[at + 2].isspace())


def _past_version(sql: str, at: int) -> int:
    while at < len(sql) and sql[at].isdigit():
        at += 1
    return at


def _after(sql: str, mark: str, at: int) -> int:
    found = sql.find(mark, at)
    return len(sql) if found < 0 else found + len(mark)


def _quoted(sql: str, at: int, escapes: bool) -> tuple[str, int]:
    """The text between quotes, and where it ends; a doubled quote stands for itself."""
    quote, parts = sql[at], []
    at += 1
    while at < len(sql):
        character = sql[at]
        if escapes and character == "\\" and at + 1 < len(sql):
            parts.append(sql[at + 1])
            at += 2
        elif character != quote:
            parts.append(character)
            at += 1
        elif sql.startswith(quote * 2, at):
            parts.append(quote)
            at += 2
        else:
            return "".join(parts), at + 1
    return "".join(parts), at
