"""Scripts that name servers, played by a test: the same columns, keys and times, and nothing of the servers."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tidegate.pipelines.runtime.scripts import load_script
from tidegate.pipelines.sources.scripted import played
from tidegate.pipelines.sql import compile_script
from tidegate.pipelines.testing import Harness

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
    for name, table in used.items():
        ours = whole.table(name)
        assert ours.connector == "scripted"
        stays = ("role", "primary_key", "watermark", "constraints", "suite")
        assert all(getattr(ours, each) == getattr(table, each) for each in stays)
        assert [(column.name, column.type) for column in ours.columns] == [(c.name, c.type) for c in table.columns]
    assert replace(whole, tables=pipeline.tables) == pipeline


def test_a_test_tells_what_the_connectors_would_have(spark: SparkSession, tmp_path: Path) -> None:
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
    told = [("RELEASE", 1, release), ("CLICK", 1, release + 1_000), ("CLICK", 1, release + 100_000)]
    later = [("CLICK", 2, release + 7_200_000)]
    counts = []
    for events in (told, later):
        harness.push("news_events", [{"type": what, "news_id": news, "timestamp": at} for what, news, at in events])
        counts.append({row["time_after_release"]: row["click_number"] for row in harness.advance()})
    assert counts == [{60_000: 1}, {300_000: 2, 600_000: 2, 1_800_000: 2, 3_600_000: 2}]
