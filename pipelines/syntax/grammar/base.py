"""Reading tokens, and saying exactly which one is wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NoReturn, TypeVar

from sqlglot import Token, TokenType, exp, parser

from tidegate.pipelines.syntax.source import Source, Span, span_of
from tidegate.pipelines.syntax.statements import Name, Scalar, Text, spanned

T = TypeVar("T")

NAMES = (TokenType.VAR, TokenType.IDENTIFIER)
NOT_WORDS = (TokenType.STRING, TokenType.IDENTIFIER, TokenType.NUMBER, TokenType.HEX_STRING)

MAX_DIGITS = 19
"""Of a number that says how large something is: what there is more of is no size. (Python converts 4,300 digits.)"""


class TokenReader(parser.Parser):
    """sqlglot's parser with errors of our own: the first one stops, and points at its token."""

    _source: Source | None = None

    def begin(self, source: Source, tokens: Sequence[Token]) -> None:
        """Start at the first of `tokens`, which `source` gave."""
        self.reset()
        self._source = source
        self.sql = source.text
        self._chunks = [list(tokens)]
        self._advance_chunk()

    @property
    def source(self) -> Source:
        """The text that is being read."""
        if self._source is None or self._source.text != self.sql:
            self._source = Source(self.sql)
        return self._source

    def raise_error(self, message: str, token: Token | None = None) -> NoReturn:  # type: ignore[override]
        """What sqlglot calls when it is lost."""
        raise self.source.error(self.here(token), message[:1].lower() + message[1:])

    def validate_expression(self, expression, args=None):  # type: ignore[override]
        """An operator whose operand is missing: say so at the place where it should be."""
        if any(True for _ in expression.error_messages(args)):
            self.expected("an expression")
        return expression

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
        """Read a string literal."""
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
        items = [read()]
        while self._match(TokenType.COMMA):
            items.append(read())
        if not self._match(TokenType.R_PAREN):
            self.expected("`,` or `)`")
        return items

    def scalar(self) -> Scalar:
        """Read an expression."""
        first, index = self._curr, self._index
        tree = self._parse_disjunction()
        if tree is None:
            self.expected("an expression")
        span = self.since(first)
        return Scalar(tree, span, self.source.written(self._tokens[index : self._index]))

    def at(self, first: Token, node: exp.Expr) -> exp.Expr:
        """`node`, which reaches from `first` to the last token read."""
        return spanned(node, self.since(first))
