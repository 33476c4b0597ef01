"""Calls, whatever their syntax: `EXTRACT(DAY FROM t)` is a call of EXTRACT with a unit (`exp.Var`) and an argument.
Which functions there are is not the grammar's business."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlglot import Token, TokenType, exp

from tidegate.pipelines.syntax.grammar.base import TypeGrammar
from tidegate.pipelines.syntax.source import span_of
from tidegate.pipelines.syntax.statements import CastTo, spanned

UNITS = ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND")


class CallGrammar(TypeGrammar):
    """f(a, b), CAST(a AS type), TRIM(BOTH a FROM b), …"""

    def _argument(self) -> exp.Expr:
        return self.scalar().tree

    def _literal(self, what: str, hint: str | None = None) -> exp.Expr:
        found = self.text(what, hint)
        return spanned(exp.Literal.string(found.text), found.span)

    def _unit(self, units: tuple[str, ...], what: str) -> exp.Var:
        token = self._curr
        word = token.text.upper().removesuffix("S") if token.token_type == TokenType.VAR else ""
        if word not in units:
            self.expected(f"{what} ({', '.join(units)})")
        self._advance()
        if self._match(TokenType.L_PAREN):  # a precision, DAY(3): Spark's intervals need none
            self.number("a precision")
            self.need_sign(TokenType.R_PAREN, ")")
        return spanned(exp.Var(this=word), span_of(token))

    def _call(self, first: Token) -> exp.Expr:
        self._advance()
        name = first.text.upper()
        special = SPECIAL_CALLS.get(name)
        if special is not None:
            self._advance()
            found = special(self, first)
            self.need_sign(TokenType.R_PAREN, ")")
            made = found if isinstance(found, exp.Expr) else exp.Anonymous(this=name, expressions=found)
            return self.at(first, made)
        distinct, arguments = self._arguments()
        found = self.at(first, exp.Anonymous(this=first.text, expressions=arguments))
        found.meta["name_end"] = first.end + 1
        found.meta["distinct"] = distinct
        self._no_over()
        hint = "aggregate CASE WHEN condition THEN value END"
        self.refuse_next("FILTER", behind=TokenType.L_PAREN, what="FILTER (WHERE …)", hint=hint)
        return found

    def _no_over(self) -> None:
        if self._curr.token_type == TokenType.OVER:
            what, hint = "window functions (OVER) are not supported", "a pipeline looks at one probe row at a time"
            self.refuse(self.here(), what, hint)

    def _arguments(self) -> tuple[bool, list[exp.Expr]]:
        """Whether DISTINCT is in front of them; `*` is `exp.Star`."""
        self.need_sign(TokenType.L_PAREN, "(")
        if self._match(TokenType.R_PAREN):
            return False, []
        star = self._curr
        if self._match(TokenType.STAR):
            self.need_sign(TokenType.R_PAREN, ")")
            return False, [spanned(exp.Star(), span_of(star))]
        distinct = self.take("DISTINCT")
        items = self.several(self._argument)
        self.need_sign(TokenType.R_PAREN, ")")
        return distinct, items

    def _behind(self, word: str, hint: str | None = None) -> exp.Expr:
        """The argument behind a word that must be there."""
        self.need(word, hint=hint)
        return self._argument()

    def _optional(self, word: str) -> list[exp.Expr]:
        """The argument behind a word, where it is there."""
        return [self._argument()] if self.take(word) else []

    def _more(self) -> list[exp.Expr]:
        """The arguments behind a comma."""
        return self.several(self._argument) if self._match(TokenType.COMMA) else []

    def _cast(self, operand: exp.Expr, *, safe: bool) -> exp.Expr:
        """CAST of an operand to the type that is next."""
        found = CastTo(this=operand, safe=safe or None)
        found.meta["target"] = self.flink_type()
        return found

    def _cast_call(self, first: Token) -> exp.Expr:
        operand = self._argument()
        self.need("AS", hint="for example CAST(x AS INT)")
        return self._cast(operand, safe=first.text.upper() == "TRY_CAST")

    def _extract(self, first: Token) -> list[exp.Expr]:
        unit = self._unit((*UNITS, "DOW", "DOY", "EPOCH"), "a unit")
        return [unit, self._behind("FROM", "for example EXTRACT(DAY FROM t)")]

    def _trim(self, first: Token) -> list[exp.Expr | None]:
        where = "BOTH"
        token = self._curr
        if self.take("BOTH") or self.take("LEADING") or self.take("TRAILING"):
            where = token.text.upper()
        characters: exp.Expr = spanned(exp.Literal.string(" "), span_of(token))
        value = None if self.word("FROM") else self._argument()
        if self.take("FROM"):
            characters, value = value or characters, self._argument()
        return [spanned(exp.Var(this=where), span_of(token)), characters, value]

    def _substring(self, first: Token) -> list[exp.Expr]:
        text, start = self._argument(), self._optional("FROM")
        return [text, *start, *(self._optional("FOR") if start else self._more())]

    def _position(self, first: Token) -> list[exp.Expr | None]:
        # Not `_argument`: its operators have an IN of their own.
        return [self._parse_bitwise(), self._behind("IN", "for example POSITION('a' IN name)")]

    def _overlay(self, first: Token) -> list[exp.Expr]:
        text, over = self._argument(), self._behind("PLACING", "for example OVERLAY(name PLACING 'xx' FROM 2)")
        return [text, over, self._behind("FROM"), *self._optional("FOR")]

    def _rounded(self, first: Token) -> list[exp.Expr]:
        units = tuple(unit for unit in UNITS if unit != "WEEK")
        return [self._argument(), *([self._unit(units, "a unit")] if self.take("TO") else [])]

    def _json_value(self, first: Token) -> exp.Expr:
        text = self._argument()
        self.need_sign(TokenType.COMMA, ",", "for example JSON_VALUE(message, '$.user.id' RETURNING BIGINT)")
        found = exp.Anonymous(this="JSON_VALUE", expressions=[text, self._argument()])
        found = self.at(first, found)
        return self._cast(found, safe=True) if self.take("RETURNING") else found

    def _with_unit(self, first: Token) -> list[exp.Expr]:
        return [self._unit(UNITS, "a unit"), *self._more()]


SPECIAL_CALLS: dict[str, Callable[[CallGrammar, Token], exp.Expr | list[Any]]] = {
    **dict.fromkeys(("CAST", "TRY_CAST"), CallGrammar._cast_call),
    "EXTRACT": CallGrammar._extract,
    "TRIM": CallGrammar._trim,
    "SUBSTRING": CallGrammar._substring,
    "POSITION": CallGrammar._position,
    "OVERLAY": CallGrammar._overlay,
    **dict.fromkeys(("FLOOR", "CEIL", "CEILING"), CallGrammar._rounded),
    "JSON_VALUE": CallGrammar._json_value,
    **dict.fromkeys(("TIMESTAMPADD", "TIMESTAMPDIFF"), CallGrammar._with_unit),
}
"""Functions whose arguments are not a plain list: what reads them, or the whole call."""
