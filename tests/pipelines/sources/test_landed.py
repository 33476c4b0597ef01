"""The connectors in a whole pipeline: a Delta build side, generated clicks, a print target."""

from __future__ import annotations

from io import StringIO

import pyarrow as pa
from deltalake import write_deltalake
from rich.console import Console

from tidegate.pipelines.connectors.protocol import Json, PlanRequest, Step, StoredStep
from tidegate.pipelines.lake import rows as lake_rows
from tidegate.pipelines.sinks.print import show_epoch
from tidegate.pipelines.sources import planning
from tidegate.pipelines.sources.datagen import CONNECTOR
from tidegate.pipelines.testing import Harness

SCRIPT = """
CREATE TABLE users (id INT PRIMARY KEY NOT ENFORCED, name STRING) WITH ('connector' = 'delta', 'path' = '{users}');
CREATE TABLE clicks (id INT, n BIGINT, p AS PROCTIME()) WITH (
    'connector' = 'datagen', 'rows-at-start' = '6', 'rows-per-second' = '2', 'number-of-rows' = '10',
    'fields.id.kind' = 'sequence', 'fields.id.start' = '1', 'fields.id.end' = '10',
    'fields.n.min' = '0', 'fields.n.max' = '0'
);
CREATE TABLE shown (id INT, n BIGINT, name STRING) WITH ('connector' = 'print', 'print-identifier' = 'clicks');
INSERT INTO shown SELECT c.id, c.n, u.name FROM clicks AS c
JOIN users FOR SYSTEM_TIME AS OF c.p AS u ON c.id = u.id;
"""


def users(path, ids):
    write_deltalake(
        path, pa.table({"id": pa.array(ids, pa.int32()), "name": [f"user {n}" for n in ids]}), mode="append"
    )


def test_generated_clicks_meet_the_rows_of_a_delta_table(spark, tmp_path):
    users(tmp_path / "users", range(1, 9))
    now = 1_767_225_600_000
    harness = Harness(SCRIPT.format(users=tmp_path / "users"), spark, tmp_path / "lake", clock=lambda: now)
    assert sorted(row["id"] for row in harness.advance()) == [1, 2, 3, 4, 5, 6]

    users(tmp_path / "users", [9, 10])
    harness.restart()
    now += 60_000
    rows = harness.advance()
    assert sorted((row["id"], row["n"], row["name"]) for row in rows) == [(n, 0, f"user {n}") for n in range(7, 11)]
    assert harness.advance() == []

    path = harness.lake.target_path(harness.pipeline.table("shown"))
    published = lake_rows.read(spark, path).where("id = 10")
    screen = StringIO()
    assert show_epoch(published, "clicks", console=Console(file=screen)) == 1
    assert screen.getvalue() == "clicks> +I[10, 0, user 10]\n"


def request(ends: Json, first: StoredStep | None = None) -> PlanRequest:
    return PlanRequest(ends=ends, instant=0, first=first)


def test_the_first_step_keeps_the_ends_for_all_later_ones():
    ranges = planning.ranges(request({"at": 5}), {"at": 5}, to=3)
    assert ranges["to"] == 3
    first = StoredStep(Step(ranges), 1, 1, 0)
    assert planning.first_ends(request({"at": 5})) == {"at": 5}
    assert planning.first_ends(request({"at": 9}, first)) == {"at": 5}
    assert planning.ranges(request({"at": 9}, first), {"at": 9}, to=4) == {"to": 4}
    assert not CONNECTOR.spec.phases({})
