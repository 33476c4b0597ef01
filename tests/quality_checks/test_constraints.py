"""CONSTRAINT … EXPECT in runs: where each row goes, what is counted, what holds an epoch, and that verify agrees."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.copies import copy_of
from tests.pipelines.runtime.handmade import no_spark
from tidegate.pipelines.errors import GateHeld
from tidegate.pipelines.runtime.epochs import ReleasePlan
from tidegate.pipelines.runtime.gate import GateVerdict
from tidegate.pipelines.runtime.runner import Runner
from tidegate.pipelines.runtime.verifying.verify import verify
from tidegate.pipelines.testing import Harness
from tidegate.quality_checks.gate import judge
from tidegate.quality_checks.reconcile import reconcile_all

SCRIPT = """
CREATE TABLE users (id INT PRIMARY KEY NOT ENFORCED, name STRING)
WITH ('connector' = 'scripted', 'phases' = 'true', 'signals' = 'true');
CREATE TABLE clicks (id INT, n INT, proctime AS PROCTIME()) WITH ('connector' = 'scripted');
CREATE TABLE enriched (n INT PRIMARY KEY NOT ENFORCED, name STRING, inverse INT, c INT,
    CONSTRAINT small EXPECT (n < 50),
    CONSTRAINT `known-name` EXPECT (name <> 'nobody') ON VIOLATION QUARANTINE,
    CONSTRAINT positive EXPECT (n > 0) ON VIOLATION FAIL UPDATE,
    CONSTRAINT even EXPECT (n % 2 = 0) ON VIOLATION QUARANTINE,
    CONSTRAINT short EXPECT (CHAR_LENGTH(name) < 4 AND CURRENT_TIMESTAMP > TIMESTAMP '2000-01-01 00:00:00')
        ON VIOLATION WARN
) WITH ('connector' = 'scripted', 'gate.on-unmatched' = 'publish', 'gate.proof' = 'columns');
INSERT INTO enriched SELECT n, u.name, 60 / (n - 13), clicks.id FROM clicks
LEFT JOIN users FOR SYSTEM_TIME AS OF clicks.proctime AS u ON clicks.id = u.id WHERE u.id IS NULL OR n <> 13
"""
PEOPLE = {1: "ann", 2: "nobody", 3: "somebody", 4: None}


def expected(key: int | None, n: int) -> tuple[str, str | None, set[str]]:
    """Place, reason and violated constraints of a row, in plain Python."""
    name = PEOPLE.get(key or 0)
    if key in PEOPLE and n == 13:
        return "drop", None, set()
    broken = {
        "positive": n <= 0,
        "known-name": name == "nobody",
        "even": n % 2 != 0,
        "small": n >= 50,
        "short": name is not None and len(name) >= 4,
    }
    violated = [constraint for constraint, hit in broken.items() if hit]
    quarantined = [constraint for constraint in violated if constraint not in ("small", "short")]
    if quarantined:
        return "quarantine", f"violated:{quarantined[0]}", set(violated)
    return "publish", None, set(violated)


ROWS = [
    (key, n)
    for key in (1, 2, 3, 4, 9, None)
    for n in (1, 2, 3, 12, 13, 50, 51, 52)
    if key in PEOPLE or n != 13  # divided by zero: only a row that WHERE drops may do that
]


@pytest.fixture(scope="module")
def first(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Harness:
    """One epoch with rows of every kind but those that hold it."""
    harness = Harness(SCRIPT, spark, tmp_path_factory.mktemp("constraints"))
    harness.push("users", [{"id": key, "name": name} for key, name in PEOPLE.items()])
    harness.end_of_snapshot("users")
    harness.push("clicks", [{"id": key, "n": n} for key, n in ROWS])
    harness.run()
    harness.runner.close()
    return harness


@pytest.fixture
def harness(first: Harness, tmp_path: Path) -> Harness:
    """The same lake once more."""
    return copy_of(first, tmp_path / "copy")


def _verdict(harness: Harness, epoch: int, insert: str = "enriched") -> GateVerdict:
    (row,) = harness.lake.verdicts.rows(f"insert {insert}", generation=1, epoch=epoch)
    return GateVerdict.of(row)


def _constraints(verdict: GateVerdict) -> Any:
    return next(check for check in verdict.checks if check.name == "constraints")


def test_every_row_goes_where_its_severest_violation_sends_it(first: Harness) -> None:
    places = {(key, n): expected(key, n) for key, n in ROWS}
    published = {(row["c"], row["n"]) for row in first.published("enriched")}
    assert published == {row for row, (place, _, _) in places.items() if place == "publish"}
    reasons = {(row["c"], row["n"]): row["_reason"] for row in first.quarantined("enriched")}
    assert reasons == {row: reason for row, (place, reason, _) in places.items() if place == "quarantine"}
    assert set(reasons.values()) == {"violated:known-name", "violated:even"}


def test_every_violated_constraint_is_counted_and_warned_of(first: Harness) -> None:
    check = _constraints(_verdict(first, 1))
    names = ("positive", "known-name", "even", "small", "short")
    assert check.observed == {name: sum(name in expected(*row)[2] for row in ROWS) for name in names}
    assert check.passed
    assert check.warning.startswith(
        f"{check.observed['small']} rows violate the constraint small (n < 50), among them {{"
    )
    assert "the constraint short" in check.warning
    assert "even" not in check.warning


def test_the_rows_still_add_up(first: Harness) -> None:
    (found,) = reconcile_all(first.lake, first.pipeline)
    assert found.problems == ()
    assert found.rows.accounted == found.rows.landed == len(ROWS)
    assert {name for name in found.rows.quarantined if name.startswith("violated:")} == {
        "violated:known-name",
        "violated:even",
    }


def test_a_row_that_violates_fail_holds_the_epoch_until_it_is_mended(harness: Harness) -> None:
    before = len(harness.published("enriched"))
    harness.push("clicks", [{"id": 1, "n": 4}, {"id": 2, "n": -3}, {"id": 1, "n": -6}])
    with pytest.raises(GateHeld) as caught:
        harness.run()
    text = str(caught.value)
    assert '2 rows violate the constraint positive (n > 0), among them {"n": -3}, {"n": -6}' in text
    assert "tidegate release SCRIPT enriched" in text
    assert len(harness.published("enriched")) == before
    (found,) = reconcile_all(harness.lake, harness.pipeline)
    assert (found.problems, found.rows.held, found.rows.waiting) == ((), 3, 3)
    check = _constraints(_verdict(harness, 2))
    assert (check.passed, check.observed["positive"], check.observed["known-name"], check.observed["even"]) == (
        False,
        2,
        1,
        1,
    )
    with pytest.raises(GateHeld):
        harness.runner.publish("enriched")
    harness.runner.resolve_held("enriched", discard=True)
    assert len(harness.published("enriched")) == before
    (found,) = reconcile_all(harness.lake, harness.pipeline)
    assert (found.problems, found.rows.quarantined["discarded"], found.rows.waiting) == ((), 3, 0)
    report = harness.verify("enriched")
    assert (report.passed, report.differences, [epoch.state for epoch in report.epochs]) == (True, 0, ["equal"] * 2)


def test_verify_finds_violations_that_were_counted_wrong_and_rows_that_went_elsewhere(harness: Harness) -> None:
    from dataclasses import replace

    from deltalake import DeltaTable

    (staged,) = harness.lake.staged.rows("insert enriched")
    log = harness.lake.logs.of("insert enriched").path
    DeltaTable(str(log)).delete("kind = 'staged' AND epoch = 1")
    facts = {**staged.facts, "violations@short": staged.facts["violations@short"] - 2}
    harness.lake.staged.append([replace(staged, facts=facts)], application="test", version=1)
    quarantine = harness.lake.quarantine_path(harness.pipeline.table("enriched"), harness.pipeline.insert("enriched"))
    DeltaTable(str(quarantine)).update(
        updates={"_reason": "'violated:even'"}, predicate="_reason = 'violated:known-name' AND n = 3"
    )
    (epoch,) = harness.verify("enriched").epochs
    found = {(item.place, item.kind): (item.rows, item.keys) for item in epoch.differences}
    assert found == {
        ("violation", "missing"): (2, ("short",)),
        ("quarantine", "missing"): (1, ('{"n":3}',)),
        ("quarantine", "unexpected"): (1, ('{"n":3}',)),
    }


def test_conditions_are_asked_in_the_joins_own_pass(first: Harness, tmp_path: Path) -> None:
    without = re.sub(r",\s*CONSTRAINT .*?\n\) WITH", "\n) WITH", SCRIPT, flags=re.DOTALL)
    assert "CONSTRAINT" not in without
    asked = []
    for name, script in (("with", SCRIPT), ("without", without)):
        copy = copy_of(first, tmp_path / name)
        harness = Harness(script, copy.spark, copy.directory)
        harness.push("clicks", [{"id": 1, "n": 4}, {"id": 1, "n": 6}])
        harness.runner.advance("clicks")
        asked.append(_jobs(harness.spark, lambda runner=harness.runner: runner.stage("enriched")))
        harness.runner.close()
        with Runner(harness.pipeline, harness.lake, spark=no_spark, gate=judge) as runner:
            verdict = runner.judge("enriched")
        assert verdict is not None
        assert verdict.passed
    assert asked == [1, 1]


def _jobs(spark: SparkSession, work: Callable[[], object]) -> int:
    """How many jobs the queries of `work` run."""
    session: Any = spark
    store, bus = session._jsparkSession.sharedState().statusStore(), session.sparkContext._jsc.sc().listenerBus()
    bus.waitUntilEmpty()
    before = store.executionsList()
    # By number: a store that is full forgets its oldest queries, so that their count says nothing.
    last = before.last().executionId() if before.nonEmpty() else -1
    work()
    bus.waitUntilEmpty()
    queries = store.executionsList()
    found = (queries.apply(place) for place in reversed(range(queries.size())))
    return sum(query.jobs().size() for query in takewhile(lambda query: query.executionId() > last, found))


def test_a_condition_that_fails_stages_nothing(harness: Harness) -> None:
    script = SCRIPT.replace("EXPECT (n < 50)", "EXPECT (100 / (n - 60) < 50)")
    broken = Harness(script, harness.spark, harness.directory)
    broken.push("clicks", [{"id": 1, "n": 60}])
    with pytest.raises(Exception, match="DIVIDE_BY_ZERO"):
        broken.run()
    position = broken.runner.releasing("enriched").position()
    assert (position.state, position.staged) == ("planned", None)


def test_what_was_staged_under_other_constraints_is_held_and_joined_anew_under_these(harness: Harness) -> None:
    harness.push("clicks", [{"id": 1, "n": 12}, {"id": 1, "n": 14}])
    landed = harness.runner.advance("clicks")
    assert landed.rows == 2
    releasing = harness.runner.releasing("enriched")
    plan = releasing.plan()
    assert isinstance(plan, ReleasePlan)
    releasing.stage(plan)
    harness.runner.close()

    # The same names in the same order, and another condition: masks and counts of the old one say nothing of it.
    stricter = Harness(SCRIPT.replace("EXPECT (n > 0)", "EXPECT (n <> 12)"), harness.spark, harness.directory)
    with pytest.raises(GateHeld, match="was staged under another text of the INSERT or its constraints"):
        stricter.run()
    with pytest.raises(GateHeld, match="1 row violates the constraint positive"):
        stricter.runner.resolve_held("enriched")
    stricter.runner.close()

    # The way out that the verdict names, for a row that has landed as it is.
    assert "ON VIOLATION QUARANTINE in place of FAIL" in _constraints(_verdict(stricter, 3)).detail
    milder = SCRIPT.replace("EXPECT (n > 0) ON VIOLATION FAIL UPDATE", "EXPECT (n <> 12) ON VIOLATION QUARANTINE")
    again = Harness(milder, harness.spark, harness.directory)
    released = again.runner.resolve_held("enriched")
    assert released is not None
    assert (released.rows, released.staged.counts["violated:positive"]) == (1, 1)
    again.runner.close()
    assert all(item.passed for item in reconcile_all(again.lake, again.pipeline))


NOT_NULL = """
CREATE TABLE clicks (id INT, n INT) WITH ('connector' = 'scripted');
CREATE TABLE kept (id INT PRIMARY KEY NOT ENFORCED, n INT NOT NULL) WITH ('connector' = 'scripted');
INSERT INTO kept SELECT id, n FROM clicks;
"""
SET = "SET 'table.exec.sink.not-null-enforcer' = '{}';\n"


def test_null_in_a_not_null_column_is_reported_holds_the_epoch_or_goes_to_quarantine(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = [{"id": 1, "n": 1}, {"id": 2, "n": None}]
    quarantining = Harness(NOT_NULL, spark, tmp_path / "quarantining")
    quarantining.push("clicks", rows)
    assert len(quarantining.advance()) == 2
    (verdict,) = (GateVerdict.of(row) for row in quarantining.lake.verdicts.rows("insert kept"))
    violated = '1 row violates the constraint not-null-n (`n` IS NOT NULL), among them {"id": 2}'
    assert _constraints(verdict).warning == violated
    quarantining.runner.close()

    held = Harness(SET.format("ERROR") + NOT_NULL, spark, quarantining.directory)
    held.push("clicks", [{"id": 3, "n": None}])
    with pytest.raises(GateHeld, match="1 row violates the constraint not-null-n"):
        held.advance()
    assert (
        f"with {SET.format('DROP').rstrip(chr(10) + ';')} in the script"
        in _constraints(_verdict(held, 2, "kept")).detail
    )
    report = verify(held.pipeline, held.lake, lambda: spark, "kept")
    assert [epoch.state for epoch in report.epochs] == ["equal"], "the epoch of before stays as it was"
    held.runner.close()
    mended = Harness(SET.format("DROP") + NOT_NULL, spark, quarantining.directory)
    released = mended.runner.resolve_held("kept")
    assert released is not None
    assert (released.rows, released.staged.counts["violated:not-null-n"]) == (0, 1)
    mended.runner.close()

    dropped = Harness(SET.format("DROP") + NOT_NULL, spark, tmp_path / "dropped")
    dropped.push("clicks", [*rows, {"id": None, "n": 3}])
    assert [row["id"] for row in dropped.advance()] == [1]
    quarantined = {(row["id"], row["_reason"]) for row in dropped.quarantined("kept")}
    assert quarantined == {(2, "violated:not-null-n"), (None, "violated:not-null-id")}
    assert verify(dropped.pipeline, dropped.lake, lambda: spark, "kept").passed
    assert all(item.passed for item in reconcile_all(dropped.lake, dropped.pipeline))
