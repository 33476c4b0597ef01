"""Whatever expression compiles, Spark takes it, and gives it the very type that was inferred."""

from __future__ import annotations

import random

import pytest
from pyspark.sql import SparkSession

from tests.cases import at_length
from tests.pipelines.sql.test_expressions import CASES, spark_type, translated
from tidegate.pipelines.sql import SqlError
from tidegate.pipelines.sql.functions import FUNCTIONS
from tidegate.pipelines.sql.values import Value
from tidegate.pipelines.syntax.types import INTERVALS

ATOMS = [
    "tiny",
    "small",
    "i",
    "n",
    "big",
    "price",
    "rate",
    "wide",
    "d",
    "f",
    "s",
    "v",
    "nothing",
    "b",
    "yes",
    "maybe",
    "dt",
    "ts",
    "ts6",
    "ltz",
    "arr",
    "m",
    "r",
    "pt",
    "r.x",
    "arr[1]",
    "m['a']",
    "'x'",
    "1",
    "2.5",
    "1e3",
    "NULL",
    "TRUE",
    "X'00'",
    "INTERVAL '1' DAY",
    "INTERVAL '1' MONTH",
    "DATE '2024-01-01'",
]
OPERATORS = ["+", "-", "*", "/", "%", "||", "=", "<", "<>", "AND", "OR", "LIKE", "IS DISTINCT FROM", "IN"]
TARGETS = [
    "INT",
    "STRING",
    "DECIMAL(5, 2)",
    "TIMESTAMP(3)",
    "TIMESTAMP(1)",
    "DATE",
    "BOOLEAN",
    "BYTES",
    "CHAR(3)",
    "DOUBLE",
]
CALLS = {
    "EXTRACT": "EXTRACT(DAY FROM {0})",
    "TRIM": "TRIM({0})",
    "POSITION": "POSITION({0} IN {1})",
    "OVERLAY": "OVERLAY({0} PLACING {1} FROM {2})",
    "TIMESTAMPADD": "TIMESTAMPADD(DAY, {0}, {1})",
    "TIMESTAMPDIFF": "TIMESTAMPDIFF(HOUR, {0}, {1})",
    "MAP": "MAP[{0}, {1}]",
}
NAMES = [name for name in FUNCTIONS if " " not in name]


def expression(draw: random.Random, depth: int) -> str:
    """Any expression of the dialect, whether its types fit or not."""
    if depth == 0 or draw.random() < 0.2:
        return draw.choice(ATOMS)
    one, two, three = (expression(draw, depth - 1) for _ in range(3))
    kind = draw.randrange(9)
    if kind < 3:
        return f"({one} {draw.choice(OPERATORS)} ({two}))"
    if kind == 3:
        return f"CASE WHEN {one} THEN {two} ELSE {three} END"
    if kind == 4:
        return f"CAST({one} AS {draw.choice(TARGETS)})"
    if kind == 5:
        return f"({one} IS NULL)"
    if kind == 6:
        return f"({one} BETWEEN {two} AND {three})"
    name = draw.choice(NAMES)
    plain = f"{name}({', '.join((one, two, three)[: draw.randint(1, 3)])})"
    return CALLS[name].format(one, two, three) if name in CALLS else plain


@pytest.mark.parametrize("seed", at_length([1, 2]))
def test_spark_takes_every_expression_that_compiles(seed: int, spark: SparkSession) -> None:
    draw = random.Random(seed)
    found: list[tuple[str, Value]] = []
    while len(found) < 600:
        text = expression(draw, draw.randint(1, 3))
        try:
            value = translated(text)
        except SqlError:
            continue
        if "INTERVAL" not in str(value.type) and value.type.kind not in INTERVALS:
            found.append((text, value))
    frame = spark.sql(f"SELECT {CASES['row']}").selectExpr("struct(*, i AS `the-key`) AS t", "_instant")
    schema = frame.selectExpr(*[f"{value.sql} AS c{number}" for number, (_, value) in enumerate(found)]).schema
    for (text, value), field in zip(found, schema, strict=True):
        assert field.dataType.simpleString() == spark_type(value.type.spark), text
