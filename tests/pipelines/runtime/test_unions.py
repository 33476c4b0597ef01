"""UNION ALL as the probe: whatever the order of events, runs and crashes, the rows are those of a plain model, and each
row of a table is in one place for each branch that takes it."""

from __future__ import annotations

import random
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests import cases
from tests.cases import at_length
from tests.pipelines.runtime.crashing import may_die
from tests.pipelines.runtime.test_chains import AT, BUILDS, POINTS, WITH, at_ms, moment, target, valid
from tidegate.pipelines.errors import GateHeld, PlanningError
from tidegate.pipelines.runtime.epochs import Asked
from tidegate.pipelines.runtime.ledger import WhereRowsAre
from tidegate.pipelines.testing import Harness
from tidegate.pipelines.watermarks import MIN_TIMESTAMP, CombinedWatermarkStatus, Watermark
from tidegate.quality_checks.reconcile import reconcile

SOURCES = "".join(
    f"CREATE TABLE {name} (id INT, k INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts, p AS PROCTIME()) {WITH};\n"
    for name in ("a", "b", "c")
)
UNION = (
    "SELECT id, k, ts FROM a UNION ALL SELECT id + 1000, k + 0 * (10 / id), ts FROM b WHERE id <> 0 "
    "UNION ALL SELECT id + 2000, k + 1, ts FROM a"
)
SCRIPT = (
    BUILDS
    + SOURCES
    + target("mixed", "u INT, ")
    + "CREATE TABLE rated (id INT, k INT, r INT) WITH ('connector' = 'scripted', 'gate.on-unmatched' = 'publish');\n"
    + f"CREATE TABLE plain (id INT, k INT) {WITH};\n"
    + "INSERT INTO rated SELECT m.id, m.k, r.v FROM (SELECT id, k, ts FROM c UNION ALL SELECT id, k, ts FROM mixed) "
    + "AS m LEFT JOIN rates FOR SYSTEM_TIME AS OF m.ts AS r ON r.k = m.k;\n"
    + f"INSERT INTO mixed SELECT x.id, x.k, u.v, x.ts FROM ({UNION}) AS x "
    + "JOIN users FOR SYSTEM_TIME AS OF x.ts AS u ON u.k = x.k;\n"
    + "INSERT INTO plain SELECT id, k FROM c WHERE id > 0 UNION ALL (SELECT id, k FROM b UNION ALL SELECT id, k FROM c)"
)
INPUTS = {"mixed": ("a", "b", "users"), "rated": ("a", "b", "users", "c", "rates")}


class Story:
    """A random history of three probes and two builds."""

    def __init__(self, harness: Harness, seed: int) -> None:
        self.harness, self.random = harness, random.Random(seed)
        self.marks: dict[str, int] = dict.fromkeys(("a", "b", "c", "users", "rates"), 0)
        self.versions: dict[str, dict[int, list[tuple[int, int]]]] = {"users": {}, "rates": {}}
        self.rows: dict[str, list[dict[str, Any]]] = {name: [] for name in "abc"}
        self.status = {name: CombinedWatermarkStatus(inputs) for name, inputs in INPUTS.items()}
        self.known: dict[str, dict[str, int]] = {name: {} for name in INPUTS}

    def step(self) -> None:
        draw = self.random
        match draw.choice(["row", "row", "row", "version", "version", "mark", "mark", "mark", "idle"]):
            case "row":
                name = draw.choice("abc")
                rows = [self._row(name) for _ in range(draw.randint(1, 4))]
                self.harness.push(name, [row | {"ts": moment(row["ts"])} for row in rows])
            case "version":
                name = draw.choice(["users", "rates"])
                at, key, value = self.marks[name] + draw.randint(1, 30), draw.randint(1, 4), draw.randint(0, 99)
                known = self.versions[name].setdefault(key, [])
                if not known or known[-1][0] < at:
                    known.append((at, value))
                    self.harness.push(name, [{"k": key, "v": value, "ts": moment(at)}])
            case "mark":
                self.mark(name := draw.choice(list(self.marks)), self.marks[name] + draw.randint(0, 25))
            case "idle":
                self.harness.idle(draw.choice("abc"))

    def mark(self, name: str, ms: int) -> None:
        self.marks[name] = ms
        self.harness.watermark(name, at_ms(ms))

    def _row(self, name: str) -> dict[str, Any]:
        late = max(self.marks[name] - 10, 0)
        key, ts = self.random.randint(1, 4), self.random.randint(late, late + 60)
        self.rows[name].append({"id": len(self.rows[name]), "k": key, "ts": ts})
        return self.rows[name][-1]

    def combined(self, target: str) -> int:
        """The watermark of all inputs of a target together, by FLIP-326 from what their logs say."""
        rows = {name: self.harness.lake.watermarks.last(name) for name in INPUTS[target]}
        states: dict[Hashable, tuple[Watermark, bool]] = {
            name: row.status if row else (Watermark(MIN_TIMESTAMP), False) for name, row in rows.items()
        }
        known = self.known[target]
        emitted = [name for name, row in rows.items() if row and row.timestamp > known.get(name, MIN_TIMESTAMP)]
        self.known[target] = {name: row.timestamp for name, row in rows.items() if row}
        self.status[target].input_all(states, emitted)
        return self.status[target].watermark.timestamp

    def expected(self) -> dict[str, list[tuple[Any, ...]]]:
        """What each target holds in the end, and (`lost`) what `mixed` keeps in quarantine."""
        a, b, c = self.rows.values()
        union = [*a, *(row | {"id": row["id"] + 1000} for row in b if row["id"])]
        union += [row | {"id": row["id"] + 2000, "k": row["k"] + 1} for row in a]
        found: dict[str, list[tuple[Any, ...]]] = {"mixed": [], "lost": []}
        for row in union:
            user = valid(self.versions["users"].get(row["k"], []), row["ts"])
            found["lost" if user is None else "mixed"].append((row["id"], row["k"], user))
        found["rated"] = [self._rated(row) for row in c]
        lost = {row[0] for row in found["lost"]}
        found["rated"] += [self._rated(row) for row in union if row["id"] not in lost]
        found["plain"] = [(row["id"], row["k"]) for row in (*(row for row in c if row["id"]), *b, *c)]
        return {name: sorted(rows, key=repr) for name, rows in found.items()}

    def _rated(self, row: Mapping[str, Any]) -> tuple[Any, ...]:
        return row["id"], row["k"], valid(self.versions["rates"].get(row["k"], []), row["ts"])


