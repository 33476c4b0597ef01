"""The dialect: Flink SQL's keywords and signs, on sqlglot's tokenizer and parser; scripts of several statements,
statement sets, and named errors for everything that is no part of the dialect.

>>> import sqlglot
>>> sqlglot.parse_one("price * 2 > 10 AND name LIKE 'a%'", read=Tidegate).__class__.__name__
'And'
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import ClassVar, TypeVar

from sqlglot import Token, TokenType, tokens
from sqlglot.dialects.dialect import Dialect, NormalizationStrategy
from sqlglot.errors import TokenError

from tidegate.pipelines.syntax.errors import SqlError, did_you_mean
from tidegate.pipelines.syntax.grammar.base import END_OF_STATEMENT
from tidegate.pipelines.syntax.grammar.query import QueryGrammar
from tidegate.pipelines.syntax.settings import AUTO_WATERMARK_INTERVAL
from tidegate.pipelines.syntax.source import Source, Span, span_of
from tidegate.pipelines.syntax.statements import SetOption, Statement, Watermark
from tidegate.pipelines.syntax.types import FlinkType

T = TypeVar("T")

REFUSED_STATEMENTS = {
    "ALTER": "change the CREATE TABLE itself",
    "ANALYZE": "leave it out",
    "CALL": "leave it out",
    "DELETE": "a pipeline adds rows only",
    "DESC": "tidegate explain SCRIPT shows the tables",
    "DESCRIBE": "tidegate explain SCRIPT shows the tables",
    "DROP": "leave it out: a table lives as long as its script",
    "EXPLAIN": "tidegate explain SCRIPT shows the plan",
    "MERGE": "a pipeline adds rows only",
    "REPLACE": "use INSERT INTO",
    "RESET": "leave it out: what a script sets holds for all of it",
    "SELECT": "put INSERT INTO target in front: a script publishes to tables",
    "SHOW": "tidegate explain SCRIPT shows the tables",
    "TRUNCATE": "a pipeline adds rows only",
    "UPDATE": "a pipeline adds rows only",
    "USE": "leave it out: table names have one part",
    "VALUES": "rows come from a source table",
    "WITH": "write it behind INSERT INTO: INSERT INTO target WITH name AS (SELECT …) SELECT …",
}


class ScriptParser(QueryGrammar):
    """The parser of the dialect."""

    def script(self) -> list[Statement]:
        """Read all statements. Raises SqlError at the first token that does not fit."""
        statements: list[Statement] = []
        while self._curr:
            if self._match(END_OF_STATEMENT):
                continue
            statements.extend(self._statement_or_set())
            if self._curr and self._curr.token_type != END_OF_STATEMENT:
                missing = self.word("CREATE") or self.word("INSERT")
                self.expected("`;` or the end of the script", "statements are separated by `;`" if missing else None)
        self._all_hints_read()
        return statements

    def only(self, read: Callable[[ScriptParser], T], what: str) -> T:
        """Read one thing and nothing else."""
        found = read(self)
        if self._curr:
            self.expected(f"the end of the {what}")
        self._all_hints_read()
        return found

    def _all_hints_read(self) -> None:
        for end in self.source.hints:
            raise no_hint(self.source, self.source.text.index("/*+", end))

    def _statement_or_set(self) -> list[Statement]:
        if self.take("EXECUTE", "STATEMENT", "SET", "BEGIN") or self.take("BEGIN", "STATEMENT", "SET"):
            return self._statement_set()
        self.take("EXECUTE")
        return [self._statement()]

    def _statement_set(self) -> list[Statement]:
        statements: list[Statement] = []
        self._match(END_OF_STATEMENT)
        while not self.take("END"):
            if not self.word("INSERT"):
                self.expected("`INSERT` or `END`", "a statement set holds INSERTs")
            statements.append(self._statement())
            if not self._match(END_OF_STATEMENT):
                self.expected("`;`")
        return statements

    def _statement(self) -> Statement:
        first = self._curr
        if self.take("CREATE"):
            return self.create(first)
        if self.take("INSERT"):
            return self.insert(first)
        if self.take("SET"):
            return self._setting(first)
        word = first.text.upper()
        if word in REFUSED_STATEMENTS and first.token_type != TokenType.STRING:
            self.refuse(span_of(first), f"{word} is not supported", REFUSED_STATEMENTS[word])
        made_of = "a script is made of CREATE TABLE, CREATE VIEW, CREATE FUNCTION and INSERT INTO"
        self.expected("a statement", did_you_mean(word, ["CREATE", "INSERT"]) or made_of)

    def _setting(self, first: Token) -> SetOption:
        """The rest of SET 'key' = 'value'."""
        example = f"for example SET '{AUTO_WATERMARK_INTERVAL}' = '0 ms'"
        key = self.text("a setting's name in quotes", example)
        self.need_sign(TokenType.EQ, "=", example)
        return SetOption(key, self.text("the setting's value in quotes", example), self.since(first))


SIGNS = {
    ">=": TokenType.GTE,
    "<=": TokenType.LTE,
    "<>": TokenType.NEQ,
    "!=": TokenType.NEQ,
    "||": TokenType.DPIPE,
    "=>": TokenType.FARROW,
}

_WORDS = """
    ALL AND BETWEEN CASE CREATE CROSS DISTINCT ELSE ESCAPE EXCEPT EXISTS FALSE FETCH FOR FROM FULL HAVING IN
    INNER INSERT INTERSECT INTERVAL INTO IS JOIN LATERAL LEFT LIKE LIMIT MATCH_RECOGNIZE NATURAL NOT NULL OFFSET
    ON OR OUTER OVER RIGHT SELECT TABLE THEN TRUE UNION UNIQUE USING VALUES WHEN WHERE WINDOW WITH
