"""The outcome of a row that some build gave no version for: the first join that missed names it."""

from __future__ import annotations

from typing import Literal

import pytest
from pyspark.sql import SparkSession

from pipelines.joins.outcome import missed_sql
from pipelines.sql import compile_script

SCRIPT = """
CREATE TABLE u (k INT PRIMARY KEY NOT ENFORCED, a INT)
WITH ('connector' = 'scripted', 'phases' = 'true', 'signals' = 'true');
CREATE TABLE v (k INT PRIMARY KEY NOT ENFORCED, b INT)
WITH ('connector' = 'scripted', 'phases' = 'true', 'signals' = 'true');
CREATE TABLE p (k INT, pt AS PROCTIME()) WITH ('connector' = 'scripted');
CREATE TABLE t (k INT, a INT, b INT) WITH ('connector' = 'scripted');
INSERT INTO t SELECT p.k, u.a, w.b FROM p
LEFT JOIN u FOR SYSTEM_TIME AS OF p.pt ON p.k = u.k
LEFT JOIN v FOR SYSTEM_TIME AS OF p.pt AS w ON p.k = w.k
"""


@pytest.mark.parametrize("kind", ["unmatched", "dropped"])
def test_the_first_join_that_missed_names_the_outcome(
    spark: SparkSession, kind: Literal["unmatched", "dropped"]
) -> None:
    joins = list(enumerate(compile_script(SCRIPT).inserts[0].joins))
    given = [
        (None, None, None),
        ("key-null", None, "key-null@u"),
        ("key-absent", "deleted", "key-absent@u"),
        (None, "deleted", "deleted@w"),
        # Reasons that these joins can not have, or that nobody has heard of, are never taken for a match.
        ("before-first", None, "before-first@u"),
        (None, "odd", "odd@w"),
    ]
    rows = spark.createDataFrame(given, "_why0 STRING, _why1 STRING, expected STRING")
    found = rows.selectExpr("expected", f"{missed_sql(kind, joins)} AS found").collect()
    assert [row["found"] for row in found] == [why and f"{kind}:{why}" for _, _, why in given]


def test_without_a_join_nothing_is_missed(spark: SparkSession) -> None:
    assert spark.range(1).selectExpr(f"{missed_sql('dropped', [])} AS found").collect()[0]["found"] is None
