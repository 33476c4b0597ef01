"""TABLE(TUMBLE(TABLE t, DESCRIPTOR(column), INTERVAL '5' MINUTES)) in FROM, and GROUP BY … HAVING …, as written."""

from __future__ import annotations

from sqlglot import TokenType

from tidegate.pipelines.syntax.errors import did_you_mean
from tidegate.pipelines.syntax.grammar.base import NAMES
from tidegate.pipelines.syntax.grammar.create import CreateGrammar
from tidegate.pipelines.syntax.source import Span, span_of
from tidegate.pipelines.syntax.statements import Argument, Name, Scalar, WindowFunctionCall

WINDOW_FUNCTIONS = ("TUMBLE", "HOP", "CUMULATE")
EXAMPLE = "FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(rowtime), INTERVAL '5' MINUTES))"
SESSIONS = (
    "sessions are a function of Python: tidegate.pipelines.process.windows.session, see docs/process-functions.md"
)
GROUPINGS = ("GROUPING SETS", "ROLLUP", "CUBE")


class WindowGrammar(CreateGrammar):
    """What an INSERT over windows has that others have not."""

    def window_function(self) -> WindowFunctionCall | None:
        """The table function that FROM begins with; None where it names a table."""
        first = self._curr
        wrapped = self.word("TABLE") and self._next.token_type == TokenType.L_PAREN
        if wrapped:
            self._advance(2)
        elif first.token_type not in NAMES or self._next.token_type != TokenType.L_PAREN:
            return None
        function = self.name("a table function (TUMBLE, HOP or CUMULATE)")
        self._known(function)
        arguments = tuple(self.listed(self._table_argument))
        if wrapped:
            self.need_sign(TokenType.R_PAREN, ")", f"for example {EXAMPLE}")
        return WindowFunctionCall(function, arguments, self.since(first))

    def grouping(self) -> tuple[tuple[Scalar, ...], Span | None, Scalar | None]:
        """[GROUP BY expressions] [HAVING condition]; the place of GROUP BY."""
        groups: list[Scalar] = []
        place = None
        first = self._curr
        if self.take("GROUP", "BY"):
            groups.append(self._group())
            while self._match(TokenType.COMMA):
                groups.append(self._group())
            place = self.since(first)
        return tuple(groups), place, self.scalar() if self.take("HAVING") else None

    def _group(self) -> Scalar:
        for words in GROUPINGS:
            if self.word(words.split()[0]):
                self.refuse(self.here(), f"{words} is not supported", "write one INSERT for each grouping")
        return self.scalar()

    def _known(self, function: Name) -> None:
        written = function.text.upper()
        if written in WINDOW_FUNCTIONS:
            return
        if written == "SESSION":
            self.refuse(function.span, "SESSION is no table function here", SESSIONS)
        hint = did_you_mean(written, WINDOW_FUNCTIONS) or "there are TUMBLE, HOP and CUMULATE"
        self.refuse(function.span, f"there is no table function {function.text}", hint)

    def _table_argument(self) -> Argument:
        first, name = self._curr, None
        if self._next.token_type == TokenType.FARROW and first.text.isidentifier():
            name = Name(first.text, span_of(first))
            self._advance(2)
        if self.take("TABLE"):
            table = self.table_name()
            if self.word("PARTITION"):
                self.refuse(self.here(), "PARTITION BY is not supported", "write the columns into GROUP BY")
            return Argument(self.since(first), name, table=table)
        if self.word("DESCRIPTOR") and self._next.token_type == TokenType.L_PAREN:
            self._advance()
            paths = self.listed(self._column_path)
            if len(paths) > 1:
                self.refuse(paths[1][0].span, "DESCRIPTOR names one column", "name the table's time attribute alone")
            return Argument(self.since(first), name, descriptor=paths[0])
        scalar = self.scalar()
        return Argument(self.since(first), name, scalar=scalar)

    def _column_path(self) -> tuple[Name, ...]:
        names = [self.name("a column")]
        while self._match(TokenType.DOT):
            names.append(self.name("a field's name"))
        return tuple(names)
