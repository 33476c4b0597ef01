"""UNION ALL and UNNEST as the probe: whatever the order of events, runs and crashes, the rows are those of a plain
model, and each row of a table is in one place for each branch that takes it."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.pipelines.runtime.crashing import dying
from tests.pipelines.runtime.test_chains import AT, BUILDS, WITH, at_ms, target
from tidegate.pipelines.errors import GateHeld
from tidegate.pipelines.joins.outcome import NOT_ASKED
from tidegate.pipelines.runtime.epochs import Asked
from tidegate.pipelines.runtime.ledger import WhereRowsAre
from tidegate.pipelines.runtime.nearest import nearest_of_rows
from tidegate.pipelines.runtime.quarantine import quarantined_by_epoch, rows_of
from tidegate.pipelines.testing import Harness
from tidegate.quality_checks.reconcile import reconcile

SOURCES = "".join(
    f"CREATE TABLE {name} (id INT, k INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts, p AS PROCTIME()) {WITH};\n"
    for name in ("a", "b", "c")
)


def prove(harness: Harness) -> None:
    for insert in harness.pipeline.inserts:
        report = harness.verify(insert.id)
        assert report.passed, report
        found = reconcile(harness.lake, harness.pipeline, insert)
        assert found.problems == ()
        assert isinstance(found.rows, WhereRowsAre)
        assert found.rows.waiting == 0
        if insert.branches:
            assert sum(each.waiting for each in found.rows.branches) == 0
            assert sum(each.landed for each in found.rows.branches) == found.rows.landed


HELD = (
    BUILDS
    + SOURCES
    + "CREATE TABLE t (id INT, u INT) WITH ('connector' = 'scripted', 'gate.on-unmatched' = 'block', "
    + "'release.max-rows' = '4');\n"
    + "INSERT INTO t SELECT x.id, u.v FROM (SELECT id, k, p FROM a UNION ALL SELECT id + 10, k, PROCTIME() FROM b "
    + "UNION ALL SELECT id + 20, k, p FROM a) AS x JOIN users FOR SYSTEM_TIME AS OF x.p AS u ON u.k = x.k;\n"
)


def test_what_is_held_of_a_union_is_released_or_discarded_whole(spark: SparkSession, tmp_path: Path) -> None:
    harness = Harness(HELD, spark, tmp_path)
    (insert,) = harness.pipeline.inserts
    harness.push("b", [{"id": 1, "k": 1, "ts": AT}])
    harness.advance()
    rows = reconcile(harness.lake, harness.pipeline, insert).rows
    assert isinstance(rows, WhereRowsAre)
    assert [(each.table, each.landed, each.waiting) for each in rows.branches] == [
        ("a", 0, 0),
        ("b", 1, 1),
        ("a", 0, 0),
    ]
    harness.push("users", [{"k": 1, "v": 7, "ts": AT}])
    harness.watermark("users", at_ms(1))
    assert [row["id"] for row in harness.advance()] == [11]
    for number in range(2, 6):
        harness.push("a", [{"id": number, "k": 1, "ts": AT}])
    harness.push("b", [{"id": 2, "k": 2, "ts": AT}])
    with pytest.raises(GateHeld, match="t"):
        harness.advance()
    harness.push("users", [{"k": 2, "v": 8, "ts": AT}])
    with pytest.raises(GateHeld):
        harness.run()
    harness.runner.resolve_held("t")
    harness.run()
    assert sorted(row["id"] for row in harness.published("t")) == [2, 3, 4, 5, 11, 12, 22, 23, 24, 25]
    harness.push("a", [{"id": 6, "k": 3, "ts": AT}])
    with pytest.raises(GateHeld):
        harness.advance()
    harness.runner.resolve_held("t", discard=True)
    assert sorted((row["id"], row["_reason"]) for row in harness.quarantined("t")) == [
        (6, "discarded"), (26, "discarded"),
    ]  # fmt: skip
    prove(harness)


UNNESTED = (
    "CREATE FUNCTION inverse AS 'tests.pipelines.functions.samples.inverse' LANGUAGE PYTHON;\n"
    + BUILDS
    + "CREATE TABLE sets (id INT, ks ARRAY<ROW<k INT, n INT>>, m MAP<STRING, INT>, ts TIMESTAMP(3), "
    + f"WATERMARK FOR ts AS ts) {WITH};\n"
    + "CREATE TABLE t (id INT, k INT, n INT, place INT, u INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts, "
    + f"CONSTRAINT small EXPECT (n < 100) ON VIOLATION QUARANTINE) {WITH};\n"
    + f"CREATE TABLE entries (id INT, name STRING, v INT, n INT) {WITH};\n"
    + f"CREATE TABLE below (id INT, n INT, twice INT) {WITH};\n"
    + "INSERT INTO t SELECT s.id, e.k, e.n, e.place, u.v, s.ts FROM sets AS s CROSS JOIN UNNEST(s.ks) WITH ORDINALITY "
    + "AS e (k, n, place) JOIN users FOR SYSTEM_TIME AS OF s.ts AS u ON u.k = e.k;\n"
    # Of the row with the id 0 the function would fail.
    + "INSERT INTO entries SELECT id, name, v, k FROM (SELECT * FROM sets WHERE inverse(id) > 0 AND id > 0) AS s "
    + "LEFT JOIN UNNEST(m) AS e (name, v) ON TRUE LEFT JOIN UNNEST(ks) AS x (k, n) ON TRUE WHERE COALESCE(v, 1) > 0;\n"
    + "INSERT INTO below SELECT id, n, o FROM t, UNNEST(ARRAY[n, 2 * n]) AS x (o);\n"
)


def test_each_element_is_published_or_quarantined_by_itself(spark: SparkSession, tmp_path: Path) -> None:
    harness = Harness(UNNESTED, spark, tmp_path)

    def rows(name: str, *columns: str) -> list[tuple[object, ...]]:
        return sorted((tuple(row[each] for each in columns) for row in harness.published(name)), key=str)

    harness.push("users", [{"k": key, "v": 10 * key, "ts": AT} for key in (1, 2)])
    made = [{"k": 1, "n": 5}, {"k": 3, "n": 6}, {"k": 2, "n": 700}, {"k": 1, "n": 8}, None]
    harness.push("sets", [{"id": 1, "ks": made, "m": {"a": 1, "b": 0}, "ts": AT}])
    harness.push("sets", [{"id": 2, "ks": [], "m": None, "ts": AT}, {"id": 3, "ks": None, "m": {}, "ts": AT}])
    harness.push("sets", [{"id": 0, "ks": [{"k": 2, "n": 1}], "m": {"a": 1}, "ts": AT}])
    for name in ("users", "sets"):
        harness.watermark(name, at_ms(1))
    harness.advance()
    harness.run()
    assert rows("t", "id", "k", "n", "place", "u") == [(0, 2, 1, 1, 20), (1, 1, 5, 1, 10), (1, 1, 8, 4, 10)]
    assert sorted((row["place"], row["_reason"]) for row in harness.quarantined("t")) == [
        (2, "unmatched:key-absent@u"), (3, "violated:small"), (5, "unmatched:key-null@u"),
    ]  # fmt: skip
    own = [(1, "a", 1, key) for key in (1, 1, 2, 3, None)]
    assert rows("entries", "id", "name", "v", "n") == [*own, (2, None, None, None), (3, None, None, None)]
    assert rows("below", "n", "twice") == [(1, 1), (1, 2), (5, 10), (5, 5), (8, 16), (8, 8)]
    found = reconcile(harness.lake, harness.pipeline, harness.pipeline.insert("t")).rows
    assert isinstance(found, WhereRowsAre)
    assert (found.landed, found.further, found.published, found.dropped) == (4, 4, 3, {"where": 2})

    harness.push("users", [{"k": 3, "v": 30, "ts": AT}])
    harness.advance()
    harness.runner.out_of_quarantine("t", Asked())
    harness.run()
    assert (1, 3, 6, 2, 30) in rows("t", "id", "k", "n", "place", "u")
    assert [len(harness.published(name)) for name in ("t", "below")] == [4, 8]
    for insert in harness.pipeline.inserts:
        assert reconcile(harness.lake, harness.pipeline, insert).problems == ()
        report = harness.verify(insert.id)
        assert report.passed, report


KNOWN = target("known", "u INT, ", ", 'gate.proof' = 'columns'").replace("k INT", "k INT PRIMARY KEY NOT ENFORCED")
EACH = (
    BUILDS
    + SOURCES
    + KNOWN
    + f"CREATE TABLE seen (id INT, of INT, u INT) {WITH};\n"
    + "INSERT INTO known SELECT a.id, a.k, u.v, a.ts FROM a JOIN users FOR SYSTEM_TIME AS OF a.ts AS u ON u.k = a.k "
    + "AND u.v > 0 WHERE u.v < 90 UNION ALL SELECT b.id + 100, b.k / 10, r.v + 1000, b.ts FROM b "
    + "LEFT JOIN rates FOR SYSTEM_TIME AS OF b.ts AS r ON r.k = b.k / 10 UNION ALL "
    + "SELECT id + 200, k, -k, ts FROM a WHERE MOD(id, 2) = 0;\n"
    + "INSERT INTO seen SELECT c.id, n.id, n.u FROM c JOIN known FOR SYSTEM_TIME AS OF c.p AS n ON n.k = c.k;\n"
)


def test_each_query_of_a_union_joins_its_own_builds_and_its_target_is_a_build(
    spark: SparkSession, tmp_path: Path
) -> None:
    harness = Harness(EACH, spark, tmp_path)
    known = harness.pipeline.insert("known")

    def published(name: str) -> list[tuple[Any, ...]]:
        return sorted(tuple(row[column] for column in ("id", "k", "u")) for row in harness.published(name))

    def ordered(*orders: tuple[int, int]) -> list[tuple[int, int]]:
        harness.push("c", [{"id": order, "k": key, "ts": AT} for order, key in orders])
        return sorted((row["id"], row["of"]) for row in harness.advance() if row["_target"] == "seen")

    def until(ms: int, *names: str) -> None:
        for name in names:
            harness.watermark(name, at_ms(ms))

    after = [AT + timedelta(milliseconds=ms) for ms in range(100)]
    harness.push("users", [{"k": 1, "v": 7, "ts": AT}, {"k": 2, "v": 0, "ts": AT}, {"k": 3, "v": 95, "ts": AT}])
    harness.push("rates", [{"k": 1, "v": 5, "ts": AT}])
    harness.push("a", [{"id": key, "k": key, "ts": after[10]} for key in (1, 2, 3, 4)])
    harness.push("b", [{"id": 1, "k": 11, "ts": after[10]}, {"id": 2, "k": 29, "ts": after[12]}])
    until(20, "users", "rates", "a")
    assert ordered((1, 1)) == []
    assert published("known") == [], "b holds it, and it has not flipped"
    until(20, "b")
    with dying("insert.published", owner="known"):
        harness.advance()
    harness.restart()
    harness.advance()
    # Of one time, the first branch's row comes first, so the second's is the newest of k = 1; 202 is that of k = 2.
    assert published("known") == [(1, 1, 7), (101, 1, 1005), (202, 2, -2), (204, 4, -4)]
    assert sorted((row["id"], row["of"]) for row in harness.published("seen")) == [(1, 101)]
    groups = quarantined_by_epoch(harness.lake, harness.pipeline, known)
    rows = rows_of(harness.lake, harness.pipeline, known, groups, 10)
    kept = {row.group.reason: (row.place["_split"].partition("/")[0], row.probe) for row in rows}
    assert {reason: branch for reason, (branch, _) in kept.items()} == {
        "unmatched:predicate@u": "1 a",
        "unmatched:key-absent@u": "1 a",
        "unmatched:key-absent@r": "2 b",
    }
    # The union's columns, and those of the branch's own table where they are not among them.
    probe = kept["unmatched:key-absent@r"][1]
    assert probe is not None
    assert (probe["id"], probe["k"], probe["id_2"], probe["k_2"]) == (102, 2, 2, 29)
    (row,) = harness.lake.staged.rows(f"insert {known.id}", generation=1, epoch=1)
    counts = {name: number for name, number in row.facts.items() if name.startswith(("matches", NOT_ASKED))}
    assert counts == {"matches@u": 2, f"{NOT_ASKED}@u": 6, "matches@r": 1, f"{NOT_ASKED}@r": 8}
    nearest = nearest_of_rows(harness.lake, harness.pipeline, known, rows)
    found = {(each.reason, tuple(each.key.values())): each.nearest for each in nearest if each is not None}
    assert found["predicate@u", (2,)].startswith("inserted at 2026-01-01")
    assert found["key-absent@u", (4,)].startswith("none up to epoch")

    # A late row of the branch that never rests, while the other one is idle; and one is released from quarantine.
    harness.idle("b")
    harness.push("users", [{"k": 4, "v": 8, "ts": after[1]}])
    harness.push("a", [{"id": 5, "k": 1, "ts": after[5]}])
    until(40, "users", "rates", "a")
    harness.advance()
    assert (5, 1, 7) in published("known")
    harness.runner.out_of_quarantine("known", Asked())
    assert (4, 4, 8) in published("known")
    # Of the order of its key, a released row keeps the place of the epoch that took it first: 204 is of the same.
    assert ordered((2, 4), (3, 1)) == [(2, 204), (3, 5)]
    harness.push("b", [{"id": 3, "k": 10, "ts": after[30]}])
    until(60, "users", "rates", "a", "b", "c")
    harness.advance()
    assert (103, 1, 1005) in published("known")
    prove(harness)
