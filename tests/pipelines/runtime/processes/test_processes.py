"""Processes on tables: planned, staged, judged and published, with their state, whatever comes between."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from tests.pipelines.runtime.crashing import crash_at
from tests.pipelines.runtime.plays import epochs_of, places_of, taken_up
from tests.pipelines.runtime.processes import functions as fn
from tidegate.pipelines.errors import DefinitionChanged, GateHeld, LakeError, PlanningError
from tidegate.pipelines.lake import rows as lake_rows
from tidegate.pipelines.process import EventTimeExtension, ProcessError, StateDeclarations
from tidegate.pipelines.sql import compile_script
from tidegate.pipelines.sql.compile import Pipeline
from tidegate.pipelines.testing import Harness
from tidegate.pipelines.watermarks import MAX_TIMESTAMP
from tidegate.quality_checks.reconcile import reconcile_all

SCRIPT = """
CREATE TABLE events (k STRING, number BIGINT, name STRING, at TIMESTAMP(3), WATERMARK FOR at AS at)
    WITH ('connector' = 'scripted');
CREATE TABLE rules (k STRING, rule BIGINT, at TIMESTAMP(3), WATERMARK FOR at AS at) WITH ('connector' = 'scripted');
"""


def wrapped(function: Any) -> Any:
    return EventTimeExtension.wrap_process_function(function)


def timed(script: str = SCRIPT, function: Any = None, **more: Any) -> Pipeline:
    more = {"schema": fn.TIMED_COLUMNS, "buckets": 4, **more}
    return compile_script(script).process("timed", "events", "k", wrapped(function or fn.Timed()), **more)


def event(k: str | None, number: int, name: str = "n") -> dict[str, Any]:
    return {"k": k, "number": number, "name": name}


def shown(rows: list[dict[str, Any]]) -> list[tuple]:
    return sorted(
        ((row["k"], row["at"], row["seen"], row["total"], row["last"], row["names"]) for row in rows), key=str
    )


def ms(time: int) -> datetime:
    return datetime(1970, 1, 1) + timedelta(milliseconds=time)


EPOCHS: list[tuple[list[dict[str, Any]], int | None]] = [
    ([event("a", 5), event("b", 7), event(None, 9)], None),
    ([event("a", 4, "m")], 4),
    ([], 6),
    ([{**event("a", 2, "late"), "at": ms(5)}, {**event("c", 100), "at": ms(6)}], 8),
    ([event("c", 50)], MAX_TIMESTAMP),
]
PUBLISHED = [
    [],
    [("a", 4, "5,4", 9, "m=4", "m:4 n:5")],
    [("a", 5, "5,4", 9, "m=4", "m:4 n:5")],
    [("a", 2, "5,4,2", 11, "late=2", "late:2 m:4 n:5"), ("b", 7, "7", 7, "n=7", "n:7")],
    [
        ("c", 50, "100,50", 150, "n=50", "n:50"),
        ("c", 100, "100,50", 150, "n=50", "n:50"),
        (None, 9, "9", 9, "n=9", "n:9"),
    ],
]


def play(harness: Harness, epoch: tuple[list[dict[str, Any]], int | None]) -> None:
    rows, watermark = epoch
    if rows:
        harness.push("events", rows)
    if watermark is not None:
        harness.watermark("events", watermark)


def test_state_and_timers_go_from_epoch_to_epoch(spark: SparkSession, tmp_path: Path) -> None:
    harness = Harness(timed(), spark, tmp_path)
    for number, (epoch, published) in enumerate(zip(EPOCHS, PUBLISHED, strict=True)):
        play(harness, epoch)
        assert shown(harness.advance()) == sorted(published, key=str), number
        harness.restart()
    assert harness.advance() == []
    staged = harness.lake.staged.rows("insert timed")
    assert [row.late for row in staged] == [0, 0, 0, 1, 0]  # at 6 ms: 5 is late, 6 is not, no rowtime is never
    log = harness.lake.watermarks.rows("timed")
    assert [(row.rows, row.timestamp) for row in log][1:] == [(1, 4), (1, 6), (2, 8), (3, MAX_TIMESTAMP)]
    state = lake_rows.read(spark, harness.lake.state_path(harness.pipeline.insert("timed")))
    newest = state.where("_epoch = 2 AND _live").select("_key_k", "seen", "total", "last", "_timers").collect()
    assert [tuple(row) for row in newest] == [("a", [5, 4], 9, (4, "m"), [5])]


def test_all_at_once_is_the_same(spark: SparkSession, tmp_path: Path) -> None:
    """Landed in one epoch each, and processed in one: the steps are the log's."""
    harness = Harness(timed(), spark, tmp_path)
    for epoch in EPOCHS:
        play(harness, epoch)
        harness.runner.advance("events")
    assert shown(harness.advance()) == sorted([row for rows in PUBLISHED for row in rows], key=str)
    assert len(harness.lake.epochs.rows("insert timed")) == 1


