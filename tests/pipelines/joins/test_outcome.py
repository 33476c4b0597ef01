"""Outcomes as numbers: the first join that missed gives the outcome, and each disposition is a range of them."""

from __future__ import annotations

from typing import Literal

import pytest
from pyspark.sql import SparkSession

from tidegate.pipelines.joins.outcome import WHERE, WHYS, Outcomes, outcomes, why_number
from tidegate.pipelines.sql import compile_script

SCRIPT = """
CREATE TABLE u (k INT PRIMARY KEY NOT ENFORCED, a INT)
WITH ('connector' = 'scripted', 'phases' = 'true', 'signals' = 'true');
CREATE TABLE v (k INT PRIMARY KEY NOT ENFORCED, b INT)
WITH ('connector' = 'scripted', 'phases' = 'true', 'signals' = 'true');
CREATE TABLE p (k INT, pt AS PROCTIME()) WITH ('connector' = 'scripted');
CREATE TABLE t (k INT, a INT, b INT, CONSTRAINT small EXPECT (b > 0) ON VIOLATION QUARANTINE)
WITH ('connector' = 'scripted');
INSERT INTO t SELECT p.k, u.a, w.b FROM p
LEFT JOIN u FOR SYSTEM_TIME AS OF p.pt ON p.k = u.k
JOIN v FOR SYSTEM_TIME AS OF p.pt AS w ON p.k = w.k AND w.b <> 3
"""
INSERT = compile_script(SCRIPT).inserts[0]


@pytest.mark.parametrize("kind", ["unmatched", "dropped"])
def test_the_first_join_that_missed_gives_the_outcome(
    spark: SparkSession, kind: Literal["unmatched", "dropped"]
) -> None:
    known, joins = Outcomes(INSERT), list(enumerate(INSERT.joins))
    given = [(None, None, None)]
    given += [(first, second, f"{first}@u") for first in WHYS for second in (None, "deleted")]
    given += [(None, second, f"{second}@w") for second in WHYS]
    numbers = [tuple(None if name is None else why_number(name) for name in row[:2]) for row in given]
    rows = spark.createDataFrame(
        [(place, *row) for place, row in enumerate(numbers)], "place INT, _why0 INT, _why1 INT"
    )
    found = rows.orderBy("place").selectExpr(f"{known.missed_sql(kind, joins)} AS found").collect()
    names = [None if row["found"] is None else known.names[row["found"]] for row in found]
    assert names == [why and f"{kind}:{why}" for _, _, why in given]


@pytest.mark.parametrize("publish_unmatched", [False, True])
def test_every_outcome_has_one_disposition(publish_unmatched: bool) -> None:
    known = Outcomes(INSERT)
    last, dropped = known.last_published(publish_unmatched=publish_unmatched), known.number(WHERE)
    for number, name in enumerate(known.names):
        expected = "quarantine"
        if name == "matched" or (publish_unmatched and name.startswith("unmatched:")):
            expected = "publish"
        elif name.startswith("dropped:"):
            expected = "drop"
        assert ("publish" if number <= last else "drop" if number >= dropped else "quarantine") == expected, name


OF_U = ("key-null", "key-absent", "deleted")
OF_W = (*OF_U, "predicate")
MISSED = [*(f"unmatched:{why}@u" for why in OF_U), *(f"unmatched:{why}@w" for why in OF_W)]
LOST = [f"dropped:{why}@w" for why in OF_W]


def test_the_outcomes_that_an_insert_can_have() -> None:
    dropped = ["dropped:where", *(f"dropped:{why}@u" for why in OF_U), *LOST]
    assert outcomes(INSERT) == ["matched", *MISSED, "violated:small", "discarded", *dropped]
