"""CONSTRAINT … EXPECT, as written."""

from __future__ import annotations

from typing import NoReturn

from sqlglot import Token, TokenType

from tidegate.pipelines.syntax.errors import did_you_mean
from tidegate.pipelines.syntax.grammar.expressions import ExpressionGrammar
from tidegate.pipelines.syntax.statements import Expect, Name

ACTIONS = ("FAIL", "QUARANTINE", "WARN")


class ExpectGrammar(ExpressionGrammar):
    """CONSTRAINT name EXPECT (condition) [ON VIOLATION FAIL [UPDATE] | QUARANTINE | WARN]: the form of Databricks'
    pipelines, with QUARANTINE for their DROP ROW, which would lose the row."""

    def expect(self, first: Token, name: Name) -> Expect:
        """Read what follows the constraint's name."""
        self.need("EXPECT")
        self.need_sign(TokenType.L_PAREN, "(", "the condition must be in brackets: EXPECT (price > 0)")
        condition = self.scalar()
        self.need_sign(TokenType.R_PAREN, ")")
        action = self._action() if self.take("ON") else None
        return Expect(name, condition, action, self.since(first))

    def no_constraint(self) -> NoReturn:
        """Refuse what is neither a key nor an expectation."""
        if self.word("CHECK"):
            self.refuse(self.here(), "CHECK is not supported", "write EXPECT (condition) ON VIOLATION FAIL")
        if self.word("UNIQUE"):
            self.refuse(self.here(), "UNIQUE is not supported", "the key that a table is joined by is its PRIMARY KEY")
        self.expected("`PRIMARY KEY` or `EXPECT`", did_you_mean(self._curr.text, ("PRIMARY KEY", "EXPECT")))

    def _action(self) -> str:
        self.need("VIOLATION", hint="write ON VIOLATION FAIL, QUARANTINE or WARN")
        if self.word("DROP"):
            self.refuse(
                self.here(), "DROP ROW is not supported: no row is lost", "write QUARANTINE: it keeps the row, apart"
            )
        for word in ACTIONS:
            if self.take(word):
                if word == "FAIL":
                    self.take("UPDATE")
                return word
        self.expected("`FAIL`, `QUARANTINE` or `WARN`", did_you_mean(self._curr.text if self._curr else "", ACTIONS))
