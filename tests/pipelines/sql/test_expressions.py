"""Every function and operator, by fixture: the type inferred here is Spark's own, and the value is Flink's."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.pipelines.sql.connectors import CONNECTORS
from tidegate.pipelines.sql import Table, compile_script
from tidegate.pipelines.sql.functions import FUNCTIONS
from tidegate.pipelines.sql.functions.user import UserFunctions
from tidegate.pipelines.sql.scope import InsertScope, Relation, value_of
from tidegate.pipelines.sql.translate import Translator
from tidegate.pipelines.sql.values import Value
from tidegate.pipelines.syntax.dialect import ScriptParser, Tidegate, parse_type, tokenize
from tidegate.pipelines.syntax.source import Source

FIXTURE = Path(__file__).parents[2] / "fixtures" / "sql" / "expressions.toml"
CASES = tomllib.loads(FIXTURE.read_text())
ROWS = [(group, *case) for group, cases in CASES.items() if isinstance(cases, list) for case in cases]


@cache
def table() -> Table:
    return compile_script(CASES["table"], connectors=CONNECTORS).table("t")


def translated(text: str) -> Value:
    """An expression over the fixture's table."""
    source = Source(text)
    parser = ScriptParser(dialect=Tidegate)
    written = parser.read(source, tokenize(source), parser.scalar)
    columns = {column.name: value_of(column, "t") for column in table().columns}
    scope = InsertScope(source, [Relation("t", columns, table(), "t", "t")], UserFunctions(source))
    return Translator(source, scope).value(written)


@pytest.fixture(scope="module")
def computed(spark: SparkSession) -> tuple[dict[str, str], dict[str, Any]]:
    """Of every expression: Spark's type of it, and its value as text. One job for all."""
    selected = []
    for number, (_, text, _, _) in enumerate(ROWS):
        sql = translated(text).sql
        selected.append(f"{sql} AS c{number}")
    frame = spark.sql(f"SELECT {CASES['row']}").selectExpr("struct(*, i AS `the-key`) AS t", "_instant")
    frame = frame.selectExpr(*selected)
    types = {text: field.dataType.simpleString() for (_, text, _, _), field in zip(ROWS, frame.schema, strict=True)}
    shown = frame.selectExpr(*[f"CAST(c{number} AS STRING) AS c{number}" for number in range(len(ROWS))])
    row = shown.collect()[0]
    return types, {text: row[number] for number, (_, text, _, _) in enumerate(ROWS)}


@pytest.mark.parametrize(("group", "text", "kind", "value"), ROWS, ids=[f"{row[0]}: {row[1]}" for row in ROWS])
def test_an_expression_has_its_type_and_its_value(
    group: str, text: str, kind: str, value: str, computed: tuple[dict[str, str], dict[str, Any]]
) -> None:
    types, values = computed
    assert str(translated(text).type.null()) == kind
    assert types[text] == spark_type(parse_type(kind).spark)
    assert values[text] == (None if value == "NULL" else value)


def spark_type(ddl: str) -> str:
    """Spark's short name of a type that is spelled as DDL."""
    short = ddl.replace("`", "").replace(", ", ",").replace(": ", ":").lower()
    return short.replace("expr$", "EXPR$")


def test_every_function_is_in_the_fixture() -> None:
    written = " ".join(text.upper() for _, text, _, _ in ROWS)
    missing = [name for name in FUNCTIONS if " TO" not in name and name not in written]
    assert not missing
