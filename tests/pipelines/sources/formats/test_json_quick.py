"""Which JSON messages take the short way; that both ways give the same rows is in tests/fixtures/formats/json.toml."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import SparkSession

from tests.pipelines.sources.formats.format_tables import ONE_BY_ONE, wanted
from tidegate.pipelines.frames import settings
from tidegate.pipelines.sources.formats import VALUE, json_text
from tidegate.pipelines.sources.formats.json_quick import quick

COLUMNS = "t TINYINT, d DECIMAL(10, 2), s STRING, f FLOAT, at TIMESTAMP(3), day DATE, raw BYTES, must INT NOT NULL"
SHORT = [
    '{"t": 1, "d": 12.50, "s": "x", "f": 0.1, "at": "2026-01-31 23:59:59.123", "must": 1}',
    '{"must":0,"day":"2026-01-31","raw":"YWI="}',
    '{"must": 0, "d": "2.5"}',
]
LONG = [
    '{"must": 0, "t": "1"}',
    '{"must": 0, "s": 1.10}',
    '{"must": 0, "at": "2026-01-31"}',
    '{"must": 0, "day": 5}',
    '{"must": 0, "raw": "?"}',
    "{}",
]


def test_what_is_plain_takes_the_short_way_and_nothing_else(spark: SparkSession) -> None:
    short = quick(wanted(COLUMNS), json_text.leaf("SQL"))
    assert short is not None
    rows = spark.createDataFrame([*enumerate([*SHORT, *LONG])], "n INT, text STRING")
    with settings(spark, ONE_BY_ONE):
        parsed = rows.selectExpr("n", "text", f"CAST(text AS BINARY) AS {VALUE}")
        parsed = parsed.select("n", "text", short.column().alias(json_text.QUICK))
        found = parsed.selectExpr("n", "text", f"{short.row} IS NOT NULL AS taken").orderBy("n").collect()
    assert [row["text"] for row in found if row["taken"]] == SHORT


def test_nested_types_have_no_short_way() -> None:
    assert quick(replace(wanted("a INT"), columns=()), json_text.leaf("SQL")) is None
    for columns in ("a ARRAY<INT>", "r ROW<x INT>", "m MAP<STRING, INT>"):
        assert quick(wanted(columns), json_text.leaf("SQL")) is None


def test_each_message_is_parsed_once(spark: SparkSession) -> None:
    """However often SQL names what was parsed."""
    from tidegate.pipelines.sources.formats.json import FORMAT

    rows = spark.createDataFrame([(b"{}",)], f"{VALUE} BINARY")
    decoded = FORMAT.decode(rows, wanted("a INT, b STRING, c TIMESTAMP(3)"))
    plan = decoded._jdf.queryExecution().executedPlan().toString()  # type: ignore[operator]
    assert plan.count("ArrowEvalPython") == 1
    assert plan.count("pythonUDF0") > 1
    assert "pythonUDF1" not in plan
