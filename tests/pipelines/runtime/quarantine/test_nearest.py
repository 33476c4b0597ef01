"""Keys of rows without a match, and the version that comes nearest, out of real runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.assets.clicks import script
from tidegate.orchestration.alerts.incident import Incident
from tidegate.pipelines.runtime.plans import ReleasePlan, insert_owner
from tidegate.pipelines.runtime.quarantine.nearest import KeyedJoin, MissedKey, keyed_joins, missed_keys
from tidegate.pipelines.sql import compile_script
from tidegate.pipelines.testing import Harness

IN_TIME = """
CREATE TABLE rates (currency STRING PRIMARY KEY NOT ENFORCED, rate INT, at TIMESTAMP(3),
    WATERMARK FOR at AS at) WITH ('connector' = 'scripted');
CREATE TABLE orders (id INT, currency STRING, at TIMESTAMP(3), WATERMARK FOR at AS at) WITH ('connector' = 'scripted');
CREATE TABLE priced (id INT, rate INT) WITH ('connector' = 'scripted');
INSERT INTO priced SELECT id, rate FROM orders
LEFT JOIN rates FOR SYSTEM_TIME AS OF orders.at ON upper(orders.currency) = rates.currency;
"""


def missed(harness: Harness, most: int) -> dict[int, MissedKey]:
    """Of the first epoch, by user."""
    insert, lake = harness.pipeline.inserts[0], harness.lake
    row = lake.epochs.rows(insert_owner(insert.id))[0]
    (staged,) = lake.staged.rows(row.owner, generation=1, epoch=row.epoch)
    folder = lake.staged_path(harness.pipeline.table(insert.target), insert)
    found = missed_keys(lake, keyed_joins(insert), folder, ReleasePlan.of(row), staged, most)
    assert len({one.key["user_id"] for one in found}) == len(found)
    return {one.key["user_id"]: one for one in found}


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
    found = missed(harness, 10)
    assert sorted(found) == [2, 3, 9]
    assert found[2].reason == "deleted@user_info"
    assert found[2].nearest.startswith("deleted")
    assert "after the pin" in found[3].nearest
    assert found[9].nearest.startswith("none up to epoch")
    (told,) = [line for line in Incident("k", "lag", "t", keys=(found[9],)).body().splitlines() if "user_id" in line]
    assert told.strip().startswith("user_id = 9: the key is not in the table (user_info); nearest version: none up to")


@pytest.mark.parametrize("most", [0, 2])
def test_no_more_than_asked_for(harness: Harness, most: int):
    assert len(missed(harness, most)) == most


def test_a_script_that_has_changed_since_then_finds_no_keys(harness: Harness) -> None:
    insert, lake = harness.pipeline.inserts[0], harness.lake
    row = lake.epochs.rows(insert_owner(insert.id))[0]
    (staged,) = lake.staged.rows(row.owner, generation=1, epoch=row.epoch)
    folder = lake.staged_path(harness.pipeline.table(insert.target), insert)
    other = [replace(join, keys={"user_id": "a_new_name"}) for join in keyed_joins(insert)]
    assert missed_keys(lake, other, folder, ReleasePlan.of(row), staged, 10) == []


def test_the_key_of_an_expression_is_not_guessed():
    (insert,) = compile_script(IN_TIME).inserts
    assert keyed_joins(insert) == (KeyedJoin("orders", "rates", "rates", "event", {}),)
