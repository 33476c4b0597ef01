"""Reading tokens, and saying exactly which one is wrong; and Flink SQL's types, as written."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any, NoReturn, TypeVar, cast

from sqlglot import Token, TokenType, exp, parser

from tidegate.pipelines.syntax.errors import did_you_mean
from tidegate.pipelines.syntax.source import Source, Span, span_of
from tidegate.pipelines.syntax.statements import Name, Scalar, Text, place, spanned
from tidegate.pipelines.syntax.types import MAX_FRACTION, MAX_PRECISION, Field, FlinkType, Kind, array_of, folded

T = TypeVar("T")

NAMES = (TokenType.VAR, TokenType.IDENTIFIER)
END_OF_STATEMENT = TokenType.BREAK
"""A semicolon. sqlglot's own type for it would have sqlglot take a statement set apart."""
NOT_WORDS = (TokenType.STRING, TokenType.IDENTIFIER, TokenType.NUMBER, TokenType.HEX_STRING)

MAX_DIGITS = 19
"""The most digits of a number that means a size; more are no size. (Python converts up to 4,300 digits.)"""


class TokenReader(parser.Parser):
    """sqlglot's parser with errors of our own: the first one stops, and points at its token."""

    _source: Source | None = None
    _whole: Callable[[], Any] | None = None

    def read(self, source: Source, tokens: list[Token], whole: Callable[[], T]) -> T:
        """What `whole` makes of all of `tokens`, which are those of `source`. Raises SqlError."""
        self._source, self._whole = source, whole
        found = self.parse(tokens, source.text)
        # sqlglot stops at an ELSE in front, as if it ended a block; nothing is read yet.
        return cast(T, found[0]) if found else whole()

    def _parse_statement(self) -> Any:
        """Called by sqlglot once, since no token of this dialect ends a statement for it (`Tidegate.Tokenizer`)."""
        return super()._parse_statement() if self._whole is None else self._whole()

    @property
    def source(self) -> Source:
        if self._source is None or self._source.text != self.sql:
            self._source = Source(self.sql)
        return self._source

    def raise_error(self, message: str, token: Token | None = None) -> NoReturn:
        """Called by sqlglot when it cannot go on."""
        raise self.source.error(self.here(token), message[:1].lower() + message[1:])

    def validate_expression(self, expression, args=None):
        """Report an operator's missing operand at the place where it should be. An operator reaches from its first
        operand to its last."""
        if any(True for _ in expression.error_messages(args)):
            self.expected("an expression")
        spans = [span for part in expression.iter_expressions() if (span := place(part)) is not None]
        return spanned(expression, reduce(Span.to, spans)) if spans else expression

    def here(self, token: Token | None = None) -> Span:
        """The place of the current token, or just after the last one."""
        token = token or self._curr
        if token:
            return span_of(token)
        return Span(self._prev.end + 1, self._prev.end + 2) if self._prev else Span(0, 1)

    def since(self, first: Token) -> Span:
        """From the start of `first` to the end of the last token read."""
        return Span(first.start, self._prev.end + 1)

    def found(self) -> str:
        """The current token, for a message."""
        return f"`{self.source.shown(span_of(self._curr))}`" if self._curr else "the end of the script"

    def expected(self, what: str, hint: str | None = None) -> NoReturn:
        """Refuse the current token."""
        if hint is None and self._curr.text == '"':
            hint = "strings stand in single quotes, names in backquotes"
        raise self.source.error(self.here(), f"expected {what}, found {self.found()}", hint)

    def refuse(self, span: Span, what: str, hint: str | None = None) -> NoReturn:
        raise self.source.error(span, what, hint)

    def refuse_next(self, *words: str, hint: str, what: str = "", behind: TokenType | None = None) -> None:
        """Refuse these words, if they are next (and then `behind`): `what` they begin is not supported."""
        if self.word(*words) and behind in (None, self._next.token_type):
            self.refuse(self.here(), f"{what or ' '.join(words)} is not supported", hint)

    def word(self, *words: str, ahead: int = 0) -> bool:
        """Whether the next tokens are these words, whatever their case; nothing is read."""
        for offset, text in enumerate(words, self._index + ahead):
            if offset >= len(self._tokens):
                return False
            token = self._tokens[offset]
            if token.token_type in NOT_WORDS or token.text.upper() != text:
                return False
        return True

    def take(self, *words: str) -> bool:
        """Read these words, if they are next."""
        if not self.word(*words):
            return False
        self._advance(len(words))
        return True

    def need(self, *words: str, hint: str | None = None) -> Token:
        """Read these words, or refuse what is there. Returns the first."""
        first = self._curr
        for text in words:
            if not self.take(text):
                self.expected(f"`{' '.join(words)}`", hint)
        return first

    def need_sign(self, kind: TokenType, sign: str, hint: str | None = None) -> Token:
        """Read a sign such as `(`, or refuse what is there."""
        token = self._curr
        if not self._match(kind):
            self.expected(f"`{sign}`", hint)
        return token

    def name(self, what: str) -> Name:
        """Read an identifier; `what` it names is for the message."""
        token = self._curr
        if token.token_type not in NAMES:
            reserved = bool(token) and token.token_type not in NOT_WORDS and token.text.isidentifier()
            self.expected(what, f"`{token.text}` is a reserved word: write it in backquotes" if reserved else None)
        if not token.text:
            self.refuse(span_of(token), "a name must not be empty")
        self._advance()
        return Name(token.text, span_of(token), token.token_type == TokenType.IDENTIFIER)

    def text(self, what: str, hint: str | None = None) -> Text:
        token = self._curr
        if not self._match(TokenType.STRING):
            self.expected(what, hint)
        return Text(token.text, span_of(token))

    def number(self, what: str) -> tuple[int, Span]:
        """Read a whole number."""
        token = self._curr
        if token.token_type != TokenType.NUMBER or not token.text.isdecimal():
            self.expected(what)
        digits = token.text.lstrip("0") or "0"
        if len(digits) > MAX_DIGITS:
            self.refuse(span_of(token), f"{what} has {len(digits)} digits, more than any that is taken")
        self._advance()
        return int(digits), span_of(token)

    def listed(self, read: Callable[[], T]) -> list[T]:
        """`(` one or more, separated by commas `)`."""
        self.need_sign(TokenType.L_PAREN, "(")
        items = self.several(read)
        if not self._match(TokenType.R_PAREN):
            self.expected("`,` or `)`")
        return items

    def several(self, read: Callable[[], T]) -> list[T]:
        """One or more, separated by commas."""
        items = [read()]
        while self._match(TokenType.COMMA):
            items.append(read())
        return items

    def path(self, what: str) -> list[Name]:
        """Read `a.b.c`; `what` its first part names is for the message."""
        names = [self.name(what)]
        while self._match(TokenType.DOT):
            names.append(self.name("a field's name"))
        return names

    def scalar(self, read: Callable[[], exp.Expr | None] | None = None, what: str = "an expression") -> Scalar:
        """Read an expression; with `read`, one of a narrower kind, which errors call `what`."""
        first, index = self._curr, self._index
        tree = (read or self._parse_disjunction)()
        if tree is None:
            self.expected(what)
        return Scalar(tree, self.since(first), self.source.written(self._tokens[index : self._index]))

    def at(self, first: Token, node: exp.Expr) -> exp.Expr:
        """`node`, which reaches from `first` to the last token read."""
        return spanned(node, self.since(first))


