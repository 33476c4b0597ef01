"""'landed.retention': which landed rows go, whom they wait for, and who is refused once they are gone."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from tests.oracle.pins import rows_of
from tests.pipelines.runtime.crashing import killed
from tests.pipelines.runtime.handmade import adopted, mark, no_spark, store, verdict_of
from tests.pipelines.runtime.plans import STATE, asked_for, release, taken
from tests.pipelines.runtime.plays import Play
from tests.pipelines.runtime.processes import functions as fn
from tidegate.orchestration.console.shown import shown
from tidegate.pipelines.connectors.protocol import Step
from tidegate.pipelines.errors import BeyondRetention
from tidegate.pipelines.generations import statement_name
from tidegate.pipelines.lake import EpochRow, Lake, StagedRow, WatermarkRow
from tidegate.pipelines.lake import rows as lake_rows
from tidegate.pipelines.lake.layout import beside
from tidegate.pipelines.lake.stream import Removed, Stream
from tidegate.pipelines.lake.upkeep import put_together
from tidegate.pipelines.progress import SilentProgress
from tidegate.pipelines.runtime import landed_retention
from tidegate.pipelines.runtime.definitions import Definitions
from tidegate.pipelines.runtime.epochs import Asked, Bounds, Lot, Pin, ReleasePlan, insert_owner, source_row
from tidegate.pipelines.runtime.epochs.history import ReleasedEpoch, history_of
from tidegate.pipelines.runtime.epochs.position import InsertOnLake
from tidegate.pipelines.runtime.landed_retention import LandedRetention, refuse_removed
from tidegate.pipelines.runtime.maintenance import Maintenance
from tidegate.pipelines.runtime.releasing.backfill import BackfillPlanner
from tidegate.pipelines.runtime.releasing.planner import ProcessingTimePlanner
from tidegate.pipelines.runtime.releasing.swap import begin, give_up
from tidegate.pipelines.runtime.status import status
from tidegate.pipelines.sql import compile_script
from tidegate.pipelines.sql.compile import Pipeline
from tidegate.pipelines.watermarks import MAX_TIMESTAMP
from tidegate.quality_checks.reconcile import reconcile

TABLES = """
CREATE TABLE rates (currency STRING, rate INT, valid_from TIMESTAMP(3), WATERMARK FOR valid_from AS valid_from,
    PRIMARY KEY (currency) NOT ENFORCED) WITH ('connector' = 'scripted');
CREATE TABLE orders (id INT, currency STRING, at TIMESTAMP(3), proc AS PROCTIME(), WATERMARK FOR at AS at)
    WITH ('connector' = 'scripted'{more});
