"""Functions of every shape on tables: two inputs, a broadcast one, two outputs, no key, and one after the other."""

from __future__ import annotations

import json
import uuid
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.cases import at_length
from tests.pipelines.runtime.processes import functions as fn
from tests.pipelines.runtime.processes.test_processes import SCRIPT, event, wrapped
from tidegate.pipelines.errors import PlanningError
from tidegate.pipelines.lake import StagedRow
from tidegate.pipelines.lake import rows as lake_rows
from tidegate.pipelines.process import (
    EventTimeExtension,
    EventTimeGeneratorFunction,
    InvalidDeclaration,
    NotWrapped,
    ProcessError,
    StateDeclarations,
)
from tidegate.pipelines.runtime.releasing.doubled import doubled_by_output
from tidegate.pipelines.sql import SqlError, compile_script
from tidegate.pipelines.sql.canonical import computes
from tidegate.pipelines.sql.compile import Pipeline
from tidegate.pipelines.testing import Harness
from tidegate.pipelines.watermarks import MAX_TIMESTAMP
from tidegate.quality_checks.reconcile import reconcile_all

pytestmark = pytest.mark.long


KEY = "PRIMARY KEY ({}) NOT ENFORCED"


def whole() -> Pipeline:
    pipeline = compile_script(SCRIPT)
    pipeline = pipeline.process(
        "ruled",
        ["events", "rules"],
        "k",
        wrapped(fn.Ruled()),
        f"k STRING, number BIGINT, rule BIGINT, {KEY.format('k')}",
        buckets=3,
    )
    pipeline = pipeline.process(
        "paired",
        ["events", "rules"],
        {"events": "k", "rules": ["k"]},
        wrapped(fn.Paired()),
        {"k": "STRING", "number": "BIGINT", "rule": "BIGINT"},
        buckets=1,
    )
    pipeline = pipeline.process(
        ["evens", "odds"],
        "events",
        ["k", "name"],
        wrapped(fn.Halved()),
        [
            "k STRING, number BIGINT",
            f"name STRING, odd BIGINT, {KEY.format('name')}, CONSTRAINT small EXPECT (odd < 100) ON VIOLATION WARN",
        ],
        buckets=5,
    )
    again = "k STRING, number BIGINT, name STRING, at TIMESTAMP(3)"
    pipeline = pipeline.process("again", "events", None, fn.Forwarded(), again)
    return pipeline.process("chained", "again", "k", wrapped(fn.Timed()), fn.TIMED_COLUMNS, buckets=2)


def rule(k: str, value: int) -> dict[str, Any]:
    return {"k": k, "rule": value}


def of(rows: list[dict[str, Any]], target: str, *names: str) -> list[tuple]:
    return sorted((tuple(row[name] for name in names) for row in rows if row["_target"] == target), key=str)


