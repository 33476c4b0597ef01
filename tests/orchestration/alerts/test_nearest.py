"""Keys of rows without a match, and the version that comes nearest, out of real runs."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from assets import build_pipeline_definitions
from orchestration.alerts import AlertOptions
from orchestration.alerts.gates import growing_quarantine
from orchestration.alerts.nearest import missed_keys
from orchestration.alerts.watched import WatchedInsert, watched
from pipelines.runtime.plans import ReleasePlan
from pipelines.testing import Harness
from tests.assets.clicks import script
from tests.pipelines.runtime.handmade import HandmadeLake
from tests.quality_checks.staged import Given, stage

IN_TIME = """
CREATE TABLE rates (currency STRING PRIMARY KEY NOT ENFORCED, rate INT, at TIMESTAMP(3),
    WATERMARK FOR at AS at) WITH ('connector' = 'scripted');
CREATE TABLE orders (id INT, currency STRING, at TIMESTAMP(3), WATERMARK FOR at AS at) WITH ('connector' = 'scripted');
CREATE TABLE priced (id INT, rate INT) WITH ('connector' = 'scripted');
INSERT INTO priced SELECT id, rate FROM orders
LEFT JOIN rates FOR SYSTEM_TIME AS OF orders.at ON upper(orders.currency) = rates.currency;
"""


def seen(harness: Harness) -> WatchedInsert:
    definitions = build_pipeline_definitions(harness.pipeline, lake=harness.directory / "lake")
    (found,) = watched(definitions.get_repository_def()).inserts
    return found


@pytest.fixture
def harness(spark: SparkSession, tmp_path: Path) -> Harness:
    """User 1 is there, 2 was deleted, 3 comes after the pin; 9 never comes."""
    found = Harness(script(), spark, tmp_path)
    found.push("user_info", [{"user_id": number, "gender": "f"} for number in (1, 2)])
    found.push("user_info", [{"user_id": 2, "gender": "f"}], op="-D")
    found.end_of_snapshot("user_info")
    found.push("click_event", [{"user_id": number, "item_id": 1} for number in (1, 2, 3, 9, 9)])
    found.advance()
    found.push("user_info", [{"user_id": 3, "gender": "f"}])
    found.advance()
    return found


def test_each_key_once_with_its_nearest_version(harness: Harness):
    insert = seen(harness)
    row = harness.lake.epochs.rows(insert.owner)[0]
    (staged,) = harness.lake.staged.rows(insert.owner, generation=1, epoch=row.epoch)
    found = {
        missed.key["user_id"]: missed for missed in missed_keys(harness.lake, insert, ReleasePlan.of(row), staged, 10)
    }
    assert sorted(found) == [2, 3, 9]
    assert found[2].reason == "deleted@user_info"
    assert found[2].nearest.startswith("deleted")
    assert "after the pin" in found[3].nearest
    assert found[9].nearest.startswith("none up to epoch")
    assert "user_id = 9: the key is not in the table (user_info); nearest version: none" in found[9].line()


@pytest.mark.parametrize("most", [0, 2])
def test_no_more_than_asked_for(harness: Harness, most: int):
    insert = seen(harness)
    row = harness.lake.epochs.rows(insert.owner)[0]
    (staged,) = harness.lake.staged.rows(insert.owner, generation=1, epoch=row.epoch)
    assert len(missed_keys(harness.lake, insert, ReleasePlan.of(row), staged, most)) == most


def test_a_hot_key_leaves_room_for_others_where_a_quarantine_grows(tmp_path: Path):
    ids = [7] * 500 + list(range(100, 112))
    staged = stage(tmp_path, Given({"unmatched:key-absent@u": len(ids)}))
    made = HandmadeLake(tmp_path / "lake")
    landed = {
        "id": ids,
        "_generation": pa.array([1] * len(ids), pa.int32()),
        "_epoch": [2] * len(ids),
        "_split": ["0"] * len(ids),
        "_offset": list(range(len(ids))),
        "_rowtime": pa.nulls(len(ids), pa.timestamp("us")),
    }
    write_deltalake(str(made.lake.table_path("clicks")), pa.table(landed))
    made.lake.staged.append([staged.staged], application="test", version=1)
    made.judged(staged.plan)
    made.published(staged.plan)
    definitions = build_pipeline_definitions(made.pipeline, lake=made.lake.root)
    (insert,) = watched(definitions.get_repository_def()).inserts
    with dg.DagsterInstance.ephemeral() as instance:
        found = growing_quarantine(insert, instance, AlertOptions(), now=3000)
    assert found is not None
    assert (found.details["rows"], found.counts) == (512, {"key-absent@u": 512})
    assert [missed.key["id"] for missed in found.keys] == [7, *range(100, 109)]


def test_the_key_of_an_expression_is_not_guessed(spark: SparkSession, tmp_path: Path):
    harness = Harness(IN_TIME, spark, tmp_path)
    assert seen(harness).joins[0].keys == {}
