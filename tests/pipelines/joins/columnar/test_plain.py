"""Which INSERTs ask for columns alone."""

from __future__ import annotations

import pyarrow as pa
import pytest

from pipelines.joins.columnar import Ref, plain_of
from pipelines.joins.columnar.plain import Plain
from pipelines.sql import compile_script

SCRIPT = """
CREATE TABLE rates (currency {currency}, `the-rate` DECIMAL(10, 4), tags ARRAY<STRING>, region INT, since TIMESTAMP(3),
    WATERMARK FOR since AS since, PRIMARY KEY (currency) NOT ENFORCED) WITH ('connector' = 'scripted');
CREATE TABLE regions (region BIGINT, name STRING, since TIMESTAMP(3), WATERMARK FOR since AS since,
    PRIMARY KEY (region) NOT ENFORCED) WITH ('connector' = 'scripted');
CREATE TABLE orders (id INT, currency {currency}, at TIMESTAMP(3), now AS PROCTIME(), WATERMARK FOR at AS at)
WITH ('connector' = 'scripted');
CREATE TABLE converted (id INT, rate DECIMAL(10, 4), name STRING{target}) WITH ('connector' = 'scripted'{options});
INSERT INTO converted SELECT {what} FROM orders AS o
{kind} JOIN rates FOR SYSTEM_TIME AS OF o.{time} AS r ON o.currency = r.currency {more}
LEFT JOIN regions FOR SYSTEM_TIME AS OF o.{time} AS g ON {region} = g.region {where}
"""


def plain(**given: str) -> Plain | None:
    parts = {"currency": "STRING", "target": "", "options": "", "what": "o.id, r.`the-rate`, g.name", "kind": "LEFT"}
    script = SCRIPT.format(**{**parts, "time": "at", "more": "", "where": "", "region": "r.region", **given})
    pipeline = compile_script(script)
    return plain_of(pipeline.insert("converted"), pipeline.tables)


def test_what_it_asks_for() -> None:
    found = plain()
    assert found is not None
    assert found.probe_columns == ("currency", "id")
    assert [(join.alias, join.keys, join.columns) for join in found.joins] == [
        ("r", ((Ref("o", "currency"), "currency"),), ("region", "the-rate")),
        ("g", ((Ref("r", "region"), "region"),), ("name",)),
    ]
    assert tuple((name, ref, found.types[ref]) for name, ref in found.output) == (
        ("id", Ref("o", "id"), pa.int32()),
        ("rate", Ref("r", "the-rate"), pa.decimal128(10, 4)),
        ("name", Ref("g", "name"), pa.string()),
    )


@pytest.mark.parametrize("currency", ["INT", "BIGINT", "DATE", "DECIMAL(4, 1)", "TIMESTAMP(3)", "BOOLEAN"])
def test_keys_of_many_types(currency: str) -> None:
    assert plain(currency=currency) is not None


@pytest.mark.parametrize(
    "given",
    [
        {"what": "o.id + 1, r.`the-rate`, g.name"},
        {"what": "o.id, CAST(r.`the-rate` * 2 AS DECIMAL(10, 4)), g.name"},
        {"what": "o.id, CAST(NULL AS DECIMAL(10, 4)), g.name"},
        {"what": "o.id, CAST(o.id AS DECIMAL(10, 4)), g.name"},
        {"what": "o.id, r.`the-rate`, g.name, r.tags", "target": ", tags ARRAY<STRING>"},
        {"more": "AND r.`the-rate` > 0"},
        {"where": "WHERE o.id > 0"},
        {"target": ", CONSTRAINT small EXPECT (id < 50) ON VIOLATION QUARANTINE"},
        {"options": ", 'gate.proof' = 'columns'"},
        {"currency": "DOUBLE"},
        {"time": "now"},
        {"region": "CAST(o.id * 2 AS BIGINT)"},
        {"region": "CAST(r.region AS SMALLINT)"},  # it may fail
    ],
    ids=str,
)
def test_what_asks_for_more_is_for_sql(given: dict[str, str]) -> None:
    assert plain(**given) is None