@pytest.mark.parametrize("at_once", at_length([False, True]))
def test_every_shape(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: bool) -> None:
    if at_once:
        monkeypatch.setattr(
            "tidegate.pipelines.runtime.processes.process_runner.PER_TASK", 2
        )  # several tasks, as of large epochs
    harness, found = Harness(whole(), spark, tmp_path), []

    def advance() -> None:
        if at_once:
            for table in ("events", "rules"):
                harness.runner.advance(table)
        else:
            found.extend(harness.advance())

    at = datetime(2026, 1, 1, 12)
    harness.watermark("rules", 0)  # the flip of the broadcast input
    harness.push("events", [{**event("a", 4), "at": at}, event("b", 7)])
    advance()
    harness.push("rules", [rule("a", 10), rule("all", 1)])
    advance()
    harness.push("events", [event("a", 5), event("a", 6)])
    harness.watermark("events", 16)
    harness.watermark("rules", 9)
    advance()
    harness.watermark("rules", MAX_TIMESTAMP)
    harness.watermark("events", MAX_TIMESTAMP)
    found += harness.advance()

    assert of(found, "ruled", "k", "number", "rule") == sorted(
        [("a", 4, None), ("b", 7, None), ("a", -1, 1), ("b", -1, 1), ("a", 5, 10), ("a", 6, 10)], key=str
    )
    assert of(found, "paired", "k", "number", "rule") == sorted([("a", 4, 10), ("a", 6, None), ("b", 7, None)], key=str)
    assert of(found, "evens", "k", "number") == [("a", 4), ("a", 6)]
    assert of(found, "again", "number", "at") == [(4, at), (5, None), (6, None), (7, None)]
    chained = [("a", 4, "4,5,6"), ("a", 5, "4,5,6"), ("a", 6, "4,5,6"), ("b", 7, "7")]
    assert of(found, "chained", "k", "at", "seen") == chained
    odds = lake_rows.read(spark, harness.lake.target_path(harness.pipeline.table("odds"))).select("name", "odd")
    emitted = sorted((tuple(row) for row in odds.collect()), key=str)
    assert emitted == [("n", 5), ("n", 7), ("watermark", 16), ("watermark", MAX_TIMESTAMP)]
    assert [row.timestamp for row in harness.lake.watermarks.rows("chained")][-1] == MAX_TIMESTAMP
    added = reconcile_all(harness.lake, harness.pipeline)
    assert [item.problems for item in added] == [()] * 5
    assert added[2].expected["the table of odds"] == added[2].tables["the table of odds"] == len(emitted)
    assert added[4].expected["the table of again"] == 4, "what another process publishes is what it reads"
    tasks = [len(set(_tasks(row))) for row in harness.lake.staged.rows("insert ruled")]
    assert (max(tasks) > 1) == at_once
    if at_once:
        maintained = {item.path for found in harness.runner.maintenance(timedelta(0)).run() for item in found.tidied}
        second, insert = harness.pipeline.table("odds"), harness.pipeline.insert("evens")
        assert {harness.lake.target_path(second), harness.lake.quarantine_path(second, insert)} <= maintained
        assert len(lake_rows.read(spark, harness.lake.target_path(second)).collect()) == len(emitted)
    for insert, output, target, key in (("ruled", 0, "ruled", "k"), ("evens", 1, "odds", "name")):
        rows = lake_rows.read(spark, harness.lake.target_path(harness.pipeline.table(target))).select("_epoch", key)
        keys = [tuple(row) for row in rows.collect()]
        said = [doubled_by_output(row.facts)[output] or 0 for row in harness.lake.staged.rows(f"insert {insert}")]
        assert sum(said) == len(keys) - len(set(keys))
        assert sum(said) > 0 or (insert == "evens" and not at_once)
    digests = {row.facts["broadcast"] for row in harness.lake.staged.rows("insert ruled")}
    assert len(digests) == (1 if at_once else 2)


def _tasks(row: StagedRow) -> list[str]:
    """The tasks that have written state of an epoch, by their files' names."""
    return [file["path"].split("-")[1] for file in row.facts["state"]["files"]]


class Unsure(fn.Ruled):
    """Writes another broadcast state on every task."""

    def process_record_from_broadcast_input(self, record, ctx) -> None:
        ctx.get_state_manager().get_state(fn.RULES).put(record.k, uuid.uuid4().int % 2**62)