"""
RESERVED = {word: TokenType[word] for word in _WORDS.split()} | {
    "AS": TokenType.ALIAS,
    "GROUP": TokenType.GROUP_BY,
    "MINUS": TokenType.EXCEPT,
    "ORDER": TokenType.ORDER_BY,
    "PRIMARY": TokenType.PRIMARY_KEY,
    "SIMILAR": TokenType.SIMILAR_TO,
    "TABLESAMPLE": TokenType.TABLE_SAMPLE,
}
"""Words that are names only in backquotes. All others of the grammar (WATERMARK, METADATA, ROW, …) may be names."""


class Tidegate(Dialect):
    """Flink SQL as Tidegate reads it: names keep their case, strings are in single quotes, names in backquotes."""

    NORMALIZATION_STRATEGY = NormalizationStrategy.CASE_SENSITIVE

    class Tokenizer(tokens.Tokenizer):
        QUOTES: ClassVar = ["'"]
        IDENTIFIERS: ClassVar = ["`"]
        COMMENTS: ClassVar = ["--", ("/*", "*/")]
        NESTED_COMMENTS = False
        HEX_STRINGS: ClassVar = [("x'", "'"), ("X'", "'")]
        KEYWORDS: ClassVar = {**SIGNS, **RESERVED}
        SINGLE_TOKENS: ClassVar = {**tokens.Tokenizer.SINGLE_TOKENS, ";": END_OF_STATEMENT}
        COMMANDS: ClassVar = set()

    Parser = ScriptParser


def read_script(source: Source) -> list[Statement]:
    """The statements of a script. Raises SqlError."""
    reader = ScriptParser(dialect=Tidegate)
    try:
        return reader.read(source, tokenize(source), reader.script)
    except RecursionError:
        place = reader.here()
    raise source.error(place, "the expression is nested too deeply", "take it apart with computed columns")


@lru_cache(maxsize=4096)
def parse_type(text: str) -> FlinkType:
    """The type that `text` spells in Flink SQL. Raises SqlError."""
    return _read_one(Source(text), ScriptParser.inner_type, "type")


def read_watermark(source: Source) -> Watermark:
    """The WATERMARK FOR that the whole of `source` is. Raises SqlError."""
    return _read_one(source, ScriptParser.watermark, "watermark")


def _read_one(source: Source, read: Callable[[ScriptParser], T], what: str) -> T:
    """The one thing that the whole of `source` is."""
    reader = ScriptParser(dialect=Tidegate)
    return reader.read(source, tokenize(source), lambda: reader.only(read, what))


def tokenize(source: Source) -> list[Token]:
    """The tokens of a script. Raises SqlError for a string, name or comment that does not end.

    Marks the secret parts in `source`, so that no error shows them.
    """
    tokenizer = Tidegate().tokenizer()
    try:
        found = tokenizer.tokenize(source.text)
        broken = False
    except TokenError:
        found = tokenizer.tokens
        broken = True
    # Outside of `except`: sqlglot's error quotes the script, secrets and all, and must not ride along as context.
    begin = _behind_gap(source.text, found[-1].end + 1 if found else 0)
    unfinished = source.text.startswith("/*", begin)
    source.hide(found, begin if broken and not unfinished else None)
    if unfinished:
        raise source.error(Span(begin, begin + 2), "the comment does not end", "close it with */")
    if broken:
        raise _broken(source, begin)
    source.hints = _hints(source, found)
    return found


def _hints(source: Source, found: list[Token]) -> dict[int, list[Token]]:
    """The tokens of each hint `/*+ OPTIONS(…) */`, by where the token in front of it ends. A hint looks like a comment;
    ignoring one silently would change what the script means."""
    hints: dict[int, list[Token]] = {}
    ends = [0, *(token.end + 1 for token in found)]
    starts = [*(token.start for token in found), len(source.text)]
    for end, stop in zip(ends, starts, strict=True):
        for comment in re.finditer(_COMMENT, source.text[end:stop], re.DOTALL):
            if not comment.group().startswith("/*+"):
                continue
            offset = end + comment.start()
            try:
                tokens = Tidegate().tokenizer().tokenize(" " * (offset + 3) + comment.group()[3:-2])
            except TokenError:
                tokens = []
            source.hide(tokens)
            if end in hints or not tokens or tokens[0].text.upper() != "OPTIONS":
                raise no_hint(source, offset)
            hints[end] = tokens
    return hints


def no_hint(source: Source, offset: int) -> SqlError:
    """A hint that nobody reads."""
    place, hint = Span(offset, offset + 3), "put options into the table's WITH (…)"
    return source.error(place, "hints are not supported, but OPTIONS(…) behind a table's name in FROM or JOIN", hint)


_COMMENT = r"--[^\r\n]*|/\*.*?\*/"
_GAP = re.compile(rf"(?:\s|{_COMMENT})*", re.DOTALL)
"""Spaces and comments between tokens."""


def _behind_gap(text: str, offset: int) -> int:
    """Where the text goes on after spaces and comments from `offset` on: at a comment that does not end, too."""
    found = _GAP.match(text, offset)
    return found.end() if found else offset


def _broken(source: Source, begin: int) -> Exception:
    first = source.text[begin : begin + 1]
    span = Span(begin, begin + 1)
    if first == "`":
        return source.error(span, "the backquoted name does not end", "close it with `")
    if first in ("x", "X"):
        return source.error(
            Span(begin, begin + 2), "the binary literal is not hexadecimal", "write pairs of 0-9 and A-F: X'45F0'"
        )
    return source.error(span, "the string does not end", "close it with ', and write a quote inside of it twice: ''")
