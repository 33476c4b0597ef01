"""QUERY events: the statement's text, its default database, and the settings that change how it reads.

Layout: MySQL `libs/mysql/binlog/event/statement_events.h`, Query_event.

Its tokens are those of the lexical rules of MySQL and MariaDB. Executable comments (`/*!50100 … */`, `/*M! … */`) count
as what they hold, for the server ran it. SQL parsers drop them, which would hide an ALTER. One that is for another
version was not run, and is logged as a plain comment: the server puts a blank for its `!`. But to MySQL `/*M!` is a
plain comment as it stands.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from tidegate.pipelines.sources.mysql_cdc.binlog.rows.columns import Collations
from tidegate.pipelines.sources.mysql_cdc.binlog.rows.columns.texts import decode_text
from tidegate.pipelines.sources.mysql_cdc.binlog.rows.compression import decompress_rows
from tidegate.pipelines.sources.mysql_cdc.errors import MalformedEvent, UnsupportedEvent

POST_HEADER = struct.Struct("<IIBHH")
"""Thread id, seconds it took, length of the database's name, error code, length of the status variables."""
DATABASE_LENGTH_AT, STATUS_LENGTH_AT = 8, 11

_SQL_MODE, _CHARSET = 1, 4
_STATUS_BYTES = {0: 4, _SQL_MODE: 8, 3: 4, _CHARSET: 6}
_STATUS_WITH_LENGTH = {5: 1, 6: 1, 2: 2}
"""Status variables that begin with their length, and the bytes beside their text."""

_UTF8 = "utf8mb4"

_WITH_ASCII_INSIDE = {
    "big5": rb"[\xa1-\xf9][\x40-\x7e\xa1-\xfe]",
    "gbk": rb"[\x81-\xfe][\x40-\x7e\x80-\xfe]",
    "gb18030": rb"[\x81-\xfe](?:[0-9][\x81-\xfe][0-9]|[\x40-\x7e\x80-\xfe])",
    **dict.fromkeys(("sjis", "cp932"), rb"[\x81-\x9f\xe0-\xfc][\x40-\x7e\x80-\xfc]"),
}
"""The characters of more than one byte in the sets in which one of these bytes may be that of a quote or a letter."""
_LETTERS_OF_SWE7 = re.compile(rb"[@\[-^{-~]")


@dataclass(frozen=True)
class Query:
    """A statement as it was logged. `thread`: the connection that ran it. `thread_specific`: it opened a TEMPORARY
    table of that connection, or called CONNECTION_ID()."""

    text: str
    database: str
    sql_mode: int = 0
    thread: int = 0
    thread_specific: bool = False
    illegible: str = ""
    """The character set of the client, where only what is ASCII of the text is known, and not all of it is."""


def parse(
    body: bytes, collations: Collations, where: object = "", *, compressed: bool = False, thread_specific: bool = False
) -> Query:
    """A QUERY event's body without header and checksum. `thread_specific`: what the header's flag says."""
    try:
        thread, _, name_length, _, status_length = POST_HEADER.unpack_from(body)
        status = body[POST_HEADER.size : POST_HEADER.size + status_length]
        at = POST_HEADER.size + status_length
        database = body[at : at + name_length].decode()
        raw = body[at + name_length + 1 :]
        sql_mode, charset = _settings(status, collations)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise MalformedEvent(f"a statement that cannot be read: {error}", where=where) from error
    if compressed:
        raw = decompress_rows(raw, where)
    text, illegible = _text_of(raw, charset)
    return Query(text, database, sql_mode, thread, thread_specific, illegible)


def _text_of(raw: bytes, charset: str) -> tuple[str, str]:
    """A statement's text, and `Query.illegible`. It may hold any bytes inside its strings; keywords are ASCII."""
    if charset in (_UTF8, "binary"):  # the server takes names of a `binary` client as utf8
        return raw.decode(errors="surrogateescape"), ""
    try:
        return decode_text(charset, raw, "a statement"), ""
    except UnsupportedEvent:
        strange = not raw.isascii() or (charset == "swe7" and _LETTERS_OF_SWE7.search(raw) is not None)
    if charset in _WITH_ASCII_INSIDE:
        raw = re.sub(_WITH_ASCII_INSIDE[charset], b"\xff", raw, flags=re.DOTALL)
    return raw.decode("latin-1"), charset if strange else ""


def _settings(status: bytes, collations: Collations) -> tuple[int, str]:
    """sql_mode and the client's character set; utf8mb4 by default."""
    at, sql_mode, charset = 0, 0, _UTF8
    while at < len(status):
        code = status[at]
        at += 1
        if code in _STATUS_WITH_LENGTH:
            at += status[at] + _STATUS_WITH_LENGTH[code]
            continue
        if code == _SQL_MODE:
            (sql_mode,) = struct.unpack_from("<Q", status, at)
        elif code == _CHARSET:
            charset = collations.get(int.from_bytes(status[at : at + 2], "little"), _UTF8)
        elif code not in _STATUS_BYTES:
            break  # variables are written in order of age: both of ours come before any that is not known
        at += _STATUS_BYTES[code]
    return sql_mode, _UTF8 if charset.startswith(("utf8", "ascii")) else charset