_SIMPLE = "BOOLEAN TINYINT SMALLINT INT BIGINT FLOAT DOUBLE STRING BYTES DATE"
SIMPLE = {word: Kind[word] for word in _SIMPLE.split()} | {"INTEGER": Kind.INT}
DECIMALS = ("DECIMAL", "DEC", "NUMERIC")
SIZED = {
    "CHAR": Kind.CHAR,
    "CHARACTER": Kind.CHAR,
    "VARCHAR": Kind.VARCHAR,
    "BINARY": Kind.BINARY,
    "VARBINARY": Kind.VARBINARY,
}
KNOWN = (*SIMPLE, *DECIMALS, *SIZED, "TIMESTAMP", "TIMESTAMP_LTZ", "ARRAY", "MAP", "ROW")

REFUSED = {
    "TIME": "declare STRING: Spark and Delta Lake have no time of day",
    "MULTISET": "declare MAP<…, INT> or ARRAY<…>",
    "INTERVAL": "an interval cannot be stored: declare BIGINT and say the unit in the name",
    "RAW": "declare BYTES",
    "VARIANT": "declare STRING and keep the JSON text",
    "NULL": "declare the type that the column shall have",
    "SYMBOL": "declare STRING",
}
"""Types of Flink SQL that this dialect does not take, and what to declare instead."""