COLUMNS = {"mixed": "id k u", "rated": "id k r", "plain": "id k"}


def published(harness: Harness) -> dict[str, list[tuple[Any, ...]]]:
    found = {
        name: [tuple(row[each] for each in COLUMNS[name].split()) for row in harness.published(name)]
        for name in COLUMNS
    }
    found["lost"] = [(row["id"], row["k"], None) for row in harness.quarantined("mixed")]
    return {name: sorted(rows, key=repr) for name, rows in found.items()}


def prove(harness: Harness) -> None:
    for insert in harness.pipeline.inserts:
        if cases.AT_LENGTH:
            report = harness.verify(insert.id)
            assert report.passed, report
        found = reconcile(harness.lake, harness.pipeline, insert)
        assert found.problems == ()
        assert isinstance(found.rows, WhereRowsAre)
        assert sum(each.waiting for each in found.rows.branches) == found.rows.waiting == 0
        assert sum(each.landed for each in found.rows.branches) == found.rows.landed


@pytest.mark.parametrize("seed", at_length(range(20)))
def test_a_union_in_both_kinds_of_time_is_what_a_plain_model_says_wherever_it_is_cut(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    harness = Harness(SCRIPT, spark, tmp_path)
    story = Story(harness, seed)
    for _ in range(4 if cases.AT_LENGTH else 3):
        for _ in range(story.random.randint(3, 8)):
            story.step()
        with may_die(story.random.choice(POINTS), passes=story.random.randint(1, 4)) as died:
            harness.advance()
        if died:
            harness.restart()
            harness.advance()
        for name in INPUTS:
            last, reached = harness.lake.watermarks.last("mixed"), story.combined(name)
            if name == "mixed" and last is not None:
                assert last.timestamp == reached
    for name in story.marks:
        story.mark(name, 10_000)
    harness.advance()
    assert published(harness) == story.expected()
    assert not harness.run().moved
    with pytest.raises(PlanningError, match="rated reads mixed"):
        harness.runner.backfill("mixed")
    low = at_ms(story.random.randint(0, 60))
    harness.runner.backfill("rated", (low, low + 30))
    assert published(harness) == story.expected()

    first = {key: (0, 100 + key) for key in range(1, 6)}
    harness.push("users", [{"k": key, "v": value, "ts": AT} for key, (_, value) in first.items()])
    for key, version in first.items():
        known = story.versions["users"].setdefault(key, [])
        known[:] = [version, *(each for each in known if each[0] > 0)]
    harness.run()
    harness.runner.out_of_quarantine("mixed", Asked())
    harness.run()
    expected = story.expected()
    assert expected["lost"] == []
    assert published(harness) == expected
    prove(harness)


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
    assert harness.verify("t").passed
    prove(harness)