"""
CONVERTED = """
CREATE TABLE converted (id INT, rate INT) WITH ('connector' = 'scripted');
INSERT INTO converted SELECT o.id, r.rate FROM orders AS o
LEFT JOIN rates FOR SYSTEM_TIME AS OF o.at AS r ON o.currency = r.currency;
"""
NOW = CONVERTED.replace("converted", "now").replace("OF o.at", "OF o.proc")
KEPT = ", 'landed.retention' = '10 s'"


def script(*inserts: str, more: str = KEPT) -> Pipeline:
    return compile_script(TABLES.format(more=more) + "".join(inserts))


class ByHand:
    """A lake as runs have left it. An epoch of orders lands every second, and has one row of that second."""

    def __init__(self, root: Path, *inserts: str, epochs: int = 0, more: str = KEPT) -> None:
        self.lake, self.pipeline, self.now = Lake(root), script(*(inserts or (CONVERTED,)), more=more), 100_000
        self.land("rates", 1, [])
        for epoch in range(1, epochs + 1):
            self.land("orders", epoch, [epoch * 1_000])

    def land(self, table: str, epoch: int, times: Sequence[int | None], at: int | None = None) -> None:
        lake, at = self.lake, epoch * 1_000 if at is None else at
        store(lake, source_row(table, 1, epoch, at, Step({"to": epoch}, "unbounded")))
        if times:
            us = [None if time is None else time * 1_000 for time in times]
            own = {"_generation": pa.array([1] * len(us), pa.int32()), "_epoch": pa.array([epoch] * len(us))}
            rows = pa.table(own | {"_rowtime": pa.array(us, pa.timestamp("us", "UTC")), "id": list(range(len(us)))})
            application = lake.application(table, "data", 1)
            adopted(lake.table_path(table), f"g1-e{epoch}-x", rows, application, epoch)
        row = WatermarkRow(table, 1, epoch, at, len(times), 0, False, flip_epoch=1, flipped_at=0)
        Stream(lake, table).generation(1).log_epoch(row)

    def plan(self, insert: str, epoch: int, after: int, upto: int, **more: Any) -> ReleasePlan:
        takes, pins = taken("orders", after, upto, 1), (Pin("rates", 1, 1, 1),)
        return self.stored(release(insert, epoch, takes, instant=epoch * 1_000, pins=pins, **more))

    def stored(self, plan: ReleasePlan) -> ReleasePlan:
        store(self.lake, plan.row())
        return plan

    def publish(self, plan: ReleasePlan, quarantined: Mapping[str, int] = {}, first: int | None = None) -> None:
        """`quarantined`: rows by reason, the first of which landed in the epoch `first`."""
        lake, owner, number = self.lake, insert_owner(plan.insert), plan.generation
        stats = json.dumps({"minValues": {"_probe_epoch": first}} if first else {})
        files = (
            [{"path": "q", "disposition": "quarantine", "size": 1, "rows": 1, "stats": stats}] if quarantined else []
        )
        counts = {"matched": 1, "rows": 1 + sum(quarantined.values()), **quarantined}
        store(lake, StagedRow(owner, number, plan.epoch, plan.digest, 0, "f", files, counts, {}), verdict_of(plan))
        name = statement_name(plan.insert)
        target = lake.target_path(self.pipeline.table(name)) if name in self.pipeline.tables else None
        target = beside(target or lake.root / "targets" / name, number) if number > 1 else target
        mark(Path(target or lake.root / "targets" / name), {lake.application(owner, "publish", number): plan.epoch})

    def released(self, upto: int, epoch: int = 1, after: int = 0, **more: Any) -> ReleasePlan:
        """An event-time release that took all that had landed by then and is published."""
        plan = self.plan("converted", epoch, after, upto, bounds=Bounds(after * 1_000, upto * 1_000 + 1))
        self.publish(plan, **more)
        return plan

    def retention(self, pipeline: Pipeline | None = None) -> LandedRetention:
        return LandedRetention(self.lake, pipeline or self.pipeline, lambda: self.now, {})

    def remove(self, seconds: float = 10, pipeline: Pipeline | None = None) -> tuple[int, str]:
        """The rows that went, and why none did."""
        found = self.retention(pipeline).apply(self.pipeline.table("orders"), timedelta(seconds=seconds))
        assert found.what == "landed rows"
        return found.removed, found.reason

    @property
    def planner(self) -> BackfillPlanner:
        return BackfillPlanner(
            InsertOnLake(self.lake, self.pipeline, self.pipeline.insert("converted")), lambda: 5, no_spark, {}
        )

    @property
    def there(self) -> list[int]:
        """The epochs of the rows that the table has."""
        return sorted(row["_epoch"] for row in rows_of(str(self.lake.table_path("orders"))))

    @property
    def gone(self) -> Removed:
        return Stream(self.lake, "orders").generation(1).removed


def test_whole_epochs_go_that_are_old_enough_and_released_in_one_commit_with_their_mark(tmp_path: Path) -> None:
    hand = ByHand(tmp_path, epochs=20)
    hand.released(20)
    hand.now = 18_000
    assert hand.remove() == (8, "")
    assert (hand.there, hand.gone) == (list(range(9, 21)), Removed(8_000, 8, 8))
    assert hand.remove() == (0, "no row may go")  # a second run finds nothing
    hand.now = 19_000
    assert hand.remove(seconds=60) == (0, "no row may go")  # lengthened: the mark does not go back
    assert (hand.remove(seconds=5), hand.gone) == ((6, ""), Removed(14_000, 14, 14))  # shortened
    commit = DeltaTable(hand.lake.table_path("orders")).history(1)[0]
    assert commit["userMetadata"] == "landed.retention: 6 rows went"
    rows = reconcile(hand.lake, hand.pipeline, hand.pipeline.insert("converted"))
    assert (rows.rows.landed, rows.expected["probe"], rows.tables["probe"]) == (20, 6, 6)


def test_all_that_ever_landed_may_go(tmp_path: Path) -> None:
    hand = ByHand(tmp_path, epochs=4)
    hand.released(4)
    assert (hand.remove(), hand.there) == ((4, ""), [])
    assert hand.remove() == (0, "no row may go")
    assert Stream(hand.lake, "orders").generation(1).there() == 0
    hand.land("orders", 5, [99_000], at=99_000)
    assert (hand.there, hand.remove()) == ([5], (0, "no row may go: converted has come no further"))


def test_an_epoch_that_is_young_ends_the_prefix_though_older_ones_follow(tmp_path: Path) -> None:
    """The clock of another machine went back."""
    hand = ByHand(tmp_path)
    for epoch, at in enumerate([1_000, 95_000, 2_000, 3_000], 1):
        hand.land("orders", epoch, [epoch], at=at)
    hand.released(4)
    assert (hand.remove(), hand.there) == ((1, ""), [2, 3, 4])


def test_nothing_goes_before_every_insert_of_the_script_has_begun(tmp_path: Path) -> None:
    hand = ByHand(tmp_path, CONVERTED, NOW, epochs=4)
    hand.released(4)
    assert hand.remove() == (0, "now has not released anything yet")


def test_a_generation_beside_holds_what_it_has_not_released(tmp_path: Path) -> None:
    hand = ByHand(tmp_path, epochs=20)
    hand.released(20)
    assert begin(hand.lake, hand.pipeline, "converted", lambda: 0) == 2
    hand.publish(hand.plan("converted~2", 1, 0, 6, bounds=Bounds(0, 6_001)))
    assert (hand.remove(), hand.there) == ((6, ""), list(range(7, 21)))
    assert hand.remove() == (0, "no row may go: converted~2 has come no further")
    give_up(hand.lake, hand.pipeline, "converted", 2, hand.lake.leases("a person"), lambda: 0)
    hand.now = 22_000
    assert hand.remove() == (6, "")


@pytest.mark.parametrize("published", [True, False])
def test_an_epoch_that_is_not_published_holds_what_it_reads(tmp_path: Path, published: bool) -> None:
    hand = ByHand(tmp_path, NOW, epochs=6)
    hand.publish(hand.plan("now", 1, 0, 3))
    plan = hand.plan("now", 2, 3, 6)
    if published:
        hand.publish(plan)
    assert (hand.remove(), hand.there) == (((6, ""), []) if published else ((3, ""), [4, 5, 6]))
    reason = "no row may go" if published else "no row may go: now has come no further"
    assert hand.remove() == (0, reason)


def test_rows_that_wait_for_their_time_stay_however_old(tmp_path: Path) -> None:
    hand = ByHand(tmp_path)
    for epoch, times in enumerate([[1], [2, None], [50_000], [3], [4]], 1):
        hand.land("orders", epoch, times)
    hand.released(5)  # the watermark stands at 5 s
    assert (hand.remove(), hand.there) == ((3, ""), [3, 4, 5])
    reason = "no row may go: converted has come no further"
    assert hand.remove() == (0, reason)
    hand.publish(hand.plan("converted", 2, 5, 5, bounds=Bounds(5_000, 60_000), since=2))
    assert (hand.remove(), hand.there) == ((3, ""), [])


def test_an_unpublished_event_time_epoch_holds_what_waited_before_it(tmp_path: Path) -> None:
    hand = ByHand(tmp_path, epochs=9)
    hand.released(5)
    hand.plan("converted", 2, 5, 9, bounds=Bounds(5_000, 9_000), since=4)
    assert (hand.remove(), hand.there) == ((4, ""), [5, 6, 7, 8, 9])


def test_rows_in_quarantine_hold_from_their_own_epoch_on_until_somebody_decides(tmp_path: Path) -> None:
    hand = ByHand(tmp_path, epochs=9)
    hand.released(6, quarantined={"unmatched:key-absent@r": 2}, first=5)
    hand.released(9, epoch=2, after=6)
    assert (hand.remove(), hand.there) == ((4, ""), [5, 6, 7, 8, 9])
    assert "converted has quarantined may still be released" in hand.remove()[1]
    lots = (Lot("unmatched:key-absent@r", 1, 1, 2, 0, 6),)
    last = release("converted", 3, taken("orders", 9, 9), pins=(Pin("rates", 1, 1, 1),), bounds=Bounds(9_001, 9_001))
    plan = hand.stored(asked_for(last, Asked(), lots=lots))
    assert hand.remove()[0] == 0  # it is planned, and reads them
    hand.publish(plan)
    assert (hand.remove(), hand.there) == ((5, ""), [])


def test_a_staged_epoch_of_an_older_lake_holds_all_that_it_read(tmp_path: Path) -> None:
    hand = ByHand(tmp_path, NOW, epochs=6)
    hand.publish(hand.plan("now", 1, 0, 3))
    hand.publish(hand.plan("now", 2, 3, 6), {"unmatched:deleted@r": 1})  # its statistics do not tell
    assert (hand.remove(), hand.there) == ((3, ""), [4, 5, 6])


def test_a_process_holds_what_it_has_not_read(tmp_path: Path) -> None:
    hand = ByHand(tmp_path, epochs=6)
    hand.released(6)
    reading = hand.pipeline.process("copied", "orders", None, fn.Forwarded(), "id INT")
    assert hand.remove(pipeline=reading) == (0, "copied has not released anything yet")
    hand.plan("copied", 1, 2, 6, state=STATE)
    reason = "no row may go: copied has to meet every row, and has read no further"
    assert [hand.remove(), hand.remove()] == [(2, ""), (0, reason)]  # of another script, too


def test_an_insert_of_another_script_is_asked_though_its_target_is_not_found(tmp_path: Path) -> None:
    hand = ByHand(tmp_path, epochs=6)
    hand.released(6)
    other = hand.plan("elsewhere", 1, 0, 2)
    assert hand.remove()[0] == 0  # nobody knows whether it is published
    hand.publish(other)
    assert (hand.remove(), hand.there) == ((2, ""), [3, 4, 5, 6])
    hand.plan("elsewhere", 2, 2, 2, kind="discard")
    assert hand.remove() == (0, "no row may go: elsewhere has come no further")


def test_no_row_goes_while_another_script_works_on_its_insert(tmp_path: Path) -> None:
    hand = ByHand(tmp_path, epochs=6)
    hand.released(6)
    hand.publish(hand.plan("elsewhere", 1, 0, 6))
    other = hand.lake.leases("a backfill")
    other.acquire(insert_owner("elsewhere"))
    assert maintained(hand) == (0, "insert elsewhere is being worked on by a backfill")
    other.release(insert_owner("elsewhere"))
    assert maintained(hand) == (6, "")


def maintained(hand: ByHand) -> tuple[int, str]:
    leases = hand.lake.leases("maintain")
    keep = Maintenance(hand.lake, hand.pipeline, leases, no_spark, lambda: hand.now, None, {})  # type: ignore[arg-type]
    found = keep._retained(hand.pipeline.table("orders"))
    leases.close()
    return found.removed, found.reason.partition(",")[0]


def test_a_pipeline_that_never_stops_lets_rows_go_under_the_leases_that_it_has(tmp_path: Path) -> None:
    hand, now = ByHand(tmp_path, epochs=20), [0.0]
    hand.released(20)
    leases = hand.lake.leases("run")
    for owner in ("rates", "orders"):
        leases.acquire(owner)
    clock = lambda: hand.now  # noqa: E731
    done = Maintenance(hand.lake, hand.pipeline, leases, no_spark, clock, SilentProgress(), {}, timedelta(0))
    upkeep = replace(done.upkeep(), now=lambda: now[0])

    def an_hour() -> list[int]:
        """A round of upkeep, and the rows that are on the disk then, by epoch."""
        while upkeep.piece():
            pass
        now[0] += 3_600
        files = [
            file for file in Path(hand.lake.table_path("orders")).glob("*/*.parquet") if "checkpoint" not in file.name
        ]
        return sorted(epoch for file in files for epoch in pq.read_table(file)["_epoch"].to_pylist())

    other = hand.lake.leases("another")
    other.acquire(insert_owner("converted"))
    an_hour()
    assert len(hand.there) == 20
    other.close()
    hand.now = 15_000
    an_hour()
    assert hand.there == list(range(6, 21))
    assert an_hour() == hand.there  # and dead files leave the disk
    leases.close()


def test_an_epoch_that_is_open_is_no_part_of_it(tmp_path: Path) -> None:
    """Its rows are committed, and the watermark log has no row of it yet."""
    hand = ByHand(tmp_path, epochs=3)
    hand.released(3)
    store(hand.lake, source_row("orders", 1, 4, 4_000, Step({"to": 4}, "unbounded")))
    assert hand.remove()[0] == 3


def test_files_that_hold_younger_rows_too_are_written_anew_where_that_is_worth_it(tmp_path: Path) -> None:
    hand = ByHand(tmp_path, epochs=40)
    hand.released(40)
    put_together(hand.lake.table_path("orders"), least=2)
    hand.now = 14_000
    assert hand.remove() == (0, "few rows may go, which is not worth writing the rest of their files anew")
    assert hand.gone.nothing
    hand.now = 22_000
    assert (hand.remove(), hand.there) == ((12, ""), list(range(13, 41)))
    assert (hand.remove(), hand.gone) == ((0, "no row may go"), Removed(12_000, 12, 12))


def test_only_so_many_rows_go_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(landed_retention, "AT_ONCE", 3)
    monkeypatch.setattr(landed_retention, "STEP", 2)
    hand = ByHand(tmp_path, epochs=8)
    hand.released(8)
    found = [hand.retention().apply(hand.pipeline.table("orders"), timedelta(0)) for _ in range(3)]
    assert [(item.removed, item.more) for item in found] == [(3, True), (3, True), (2, False)]


def test_where_rows_are_lost_none_goes(tmp_path: Path) -> None:
    """What retention takes must not hide what is lost."""
    hand = ByHand(tmp_path, epochs=4)
    hand.released(4)
    DeltaTable(hand.lake.table_path("orders")).delete("_epoch = 2")
    assert hand.remove() == (0, "of 4 rows that landed up to epoch 4, the table has 3: tidegate verify")


@pytest.mark.parametrize("before", [True, False])
def test_a_kill_before_or_after_the_commit_leaves_no_row_unmarked(tmp_path: Path, before: bool) -> None:
    hand = ByHand(tmp_path, epochs=40)
    hand.released(40)
    put_together(hand.lake.table_path("orders"), least=2)
    hand.now = 30_000
    with killed(landed_retention, "replace", before=before):
        hand.remove()
    assert (len(hand.there), hand.gone) == ((40, Removed()) if before else (20, Removed(20_000, 20, 20)))
    assert hand.remove() == ((20, "") if before else (0, "no row may go"))
    assert (len(hand.there), hand.gone) == (20, Removed(20_000, 20, 20))


def test_the_last_table_of_a_hybrid_one_begins_by_the_rows_before_it(tmp_path: Path) -> None:
    hand = ByHand(tmp_path, NOW, epochs=3)
    hand.publish(hand.plan("now", 1, 0, 3))
    whole = replace(hand.pipeline.table("orders"), parts=(hand.pipeline.table("orders"),) * 2)
    for epoch, part in ((4, 0), (5, 1)):
        store(hand.lake, EpochRow("orders", 1, epoch, "source", 0, {"ranges": {"part": part}}, ""))
        found = hand.retention().apply(whole, timedelta(0))
        assert (found.removed, "has not begun" in found.reason) == ((0, True) if part == 0 else (3, False))


# --- asked for what is gone -------------------------------------------------------------------------------------------


def without_first_rows(root: Path, *inserts: str) -> ByHand:
    """Epochs 1 to 12 have gone, of 20."""
    hand = ByHand(root, *inserts, epochs=20)
    first = hand.plan("converted", 1, 0, 8, bounds=Bounds(0, 8_000))
    second = hand.plan("converted", 2, 8, 16, bounds=Bounds(8_000, 16_000), since=8)
    hand.publish(second)
    third = hand.plan("converted", 3, 16, 20, bounds=Bounds(16_000, 20_001), since=16)
    for plan in (first, third):
        hand.publish(plan)
    hand.now = 22_000
    assert hand.remove() == (12, "")
    return hand


def refused(ask: Callable[[], object]) -> BeyondRetention:
    with pytest.raises(BeyondRetention, match=r"landed rows of orders, of its epochs up to 12, are gone") as caught:
        ask()
    assert (caught.value.table, caught.value.upto) == ("orders", 12)
    assert "those that landed since 1970-01-01T00:00:13.000Z are there" in caught.value.state
    return caught.value


def test_an_insert_that_is_new_is_not_released_from_the_middle_on(tmp_path: Path) -> None:
    hand = without_first_rows(tmp_path)
    pipeline = script(CONVERTED, NOW)
    planner = ProcessingTimePlanner(InsertOnLake(hand.lake, pipeline, pipeline.insert("now")), lambda: 5)
    error = refused(lambda: planner.next(None))
    assert error.next_command.startswith("declare orders once more under another name, and let now read that")
    assert hand.lake.epochs.last(insert_owner("now")) is None


def test_a_plan_from_before_the_rows_went_is_refused_once_it_is_staged(tmp_path: Path) -> None:
    """Of an INSERT that is new retention knows nothing until its first plan is stored."""
    hand = without_first_rows(tmp_path)
    refused(lambda: refuse_removed(hand.lake, hand.plan("now", 1, 0, 20)))
    refused(lambda: refuse_removed(hand.lake, hand.plan("copied", 1, 0, 20, state=STATE)))
    refuse_removed(hand.lake, hand.plan("idle", 1, 0, 0, state=STATE))
    refuse_removed(hand.lake, hand.plan("later", 1, 12, 20))


def test_a_backfill_begins_after_the_last_epoch_that_had_rows_which_are_gone(tmp_path: Path) -> None:
    hand = without_first_rows(tmp_path)
    planner = hand.planner
    epochs = history_by(hand)
    last = epochs[-1].plan
    error = refused(lambda: planner.backfill(last, epochs, [(9_000, MAX_TIMESTAMP)]))
    assert "none of them has a time after 1970-01-01T00:00:12.000Z" in error.what
    assert error.next_command == "tidegate run SCRIPT --from 1970-01-01T00:00:16.001Z"
    plan = planner.backfill(last, epochs, [(16_001, MAX_TIMESTAMP)])
    assert isinstance(plan, ReleasePlan)
    assert plan.replaces == ((3, 3),)
    refuse_removed(hand.lake, plan)


def history_by(hand: ByHand) -> list[ReleasedEpoch]:
    return history_of(hand.lake, hand.pipeline, hand.pipeline.insert("converted"))


def test_rows_of_a_discarded_epoch_hold_nothing_and_are_not_joined_again_in_part(tmp_path: Path) -> None:
    hand = ByHand(tmp_path, epochs=20)
    hand.released(16, quarantined={"discarded": 3}, first=4)
    hand.released(20, epoch=2, after=16)
    hand.now = 22_000
    assert hand.remove() == (12, "")
    planner = hand.planner
    epochs = history_by(hand)
    asked = Asked(reasons=("discarded",))
    error = refused(lambda: planner.out_of_quarantine(epochs[-1].plan, epochs, asked, None))
    assert error.next_command.startswith("tidegate quarantine show SCRIPT converted --state discarded")


def test_status_shows_how_far_back_rows_go_and_who_was_left_out(tmp_path: Path) -> None:
    hand = ByHand(tmp_path, epochs=20)
    definitions = Definitions(hand.lake, hand.pipeline, {}, lambda: 0)
    definitions.number("orders")
    hand.released(20)
    found = status(hand.lake, hand.pipeline).sources[1]
    assert (found.removed, found.since) == (0, None)
    hand.now = 22_000
    hand.remove()
    found = status(hand.lake, hand.pipeline)
    assert (found.sources[1].rows, found.sources[1].removed, found.sources[1].since) == (20, 12, 13_000)
    assert found.to_json()["sources"][1]["since"] == 13_000
    reason = "rows go back to 1970-01-01 00:00:13 UTC; 12 rows that landed before are gone"
    assert any(reason in str(line) for line in shown(found))
    definitions.number(insert_owner("converted"))
    Definitions(hand.lake, script(NOW), {}, lambda: 0).leave_out(hand.lake.leases("a run"))
    assert status(hand.lake).holding_back == {"converted": ("orders",)}


# --- for real ---------------------------------------------------------------------------------------------------------


def test_rows_go_from_the_disk_and_no_answer_changes(spark: SparkSession, tmp_path: Path) -> None:
    playing = Play(spark, tmp_path, script=(TABLES.format(more=", 'landed.retention' = '1 s'") + CONVERTED))
    playing.rate("EUR", 100, 10)
    for number, (currency, at) in enumerate([("EUR", 11), ("EUR", 12), ("USD", 13), ("EUR", 5_000)]):
        playing.order(number, currency, at)
        playing.harness.runner.advance("orders")
    assert playing.upto(rates=20, orders=20) == [(0, 100), (1, 100)]
    assert playing.upto(rates=30, orders=30) == []
    playing.order(4, "EUR", 25)  # late
    assert playing.upto() == [(4, 100)]
    playing.now += 5_000

    def maintain() -> tuple[int, str]:
        found = {item.name: item for item in playing.harness.runner.maintenance(timedelta(0)).run()}["orders"].retained
        return found.removed, found.reason

    landed = playing.harness.lake.table_path("orders")
    assert maintain() == (2, "")  # 2 is in quarantine, 3 waits
    ids = sorted(row["id"] for row in lake_rows.read(spark, landed).collect())
    assert ids == [2, 3, 4]
    files = [pq.read_table(file)["id"].to_pylist() for file in Path(landed).rglob("*.parquet")]
    assert sorted(number for found in files for number in found) == ids
    playing.rate("USD", 200, 12)
    playing.upto(rates=40, orders=40)
    assert len(playing.harness.runner.out_of_quarantine("converted", Asked())) == 1
    playing.harness.restart()
    assert maintain() == (1, "")
    assert playing.upto(rates=6_000, orders=6_000) == [(3, 100)]
    playing.now += 5_000
    playing.upto()
    assert maintain() == (2, "")
    assert not lake_rows.read(spark, landed).collect()
    playing.order(5, "EUR", 7_000)
    assert playing.upto(rates=8_000, orders=8_000) == [(5, 100)]
    report = playing.harness.verify("converted")
    assert report.passed
    assert [epoch.state for epoch in report.epochs] == ["beyond retention"] * 4 + ["equal"]
    assert "4 rows of orders that it read are gone" in report.epochs[0].detail
    with pytest.raises(BeyondRetention):
        playing.harness.runner.backfill("converted")
    rows = reconcile(playing.harness.lake, playing.harness.pipeline, playing.harness.pipeline.insert("converted"))
    assert rows.problems == ()