ELSEWHERE = {
    "BLOB": "BYTES",
    "BOOL": "BOOLEAN",
    "BYTE": "TINYINT",
    "DATETIME": "TIMESTAMP(3)",
    "FLOAT8": "DOUBLE",
    "INT4": "INT",
    "INT8": "BIGINT",
    "JSON": "STRING",
    "LONG": "BIGINT",
    "MEDIUMINT": "INT",
    "NUMBER": "DECIMAL(p, s)",
    "REAL": "FLOAT",
    "SHORT": "SMALLINT",
    "STRUCT": "ROW<…>",
    "TEXT": "STRING",
    "TIMESTAMPTZ": "TIMESTAMP_LTZ(3)",
    "TIMESTAMP_NTZ": "TIMESTAMP(p)",
    "UUID": "STRING",
}
"""Names that other databases have for a type."""

MAX_LENGTH = 2_147_483_647


class TypeGrammar(TokenReader):
    """TIMESTAMP(3), ROW<a INT NOT NULL, b ARRAY<STRING>>, …"""

    def type_is_next(self) -> bool:
        """Whether a type's name is next: a word that is no clause's."""
        return self._curr.token_type == TokenType.VAR or self._curr.text.upper() in ("INTERVAL", "NULL")

    def flink_type(self) -> FlinkType:
        """Read a type, without the NOT NULL behind it."""
        if not self.type_is_next():
            self.expected("a type")
        first = self._curr
        found = self._root(first)
        while self.take("ARRAY"):
            found = array_of(found)
        self.refuse_next("MULTISET", hint=REFUSED["MULTISET"])
        return found

    def inner_type(self) -> FlinkType:
        """Read a type inside of another, with its NOT NULL."""
        found = self.flink_type()
        if self.take("NOT", "NULL"):
            return found.not_null()
        self.take("NULL")
        return found

    def _root(self, first: Token) -> FlinkType:
        word = first.text.upper()
        self._advance()
        if word in REFUSED:
            self.refuse(span_of(first), f"{word} is not supported", REFUSED[word])
        if word in SIMPLE:
            if word == "DOUBLE":
                self.take("PRECISION")
            if self.word("UNSIGNED"):
                wider = "BIGINT" if SIMPLE[word] is Kind.INT else "DECIMAL(20, 0)" if word == "BIGINT" else "INT"
                self.refuse(self.here(), "there are no unsigned types", f"declare {wider}")
            return FlinkType(SIMPLE[word])
        if word in DECIMALS:
            return self._decimal()
        if word in SIZED:
            kind = SIZED[word]
            if kind is Kind.CHAR and self.take("VARYING"):
                kind = Kind.VARCHAR
            return FlinkType(kind, self._size(1, MAX_LENGTH, "a length") or 1)
        if word == "TIMESTAMP":
            return self._timestamp(first)
        if word == "TIMESTAMP_LTZ":
            return FlinkType(Kind.TIMESTAMP_LTZ, self._fraction())
        if word == "ARRAY":
            return array_of(self._bracketed(self.inner_type, "ARRAY<STRING>"))
        if word == "MAP":
            return FlinkType(Kind.MAP, arguments=self._bracketed(self._key_and_value, "MAP<STRING, INT>"))
        if word == "ROW":
            return FlinkType(Kind.ROW, fields=self._row())
        if word in ELSEWHERE:
            self.refuse(span_of(first), f"there is no type {first.text}", f"Flink SQL calls it {ELSEWHERE[word]}")
        self.refuse(span_of(first), f"there is no type {first.text}", did_you_mean(word, KNOWN))

    def _decimal(self) -> FlinkType:
        if not self._match(TokenType.L_PAREN):
            return FlinkType(Kind.DECIMAL, 10, 0)
        precision, where = self.number("the number of digits")
        if not 1 <= precision <= MAX_PRECISION:
            hint = "declare STRING: it keeps every digit" if precision > MAX_PRECISION else None
            self.refuse(where, f"a DECIMAL has 1 to {MAX_PRECISION} digits, not {precision}", hint)
        scale = 0
        if self._match(TokenType.COMMA):
            scale, where = self.number("the number of digits after the point")
            if scale > precision:
                self.refuse(where, f"a DECIMAL({precision}) cannot have {scale} digits after the point")
        self.need_sign(TokenType.R_PAREN, ")")
        return FlinkType(Kind.DECIMAL, precision, scale)

    def _timestamp(self, first: Token) -> FlinkType:
        fraction = self._fraction()
        if self.take("WITH", "LOCAL", "TIME", "ZONE"):
            return FlinkType(Kind.TIMESTAMP_LTZ, fraction)
        if self.take("WITH", "TIME", "ZONE"):
            hint = "declare TIMESTAMP_LTZ(3), an instant, or keep the zone in a column of its own"
            self.refuse(self.since(first), "TIMESTAMP WITH TIME ZONE is not supported", hint)
        self.take("WITHOUT", "TIME", "ZONE")
        return FlinkType(Kind.TIMESTAMP, fraction)

    def _fraction(self) -> int:
        size = self._size(0, 9, "the number of digits after the second")
        if size is not None and size > MAX_FRACTION:
            what = f"timestamps keep microseconds, {MAX_FRACTION} digits, not {size}"
            self.refuse(span_of(self._tokens[self._index - 2]), what, "declare (6), or STRING to keep every digit")
        return MAX_FRACTION if size is None else size

    def _size(self, least: int, most: int, what: str) -> int | None:
        """An optional `(n)`."""
        if not self._match(TokenType.L_PAREN):
            return None
        size, where = self.number(what)
        if not least <= size <= most:
            self.refuse(where, f"expected {what} from {least} to {most}, found `{size}`")
        self.need_sign(TokenType.R_PAREN, ")")
        return size

    def _bracketed(self, read: Callable, example: str):
        self.need_sign(TokenType.LT, "<", f"for example {example}")
        found = read()
        self.need_sign(TokenType.GT, ">")
        return found

    def _key_and_value(self) -> tuple[FlinkType, FlinkType]:
        key = self.inner_type()
        self.need_sign(TokenType.COMMA, ",", "a MAP has a type for its keys and one for its values")
        return key, self.inner_type()

    def _row(self) -> tuple[Field, ...]:
        if self._curr.token_type == TokenType.L_PAREN:
            fields = self.listed(self._field)
        else:
            fields = self._bracketed(lambda: self.several(self._field), "ROW<a INT, b STRING>")
        seen: dict[str, Span] = {}
        for field, where in fields:
            if folded(field.name) in seen:
                self.refuse(where, f"the ROW has two fields called `{field.name}`")
            seen[folded(field.name)] = where
        return tuple(field for field, _ in fields)

    def _field(self) -> tuple[Field, Span]:
        if self._curr.token_type not in NAMES:
            self.expected("a field's name", "a ROW has named fields: ROW<a INT, b STRING>")
        name = self.name("a field's name")
        if not self.type_is_next() and not name.quoted and name.text.upper() in KNOWN:
            self.refuse(name.span, f"`{name.text}` is a type without a name", "ROW<a INT, b STRING>: fields have names")
        found = self.inner_type()
        comment = self.text("a comment").text if self._curr.token_type == TokenType.STRING else None
        return Field(name.text, found, comment), name.span
