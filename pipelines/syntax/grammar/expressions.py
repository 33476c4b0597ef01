"""Scalar expressions: sqlglot's operators over atoms of our own."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from sqlglot import TokenType, exp

from tidegate.pipelines.syntax.grammar.atoms import AtomGrammar
from tidegate.pipelines.syntax.source import span_of
from tidegate.pipelines.syntax.statements import spanned


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
        TokenType.SIMILAR_TO: lambda self, this: self._similar(),
    }

    def _prefixed(self, kind: type[exp.Unary], read: Callable[[], exp.Expr | None]) -> exp.Expr:
        sign = self._prev
        operand = read()
        if operand is None:
            self.expected("an expression")
        return self.at(sign, kind(this=operand))

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

    def _like(self, this: exp.Expr | None) -> exp.Expr:
        found: exp.Expr = self.expression(exp.Like(this=this, expression=self._parse_bitwise()))
        if self._match(TokenType.ESCAPE):
            found = self.expression(exp.Escape(this=found, expression=self._literal("the escape character")))
        return found

    def _similar(self) -> exp.Expr:
        self.refuse(span_of(self._prev), "SIMILAR TO is not supported", "write REGEXP(value, pattern)")
