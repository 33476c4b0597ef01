"""The rows and words so far, in short.

And scripts that name servers, played by a test: the same columns, keys and times, and nothing of the servers.
"""

import datetime as dt
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.pipelines.sources.sources_help import table
from tidegate.pipelines.connectors.table import Column
from tidegate.pipelines.errors import SourceError
from tidegate.pipelines.runtime.scripts import load_script
from tidegate.pipelines.sources.scripted import ScriptedInput
from tidegate.pipelines.sources.scripted.source import EventLog, Rows
from tidegate.pipelines.sql import compile_script
from tidegate.pipelines.testing import Harness
from tidegate.pipelines.testing.harness import played
from tidegate.pipelines.watermarks import MIN_TIMESTAMP, ProcessingTimeBehind, ProcessingTimeRevoked, Watermark

COLUMNS = {"user_id": "INT", "price": "DECIMAL(38, 18)", "at": "TIMESTAMP(3)"}
TABLE = table(
    COLUMNS,
    "scripted",
    more=[Column("proctime", "TIMESTAMP_LTZ(3)", "TIMESTAMP", expression="_instant", proctime=True)],
)


def events_in(directory):
    """The rows and words so far, in short."""
    return [
        (event.op, event.table.to_pylist()) if isinstance(event, Rows) else (event.watermark, event.idle)
        for event in EventLog(directory).read(0)
    ]


def test_where_rows_tell_the_time_a_watermark_is_refused(tmp_path):
    hand = ScriptedInput(tmp_path, table(COLUMNS, "scripted", {"tells-time": "false"}))
    with pytest.raises(SourceError, match="its watermark follows from its rows") as raised:
        hand.watermark(5)
    assert raised.value.next_command == "append a row that is later"
    hand.watermark(MIN_TIMESTAMP, use_processing_time=True)
    assert events_in(tmp_path) == [(Watermark(MIN_TIMESTAMP, True), False)]


def test_rows_keep_their_values_exactly_and_missing_keys_are_null(tmp_path):
    row = {
        "user_id": 1,
        "price": Decimal("12345678901234567890.123456789012345678"),
        "at": dt.datetime(2026, 1, 2, 3, 4),
    }
    ScriptedInput(tmp_path, TABLE).rows([row, {"user_id": 2}, {}], "+U")
    ScriptedInput(tmp_path, TABLE).rows([])
    assert events_in(tmp_path) == [("+U", [row, {"user_id": 2, "price": None, "at": None}, dict.fromkeys(COLUMNS)])]


@pytest.mark.parametrize(
    ("rows", "op", "words"),
    [
        ([{"user": 1}], "+I", ["no column user", "did you mean user_id"]),
        ([{"user_id": 1}, {"xyz": 1}], "+I", ["no column xyz", "its columns are user_id, price, at"]),
        ([{"proctime": None}], "+I", ["column proctime is computed"]),
        ([{"user_id": "one"}], "+I", ["column user_id is INT"]),
        ([{"user_id": 2**31}], "+I", ["column user_id is INT"]),
        ([{"price": 1.5}], "+I", ["column price is DECIMAL"]),
        ([{"at": "2026-01-01"}], "+I", ["column at is TIMESTAMP(3)"]),
        ([{"user_id": 1}], "I", ["no op 'I'", "+I, -U, +U, -D"]),
    ],
)
def test_what_the_table_does_not_have_is_refused_by_name(tmp_path, rows, op, words):
    with pytest.raises(SourceError) as error:
        ScriptedInput(tmp_path, TABLE).rows(rows, op)
    for word in (*words, "t", "nothing of this call was appended"):
        assert word in str(error.value)
    assert events_in(tmp_path) == []


def test_a_target_takes_no_rows(tmp_path):
    with pytest.raises(SourceError, match="it is a target"):
        ScriptedInput(tmp_path, table(COLUMNS, "scripted", role="sink")).rows([{"user_id": 1}])


def test_watermarks_pass_the_guard_whatever_object_emits_them(tmp_path):
    for timestamp in (5, 5, 3, 9):
        ScriptedInput(tmp_path, TABLE).watermark(timestamp)
    ScriptedInput(tmp_path, TABLE).watermark(MIN_TIMESTAMP, use_processing_time=True)
    ScriptedInput(tmp_path, TABLE).watermark(7, use_processing_time=True)
    with pytest.raises(ProcessingTimeRevoked):
        ScriptedInput(tmp_path, TABLE).watermark(10)
    assert events_in(tmp_path) == [
        (Watermark(5), False),
        (Watermark(9), False),
        (Watermark(MIN_TIMESTAMP, True), False),
        (Watermark(7, True), False),
    ]


def test_processing_time_is_not_behind_what_was_emitted(tmp_path):
    ScriptedInput(tmp_path, TABLE, clock=lambda: 100).watermark(101)
    with pytest.raises(ProcessingTimeBehind):
        ScriptedInput(tmp_path, TABLE, clock=lambda: 100).watermark(MIN_TIMESTAMP, True)
    ScriptedInput(tmp_path, TABLE, clock=lambda: 101).watermark(MIN_TIMESTAMP, True)
    assert [watermark for watermark, _ in events_in(tmp_path)] == [Watermark(101), Watermark(MIN_TIMESTAMP, True)]