def test_broadcast_state_that_differs_from_task_to_task_is_refused(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegate.pipelines.runtime.processes.process_runner.PER_TASK", 1)
    pipeline = compile_script(SCRIPT).process(
        "ruled", ["events", "rules"], "k", wrapped(Unsure()), "k STRING, number BIGINT, rule BIGINT", buckets=3
    )
    harness = Harness(pipeline, spark, tmp_path)
    harness.push("rules", [rule("a", 1)])
    harness.push("events", [event("a", 1), event("b", 2)])
    with pytest.raises(ProcessError, match="the tasks of ruled have come to different broadcast states") as raised:
        harness.advance()
    assert raised.value.state == "the epoch is planned and not staged"
    assert harness.lake.staged.rows("insert ruled") == []


def test_a_function_tells_event_time_to_the_next_one(spark: SparkSession, tmp_path: Path) -> None:
    """FLIP-499's CustomProcessFunction over a table in processing time; what it declares goes on through tables."""
    pipeline = compile_script("CREATE TABLE raw (k STRING, number BIGINT, name STRING) WITH ('connector' = 'scripted')")
    columns = "k STRING, number BIGINT, name STRING"
    pipeline = pipeline.process("timely", "raw", "k", fn.TellsTime(), columns, buckets=1)
    pipeline = pipeline.process("heard", "timely", "k", wrapped(fn.Hears()), "what STRING, value BIGINT", buckets=1)
    harness, heard = Harness(pipeline, spark, tmp_path), []
    for number, name in [(5, "n"), (3, "n"), (8, "idle")]:
        harness.push("raw", [event("a", number, name)])
        rows = [row for row in harness.advance() if row["_target"] == "heard"]
        heard.append(sorted((row["what"], row["value"]) for row in rows))
    log = harness.lake.watermarks.rows("timely")
    assert [(row.timestamp, row.use_processing_time, row.idle, row.told) for row in log] == [
        (5, False, False, {"progress": 50}),
        (5, False, False, {"progress": 30}),
        (8, False, True, {"progress": 80}),
    ]
    idle = EventTimeExtension.IDLE_STATUS_WATERMARK_DECLARATION.identifier
    assert heard == [
        [("progress", 50), ("timer", 5)],
        [("progress", 30)],  # a timer in the past fires with the next watermark that moves
        [(idle, 1), ("progress", 80), ("timer", 3), ("timer", 8)],
    ]


def generator(seconds: int) -> EventTimeGeneratorFunction:
    return BUILDER.with_max_out_of_order_time(timedelta(seconds=seconds)).build_as_process_function()


def _number(record: Any) -> int:
    return record.rule


BUILDER = EventTimeExtension.new_watermark_generator_builder(_number)


STRICT = "k STRING, CONSTRAINT c EXPECT (k <> '') ON VIOLATION FAIL"
TWO: dict[str, Any] = {"name": ["x", "y"], "function": wrapped(fn.Halved()), "schema": ["k STRING", "k STRING"]}
BOTH = ["events", "rules"]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"inputs": "nothing"}, "there is no table nothing"),
        ({"inputs": "view"}, "view is a view, and a process function reads tables"),
        ({"key": "z"}, "events has no column z"),
        ({"key": None}, "has timers or keyed state, and no key is given"),
        ({"inputs": BOTH}, "Timed has 1 input, 2 are given"),
        ({"function": wrapped(fn.Halved())}, "Halved has 2 outputs, 1 are given"),
        ({"schema": None}, "the script has no table x"),
        ({"name": "rules"}, "there is a table rules already"),
        ({"inputs": BOTH, "key": {"events": "k", "rules": "rule"}, "function": wrapped(fn.Paired())}, "keys of events"),
        ({"inputs": "gauges", "key": "level"}, "level of gauges is a DOUBLE, which makes no key"),
        ({"inputs": "shown"}, "can only be written"),
        ({"inputs": ["events", "events"], "function": wrapped(fn.Paired())}, "events is read twice"),
        (TWO | {"schema": ["k STRING", STRICT]}, "constraint c of y would hold the epochs of x"),
        ({"inputs": ["events", None]}, "None.* is no input"),
        ({"inputs": 5}, "5 is no input"),
        ({"inputs": ("events", BUILDER)}, "generator of events is not built yet"),
        ({"key": 5}, "5 is no key"),
        ({"key": ["k", "k"]}, "the key of events has a column twice"),
        ({"key": {"event": "k"}}, "names event, which is no input"),
        (TWO | {"name": ["x", "X"]}, "both outputs are called x"),
        (TWO | {"schema": "k STRING"}, "of 2 outputs, 1 schemas are given"),
        (TWO | {"schema": ["k STRING"] * 3}, "of 2 outputs, 3 schemas are given"),
        ({"inputs": ("copied", generator(1))}, "copied is written by copied, which gives its time"),
        (
            {"inputs": ["events", "copied"], "function": wrapped(fn.Ruled())},
            "copied is the target of an INSERT, and cannot be broadcast yet",
        ),
        ({"inputs": ("rules", generator(2))}, "another process has given rules another generator"),
        (
            TWO | {"name": ["x", "strict"], "schema": ["k STRING", None]},
            "constraint c of strict would hold the epochs of x",
        ),
    ],
)
def test_what_cannot_be_planned(given: dict[str, Any], expected: str) -> None:
    """`given` in the place of what could be."""
    script = SCRIPT + (
        "CREATE TABLE gauges (level DOUBLE) WITH ('connector' = 'scripted');"
        f"CREATE TABLE strict ({STRICT}) WITH ('connector' = 'print');"
        "CREATE TABLE shown (k STRING) WITH ('connector' = 'print'); CREATE VIEW view AS SELECT * FROM events;"
        "CREATE TABLE copied (k STRING) WITH ('connector' = 'print'); INSERT INTO copied SELECT k FROM events;"
    )
    fine: dict[str, Any] = {"inputs": "events", "key": "k", "function": wrapped(fn.Timed()), "schema": "k STRING"}
    ruled = compile_script(script).process(**fine | {"name": "ruled", "inputs": ("rules", generator(1))})
    assert ruled.process(**fine | {"name": "y", "inputs": ("rules", generator(1))}).generators("rules")
    assert ruled.process(**fine | {"name": "x"})
    with pytest.raises(PlanningError, match=expected):
        ruled.process(**fine | {"name": "x"} | given)


