"""Keys of rows without a match, and the version that comes nearest, out of real runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from pyspark.sql import SparkSession

from tests.assets.clicks import script
from tests.cases import searched
from tests.pipelines.runtime.handmade import HandmadeLake
from tests.pipelines.runtime.test_indexes import land
from tests.pipelines.versions.test_index import KINDS, Row, cases, made, order, written
from tidegate.orchestration.alerts.message import Message
from tidegate.pipelines.facts.problem import Problem
from tidegate.pipelines.runtime import nearest
from tidegate.pipelines.runtime.epochs import insert_owner, stored_plan
from tidegate.pipelines.runtime.indexes import Indexed
from tidegate.pipelines.runtime.nearest import (
    KeyedJoin,
    MissedKey,
    _nearest,
    described,
    keyed_joins,
    missed_keys,
)
from tidegate.pipelines.sql import compile_script
from tidegate.pipelines.testing import Harness
from tidegate.pipelines.versions import IndexOf, opened, runs

IN_TIME = """
CREATE TABLE rates (currency STRING PRIMARY KEY NOT ENFORCED, rate INT, at TIMESTAMP(3),
    WATERMARK FOR at AS at) WITH ('connector' = 'scripted');
CREATE TABLE orders (id INT, currency STRING, at TIMESTAMP(3), WATERMARK FOR at AS at) WITH ('connector' = 'scripted');
CREATE TABLE priced (id INT, rate INT) WITH ('connector' = 'scripted');
INSERT INTO priced SELECT id, rate FROM orders
LEFT JOIN rates FOR SYSTEM_TIME AS OF orders.at ON upper(orders.currency) = rates.currency;
"""


def missed(harness: Harness, most: int, joins: Sequence[KeyedJoin] = ()) -> dict[int, MissedKey]:
    """Of the first epoch, by user; by the script's own joins, or by these."""
    insert, lake = harness.pipeline.inserts[0], harness.lake
    row = lake.epochs.rows(insert_owner(insert.id))[0]
    (staged,) = lake.staged.rows(row.owner, generation=1, epoch=row.epoch)
    folder = lake.staged_paths(harness.pipeline.table(insert.target), insert)["quarantine"]
    found = missed_keys(
        lake, joins or keyed_joins(harness.pipeline, insert, lake.target_path), folder, stored_plan(row), staged, most
    )
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
    message = Message.begun(Problem("k", "lag", "t", keys=(found[9],)))
    (shown,) = [line for line in message.body.splitlines() if "user_id" in line]
    assert shown.strip().startswith("user_id = 9: the key is not in the table (user_info); nearest version: none up to")


@pytest.mark.parametrize("most", [0, 2])
def test_no_more_than_asked_for(harness: Harness, most: int):
    assert len(missed(harness, most)) == most


def test_a_script_that_has_changed_since_then_finds_no_keys(harness: Harness) -> None:
    joins = keyed_joins(harness.pipeline, harness.pipeline.inserts[0], str)
    assert missed(harness, 10, [replace(join, keys={"user_id": "a_new_name"}) for join in joins]) == {}


def test_the_key_of_an_expression_is_not_guessed():
    pipeline = compile_script(IN_TIME)
    assert keyed_joins(pipeline, pipeline.inserts[0], str) == (KeyedJoin("orders", "rates", "rates", "event", {}),)


