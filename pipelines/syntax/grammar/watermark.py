"""WATERMARK FOR, as written (FLIP-66, "Watermark Syntax"), and the forms that FLIP-66 rejected."""

from __future__ import annotations

from sqlglot import Token, TokenType

from tidegate.pipelines.syntax.grammar.base import NAMES
from tidegate.pipelines.syntax.grammar.calls import UNITS
from tidegate.pipelines.syntax.grammar.expressions import ExpressionGrammar
from tidegate.pipelines.syntax.statements import Name, Watermark
from tidegate.pipelines.syntax.types import quoted_string

BOUNDED = (("WITH", "DELAY"), ("WITH", "OFFSET"), ("BOUNDED", "WITH", "DELAY"), ("BOUNDED", "DELAY"))
NO_STRATEGY = "ASCENDING is no watermark strategy: an expression is"
OF_THE_SOURCE = "write AS SYSTEM_WATERMARK(), for a column that is SYSTEM_ROWTIME()"


class WatermarkGrammar(ExpressionGrammar):
    """WATERMARK FOR column.field AS expression. In the expression `'5' SECOND` is an interval behind + and -."""

    def watermark_is_next(self) -> bool:
        """Whether a watermark's definition is next, and not a column called watermark."""
        if self._curr.token_type != TokenType.VAR or not self.word("WATERMARK"):
            return False
        named = self._next.token_type in NAMES and self.word("FOR", ahead=2)
        return named or self.word("WATERMARK", "FOR")

    def watermark(self, first: Token) -> Watermark:
        """Read a definition. Raises SqlError."""
        self.need("WATERMARK")
        if not self.word("FOR"):
            self.refuse(self.here(), "a watermark has no name", "write WATERMARK FOR column AS …: a table has one")
        self.take("FOR")
        path = [self.name("a column's name")]
        while self._match(TokenType.DOT):
            path.append(self.name("a field's name"))
        self._rejected(path)
        self.need("AS", hint=f"for example WATERMARK FOR {_shown(path)} AS {_shown(path)} - INTERVAL '5' SECOND")
        self._rejected(path)
        self.short_intervals = True
        expression = self.scalar()
        self.short_intervals = False
        self._rejected(path)
        return Watermark(tuple(path), expression, self.since(first))

    def _rejected(self, path: list[Name]) -> None:
        """Refuse BOUNDED WITH DELAY and its kind here, with the expression that says the same."""
        first, column = self._curr, _shown(path)
        for words in BOUNDED:
            if self.take(*words):
                interval = self._interval_behind()
                span = self.since(first)
                hint = f"write AS {column} - {interval}"
                self.refuse(span, f"{' '.join(words)} is no watermark strategy: an expression is", hint)
        # By itself behind AS it may be a column of that name, and before a bracket a function.
        behind_as = self._prev.text.upper() == "AS"
        if self.word("ASCENDING") and (not behind_as or self._next.token_type in NAMES):
            self.refuse(self.here(), NO_STRATEGY, ascending(column))
        if self.take("STRICTLY", "ASCENDING"):
            self.refuse(self.since(first), NO_STRATEGY, ascending(column))
        if self.word("CUSTOM") and self._next.token_type == TokenType.STRING:
            self._advance(2)
            hint = "declare a function, CREATE FUNCTION f AS 'module.f' LANGUAGE PYTHON, and write AS f(…)"
            self.refuse(self.since(first), "a watermark strategy is an expression, not the name of a class", hint)
        if self.word("FROM"):
            self.take("FROM")
            self._match(TokenType.DASH)
            self.take("SOURCE")
            self.refuse(self.since(first), "FROM SOURCE is no watermark strategy: an expression is", OF_THE_SOURCE)

    def _interval_behind(self) -> str:
        """Read `'5' SECOND`, or INTERVAL '5' SECOND, as far as it is there; an example where it is not."""
        self.take("INTERVAL")
        if self._curr.token_type != TokenType.STRING:
            return "INTERVAL '5' SECOND"
        amount = quoted_string(self._curr.text)
        self._advance()
        unit = self._curr.text.upper() if self._curr.token_type == TokenType.VAR else ""
        if unit.removesuffix("S") not in UNITS:
            return f"INTERVAL {amount} SECOND"
        self._advance()
        return f"INTERVAL {amount} {unit}"


def ascending(column: str) -> str:
    """What to write for rows whose times ascend."""
    return f"rows with ascending times: write AS {column} - INTERVAL '0.001' SECOND"


def _shown(path: list[Name]) -> str:
    return ".".join(f"`{name.text}`" if name.quoted else name.text for name in path)


__all__ = ["NO_STRATEGY", "WatermarkGrammar", "ascending"]
