"""The newest version of each key, against plain Python."""

from __future__ import annotations

import random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tidegate.pipelines.connectors.spec import SEQ_TYPE
from tidegate.pipelines.frames import as_views
from tidegate.quality_checks.latest import latest_sql

SCHEMA = f"_generation INT, _epoch BIGINT, _op STRING, _seq {SEQ_TYPE}, k INT, l STRING, v INT, m MAP<STRING, INT>"


def changelog(seed: int, truncates: int) -> list[tuple[Any, ...]]:
    """Changes of 60 keys, of which the parts of `_seq` all decide somewhere; a truncate has neither key nor row."""
    noise = random.Random(seed)
    places = {tuple(noise.randrange(3) for _ in range(5)) for _ in range(400)}
    ops = ["t"] * truncates + [noise.choice("crud") for _ in range(len(places) - truncates)]
    rows = []
    for op, seq in zip(ops, noise.sample(sorted(places), len(places)), strict=True):
        key = (None, None) if op == "t" else (noise.randrange(20), noise.choice("abc"))
        rows.append((1, noise.randrange(9), op, seq, *key, noise.randrange(99), {"a": 1}))
    noise.shuffle(rows)
    return rows


def expected(rows: list[tuple[Any, ...]]) -> set[tuple[Any, ...]]:
    """(key, value, epoch, gone) of each key."""
    last = max((row[3] for row in rows if row[2] == "t"), default=None)
    found: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for row in sorted((row for row in rows if row[2] != "t"), key=lambda row: row[3]):
        gone = row[2] == "d" or (last is not None and row[3] < last)
        found[row[4:6]] = (*row[4:6], row[6], row[1], gone)
    return set(found.values())


@pytest.mark.parametrize("truncates", [0, 2])
def test_latest(spark: SparkSession, truncates: int) -> None:
    rows = changelog(seed=5 + truncates, truncates=truncates)
    with as_views({"changelog": spark.createDataFrame(rows, SCHEMA)}) as views:
        found = spark.sql(latest_sql(views["changelog"], ["k", "l"], ["k", "l", "v", "m"])).collect()
    assert {(row["k"], row["l"], row["v"], row["_epoch"], row["_gone"]) for row in found} == expected(rows)
    assert len(found) == len({(row["k"], row["l"]) for row in found})
    assert all(row["m"] == {"a": 1} for row in found)
