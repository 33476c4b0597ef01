"""Whole scripts: several statements, statement sets, and a name for everything that is no part of the dialect."""

from __future__ import annotations

from sqlglot import Token, TokenType

from tidegate.pipelines.syntax.errors import did_you_mean
from tidegate.pipelines.syntax.grammar.insert import InsertGrammar
from tidegate.pipelines.syntax.settings import AUTO_WATERMARK_INTERVAL
from tidegate.pipelines.syntax.source import span_of
from tidegate.pipelines.syntax.statements import SetOption, Statement, Watermark
from tidegate.pipelines.syntax.types import FlinkType

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
    "WITH": "an INSERT reads tables: write the query's expressions and its WHERE into the INSERT",
}


class ScriptParser(InsertGrammar):
    """The parser of the dialect."""

    def script(self) -> list[Statement]:
        """Read all statements. Raises SqlError at the first token that does not fit."""
        statements: list[Statement] = []
        while self._curr:
            if self._match(TokenType.SEMICOLON):
                continue
            statements.extend(self._statement_or_set())
            if self._curr and self._curr.token_type != TokenType.SEMICOLON:
                missing = self.word("CREATE") or self.word("INSERT")
                self.expected("`;` or the end of the script", "statements are separated by `;`" if missing else None)
        return statements

    def whole_type(self) -> FlinkType:
        """Read a type and nothing else."""
        found = self.inner_type()
        if self._curr:
            self.expected("the end of the type")
        return found

    def whole_watermark(self) -> Watermark:
        """Read a WATERMARK FOR and nothing else."""
        found = self.watermark(self._curr)
        if self._curr:
            self.expected("the end of the watermark")
        return found

    def _statement_or_set(self) -> list[Statement]:
        if self.take("EXECUTE", "STATEMENT", "SET", "BEGIN") or self.take("BEGIN", "STATEMENT", "SET"):
            return self._statement_set()
        self.take("EXECUTE")
        return [self._statement()]

    def _statement_set(self) -> list[Statement]:
        statements: list[Statement] = []
        self._match(TokenType.SEMICOLON)
        while not self.take("END"):
            if not self.word("INSERT"):
                self.expected("`INSERT` or `END`", "a statement set holds INSERTs")
            statements.append(self._statement())
            if not self._match(TokenType.SEMICOLON):
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
        self.expected(
            "a statement",
            did_you_mean(word, ["CREATE", "INSERT"])
            or "a script is made of CREATE TABLE, CREATE FUNCTION and INSERT INTO",
        )

    def _setting(self, first: Token) -> SetOption:
        """The rest of SET 'key' = 'value'."""
        example = f"for example SET '{AUTO_WATERMARK_INTERVAL}' = '0 ms'"
        key = self.text("a setting's name in quotes", example)
        self.need_sign(TokenType.EQ, "=", example)
        return SetOption(key, self.text("the setting's value in quotes", example), self.since(first))
