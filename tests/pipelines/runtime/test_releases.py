"""The protocol of releases: what waits, what leaves, what is held, and what happens next."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tests.cases import at_length
from tests.pipelines.runtime.crashing import dying, meanwhile
from tests.pipelines.runtime.plays import clicks, epochs_of, prove
from tidegate.pipelines.errors import GateHeld, LeaseHeld, PlanningError
from tidegate.pipelines.runtime.continuous import Continuous, Tick
from tidegate.pipelines.runtime.epochs.position import Waiting
from tidegate.pipelines.runtime.failures import StepFailed
from tidegate.pipelines.runtime.runner import Released, Runner
from tidegate.pipelines.testing import Harness

TWO_BUILDS = """
CREATE TABLE users (user_id INT PRIMARY KEY NOT ENFORCED, gender STRING)
WITH ('connector' = 'scripted', 'phases' = 'true', 'signals' = 'true');
CREATE TABLE items (item_id INT PRIMARY KEY NOT ENFORCED, title STRING)
WITH ('connector' = 'scripted', 'phases' = 'true', 'signals' = 'true');
CREATE TABLE clicks (user_id INT, item_id INT, proctime AS PROCTIME()) WITH ('connector' = 'scripted');
CREATE TABLE both_sides (user_id INT, gender STRING, title STRING) WITH ('connector' = 'scripted');
CREATE TABLE users_only (user_id INT, gender STRING) WITH ('connector' = 'scripted');
INSERT INTO both_sides SELECT c.user_id, gender, title FROM clicks AS c
JOIN users FOR SYSTEM_TIME AS OF c.proctime ON c.user_id = users.user_id
JOIN items FOR SYSTEM_TIME AS OF c.proctime ON c.item_id = items.item_id;
INSERT INTO users_only SELECT c.user_id, gender FROM clicks AS c
JOIN users FOR SYSTEM_TIME AS OF c.proctime ON c.user_id = users.user_id
"""


@pytest.fixture
def harness(spark: SparkSession, tmp_path: Path) -> Harness:
    return Harness(clicks(), spark, tmp_path)


def seen(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return sorted((row["item_id"], row["gender"]) for row in rows)


def test_nothing_leaves_before_the_flip_and_a_change_after_the_release_corrects_nothing(harness: Harness) -> None:
    harness.push("user_info", [{"user_id": 1, "gender": "f"}])
    harness.push("click_event", [{"user_id": 1, "item_id": 7}, {"user_id": 2, "item_id": 8}])
    assert harness.advance() == []
    waiting = harness.runner.stage("enriched")
    assert isinstance(waiting, Waiting)
    assert waiting.rows == 2
    assert waiting.unflipped == ("user_info",)

    harness.push("user_info", [{"user_id": 2, "gender": "m"}])
    harness.end_of_snapshot("user_info")
    assert seen(harness.advance()) == [(7, "f"), (8, "m")]
    harness.push("user_info", [{"user_id": 1, "gender": "x"}], op="+U")
    assert harness.advance() == []
    harness.push("click_event", [{"user_id": 1, "item_id": 9}])
    assert seen(harness.advance()) == [(9, "x")]
    assert seen(harness.published("enriched")) == [(7, "f"), (8, "m"), (9, "x")]
    again = harness.runner.advance("click_event")
    assert (again.rows, again.epochs) == (0, ())


def test_every_insert_flips_on_its_own_builds(spark: SparkSession, tmp_path: Path) -> None:
    harness = Harness(TWO_BUILDS, spark, tmp_path)
    harness.push("users", [{"user_id": 1, "gender": "f"}])
    harness.push("items", [{"item_id": 7, "title": "book"}])
    harness.push("clicks", [{"user_id": 1, "item_id": 7}])
    harness.end_of_snapshot("users")
    first = harness.advance()
    assert [(row["_target"], row["gender"]) for row in first] == [("users_only", "f")]

    harness.end_of_snapshot("items")
    second = harness.advance()
    assert [(row["_target"], row["title"]) for row in second] == [("both_sides", "book")]


def test_a_held_epoch_stops_its_insert_until_it_is_released_again(spark: SparkSession, tmp_path: Path) -> None:
    harness = Harness(clicks(policy="block"), spark, tmp_path)
    harness.end_of_snapshot("user_info")
    harness.push("click_event", [{"user_id": 1, "item_id": 7}])
    with pytest.raises(GateHeld, match="epoch 1 of enriched"):
        harness.advance()
    harness.push("click_event", [{"user_id": 2, "item_id": 8}])
    harness.push("user_info", [{"user_id": 1, "gender": "f"}, {"user_id": 2, "gender": "m"}])
    harness.restart()
    with pytest.raises(GateHeld, match="epoch 1 of enriched"):
        harness.advance()
    assert harness.published("enriched") == []

    done = harness.runner.resolve_held("enriched")
    assert (done.epoch, done.rows) == (2, 1)
    assert seen(harness.published("enriched")) == [(7, "f")]
    assert seen(harness.advance()) == [(8, "m")]
    with pytest.raises(PlanningError, match="no epoch of enriched is held"):
        harness.runner.resolve_held("enriched")


def test_what_the_continuous_mode_is_held_at_is_released_by_another_runner_while_it_goes_on(
    spark: SparkSession, tmp_path: Path
) -> None:
    harness = Harness(clicks(policy="block"), spark, tmp_path)
    harness.end_of_snapshot("user_info")
    harness.push("click_event", [{"user_id": 1, "item_id": 7}])
    held: list[int] = []

    def decide(tick: Tick) -> None:
        held.append(len(tick.held))
        if tick.number == 1:  # its user comes while it is held: the next tick lands her
            harness.push("user_info", [{"user_id": 1, "gender": "f"}])
        if tick.number == 2:
            with Runner(harness.pipeline, harness.lake, lambda: spark, label="a person") as person:
                person.resolve_held("enriched")
            harness.push("click_event", [{"user_id": 1, "item_id": 9}])

    Continuous(harness.runner, every=0.0, on_tick=decide).run(max_ticks=3)
    assert held == [1, 1, 0]
    assert seen(harness.published("enriched")) == [(7, "f"), (9, "f")]
    assert harness.verify("enriched").passed


def test_only_a_quarantined_row_names_its_probe_row(harness: Harness) -> None:
    harness.push("user_info", [{"user_id": 1, "gender": "f"}])
    harness.end_of_snapshot("user_info")
    harness.push("click_event", [{"user_id": 1, "item_id": 7}, {"user_id": 2, "item_id": 8}])
    harness.advance()
    releasing = harness.runner.releasing("enriched")
    staged = releasing.position().staged
    folders = releasing.lake.new_attempt(releasing.target, releasing.insert, staged.folder)
    columns = ["item_id", "_probe_epoch", "_split", "_offset", "_reason"]
    found = {
        place: [pq.ParquetFile(folders[place] / file.path).read(columns).to_pylist() for file in staged.of(place)]
        for place in ("publish", "quarantine")
    }
    (published,), (quarantined,) = found["publish"], found["quarantine"]
    assert [tuple(row.values()) for row in published] == [(7, None, None, None, None)]
    assert [(row["item_id"], row["_probe_epoch"], row["_reason"]) for row in quarantined] == [
        (8, 1, "unmatched:key-absent@u")
    ]
    assert None not in (quarantined[0]["_split"], quarantined[0]["_offset"])


def test_a_held_epoch_can_be_discarded_into_quarantine(spark: SparkSession, tmp_path: Path) -> None:
    harness = Harness(clicks(policy="block"), spark, tmp_path)
    harness.push("user_info", [{"user_id": 2, "gender": "m"}])
    harness.end_of_snapshot("user_info")
    harness.push("click_event", [{"user_id": 1, "item_id": 7}, {"user_id": 2, "item_id": 8}])
    with pytest.raises(GateHeld):
        harness.advance()
    harness.runner.resolve_held("enriched", discard=True)

    assert harness.published("enriched") == []
    assert sorted((row["item_id"], row["_reason"]) for row in harness.quarantined("enriched")) == [
        (7, "discarded"),
        (8, "discarded"),
    ]
    harness.push("click_event", [{"user_id": 2, "item_id": 9}])
    assert seen(harness.advance()) == [(9, "m")]


@pytest.fixture
def old_generation(harness: Harness) -> None:
    """A first snapshot, which a click has met."""
    harness.push("user_info", [{"user_id": 1, "gender": "old"}])
    harness.end_of_snapshot("user_info")
    harness.push("click_event", [{"user_id": 1, "item_id": 1}])
    assert seen(harness.advance()) == [(1, "old")]


def was_the_old_generation_s(harness: Harness, released: Released) -> None:
    """What was `released` has joined the old generation, and what is released next joins the new one."""
    assert [pin.generation for done in released.published for pin in done.plan.pins] == [1]
    assert seen(harness.published("enriched", after=1)) == [(2, "old")]

    harness.push("click_event", [{"user_id": 1, "item_id": 3}])
    assert seen(harness.advance()) == [(3, "new")]
    plan = harness.runner.releasing("enriched").position().plan
    assert [pin.generation for pin in plan.pins] == [2]


@pytest.mark.usefixtures("old_generation")
def test_readers_stay_on_the_old_generation_until_the_new_one_has_flipped(harness: Harness) -> None:
    # The new generation is planned and has landed nothing yet: it has not flipped.
    with dying("source.planned"):
        harness.runner.advance("user_info", resnapshot=True)
    harness.push("user_info", [{"user_id": 1, "gender": "new"}])
    harness.push("click_event", [{"user_id": 1, "item_id": 2}])
    harness.runner.advance("click_event")
    released = harness.runner.release("enriched")
    was_the_old_generation_s(harness, released)


@pytest.mark.parametrize("point", at_length(["insert.staged", "insert.planned"]))
@pytest.mark.usefixtures("old_generation")
def test_a_new_generation_that_flips_amid_a_release_is_for_the_next_one(harness: Harness, point: str) -> None:
    harness.push("user_info", [{"user_id": 1, "gender": "new"}])
    harness.push("click_event", [{"user_id": 1, "item_id": 2}])
    harness.runner.advance("click_event")
    flipped: list[tuple[int, bool]] = []

    def resnapshot() -> None:
        landed = harness.runner.advance("user_info", resnapshot=True)
        flipped.append((landed.generation, any(epoch.flipped for epoch in landed.epochs)))

    with meanwhile(resnapshot, point, "enriched"):
        released = harness.runner.release("enriched")
    assert flipped == [(2, True)]
    was_the_old_generation_s(harness, released)
    report = harness.verify("enriched")
    assert [(epoch.epoch, epoch.state) for epoch in report.epochs] == [(1, "equal"), (2, "equal"), (3, "equal")]


def test_a_second_runner_is_reported_and_changes_nothing(harness: Harness, spark: SparkSession) -> None:
    harness.end_of_snapshot("user_info")
    harness.push("click_event", [{"user_id": 1, "item_id": 7}])
    harness.advance()
    with Runner(harness.pipeline, harness.lake, spark=lambda: spark, label="the other", environment={}) as other:
        with pytest.raises(LeaseHeld, match="harness, process"):
            other.run()
        with pytest.raises(LeaseHeld):
            other.stage("enriched")


def test_a_print_target_shows_each_epoch_when_it_is_published(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = "'print', 'print-identifier' = 'seen'"
    script = clicks().replace("'scripted', 'gate.on-unmatched' = 'quarantine'", shown)
    harness = Harness(script, spark, tmp_path)
    harness.push("user_info", [{"user_id": 1, "gender": "f"}])
    harness.end_of_snapshot("user_info")
    harness.push("click_event", [{"user_id": 1, "item_id": 7}])
    assert seen(harness.advance()) == [(7, "f")]
    assert "seen> +I[1, 7, f]" in capsys.readouterr().out


def test_an_insert_that_fails_at_a_row_takes_the_same_rows_once_it_is_mended(
    spark: SparkSession, tmp_path: Path
) -> None:
    text = clicks()
    failing = Harness(text.replace("c.item_id, u.gender FROM", "CAST(u.gender AS INT), u.gender FROM"), spark, tmp_path)
    failing.push("user_info", [{"user_id": 1, "gender": "f"}])
    failing.end_of_snapshot("user_info")
    failing.push("click_event", [{"user_id": 1, "item_id": 7}, {"user_id": 2, "item_id": 8}])
    with pytest.raises(StepFailed, match="CAST_INVALID_INPUT"):
        failing.advance()
    failing.restart()

    other = Harness(text.replace("user_info", "user_data"), spark, tmp_path)
    other.runner.release("enriched")  # nothing of it was ever staged, so it may read other tables, and waits for them
    other.restart()

    harness = Harness(text, spark, tmp_path)
    assert seen(harness.advance()) == [(7, "f")]
    assert [row["item_id"] for row in harness.quarantined("enriched")] == [8]
    epochs = epochs_of(harness)
    assert [(epoch.state, epoch.plan.supersedes) for epoch in epochs] == [("superseded", None), ("published", 1)]
    prove(harness)


def test_a_large_release_is_cut_at_epochs_of_the_probe(spark: SparkSession, tmp_path: Path) -> None:
    script = clicks().replace("'gate.on-unmatched'", "'release.max-rows' = '3', 'gate.on-unmatched'")
    harness = Harness(script, spark, tmp_path)
    harness.push("user_info", [{"user_id": 1, "gender": "f"}])
    item = 0
    for rows in (1, 1, 5, 2, 2):
        harness.push("click_event", [{"user_id": 1, "item_id": item + number} for number in range(rows)])
        item += rows
        harness.runner.advance("click_event")
    harness.end_of_snapshot("user_info")
    assert seen(harness.advance()) == [(number, "f") for number in range(11)]
    assert [(epoch.plan.first.after, epoch.plan.first.upto) for epoch in epochs_of(harness)] == [
        (0, 2),
        (2, 3),
        (3, 4),
        (4, 5),
    ]