def said(rows: list[Row], key: tuple[Any, ...], at: int | None, pin: int) -> str:
    """What a person finds who looks at every row of the changelog."""
    words = {"r": "read by the snapshot", "c": "inserted", "u": "updated", "d": "deleted"}

    def change_of(row: Row) -> str:
        time = "" if row.time is None else f" at {np.datetime64(row.time // 1000, 'ms')} UTC".replace("T", " ", 1)
        return f"{words[row.op]}{time} (epoch {row.epoch})"

    def met(epoch: int) -> tuple[str, bool] | None:
        """What is seen of the key as of an epoch, and whether it is a version."""
        seen = [row for row in rows if row.epoch <= epoch and (at is None or (row.time is not None and row.time <= at))]
        place = order if at is None else lambda row: (row.time, *order(row))
        own = [row for row in seen if row.op != "t" and row.key == key]
        if not own:
            return None
        last = max(own, key=place)
        if last.op != "d" and any(row.op == "t" and place(row) > place(last) for row in seen):
            return "none since a truncate of its table", False
        return change_of(last), last.op != "d"

    if None in key:
        return f"none up to epoch {pin}, nor since"
    seen, now, after = met(pin), met(5), f", after the pin (epoch {pin})"
    if seen and seen[1]:
        return seen[0]
    parts = [seen[0]] if seen else []
    if now and now[1]:
        parts.append(f"{now[0]}{after}: joining again finds it")
    elif now and not seen:
        parts.append(f"{now[0]}{after}")
    own = [row for row in rows if row.op != "t" and row.key == key and row.time is not None]
    if not parts and own and at is not None:
        first = min(own, key=lambda row: (row.time, *order(row)))
        late = timedelta(microseconds=(first.time or 0) - at)
        parts.append(f"{change_of(first)}, {late} after the row{after if first.epoch > pin else ''}")
    return "; then ".join(parts) or f"none up to epoch {pin}, nor since"


@searched(100)
@given(case=cases().filter(lambda case: "real" not in case[0]))
def test_the_nearest_version_is_what_a_look_at_all_of_them_finds(
    tmp_path_factory: pytest.TempPathFactory, case: Any
) -> None:
    """No version that the pin does not see unless it is called one, none that a truncate has ended; deletes by name."""
    columns, rows, probes, cuts, shards, pin = case
    folder = tmp_path_factory.mktemp("index")
    keys = [pa.array([key[n] for key, _ in probes], KINDS[name]) for n, name in enumerate(columns)]
    index = opened(IndexOf(made(folder, columns, written(folder, columns, rows), cuts, shards), 5, None))
    for times in (np.array([at for _, at in probes], np.int64), None):
        found = described(index.of(keys, timed=times is not None), keys, times, pin)
        wanted = [said(rows, key, None if times is None else at, pin) for key, at in probes]
        assert found == wanted


def test_a_row_of_the_quarantine_gets_its_answer_from_the_index_that_releases_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is made anew for it, and a large build that has no index is not looked at."""
    lake = HandmadeLake(tmp_path)
    land(lake, 1, [{"id": 1, "name": "a", "time": 7_000}, {"id": 2, "name": "b"}])
    land(lake, 2, [{"op": "t"}, {"id": 2, "name": "b", "op": "c"}])
    pipeline, plan = lake.pipeline, lake.planned_row(1, 0, 1, pin=1)
    (join,) = keyed_joins(pipeline, lake.insert, str)
    rows = pa.table({"id": pa.array([1, 2, 3, None, 2**40], pa.int64())})
    index = Indexed.of(lake.lake, pipeline.table("users"), 1)
    monkeypatch.setattr(nearest, "MOST_INDEXED", 3)
    assert _nearest(lake.lake, join, plan.pins[0], rows)[0] == "not looked for: 4 rows of users without an index"
    opened(index.upto(2))
    monkeypatch.setattr(runs, "make", lambda run: pytest.fail("made anew"))
    none = "none up to epoch 1, nor since"
    assert _nearest(lake.lake, join, plan.pins[0], rows) == [
        "inserted at 1970-01-01 00:00:00.007 UTC (epoch 1)", "inserted (epoch 1)", none, none, none
    ]  # fmt: skip
    later = replace(plan.pins[0], epoch=2)
    assert _nearest(lake.lake, join, later, rows)[:2] == ["none since a truncate of its table", "inserted (epoch 2)"]
    text = pa.table({"id": pa.array(["1", "x", None])})
    assert _nearest(lake.lake, join, later, text)[1].startswith("none up to epoch 2")


def test_what_cannot_be_looked_for_says_why(tmp_path: Path) -> None:
    lake = HandmadeLake(tmp_path)
    (join,) = keyed_joins(lake.pipeline, lake.insert, str)
    (pin,) = lake.planned_row(1, 0, 1).pins
    rows = pa.table({"id": pa.array([1], pa.int64())})
    assert "the table of users is gone" in _nearest(lake.lake, join, pin, rows)[0]
    assert "is an expression" in _nearest(lake.lake, replace(join, keys={}, types={}), pin, rows)[0]
