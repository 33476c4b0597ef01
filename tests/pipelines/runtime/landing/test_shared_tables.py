"""Two scripts on one lake that name the same source tables."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.pipelines.runtime.handmade import HandmadeLake
from tests.pipelines.runtime.plays import taken_up
from tidegate.pipelines.commands import Advised, both, or_else, resnapshot, then
from tidegate.pipelines.errors import PlanningError, SourceError
from tidegate.pipelines.runtime.landing.failures import own_way_out, refuse_second_release
from tidegate.pipelines.testing import Harness

NAMED = """
CREATE TABLE users (id INT PRIMARY KEY NOT ENFORCED, name STRING) WITH ('connector' = 'scripted');
CREATE TABLE clicks (id INT, proctime AS PROCTIME()) WITH ('connector' = 'scripted');
CREATE TABLE named (id INT, name STRING) WITH ('connector' = 'scripted');
INSERT INTO named SELECT clicks.id, name FROM clicks
JOIN users FOR SYSTEM_TIME AS OF clicks.proctime ON clicks.id = users.id;
"""
TWICE = NAMED.replace("named", "also_named")
WITHOUT_NAMES = """
CREATE TABLE users (id INT PRIMARY KEY NOT ENFORCED) WITH ('connector' = 'scripted');
CREATE TABLE clicks (id INT, proctime AS PROCTIME()) WITH ('connector' = 'scripted');
CREATE TABLE known (id INT) WITH ('connector' = 'scripted');
INSERT INTO known SELECT clicks.id FROM clicks
JOIN users FOR SYSTEM_TIME AS OF clicks.proctime ON clicks.id = users.id;
"""


@pytest.fixture
def first(spark: SparkSession, tmp_path: Path) -> Harness:
    """`named` has published its first click."""
    harness = Harness(NAMED, spark, tmp_path)
    harness.push("users", [{"id": 1, "name": "Ann"}])
    harness.end_of_snapshot("users")
    harness.push("clicks", [{"id": 1}])
    assert [row["name"] for row in harness.advance()] == ["Ann"]
    return harness


def test_whoever_lands_a_row_both_join_it_once(first: Harness) -> None:
    second = taken_up(first, TWICE)
    second.push("users", [{"id": 2, "name": "Bob"}])
    second.push("clicks", [{"id": 2}])
    assert sorted(row["name"] for row in second.advance()) == ["Ann", "Bob"]
    again = taken_up(second, NAMED)
    assert [row["name"] for row in again.advance()] == ["Bob"]


def test_a_script_may_leave_out_a_column_that_it_does_not_read(first: Harness) -> None:
    second = taken_up(first, WITHOUT_NAMES)
    second.push("clicks", [{"id": 1}])
    assert [row["id"] for row in second.advance()] == [1, 1], "from the first click on"
    again = taken_up(second, NAMED)
    again.push("users", [{"id": 2, "name": "Bob"}])
    again.push("clicks", [{"id": 2}])
    assert sorted(row["name"] for row in again.advance()) == ["Ann", "Bob"]


@pytest.fixture
def hand(tmp_path: Path) -> HandmadeLake:
    hand = HandmadeLake(tmp_path)
    hand.landed("users", 1, rows=1, flip=1)
    hand.landed("clicks", 1, rows=1)
    refuse_second_release(hand.lake, "clicks")  # nothing is released yet
    hand.planned(1, 0, 1)
    return hand


def test_a_released_probe_keeps_its_generation(hand: HandmadeLake) -> None:
    refuse_second_release(hand.lake, "users")
    with pytest.raises(PlanningError, match="rows of clicks are released by enriched") as caught:
        refuse_second_release(hand.lake, "clicks")
    assert "give clicks and what enriched writes to new names" in caught.value.next_command


@pytest.mark.parametrize(
    ("advised", "mend"),
    [
        (
            or_else("put the old file back", resnapshot("clicks", "reads all")),
            "put the old file back, then",
        ),
        (then("correct the rows", resnapshot("clicks")), "correct the rows, then run"),
        (both("bring it back", resnapshot("clicks")), "bring it back, then run"),
        (resnapshot("clicks", "a new generation"), "bring back what is missing at the source, then"),
    ],
)
def test_an_error_of_a_released_probe_says_another_way(hand: HandmadeLake, advised: Advised, mend: str) -> None:
    def next_command(table: str) -> str:
        with pytest.raises(SourceError) as caught, own_way_out(hand.lake, table):
            raise SourceError("it changed", next_command=advised)
        assert str(caught.value).endswith(caught.value.next_command)
        return caught.value.next_command

    assert next_command("clicks").startswith(mend)
    assert "--resnapshot" not in next_command("clicks")
    # Of any other table the command that reads it anew has its name, whatever a part of it is called.
    assert next_command("users") == str(advised).replace("--resnapshot clicks", "--resnapshot users")