@pytest.mark.thorough
def test_a_crash_anywhere_is_made_good(spark: SparkSession, tmp_path: Path) -> None:
    """An epoch that crashes at one point after the other, each time taken up by a new runner; what has landed meanwhile
    comes with the next one."""
    harness = Harness(timed(), spark, tmp_path)
    points = ["planned", "written", "staged", "judged", "quarantined", "state", "published"]
    for number, point in enumerate(points):
        harness.push("events", [event("a", number)])
        harness.watermark("events", number)
        crash_at(harness, f"insert.{point}", f"process.{point}")
    harness.advance()
    numbers = list(range(len(points)))
    wanted = [(number, ",".join(map(str, numbers[: number + 1])), sum(numbers[: number + 1])) for number in numbers]
    assert [(row["at"], row["seen"], row["total"]) for row in harness.published("timed")] == wanted
    log = harness.lake.watermarks.rows("timed")
    assert [(row.epoch, row.rows, row.timestamp) for row in log] == [(1, 1, 0), (2, 6, 6)]


def test_failures_are_reported_and_state_is_never_lost_in_silence(spark: SparkSession, tmp_path: Path) -> None:
    harness = Harness(timed(), spark, tmp_path)
    play(harness, EPOCHS[0])
    harness.advance()
    harness.push("events", [event("a", 4, "fail")])
    with pytest.raises(ProcessError) as raised:
        harness.advance()
    text = str(raised.value)
    assert "process function Timed failed at key 'a', record Record(k='a', number=4, name='fail', at=None)" in text
    assert "ValueError: this record is not liked (functions.py:" in text
    assert "where: process timed, epoch 2: events, epochs 2 to 2" in text

    class Mended(fn.Timed):
        def process_record(self, record, output, ctx) -> None:
            super().process_record(record._replace(name="mended"), output, ctx)

    harness = taken_up(harness, timed(function=Mended()))
    harness.watermark("events", 4)
    assert shown(harness.advance()) == [("a", 4, "5,4", 9, "mended=4", "mended:4 n:5")]
    epochs = epochs_of(harness)
    assert [(item.state, item.plan.supersedes) for item in epochs] == [
        ("published", None),
        ("superseded", None),  # planned for the function that failed
        ("published", 2),
        ("published", None),
    ]
    assert [item.plan.rows for item in epochs if item.plan.state] == [3, 1, 1, 0]
    assert all(item.problems == () for item in reconcile_all(harness.lake, harness.pipeline))
    state = harness.lake.state_path(harness.pipeline.insert("timed"))
    gone = next(Path(state).glob("g1-e1-*/part-*.parquet"))
    kept = gone.read_bytes()
    gone.unlink()
    harness.push("events", [event("a", 6)])
    harness = taken_up(harness, timed(function=Mended()))
    with pytest.raises(LakeError, match=r"the state of timed is lost: g1-e1-.*is gone"):
        harness.advance()
    gone.write_bytes(kept)
    Path(state / "_delta_log").rename(state / "_elsewhere")
    harness = taken_up(harness, timed(function=Mended()))
    with pytest.raises(LakeError, match="the lake has lost what epoch 4 of timed had put there"):
        harness.advance()