def test_a_suite_of_a_second_output_is_refused_for_it_would_judge_nothing(tmp_path: Path) -> None:
    """The gate asks the suite of the first output alone."""
    suite = {"expectations": [{"type": "expect_column_to_exist", "kwargs": {"column": "k"}}]}
    (tmp_path / "suite.json").write_text(json.dumps(suite))
    judged = "CREATE TABLE judged (k STRING) WITH ('connector' = 'print', 'quality.suite' = 'suite.json');"
    given = compile_script(SCRIPT + judged, path=str(tmp_path / "script.sql"))
    with pytest.raises(PlanningError, match=r"the suite suite\.json of judged would hold the epochs of x"):
        given.process(["x", "judged"], "events", "k", wrapped(fn.Halved()), ["k STRING", None])
    assert given.process(["judged", "y"], "events", "k", wrapped(fn.Halved()), [None, "k STRING"])


def test_functions_and_schemas_are_looked_at_when_they_are_declared() -> None:
    pipeline = compile_script(SCRIPT)
    with pytest.raises(NotWrapped):
        pipeline.process("x", "events", "k", fn.Timed(), "k STRING")
    with pytest.raises(InvalidDeclaration):
        pipeline.process("x", "events", "k", object(), "k STRING")

    class Misspelt(fn.Timed):
        def uses_states(self):
            return (StateDeclarations.value_state("count", "BIGNIT"),)

    with pytest.raises(InvalidDeclaration, match="Misspelt declares state 'count' as BIGNIT: there is no type BIGNIT"):
        pipeline.process("x", "events", "k", wrapped(Misspelt()), "k STRING")
    with pytest.raises(SqlError, match="TEXTUAL"):
        pipeline.process("x", "events", "k", wrapped(fn.Timed()), "k TEXTUAL")
    declared = compile_script(f"{SCRIPT} CREATE TABLE timed ({fn.TIMED_COLUMNS}) WITH ('connector' = 'print');")
    assert declared.process("timed", "events", "k", wrapped(fn.Timed()))
    with pytest.raises(PlanningError, match="options are given, and no schema"):
        declared.process("timed", "events", "k", wrapped(fn.Timed()), options={"gate.timeout": "1 min"})
    once = pipeline.process("x", "events", "k", wrapped(fn.Timed()), fn.TIMED_COLUMNS)
    with pytest.raises(PlanningError, match="there is a table x already"):
        once.process("x", "events", "k", wrapped(fn.Timed()), fn.TIMED_COLUMNS)
    assert [table.name for table in once.sources] == ["events"]
    assert computes(once, once.insert("x")) != computes(whole(), whole().insert("ruled"))
