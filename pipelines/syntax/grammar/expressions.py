"""Scalar expressions: sqlglot's operators, and what stands between them: literals, columns, CASE, INTERVAL."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from sqlglot import Token, TokenType, exp

from tidegate.pipelines.syntax.grammar.base import NAMES
from tidegate.pipelines.syntax.grammar.calls import UNITS, CallGrammar
from tidegate.pipelines.syntax.source import span_of
from tidegate.pipelines.syntax.statements import Name, TypedLiteral, place, spanned

NO_PARENTHESES = frozenset(
    ["CURRENT_TIMESTAMP", "CURRENT_DATE", "CURRENT_TIME", "LOCALTIMESTAMP", "LOCALTIME", "CURRENT_DATABASE"]
)
JOIN_IT = "join the table FOR SYSTEM_TIME AS OF the probe's time"
REFUSED_ATOMS = {
    TokenType.NATIONAL_STRING: ("N literals are not supported", "write a plain string"),
    TokenType.EXISTS: ("EXISTS is not supported", JOIN_IT),
}
FUNCTION_NAMES = (*NAMES, TokenType.LEFT, TokenType.RIGHT)


def _identifier(name: Name) -> exp.Identifier:
    return spanned(exp.Identifier(this=name.text, quoted=name.quoted), name.span)


class AtomGrammar(CallGrammar):
    """sqlglot's operators come down to `_parse_type` for their operands."""

    short_intervals = False
    """Whether INTERVAL may be left out behind + and -, as FLIP-66 writes it in a watermark: `rowtime - '5' SECOND`."""

    def _parse_type(self, parse_interval: bool = True, fallback_to_identifier: bool = False) -> exp.Expr:
        first = self._curr
        found = self._atom(first)
        while True:
            if self._match(TokenType.L_BRACKET):
                index = self._argument()
                self.need_sign(TokenType.R_BRACKET, "]")
                found = self.at(first, exp.Bracket(this=found, expressions=[index]))
            elif self._curr.token_type == TokenType.DOT:
                self._advance()
                found = exp.Dot(this=found, expression=_identifier(self.name("a field's name")))
                found = self.at(first, found)
            else:
                return found

    def _atom(self, first: Token) -> exp.Expr:
        kind = first.token_type
        special = ATOMS.get(kind)
        if special is not None:
            return special(self, first)
        if kind in REFUSED_ATOMS:
            self.refuse(span_of(first), *REFUSED_ATOMS[kind])
        if kind in FUNCTION_NAMES and self._next.token_type == TokenType.L_PAREN:
            return self._call(first)
        if kind == TokenType.VAR:
            return self._word(first)
        if kind == TokenType.IDENTIFIER:
            return self._column()
        if kind == TokenType.DOT and self._next.token_type == TokenType.NUMBER:
            self._advance(2)
            return self.at(first, exp.Literal.number(f"0.{self._prev.text}"))
        if kind == TokenType.STAR:
            self.expected("an expression", "`*` must be alone in a SELECT list")
        if kind == TokenType.SELECT:
            self._no_subquery()
        if first and kind != TokenType.IDENTIFIER and first.text.isidentifier():
            self.expected("an expression", f"`{first.text}` is a reserved word: a column of this name needs backquotes")
        self.expected("an expression")

    def _word(self, first: Token) -> exp.Expr:
        word = first.text.upper()
        quoted_next = self._next.token_type == TokenType.STRING
        if quoted_next and word in ("DATE", "TIMESTAMP"):
            self._advance()
            return self.at(first, TypedLiteral(this=self._literal("a literal"), kind=word))
        if quoted_next and word in ("TIME", "TIMESTAMP_LTZ"):
            self.refuse(span_of(first), f"{word} literals are not supported", "write a plain string, or CAST one")
        if word in NO_PARENTHESES and self._next.token_type != TokenType.DOT:
            self._advance()
            return self.at(first, exp.Anonymous(this=first.text, expressions=[]))
        if word in ("ARRAY", "MAP") and self._next.token_type == TokenType.L_BRACKET:
            self._advance()
            items = self._in_brackets()
            made = exp.Array(expressions=items) if word == "ARRAY" else exp.Anonymous(this=word, expressions=items)
            return self.at(first, made)
        return self._column()

    def _column(self) -> exp.Expr:
        name = self.name("a column")
        if self._curr.token_type == TokenType.STRING and self._is_connected():
            self.refuse(self.here(), f"there are no `{name.text}'…'` literals", "write a plain string")
        return spanned(exp.Column(this=_identifier(name)), name.span)

    def _in_brackets(self) -> list[exp.Expr]:
        self.need_sign(TokenType.L_BRACKET, "[")
        items: list[exp.Expr] = []
        while self._curr.token_type != TokenType.R_BRACKET:
            items.append(self._argument())
            if not self._match(TokenType.COMMA):
                break
        self.need_sign(TokenType.R_BRACKET, "]")
        return items

    def _number_atom(self, first: Token) -> exp.Expr:
        self._advance()
        connected = self._curr.token_type == TokenType.VAR and self._is_connected()
        if connected or first.text[-1:] in ("e", "E"):
            span = self.since(first).to(self.here()) if connected else span_of(first)
            self.refuse(span, "a name must not begin with a digit", "write it in backquotes")
        return self.at(first, exp.Literal.number(first.text))

    def _string_atom(self, first: Token) -> exp.Expr:
        moved = self._prev and self._prev.token_type in (TokenType.DASH, TokenType.PLUS)
        if moved and self._unit_is(self._next):
            if self.short_intervals:
                return self._interval(first)
            span = span_of(first).to(span_of(self._next))
            self.refuse(span, "an interval begins with INTERVAL", f"write INTERVAL {self.source.shown(span)}")
        self._advance()
        if self._curr.token_type == TokenType.STRING:
            self.expected("an operator", "strings are joined by ||")
        return self.at(first, exp.Literal.string(first.text))

    def _hex_atom(self, first: Token) -> exp.Expr:
        self._advance()
        if self.source.text[first.start] == "0":
            self.refuse(span_of(first), "numbers are decimal", f"write {int(first.text, 16)}, or X'…' for bytes")
        if len(first.text) % 2:
            self.refuse(span_of(first), "the binary literal ends in the middle of a byte", "write pairs of digits")
        return self.at(first, exp.HexString(this=first.text))

    def _constant_atom(self, first: Token) -> exp.Expr:
        self._advance()
        if first.token_type == TokenType.NULL:
            return self.at(first, exp.Null())
        return self.at(first, exp.Boolean(this=first.token_type == TokenType.TRUE))

    def _paren_atom(self, first: Token) -> exp.Expr:
        if self._next.token_type in (TokenType.SELECT, TokenType.VALUES, TokenType.WITH):
            self._advance()
            self._no_subquery()
        items = self.listed(self._argument)
        if len(items) > 1:
            return self.at(first, exp.Anonymous(this="ROW", expressions=items))
        return self.at(first, exp.Paren(this=items[0]))

    def _no_subquery(self) -> None:
        self.refuse(self.here(), "subqueries are not supported", JOIN_IT)

    def _case_atom(self, first: Token) -> exp.Expr:
        self._advance()
        subject = None if self._curr.token_type == TokenType.WHEN else self._argument()
        branches: list[exp.Expr] = []
        while self.take("WHEN"):
            condition = self._argument()
            self.need("THEN")
            branches.append(exp.If(this=condition, true=self._argument()))
        if not branches:
            self.expected("`WHEN`")
        default = self._argument() if self.take("ELSE") else None
        if not self.take("END"):
            self.expected("`WHEN`, `ELSE` or `END`")
        return self.at(first, exp.Case(this=subject, ifs=branches, default=default))

    def _interval_atom(self, first: Token) -> exp.Expr:
        self._advance()
        return self._interval(first)

    def _unit_is(self, token: Token) -> bool:
        return token.token_type == TokenType.VAR and token.text.upper().removesuffix("S") in UNITS

    def _interval(self, first: Token) -> exp.Expr:
        """What follows INTERVAL."""
        negative = self._match(TokenType.DASH)
        amount = self.text("the interval's value in quotes", "for example INTERVAL '5' SECOND")
        unit = self._unit(UNITS, "the interval's unit")
        until = self._unit(UNITS, "the interval's unit") if self.take("TO") else None
        value = spanned(exp.Literal.string(f"-{amount.text}" if negative else amount.text), amount.span)
        span: exp.Expr = exp.IntervalSpan(this=unit, expression=until) if until else unit
        return self.at(first, exp.Interval(this=value, unit=span))


