"""CREATE TABLE, as written: columns, WATERMARK FOR (FLIP-66; with the forms that it rejected), CONSTRAINT … EXPECT."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NoReturn

from sqlglot import Token, TokenType

from tidegate.pipelines.syntax.errors import did_you_mean
from tidegate.pipelines.syntax.grammar.base import NAMES
from tidegate.pipelines.syntax.grammar.calls import UNITS
from tidegate.pipelines.syntax.grammar.expressions import ExpressionGrammar
from tidegate.pipelines.syntax.source import Span, span_of
from tidegate.pipelines.syntax.statements import (
    ColumnDefinition,
    CreateFunction,
    CreateTable,
    Expect,
    Like,
    Name,
    Option,
    PrimaryKey,
    Text,
    Watermark,
)
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

    def watermark(self) -> Watermark:
        """Read a definition. Raises SqlError."""
        first = self._curr
        self.need("WATERMARK")
        if not self.take("FOR"):
            self.refuse(self.here(), "a watermark has no name", "write WATERMARK FOR column AS …: a table has one")
        path = self.path("a column's name")
        self._rejected(path)
        column = shown_path(path)
        self.need("AS", hint=f"for example WATERMARK FOR {column} AS {column} - INTERVAL '5' SECOND")
        self._rejected(path)
        self.short_intervals = True
        expression = self.scalar()
        self.short_intervals = False
        self._rejected(path)
        return Watermark(tuple(path), expression, self.since(first))

    def _rejected(self, path: list[Name]) -> None:
        """Refuse BOUNDED WITH DELAY and the like here, with the expression that means the same."""
        first, column = self._curr, shown_path(path)
        for words in BOUNDED:
            if self.take(*words):
                hint = f"write AS {column} - {self._interval_behind()}"
                what = f"{' '.join(words)} is no watermark strategy: an expression is"
                self.refuse(self.since(first), what, hint)
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
        if self.take("FROM"):
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


def shown_path(path: Sequence[Name]) -> str:
    """`a.b.c`, as it was written."""
    return ".".join(f"`{name.text}`" if name.quoted else name.text for name in path)


ACTIONS = ("FAIL", "QUARANTINE", "WARN")
KEY_OF_A_TABLE = "the key that a table is joined by is its PRIMARY KEY"


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
        self.refuse_next("CHECK", hint="write EXPECT (condition) ON VIOLATION FAIL")
        self.refuse_next("UNIQUE", hint=KEY_OF_A_TABLE)
        self.expected("`PRIMARY KEY` or `EXPECT`", did_you_mean(self._curr.text, ("PRIMARY KEY", "EXPECT")))

    def _action(self) -> str:
        self.need("VIOLATION", hint="write ON VIOLATION FAIL, QUARANTINE or WARN")
        if self.word("DROP"):
            hint = "write QUARANTINE: it keeps the row, apart"
            self.refuse(self.here(), "DROP ROW is not supported: no row is lost", hint)
        for word in ACTIONS:
            if self.take(word):
                if word == "FAIL":
                    self.take("UPDATE")
                return word
        self.expected("`FAIL`, `QUARANTINE` or `WARN`", did_you_mean(self._curr.text if self._curr else "", ACTIONS))


OTHER_OBJECTS = {
    "CATALOG": "tables belong to the script that declares them",
    "DATABASE": "tables belong to the script that declares them",
    "MATERIALIZED": "declare a table and INSERT INTO it",
    "MODEL": "a pipeline joins tables only",
    "CONNECTION": "put options into the table's WITH (…)",
}

HOW = ("INCLUDING", "EXCLUDING", "OVERWRITING")
KINDS = ("ALL", "CONSTRAINTS", "GENERATED", "METADATA", "OPTIONS", "PARTITIONS", "WATERMARKS")
LAKE_LAYS_OUT = "leave it out: the lake lays out its own files"
Element = ColumnDefinition | PrimaryKey | Watermark | Expect

FUNCTION_FORM = "write CREATE FUNCTION name AS 'module.function' LANGUAGE PYTHON"


class CreateGrammar(WatermarkGrammar, ExpectGrammar):
    """CREATE [TEMPORARY] TABLE [IF NOT EXISTS] name (columns, keys, watermark) [COMMENT 'text']
    [PARTITIONED BY (columns)] WITH (options) [LIKE table [(rules)]], and
    CREATE [TEMPORARY [SYSTEM]] FUNCTION [IF NOT EXISTS] name AS 'module.function' LANGUAGE PYTHON."""

    def create(self, first: Token) -> CreateTable | CreateFunction:
        """Read what follows CREATE."""
        hint = "a script declares each table once: CREATE TABLE"
        self.refuse_next("OR", "REPLACE", what="CREATE OR REPLACE", hint=hint)
        if self.take("TEMPORARY"):
            self.take("SYSTEM")
        if self.take("FUNCTION"):
            return self._function(first)
        if not self.take("TABLE"):
            word = self._curr.text.upper()
            if word in OTHER_OBJECTS:
                self.refuse(span_of(self._curr), f"CREATE {word} is not supported", OTHER_OBJECTS[word])
            self.expected("`TABLE`", did_you_mean(word, ["TABLE", "TEMPORARY", "FUNCTION", "VIEW"]))
        if_not_exists = self.take("IF", "NOT", "EXISTS")
        name = self.table_name()
        self._no_select()
        bare = self._curr if self.word("WITH") or self.word("LIKE") else None
        elements = [] if bare else [part for found in self.listed(self._element) for part in found]
        comment, at = self.comment(), self._curr
        partitions = self._listed_columns() if self.take("PARTITIONED", "BY") else ()
        partitioned = self.since(at) if partitions else None
        self.refuse_next("DISTRIBUTED", hint=LAKE_LAYS_OUT)
        options = tuple(self.listed(self._option)) if self.take("WITH") else ()
        like = self._by_another()
        if bare and like is None:
            self.refuse(span_of(bare), f"expected `(`, found `{bare.text}`")
        self._no_select()
        return CreateTable(
            name=name,
            columns=tuple(found for found in elements if isinstance(found, ColumnDefinition)),
            primary_keys=tuple(found for found in elements if isinstance(found, PrimaryKey)),
            watermarks=tuple(found for found in elements if isinstance(found, Watermark)),
            constraints=tuple(found for found in elements if isinstance(found, Expect)),
            options=options,
            comment=comment,
            span=self.since(first),
            if_not_exists=if_not_exists,
            partitions=partitions,
            partitioned=partitioned,
            like=like,
        )

    def table_name(self) -> Name:
        """Read a table's name, which has one part."""
        return self._name_of_one_part("table", "WITH (…)")

    def _name_of_one_part(self, what: str, place: str) -> Name:
        name = self.name(f"a {what}'s name")
        if self._curr.token_type == TokenType.DOT:
            hint = f"write the last part only; {place} has the place of the {what}"
            self.refuse(
                name.span.to(self.here()), f"{what} names have one part: there are no catalogs and databases", hint
            )
        return name

    def _function(self, first: Token) -> CreateFunction:
        if_not_exists = self.take("IF", "NOT", "EXISTS")
        name = self._name_of_one_part("function", "AS")
        self.need("AS", hint=FUNCTION_FORM)
        reference = self.text("the function in quotes", FUNCTION_FORM)
        end = self.since(first)
        if not self.take("LANGUAGE"):
            what = "a function without LANGUAGE is a Java class in Flink, and Java functions are not supported"
            self.refuse(reference.span, what, "name a Python function, and add LANGUAGE PYTHON")
        if not self.word("PYTHON"):
            word = self._curr.text.upper() if self._curr.token_type in NAMES else ""
            if word in ("JAVA", "SCALA", "SQL"):
                self.refuse(self.here(), f"LANGUAGE {word} is not supported", "name a Python function: LANGUAGE PYTHON")
            self.expected("`PYTHON`", FUNCTION_FORM)
        self.take("PYTHON")
        self.refuse_next("USING", hint="install the package that has the function")
        return CreateFunction(name, reference, end, if_not_exists)

    def _by_another(self) -> Like | None:
        """[LIKE table [(INCLUDING ALL EXCLUDING OPTIONS …)]]."""
        first = self._curr
        if not self.take("LIKE"):
            return None
        table, rules = self.table_name(), list[tuple[str, str, Span]]()
        if self._match(TokenType.L_PAREN):
            while not self._match(TokenType.R_PAREN):
                at = self._curr
                how, kind = self._one_of(HOW), self._one_of(KINDS)
                rules.append((how, kind, self.since(at)))
        return Like(table, tuple(rules), self.since(first))

    def _one_of(self, words: Sequence[str]) -> str:
        for word in words:
            if self.take(word):
                return word
        self.expected(" or ".join(f"`{word}`" for word in words), "for example LIKE t (EXCLUDING OPTIONS)")

    def _no_select(self) -> None:
        self.refuse_next("AS", what="CREATE TABLE … AS SELECT", hint="declare the columns, and INSERT INTO the table")

    def _option(self) -> Option:
        key = self.text("an option's name in quotes", "for example 'connector' = 'datagen'")
        self.need_sign(TokenType.EQ, "=")
        return Option(key, self.text("the option's value in quotes", "every value is a string: '10', 'true'"))

    def _element(self) -> list[Element]:
        first = self._curr
        if self.take("CONSTRAINT"):
            name = self.name("the constraint's name")
            if self.word("EXPECT"):
                return [self.expect(first, name)]
            if not self.word("PRIMARY", "KEY"):
                self.no_constraint()
        if self.take("PRIMARY", "KEY"):
            return [self._primary_key(first, self._listed_columns())]
        self.refuse_next("UNIQUE", hint=KEY_OF_A_TABLE)
        if self.watermark_is_next():
            return [self.watermark()]
        return self._column_definition(first)

    def comment(self) -> str | None:
        """Read [COMMENT 'text']."""
        return self.text("a comment").text if self.take("COMMENT") else None

    def _listed_columns(self) -> tuple[Name, ...]:
        return tuple(self.listed(lambda: self.name("a column's name")))

    def _primary_key(self, first: Token, columns: tuple[Name, ...]) -> PrimaryKey:
        """Read the NOT ENFORCED of a key."""
        if not self.take("NOT", "ENFORCED"):
            span = self.since(first).to(self.here()) if self.word("ENFORCED") else self.since(first)
            hint = "write PRIMARY KEY … NOT ENFORCED: Tidegate does not own the rows and cannot enforce a key"
            self.refuse(span, "the key is not NOT ENFORCED", hint)
        return PrimaryKey(columns, self.since(first))

    def _column_definition(self, first: Token) -> list[Element]:
        name = self.name("a column's name")
        if self.take("AS"):
            computed = self.scalar()
            return [ColumnDefinition(name, None, computed.span, computed=computed, comment=self.comment())]
        begin = self._curr
        kind = self.flink_type()
        column = ColumnDefinition(name, kind, self.since(begin))
        keys: list[PrimaryKey] = []
        while True:
            at = self._curr
            if self.take("NOT", "NULL"):
                column = replace(column, type=kind.not_null())
            elif self.take("NULL"):
                column = replace(column, null_written=self.since(at))
            elif self.take("METADATA"):
                key = self.text("the metadata's key in quotes") if self.take("FROM") else Text(name.text, name.span)
                column = replace(column, metadata=key)
                self.take("VIRTUAL")
            elif self.take("PRIMARY", "KEY"):
                keys.append(self._primary_key(at, (name,)))
            elif self.word("COMMENT"):
                column = replace(column, comment=self.comment())
            else:
                break
        self.refuse_next("UNIQUE", hint=KEY_OF_A_TABLE)
        self.refuse_next("DEFAULT", hint="use a computed column: name AS COALESCE(…)")
        if self._curr.token_type not in (TokenType.COMMA, TokenType.R_PAREN):
            self.expected("`,` or `)`", did_you_mean(self._curr.text, ["COMMENT", "METADATA", "PRIMARY", "NOT NULL"]))
        return [column, *keys]
