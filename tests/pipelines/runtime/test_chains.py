"""Statements that read one another's targets: whatever the order of events, runs and crashes, the rows are those of a
plain model, and the last watermark is the one that FLIP-326 gives for all inputs together."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.pipelines.runtime.crashing import dying
from tests.pipelines.runtime.processes import functions as fn
from tidegate.assets.metadata import of_waiting
from tidegate.assets.text import facts_of
from tidegate.orchestration.console.shown import shown
from tidegate.orchestration.report import render
from tidegate.orchestration.report.flow import flow
from tidegate.pipelines.errors import GateHeld, PlanningError
from tidegate.pipelines.facts.problems import looked
from tidegate.pipelines.facts.report import gather
from tidegate.pipelines.process import EventTimeExtension
from tidegate.pipelines.runtime.epochs import Asked
from tidegate.pipelines.runtime.epochs.position import Waiting
from tidegate.pipelines.runtime.status import status
from tidegate.pipelines.sql import compile_script
from tidegate.pipelines.testing import Harness
from tidegate.pipelines.watermarks import MIN_TIMESTAMP
from tidegate.quality_checks.reconcile import reconcile

AT = datetime(2026, 1, 1)
WITH = "WITH ('connector' = 'scripted')"
BUILDS = "".join(
    f"CREATE TABLE {name} (k INT PRIMARY KEY NOT ENFORCED, v INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) {WITH};\n"
    for name in ("users", "rates")
)
CLICKS = (
    f"CREATE TABLE clicks (id INT, k INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts, proctime AS PROCTIME()) {WITH};\n"
)


def target(name: str, columns: str, options: str = "") -> str:
    return (
        f"CREATE TABLE {name} (id INT, k INT, {columns}ts TIMESTAMP(3), WATERMARK FOR ts AS ts, "
        f"proctime AS PROCTIME()) WITH ('connector' = 'scripted'{options});\n"
    )


def moment(ms: int) -> datetime:
    return AT + timedelta(milliseconds=ms)


def at_ms(ms: int) -> int:
    return int(moment(ms).replace(tzinfo=UTC).timestamp() * 1000)


def reached(harness: Harness, name: str) -> int:
    last = harness.lake.watermarks.last(name)
    return MIN_TIMESTAMP if last is None else last.timestamp


HELD = (
    BUILDS
    + CLICKS
    + target("clean", "", ", 'gate.on-unmatched' = 'block'")
    + f"CREATE TABLE seen (id INT, u INT) {WITH};\n"
    + "INSERT INTO clean SELECT c.id, c.k, c.ts FROM clicks AS c "
    + "JOIN users FOR SYSTEM_TIME AS OF c.proctime AS u ON u.k = c.k;\n"
    + "INSERT INTO seen SELECT c.id, r.v FROM clean AS c "
    + "JOIN rates FOR SYSTEM_TIME AS OF c.proctime AS r ON r.k = c.k;\n"
)


def shown_to_people(harness: Harness) -> str:
    """What `tidegate status` and `tidegate report` show of a lake."""
    look = looked(harness.lake, harness.pipeline)
    return "\n".join([*map(str, shown(look)), unescape(render(gather(harness.lake, harness.pipeline)))])


def test_what_is_held_or_in_quarantine_above_comes_below_when_it_is_released(
    spark: SparkSession, tmp_path: Path
) -> None:
    harness = Harness(HELD, spark, tmp_path)
    assert status(harness.lake, harness.pipeline).inserts[1].waits_for_inserts == ("clean",), "it has published nothing"
    for name in ("users", "rates"):
        harness.push(name, [{"k": 1, "v": 7, "ts": AT}])
        harness.watermark(name, at_ms(1))
    harness.push("clicks", [{"id": 1, "k": 1, "ts": AT}])
    assert [row["_target"] for row in harness.advance()] == ["clean", "seen"]
    assert not harness.run().moved  # a processing-time chain comes to an end
    harness.push("clicks", [{"id": 2, "k": 2, "ts": AT}, {"id": 3, "k": 1, "ts": AT}])
    assert "seen waits for" not in shown_to_people(harness)
    with pytest.raises(GateHeld, match="clean"):
        harness.advance()
    assert [row["id"] for row in harness.published("seen")] == [1]
    for found in (status(harness.lake, harness.pipeline), status(harness.lake)):
        assert [(item.in_chain, item.reads, item.waits_for_inserts) for item in found.inserts] == [
            ("clean", (), ()),
            ("└ seen", ("clean",), ("clean",)),
        ]
    waiting = harness.runner.stage("seen")
    assert isinstance(waiting, Waiting)
    metadata = facts_of(of_waiting(harness.runner.releasing("seen"), waiting))
    assert (metadata["waiting for"], metadata["status"]["reads"]) == ("clean", ["clean"])
    assert shown_to_people(harness).count("seen waits for clean, whose newest epoch the gate holds.") == 2
    picture = flow(gather(harness.lake, harness.pipeline))
    assert [text in picture for text in (">target of clean<", ">waits for clean<")] == [True, True]
    harness.push("users", [{"k": 2, "v": 8, "ts": AT}])
    with pytest.raises(GateHeld):
        harness.run()
    with dying("insert.published", owner="clean"):  # between the target's commit and its log
        harness.runner.resolve_held("clean")
    harness.restart()
    assert sorted(row["id"] for row in harness.advance()) == [3]
    assert sorted(row["id"] for row in harness.published("clean")) == [1, 2, 3]
    assert [row["id"] for row in harness.quarantined("seen")] == [2]
    harness.push("rates", [{"k": 2, "v": 9, "ts": AT}])
    harness.run()
    harness.runner.out_of_quarantine("seen", Asked())
    assert sorted(row["id"] for row in harness.published("seen")) == [1, 2, 3]
    for insert in harness.pipeline.inserts:
        assert harness.verify(insert.id).passed
        assert reconcile(harness.lake, harness.pipeline, insert).problems == ()


def test_a_process_of_two_inputs_does_not_pass_over_what_is_held_of_an_idle_target(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = "CREATE TABLE {} (k STRING, {} BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts, p AS PROCTIME()) WITH ({});"
    blocked = "'connector' = 'scripted', 'gate.on-unmatched' = 'block'"
    script = BUILDS.split("\n")[0] + table.format("events", "number", "'connector' = 'scripted'")
    script += table.format("rules", "rule", "'connector' = 'scripted'") + table.format("known", "number", blocked)
    script += "INSERT INTO known SELECT e.k, e.number, e.ts FROM events AS e "
    script += "JOIN users FOR SYSTEM_TIME AS OF e.p AS u ON u.k = CAST(e.k AS INT);"
    wrapped = EventTimeExtension.wrap_process_function(fn.Paired())
    columns = "k STRING, number BIGINT, rule BIGINT"
    pipeline = compile_script(script).process("paired", ["known", "rules"], "k", wrapped, columns, buckets=1)
    harness = Harness(pipeline, spark, tmp_path)

    def row(key: int, ms: int, **more: Any) -> dict[str, Any]:
        return {"k": str(key), "ts": moment(ms), **more}

    def paired() -> list[tuple[Any, ...]]:
        return sorted((row["k"], row["number"] - at_ms(0), row["rule"]) for row in harness.published("paired"))

    harness.push("users", [{"k": 1, "v": 7, "ts": AT}])
    harness.watermark("users", at_ms(6))
    harness.push("events", [row(1, 5, number=at_ms(1))])
    harness.watermark("events", at_ms(6))
    harness.advance()
    for name in ("users", "events"):
        harness.idle(name)
    harness.push("rules", [row(1, 6, rule=8)])
    harness.watermark("rules", at_ms(6))
    harness.advance()
    assert paired() == [("1", 1, 8)]
    assert (told := harness.lake.watermarks.last("known")) is not None
    assert told.idle
    harness.push("events", [row(2, 7, number=at_ms(2))])
    with pytest.raises(GateHeld):
        harness.advance()
    harness.watermark("rules", at_ms(900))
    with pytest.raises(GateHeld):
        harness.advance()
    assert reached(harness, "paired") == at_ms(6)
    harness.push("users", [{"k": 2, "v": 8, "ts": AT}])
    with pytest.raises(GateHeld):
        harness.run()
    harness.runner.resolve_held("known")
    for name in ("users", "events"):
        harness.idle(name)
    harness.advance()
    assert paired() == [("1", 1, 8), ("2", 2, None)]
    assert reached(harness, "paired") == at_ms(900)


PLAIN = CLICKS + target("clean", "") + "INSERT INTO clean SELECT id, k, ts FROM clicks;\n"
READER = f"CREATE TABLE seen (id INT) {WITH};\nINSERT INTO seen SELECT id FROM clean;\n"


def test_a_script_that_changes_around_a_chain_loses_no_row_or_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    alone = Harness(PLAIN, spark, tmp_path / "alone")
    alone.push("clicks", [{"id": 1, "k": 1, "ts": AT}])
    with dying("insert.judged", owner="clean"):
        alone.advance()
    for still in (True, False):  # staged or published without places: it is the same to a reader
        alone.runner.close()
        with pytest.raises(PlanningError, match="clean was published before seen read it"):
            Harness(PLAIN + READER, spark, tmp_path / "alone").run()
        if still:
            alone = Harness(PLAIN, spark, tmp_path / "alone")
            assert len(alone.advance()) == 1

    both = Harness(PLAIN + READER, spark, tmp_path / "both")
    both.push("clicks", [{"id": 1, "k": 1, "ts": AT}])
    with dying("insert.staged", owner="clean"):  # with places, and published without a reader
        both.advance()
    both.runner.close()
    without = Harness(PLAIN, spark, tmp_path / "both")
    assert len(without.advance()) == 1
    without.push("clicks", [{"id": 2, "k": 1, "ts": AT}])
    assert len(without.advance()) == 1
    without.runner.close()
    again = Harness(PLAIN + READER, spark, tmp_path / "both")
    assert sorted(row["id"] for row in again.advance()) == [1, 2]
    assert again.verify("seen").passed
    again.runner.close()
    source = PLAIN.split("INSERT")[0] + READER
    with pytest.raises(PlanningError, match="clean was the target of an INSERT in this lake"):
        Harness(source, spark, tmp_path / "both").run()


SILENT = "WITH ('connector' = 'scripted', 'tells-time' = 'false', 'scan.watermark.idle-timeout' = '1 ms')"


def test_rows_without_a_time_are_not_passed_over_by_an_idle_source_that_never_had_a_watermark(
    spark: SparkSession, tmp_path: Path
) -> None:
    sources = (BUILDS.split("\n")[0] + CLICKS).replace(WITH, SILENT)
    joined = "SELECT c.id, c.k, c.ts FROM clicks AS c JOIN users FOR SYSTEM_TIME AS OF c.ts AS u ON u.k = c.k"
    harness = Harness(f"{sources}{target('clean', '')}INSERT INTO clean {joined};\n{READER}", spark, tmp_path)
    for ms in (None, 5):
        time = None if ms is None else moment(ms)
        harness.push("users", [{"k": 1, "v": 7, "ts": time}])
        harness.push("clicks", [{"id": ms or 1, "k": 1, "ts": time}])
        harness.advance()
        harness.advance()
        logs = [harness.lake.watermarks.last(name) for name in ("users", "clicks")]
        assert all(row is not None and row.idle for row in logs)
    assert [row["id"] for row in harness.quarantined("clean")] == [1]
    assert [row["id"] for row in harness.published("seen")] == [5]