ATOMS: dict[TokenType, Callable[[AtomGrammar, Token], exp.Expr]] = {
    TokenType.NUMBER: AtomGrammar._number_atom,
    TokenType.STRING: AtomGrammar._string_atom,
    TokenType.HEX_STRING: AtomGrammar._hex_atom,
    **dict.fromkeys((TokenType.NULL, TokenType.TRUE, TokenType.FALSE), AtomGrammar._constant_atom),
    TokenType.L_PAREN: AtomGrammar._paren_atom,
    TokenType.CASE: AtomGrammar._case_atom,
    TokenType.INTERVAL: AtomGrammar._interval_atom,
}


COMPARED = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Is)


class ExpressionGrammar(AtomGrammar):
    """a.b + 1, CASE … END, CAST(x AS INT), x IN (1, 2), f(x), …"""

    BITWISE: ClassVar[dict] = {}
    TERM: ClassVar[dict] = {TokenType.DASH: exp.Sub, TokenType.PLUS: exp.Add}
    FACTOR: ClassVar[dict] = {TokenType.MOD: exp.Mod, TokenType.SLASH: exp.Div, TokenType.STAR: exp.Mul}
    EQUALITY: ClassVar[dict] = {TokenType.EQ: exp.EQ, TokenType.NEQ: exp.NEQ}
    UNARY_PARSERS: ClassVar[dict] = {
        TokenType.PLUS: lambda self: self._parse_unary(),
        TokenType.DASH: lambda self: self._prefixed(exp.Neg, self._parse_unary),
        TokenType.NOT: lambda self: self._prefixed(exp.Not, self._parse_equality),
    }
    RANGE_PARSERS: ClassVar[dict] = {
        TokenType.BETWEEN: lambda self, this: self._parse_between(this),
        TokenType.IN: lambda self, this: self._parse_in(this),
        TokenType.IS: lambda self, this: self._parse_is(this),
        TokenType.LIKE: lambda self, this: self._like(this),
        TokenType.SIMILAR_TO: lambda self, this: self._similar(this),
    }

    def _prefixed(self, kind: type[exp.Unary], read: Callable[[], exp.Expr | None]) -> exp.Expr:
        sign = self._prev
        operand = read()
        if operand is None:
            self.expected("an expression")
        return self.at(sign, kind(this=operand))

    def _parse_at_time_zone(self, this: exp.Expr | None) -> exp.Expr | None:
        self.refuse_next("AT", "TIME", "ZONE", hint="write FROM_UTC_TIMESTAMP(time, 'zone')")
        return this

    def _build_predicate(
        self, klass: type[exp.Binary], this: Any, expression: Any, comments: Any = None, negate: bool = False
    ) -> exp.Expr:
        """A comparison. Beside IS and other comparisons, Flink does not read it as sqlglot does: one of them has to be
        in brackets."""
        if klass is exp.Is:
            self.refuse(span_of(self._prev), "NULL cannot stand here", "write IS NOT NULL")
        for operand in (this, expression):
            inner = operand.this if isinstance(operand, exp.Not) else operand
            if isinstance(inner, COMPARED):
                span = place(operand) or self.here()
                what = f"{self.source.shown(span)} beside a comparison could be read in two ways"
                self.refuse(span, what, "put what you mean in brackets: Flink reads it from the left")
        return self.expression(klass(this=this, expression=expression))

    def _parse_between(self, this: exp.Expr | None) -> exp.Between:
        symmetric = self.take("SYMMETRIC")
        if not symmetric:
            self.take("ASYMMETRIC")
        low = self._parse_bitwise()
        self.need("AND")
        return self.expression(exp.Between(this=this, low=low, high=self._parse_bitwise(), symmetric=symmetric or None))

    def _parse_in(self, this: exp.Expr | None, alias: bool = False) -> exp.In:
        if self._curr.token_type == TokenType.L_PAREN and self._next.token_type in (TokenType.SELECT, TokenType.VALUES):
            self._advance()
            self._no_subquery()
        return self.expression(exp.In(this=this, expressions=self.listed(self._argument)))

    def _parse_is(self, this: exp.Expr | None) -> exp.Expr:
        negated = self.take("NOT")
        if self.take("DISTINCT", "FROM"):
            kind = exp.NullSafeEQ if negated else exp.NullSafeNEQ
            return self.expression(kind(this=this, expression=self._parse_bitwise()))
        if self.take("NULL") or self.take("UNKNOWN"):
            test: exp.Expr = exp.Null()
        elif self.take("TRUE") or self.take("FALSE"):
            test = exp.Boolean(this=self._prev.text.upper() == "TRUE")
        else:
            self.expected("NULL, TRUE, FALSE, UNKNOWN or DISTINCT FROM")
        found = self.expression(exp.Is(this=this, expression=spanned(test, span_of(self._prev))))
        return self.expression(exp.Not(this=found)) if negated else found

    def _like(self, this: exp.Expr | None, kind: type[exp.Binary] = exp.Like) -> exp.Expr:
        found: exp.Expr = self.expression(kind(this=this, expression=self._parse_bitwise()))
        if self._match(TokenType.ESCAPE):
            found = self.expression(exp.Escape(this=found, expression=self._literal("the escape character")))
        return found

    def _similar(self, this: exp.Expr | None) -> exp.Expr:
        self.need("TO", hint="for example name SIMILAR TO 'a%|b%'")
        return self._like(this, exp.SimilarTo)