ANSI_QUOTES = 0x00000004
MSSQL = 0x00000400
NO_BACKSLASH_ESCAPES = 0x00100000
"""Bits of sql_mode that change where tokens end (MariaDB `sql/sql_class.h`); MySQL 8 never sets MSSQL's."""


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

    def matches(self, *keywords: str) -> bool:
        """Whether this is one of the `keywords` (upper case), not a quoted name."""
        return self.kind is not Kind.NAME and self.kind is not Kind.STRING and self.text.upper() in keywords

    @property
    def names(self) -> bool:
        """Whether it can be the name of a table or column."""
        return self.kind in (Kind.WORD, Kind.NAME)


class Unparsed(Exception):
    """The statement goes on in a way that the parser does not know."""


class TokenReader:
    """A statement's tokens, read from left to right. What is not as asked raises Unparsed."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self._tokens, self._at = tokens, 0

    @property
    def done(self) -> bool:
        """Whether all has been read, but for the semicolon that may end a statement."""
        return all(token.matches(";") for token in self.rest)

    @property
    def rest(self) -> Sequence[Token]:
        """What has not been read."""
        return self._tokens[self._at :]

    def matches(self, *keywords: str) -> bool:
        """Whether the next token is one of the `keywords`."""
        return self._at < len(self._tokens) and self._tokens[self._at].matches(*keywords)

    def follows(self, *keywords: str) -> bool:
        """Whether the next tokens are these, one after another."""
        rest = self._tokens[self._at : self._at + len(keywords)]
        return len(rest) == len(keywords) and all(map(Token.matches, rest, keywords))

    def take(self) -> Token:
        """The next token, whatever it is."""
        if self._at >= len(self._tokens):
            raise Unparsed
        self._at += 1
        return self._tokens[self._at - 1]

    def accept(self, *keywords: str) -> bool:
        """Past the next token if it is one of the `keywords`."""
        found = self.matches(*keywords)
        self._at += found
        return found

    def expect(self, *keywords: str) -> None:
        """Past the `keywords`, one after another."""
        for keyword in keywords:
            if not self.accept(keyword):
                raise Unparsed

    def end(self) -> None:
        """Raises Unparsed unless the statement ends here."""
        if not self.done:
            raise Unparsed

    def past_if(self) -> bool:
        """Past IF EXISTS or IF NOT EXISTS. Returns whether it was there."""
        found = self.accept("IF")
        if found:
            self.accept("NOT")
            self.expect("EXISTS")
        return found

    def past_wait(self) -> None:
        """Past WAIT n or NOWAIT (MariaDB)."""
        if self.accept("WAIT"):
            self.take()
        else:
            self.accept("NOWAIT")

    def name(self) -> str:
        """An identifier."""
        token = self.take()
        if not token.names:
            raise Unparsed
        return token.text

    def table(self) -> tuple[str | None, str]:
        """A table's database (None: the default one) and name: `d.t`, `t`, and `.t`, which is the same as `t`."""
        if self.accept("."):
            return None, self.name()
        name = self.name()
        return (name, self.name()) if self.accept(".") else (None, name)

    def group(self) -> Sequence[Token]:
        """What a pair of parentheses holds."""
        self.expect("(")
        first, depth = self._at, 1
        while depth:
            token = self.take()
            depth += token.matches("(") - token.matches(")")
        return self._tokens[first : self._at - 1]


def tokens(sql: str, sql_mode: int = 0, *, on_mysql: bool = False) -> Iterator[Token]:
    """The tokens of `sql`. What is not closed reaches to the end. `on_mysql`: without MariaDB's executable comments."""
    at, size = 0, len(sql)
    while at < size:
        character = sql[at]
        if character in " \t\n\v\f\r\0":
            at += 1
        elif sql.startswith("/*!", at) or (sql.startswith("/*M!", at) and not on_mysql):
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
        elif character == "[" and sql_mode & MSSQL:
            text, at = _quoted(sql, at, False, "]")
            yield Token(Kind.NAME, text)
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
    return sql.startswith("--", at) and (at + 2 == len(sql) or sql[at + 2] <= " " or sql[at + 2] == "\x7f")


def _past_version(sql: str, at: int) -> int:
    """Past the five or six digits of the version that an executable comment may begin with."""
    end = at
    while end < min(len(sql), at + 6) and sql[end] in "0123456789":
        end += 1
    return end if end - at >= 5 else at


def _after(sql: str, mark: str, at: int) -> int:
    found = sql.find(mark, at)
    return len(sql) if found < 0 else found + len(mark)


def _quoted(sql: str, at: int, escapes: bool, quote: str = "") -> tuple[str, int]:
    """The text between quotes, and where it ends; a doubled closing quote stands for itself."""
    quote, parts = quote or sql[at], []
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
