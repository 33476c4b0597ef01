"""Calls, whatever their syntax: `EXTRACT(DAY FROM t)` is a call of EXTRACT with a unit (`exp.Var`) and an argument.
Which functions there are is not the grammar's business."""

from __future__ import annotations

from collections.abc import Callable

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
            return self.at(first, found)
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
            self.need_sign(TokenType.R_PAREN, ")", None)
            return False, [spanned(exp.Star(), span_of(star))]
        distinct = self.take("DISTINCT")
        items = self.several(self._argument)
        self.need_sign(TokenType.R_PAREN, ")", None)
        return distinct, items

    def _cast(self, first: Token) -> exp.Expr:
        operand = self._argument()
        self.need("AS", hint="for example CAST(x AS INT)")
        found = CastTo(this=operand, safe=first.text.upper() == "TRY_CAST" or None)
        found.meta["target"] = self.flink_type()
        return found

    def _extract(self, first: Token) -> exp.Expr:
        unit = self._unit((*UNITS, "DOW", "DOY", "EPOCH"), "a unit")
        self.need("FROM", hint="for example EXTRACT(DAY FROM t)")
        return exp.Anonymous(this="EXTRACT", expressions=[unit, self._argument()])

    def _trim(self, first: Token) -> exp.Expr:
        where = "BOTH"
        token = self._curr
        if self.take("BOTH") or self.take("LEADING") or self.take("TRAILING"):
            where = token.text.upper()
        characters: exp.Expr = spanned(exp.Literal.string(" "), span_of(token))
        value = None if self.word("FROM") else self._argument()
        if self.take("FROM"):
            characters, value = value or characters, self._argument()
        side = spanned(exp.Var(this=where), span_of(token))
        return exp.Anonymous(this="TRIM", expressions=[side, characters, value])

    def _substring(self, first: Token) -> exp.Expr:
        arguments = [self._argument()]
        if self.take("FROM"):
            arguments.append(self._argument())
            if self.take("FOR"):
                arguments.append(self._argument())
        elif self._match(TokenType.COMMA):
            arguments += self.several(self._argument)
        return exp.Anonymous(this="SUBSTRING", expressions=arguments)

    def _position(self, first: Token) -> exp.Expr:
        # Not `_argument`: its operators have an IN of their own.
        needle = self._parse_bitwise()
        self.need("IN", hint="for example POSITION('a' IN name)")
        return exp.Anonymous(this="POSITION", expressions=[needle, self._argument()])

    def _overlay(self, first: Token) -> exp.Expr:
        arguments = [self._argument()]
        self.need("PLACING", hint="for example OVERLAY(name PLACING 'xx' FROM 2)")
        arguments.append(self._argument())
        self.need("FROM")
        arguments.append(self._argument())
        if self.take("FOR"):
            arguments.append(self._argument())
        return exp.Anonymous(this="OVERLAY", expressions=arguments)

    def _rounded(self, first: Token) -> exp.Expr:
        arguments = [self._argument()]
        if self.take("TO"):
            arguments.append(self._unit(("YEAR", "QUARTER", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND"), "a unit"))
        return exp.Anonymous(this=first.text.upper(), expressions=arguments)

    def _json_value(self, first: Token) -> exp.Expr:
        arguments = [self._argument()]
        self.need_sign(TokenType.COMMA, ",", "for example JSON_VALUE(message, '$.user.id' RETURNING BIGINT)")
        arguments.append(self._argument())
        found = self.at(first, exp.Anonymous(this="JSON_VALUE", expressions=arguments))
        if not self.take("RETURNING"):
            return found
        cast = CastTo(this=found, safe=True)
        cast.meta["target"] = self.flink_type()
        return cast

    def _with_unit(self, first: Token) -> exp.Expr:
        arguments: list[exp.Expr] = [self._unit(UNITS, "a unit")]
        if self._match(TokenType.COMMA):
            arguments += self.several(self._argument)
        return exp.Anonymous(this=first.text.upper(), expressions=arguments)


SPECIAL_CALLS: dict[str, Callable[[CallGrammar, Token], exp.Expr]] = {
    "CAST": CallGrammar._cast,
    "TRY_CAST": CallGrammar._cast,
    "EXTRACT": CallGrammar._extract,
    "TRIM": CallGrammar._trim,
    "SUBSTRING": CallGrammar._substring,
    "POSITION": CallGrammar._position,
    "OVERLAY": CallGrammar._overlay,
    "FLOOR": CallGrammar._rounded,
    "CEIL": CallGrammar._rounded,
    "CEILING": CallGrammar._rounded,
    "JSON_VALUE": CallGrammar._json_value,
    "TIMESTAMPADD": CallGrammar._with_unit,
    "TIMESTAMPDIFF": CallGrammar._with_unit,
}
"""Functions whose arguments are not a plain list."""
