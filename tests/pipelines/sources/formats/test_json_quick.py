"""Which JSON messages take the short way; that both ways give the same rows is in tests/fixtures/formats/json.toml."""

from __future__ import annotations

import pytest

from pipelines.sources.formats import json_text
from pipelines.sources.formats.json_quick import quick
from tests.pipelines.sources.formats.format_tables import wanted

COLUMNS = "t TINYINT, d DECIMAL(10, 2), s STRING, f DOUBLE, at TIMESTAMP(3)"
SHORT = [
    '{"t": 1, "d": 12.50, "s": "x", "f": 0.1, "at": "2026-01-31 23:59:59.123"}',
    '{"t":1,"d":12.5,"s":"x","f":0.1,"at":"2026-01-31 23:59:59.123"}',
    '{"d" : 1.500000}',
    '{"d": null, "s": "pre-e-1, 5.5"}',
    '{"s": "5", "t": -5}',
    '{"s": {"k": 1}}',
    "{}",
]
LONG = [
    '{"t": 200}',
    '{"t": "1"}',
    '{"d": 1.005}',
    '{"d": 1.000000001}',
    '{"d": 1e-30}',
    '{"d": "2.5"}',
    '{"d": "1,5"}',
    '{"\\u0064": "1,5"}',
    '{"s": 1.10}',
    '{"s": {"k": 1.10}}',
    '{"f": 1e400}',
    '{"at": "2026-01-31"}',
    "not JSON",
    "{} {}",
]


def test_what_is_plain_takes_the_short_way_and_nothing_else(spark) -> None:
    short = quick(wanted(COLUMNS), json_text.leaf("SQL"))
    assert short is not None
    numbered = list(enumerate([*SHORT, *LONG]))
    rows = spark.createDataFrame(numbered, f"n INT, {json_text.TEXT} STRING")
    parsed = rows.selectExpr("n", json_text.TEXT, f"{short.parsed} AS {json_text.QUICK}")
    found = parsed.selectExpr("n", json_text.TEXT, f"{short.row} IS NOT NULL AS taken").orderBy("n").collect()
    assert [row[json_text.TEXT] for row in found if row["taken"]] == SHORT


@pytest.mark.parametrize("columns", ["a ARRAY<INT>", "f FLOAT", "d DECIMAL(38, 2)"])
def test_types_without_a_short_way(columns: str) -> None:
    assert quick(wanted(columns), json_text.leaf("SQL")) is None
