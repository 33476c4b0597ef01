"""What the parser of expressions can give and nobody here reads is refused at its place."""

from __future__ import annotations

from itertools import chain

import pytest
from sqlglot import exp

from tests.pipelines.sql.connectors import CONNECTORS
from tidegate.pipelines.sql import SqlError, compile_script
from tidegate.pipelines.sql.functions.user import UserFunctions
from tidegate.pipelines.sql.scope import InsertScope
from tidegate.pipelines.sql.translate import Translator
from tidegate.pipelines.sql.translate.operands import arguments_of
from tidegate.pipelines.syntax.dialect import ScriptParser
from tidegate.pipelines.syntax.source import Source, Span

TABLES = """CREATE TABLE t (s STRING, n INT, b BOOLEAN, at TIMESTAMP(3), a ARRAY<INT>, m MAP<STRING, INT>)
WITH ('connector' = 'scripted'); CREATE TABLE made (x STRING) WITH ('connector' = 'scripted');
"""

FOREIGN = [
    *("UPPER(s ⟦IGNORE⟧ NULLS)", "UPPER(s) ⟦IGNORE⟧ NULLS", "UPPER(s) ⟦RESPECT⟧ NULLS", "⟦UPPER(DISTINCT s)⟧"),
    *("UPPER(⟦ALL⟧ s)", "COUNT(n) ⟦FILTER⟧ (WHERE n > 1)", "UPPER(s) ⟦WITHIN⟧ GROUP (ORDER BY s)"),
    *("UPPER(s ⟦ORDER⟧ BY n)", "UPPER(s ⟦LIMIT⟧ 1)", "UPPER(s) ⟦OVER⟧ ()", "UPPER(⟦*⟧)", "UPPER(string ⟦=>⟧ s)"),
    *("UPPER(s)⟦(⟧)", "s.UPPER⟦(⟧)", "db.UPPER⟦(⟧s)", "UPPER(⟦,⟧s)", "UPPER(s,⟦)⟧", "UPPER(x -⟦>⟧ x)"),
    *("s ⟦COLLATE⟧ 'de'", "at ⟦AT⟧ TIME ZONE 'UTC'", "at ⟦AT⟧ LOCAL", "n⟦:⟧:STRING", "s -⟦>⟧> '$.a'", "s ⟦~⟧ 'a'"),
    *("s ⟦ILIKE⟧ 'a'", "s ⟦RLIKE⟧ 'a'", "s ⟦GLOB⟧ 'a'", "s LIKE ⟦ANY⟧ ('a', 'b')", "s LIKE ⟦ALL⟧ ('a')"),
    *(
        "n *⟦*⟧ 2",
        "⟦n << 2⟧",
        "⟦n >> 2⟧",
        "n ⟦&⟧ 2",
        "n ⟦|⟧ 2",
        "n ⟦^⟧ 2",
        "⟦~⟧n",
        "n ⟦DIV⟧ 2",
        "n ⟦MOD⟧ 2",
        "b ⟦XOR⟧ b",
    ),
    *(
        "b ⟦XOR⟧ b",
        "n NOT ⟦NULL⟧",
        "n ⟦ISNULL⟧",
        "n ⟦NOTNULL⟧",
        "s IS ⟦JSON⟧",
        "n IS ⟦1⟧",
        "n IN ⟦UNNEST⟧(a)",
        "n IN ⟦a⟧",
    ),
    *("n =⟦=⟧ 1", "n <=⟦>⟧ 1", "n ⟦!⟧> 1", "s LIKE 'a' ESCAPE ⟦1⟧", "⟦?⟧", "⟦:⟧x", "⟦@⟧x", "⟦{⟧'a': 1}", "⟦[⟧1, 2]"),
    *("CAST(s AS INT ⟦FORMAT⟧ 'YY')", "CAST(s AS INT ⟦DEFAULT⟧ 1 ON ERROR)", "⟦CONVERT⟧(s, n)", "⟦TRY⟧(n)"),
    *("JSON_VALUE(s, '$.a' ⟦DEFAULT⟧ 'x' ON EMPTY)", "JSON_VALUE(s, '$.a' ⟦NULL⟧ ON ERROR)", "ROW(n ⟦AS⟧ x)"),
    *("CASE WHEN b THEN 1 END ⟦CASE⟧", "CASE n WHEN 1⟦,⟧ 2 THEN 3 END", "INTERVAL ⟦n⟧ DAY", "⟦ANY⟧(a)", "a[1⟦:⟧2]"),
    *("(⟦SELECT⟧ 1)", "n IN (⟦SELECT⟧ 1)", "ARRAY(⟦SELECT⟧ 1)", "⟦EXISTS⟧(a)", "⟦VALUES⟧ (1)", "n > ⟦ALL⟧(a)"),
    *("n ⟦OVERLAPS⟧ n", "n ⟦MEMBER⟧ OF a", "TRIM(s⟦,⟧ 'a')", "POSITION('a' IN s ⟦FROM⟧ 2)", "EXTRACT(YEAR ⟦at⟧)"),
    *("⟦N'a'⟧", "U⟦&⟧'a'", "e⟦'a'⟧", "'a' ⟦'b'⟧", "⟦0x1F⟧", "⟦1e⟧", "⟦1_000⟧", "DATE ⟦s⟧", "⟦TIME⟧ '10:00'"),
    *("b = ⟦TRUE IS NULL⟧", "⟦n = n⟧ = b", "⟦n < n⟧ < n", "⟦b IS TRUE⟧ = b", "b = ⟦NOT n = n⟧", "b <> ⟦b IS NOT NULL⟧"),
]
"""Each with its place: where an error points at, or begins."""


@pytest.mark.parametrize("written", FOREIGN)
def test_what_nobody_reads_is_refused_at_its_place(written: str) -> None:
    script = f"INSERT INTO made SELECT CAST({written} AS STRING) FROM t"
    with pytest.raises(SqlError) as raised:
        compile_script(TABLES + script.replace("⟦", "").replace("⟧", ""), connectors=CONNECTORS)
    assert raised.value.line == TABLES.count("\n") + 1
    assert raised.value.column == script.index("⟦") + 1, str(raised.value)


def test_the_operators_of_the_grammar_are_those_that_are_translated() -> None:
    parser = ScriptParser
    operators = (parser.EQUALITY, parser.COMPARISON, parser.CONJUNCTION, parser.DISJUNCTION, parser.TERM, parser.FACTOR)
    kinds = set(chain.from_iterable(table.values() for table in operators))
    assert kinds <= set(Translator.rules)
    assert not any((parser.BITWISE, parser.EXPONENT, parser.JSON_OPERATORS))


def test_an_argument_that_no_rule_reads_is_refused_whatever_the_node() -> None:
    source = Source("SELECT something")
    translator, around = Translator(source, InsertScope(source, [], UserFunctions(source))), Span(7, 16)
    for kind in Translator.rules:
        for name in [name for name in kind.arg_types if name not in arguments_of(kind)]:
            with pytest.raises(SqlError, match="something is not supported"):
                translator.of(kind(**{name: exp.true()}), around)