def test_state_grows_with_its_declaration_and_is_written_anew(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegate.pipelines.runtime.processes.state.REWRITE_AFTER", 2)
    harness = Harness(timed(function=Versioned()), spark, tmp_path)
    for epoch in EPOCHS[:2]:
        play(harness, epoch)
        harness.advance()
    harness = taken_up(harness, timed(function=Grown()))
    play(harness, EPOCHS[2])
    assert shown(harness.advance()) == [("a", 5, "5,4", 9, "m=4", "m:4 n:5 None")]
    play(harness, EPOCHS[3])
    assert shown(harness.advance()) == [
        ("a", 2, "5,4,2", 11, "late=2", "late:2 m:4 n:5 noted"),
        ("b", 7, "7", 7, "n=7", "n:7 None"),
    ]
    path = harness.lake.state_path(harness.pipeline.insert("timed"))
    rows = lake_rows.read(spark, path).where("_live").select("_epoch", "_key_k", "last.more", "note").collect()
    assert sorted(map(tuple, rows), key=str) == [
        (3, "a", None, "noted"),
        (3, "b", None, None),  # b is noted in epoch 4
        (3, None, None, None),
        (4, "a", "late", "noted"),
        (4, "b", None, "noted"),
        (4, "c", "n", None),
    ]
    harness = taken_up(harness, timed(function=Retyped()))
    play(harness, EPOCHS[4])
    with pytest.raises(DefinitionChanged, match="states total"):
        harness.advance()


class Versioned(fn.Timed):
    """Says itself whether it is another function: its state may grow."""

    version = 1


class Grown(Versioned):
    """One state more, and a field more in another."""

    last = StateDeclarations.value_state("last", "ROW<number BIGINT, name STRING, more STRING>")
    note = StateDeclarations.value_state("note", "STRING")

    def uses_states(self):
        return (fn.SEEN, fn.TOTAL, self.last, fn.BY_NAME, self.note)

    def process_record(self, record, output, ctx) -> None:
        super().process_record(record, output, ctx)
        ctx.get_state_manager().get_state(self.last).update(
            {"number": record.number, "name": record.name, "more": record.name}
        )

    def on_event_timer(self, timestamp: int, output, ctx) -> None:
        class Noted:
            def collect(self, record) -> None:
                output.collect((*record[:5], f"{record[5]} {note.value()}"))

        note = ctx.get_state_manager().get_state(self.note)
        super().on_event_timer(timestamp, Noted(), ctx)
        note.update("noted")


class Retyped(Versioned):
    """A state of another type."""

    def uses_states(self):
        return (fn.SEEN, StateDeclarations.value_state("total", "STRING"), fn.LAST, fn.BY_NAME)


class Shaped(fn.Ruled):
    """Keeps a ROW of the fields that it is given, of each key and of each rule, and tells both."""

    version = 1

    def __init__(self, fields: str) -> None:
        self.rules = StateDeclarations.broadcast_state("rules", "STRING", f"ROW<{fields}>")
        self.last = StateDeclarations.value_state("last", f"ROW<{fields}>")
        self.more = "more" in fields

    def uses_states(self):
        return (self.rules, self.last)

    def process_record_from_non_broadcast_input(self, record, output, ctx) -> None:
        states = ctx.get_state_manager()
        last = states.get_state(self.last)
        output.collect((record.k, str(states.get_state(self.rules).get(record.k)), str(last.value())))
        last.update(self.row(record.number))

    def process_record_from_broadcast_input(self, record, ctx) -> None:
        ctx.get_state_manager().get_state(self.rules).put(record.k, self.row(record.rule))

    def row(self, number: int) -> dict[str, Any]:
        return {"n": number, **({"more": "new"} if self.more else {})}


@pytest.mark.thorough  # test_state_grows_with_its_declaration_and_is_written_anew: state of a key
def test_a_row_of_broadcast_state_grows_and_a_field_may_be_dropped(spark: SparkSession, tmp_path: Path) -> None:
    def shaped(fields: str) -> Pipeline:
        schema = "k STRING, rule STRING, last STRING"
        return compile_script(SCRIPT).process(
            "timed", ["events", "rules"], "k", wrapped(Shaped(fields)), schema, buckets=2
        )

    harness, released = Harness(shaped("n BIGINT"), spark, tmp_path), []

    def epoch(events: list[dict[str, Any]], rules: list[dict[str, Any]]) -> None:
        for table, rows in (("rules", rules), ("events", events)):
            if rows:
                harness.push(table, rows)
                harness.runner.advance(table)
        released.append(sorted((row["k"], row["rule"], row["last"]) for row in harness.advance()))

    epoch([event("a", 1), event("b", 2)], [{"k": "a", "rule": 10}])
    harness = taken_up(harness, shaped("n BIGINT, more STRING"))
    epoch([event("a", 3)], [{"k": "b", "rule": 20}])
    harness = taken_up(harness, shaped("n BIGINT"))
    epoch([event("a", 4), event("b", 5)], [])
    harness = taken_up(harness, shaped("n BIGINT, more STRING"))
    epoch([event("b", 6)], [])
    wide, narrow = "{{'n': {}, 'more': {}}}".format, "{{'n': {}}}".format
    assert released == [
        [("a", narrow(10), "None"), ("b", "None", "None")],
        [("a", wide(10, None), wide(1, None))],
        [("a", narrow(10), narrow(3)), ("b", narrow(20), narrow(2))],
        [("b", wide(20, None), wide(5, None))],  # what was dropped is gone
    ]


BEATS = """
CREATE TABLE beats (number BIGINT, due BIGINT, at AS TO_TIMESTAMP_LTZ(number, 3), WATERMARK FOR at AS at)
    WITH ('connector' = 'datagen', 'rows-per-second' = '10', 'number-of-rows' = '20',
    'fields.number.kind' = 'sequence', 'fields.number.start' = '1', 'fields.number.end' = '20',
    'fields.due.kind' = 'sequence', 'fields.due.start' = '9000000000001', 'fields.due.end' = '9000000000020');
"""


class FarAhead(fn.Hears):
    """Sets timers that the time of its records never reaches."""

    def process_record(self, record, output, ctx) -> None:
        self.time.register_timer(record.due)


def test_all_timers_fire_at_the_end_of_a_source_and_only_once(spark: SparkSession, tmp_path: Path) -> None:
    now = [1_000_000]
    pipeline = compile_script(BEATS).process(
        "timed", "beats", "number", wrapped(FarAhead()), "what STRING, value BIGINT", buckets=2
    )
    harness, found = Harness(pipeline, spark, tmp_path, clock=lambda: now[0]), []
    for seconds in (0, 1, 10, 10):
        now[0] += seconds * 1_000
        found.append(sorted((row["what"], row["value"]) for row in harness.advance()))
        harness.restart()
    assert found == [[], [], [("timer", 9_000_000_000_000 + number) for number in range(1, 21)], []]
    assert [row.timestamp for row in harness.lake.watermarks.rows("timed")][-2:] == [10, MAX_TIMESTAMP]
    (process,) = reconcile_all(harness.lake, harness.pipeline)
    assert (process.problems, process.counts["rows published"]) == ((), 20)


HELD = SCRIPT + (
    f"CREATE TABLE timed ({fn.TIMED_COLUMNS}, CONSTRAINT small EXPECT (total < 100) ON VIOLATION FAIL, "
    "CONSTRAINT known EXPECT (k <> 'b') ON VIOLATION QUARANTINE) WITH ('connector' = 'scripted');"
)


def test_the_gate_holds_an_epoch_and_its_state_with_it(spark: SparkSession, tmp_path: Path) -> None:
    harness = Harness(timed(HELD, schema=None), spark, tmp_path)
    harness.push("events", [event("a", 5), event("b", 6)])
    harness.watermark("events", 6)
    harness.advance()
    assert [row["k"] for row in harness.published("timed")] == ["a"]
    assert [(row["k"], row["_reason"]) for row in harness.quarantined("timed")] == [("b", "violated:known")]
    harness.push("events", [event("a", 200)])
    harness.watermark("events", 200)
    with pytest.raises(GateHeld, match="small"):
        harness.advance()
    harness.runner.resolve_held("timed", discard=True)
    assert [(row["k"], row["_reason"]) for row in harness.quarantined("timed")][1:] == [("a", "discarded")]
    harness.push("events", [event("a", -190)])
    harness.watermark("events", 201)
    assert [(row["k"], row["seen"], row["total"]) for row in harness.advance()] == [("a", "5,200,-190", 15)]
    for discard in (False, True):
        with pytest.raises(PlanningError, match="no epoch of timed is held"):
            harness.runner.resolve_held("timed", discard=discard)
    rows = places_of(harness)
    assert (rows.landed, rows.matched) == (4, 4)
    (added,) = reconcile_all(harness.lake, harness.pipeline)
    assert added.problems == ()
    assert added.counts == {
        "rows landed": 4, "rows handled": 4, "rows left out": 0, "rows waiting": 0,
        "rows given": 4, "rows published": 2, "rows quarantined": 2, "rows not having": 0,
    }  # fmt: skip
    DeltaTable(str(harness.lake.target_path(harness.pipeline.table("timed")))).delete("total = 15")
    (added,) = reconcile_all(harness.lake, harness.pipeline)
    assert added.problems == ("process timed: the table of timed holds 1 row, by the control tables it should be 2",)