def test_idleness_ends_with_the_next_watermark_even_one_that_is_not_sent(tmp_path):
    hand = ScriptedInput(tmp_path, TABLE)
    hand.watermark(5)
    hand.idle()
    hand.idle()
    hand.watermark(4)
    hand.idle()
    hand.watermark(6)
    assert events_in(tmp_path) == [
        (Watermark(5), False),
        (None, True),
        (None, False),
        (None, True),
        (None, False),
        (Watermark(6), False),
    ]


def test_idleness_ends_with_the_next_row(tmp_path):
    hand = ScriptedInput(tmp_path, TABLE)
    hand.idle()
    hand.rows([{"user_id": 1}])
    hand.idle()
    assert [event[1] for event in events_in(tmp_path)][::2] == [True, True]


EXAMPLES = Path(__file__).parents[4] / "examples"
SCRIPT = """
CREATE TABLE users (
    id INT PRIMARY KEY NOT ENFORCED, name STRING, changed TIMESTAMP_LTZ(3) METADATA FROM 'op_ts' VIRTUAL
) WITH (
    'connector' = 'mysql-cdc', 'hostname' = '${HOST}', 'username' = '${USER}', 'password' = '${PASSWORD}',
    'database-name' = 'd', 'table-name' = 'users', 'changelog.retention' = '${RETENTION}'
);
CREATE TABLE clicks (
    id INT, at AS SYSTEM_ROWTIME(), split BIGINT METADATA FROM 'partition', twice AS id * 2, proctime AS PROCTIME(),
    WATERMARK FOR at AS SYSTEM_WATERMARK()
) WITH (
    'connector' = 'kafka', 'topic' = 'clicks', 'properties.bootstrap.servers' = '${KAFKA}', 'format' = 'json',
    'scan.watermark.idle-timeout' = '5 s'
);
CREATE TABLE named (
    id INT, at TIMESTAMP_LTZ(3), split BIGINT, twice INT, name STRING, changed TIMESTAMP_LTZ(3),
    CONSTRAINT small EXPECT (id < 50) ON VIOLATION QUARANTINE
) WITH ('connector' = 'delta', 'insert.id' = 'names', 'gate.on-unmatched' = 'block');
INSERT INTO named SELECT c.id, c.at, c.split, c.twice, u.name, u.changed FROM clicks AS c
LEFT JOIN users FOR SYSTEM_TIME AS OF c.proctime AS u ON c.id = u.id
"""


def test_only_what_decides_about_rows_stays() -> None:
    ours = played(compile_script(SCRIPT))
    assert {name: dict(table.options) for name, table in ours.tables.items()} == {
        "users": {
            "connector": "scripted",
            "changelog.retention": "${RETENTION}",
            "phases": "true",
            "signals": "true",
            "tells-time": "true",
        },
        "clicks": {
            "connector": "scripted",
            "scan.watermark.idle-timeout": "5 s",
            "phases": "false",
            "signals": "false",
            "tells-time": "true",
        },
        "named": {"connector": "scripted", "insert.id": "names", "gate.on-unmatched": "block"},
    }
    assert [column.name for column in ours.table("clicks").physical_columns] == ["id", "at", "split"]
    assert {column.metadata for table in ours.tables.values() for column in table.columns} == {None}


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*/pipeline.*")), ids=lambda path: path.parent.name)
def test_an_example_is_what_it_was_but_for_where_its_rows_come_from(path: Path) -> None:
    pipeline = load_script(path)
    whole = played(pipeline)
    used = {name: table for name, table in pipeline.tables.items() if table.role in ("build", "probe", "sink")}
    assert used
    for name, theirs in used.items():
        ours = whole.table(name)
        assert ours.connector == "scripted"
        stays = ("role", "primary_key", "watermark", "constraints", "suite")
        assert all(getattr(ours, each) == getattr(theirs, each) for each in stays)
        assert [(column.name, column.type) for column in ours.columns] == [(c.name, c.type) for c in theirs.columns]
    assert replace(whole, tables=pipeline.tables) == pipeline


def test_a_test_sets_what_the_connectors_would_have(spark: SparkSession, tmp_path: Path) -> None:
    given = {"RETENTION": "1 d"}
    harness = Harness(SCRIPT, spark, tmp_path, scripted=True, environment=given)
    changed, at = dt.datetime(2026, 1, 1, 12), dt.datetime(2026, 1, 2, 12)
    harness.push("users", [{"id": 7, "name": "ann", "changed": changed}])
    harness.push("clicks", [{"id": 7, "at": at, "split": 3}])
    assert harness.advance() == []
    harness.end_of_snapshot("users")
    (row,) = harness.advance()
    assert (row["id"], row["split"], row["twice"], row["name"]) == (7, 3, 14, "ann")
    assert (row["at"] - row["changed"]) == at - changed


def test_a_process_of_a_python_file_is_played_too(spark: SparkSession, tmp_path: Path) -> None:
    harness = Harness(EXAMPLES / "news_clicks" / "pipeline.py", spark, tmp_path, scripted=True)
    release = 1_800_000_000_000
    both_times = [("RELEASE", 1, release), ("CLICK", 1, release + 1_000), ("CLICK", 1, release + 100_000)]
    later = [("CLICK", 2, release + 7_200_000)]
    counts = []
    for events in (both_times, later):
        harness.push("news_events", [{"type": what, "news_id": news, "timestamp": at} for what, news, at in events])
        counts.append({row["time_after_release"]: row["click_number"] for row in harness.advance()})
    assert counts == [{60_000: 1}, {300_000: 2, 600_000: 2, 1_800_000: 2, 3_600_000: 2}]
