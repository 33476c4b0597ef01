"""What plans say of quarantined rows, and 'quarantine.retention': those that somebody has decided about leave the
quarantine, and those that nobody has stay."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from tests.pipelines.runtime.crashing import killed
from tests.pipelines.runtime.handmade import HandmadeLake, adopted, pipeline, store
from tests.pipelines.runtime.plans import asked_for
from tests.pipelines.runtime.plays import RATES, Play, at_ms
from tests.pipelines.runtime.processes import functions as fn
from tidegate.pipelines.errors import BeyondRetention, PlanningError
from tidegate.pipelines.lake import delta_log
from tidegate.pipelines.lake.upkeep import compact
from tidegate.pipelines.location import Location
from tidegate.pipelines.runtime import retention
from tidegate.pipelines.runtime.epochs import Asked, Lot, ReleasePlan, stored_plan
from tidegate.pipelines.runtime.epochs.history import ReleasedEpoch, history_of
from tidegate.pipelines.runtime.epochs.position import InsertOnLake
from tidegate.pipelines.runtime.ledger import where_rows_are
from tidegate.pipelines.runtime.quarantine import (
    QuarantinedRows,
    chosen,
    lots_of,
    quarantined_in,
    removed,
    removed_upto,
)
from tidegate.pipelines.runtime.releasing.planner import ProcessingTimePlanner
from tidegate.pipelines.runtime.retention import QuarantineRetention
from tidegate.pipelines.sql import compile_script
from tidegate.pipelines.watermarks import MIN_TIMESTAMP
from tidegate.quality_checks.reconcile import reconcile

ABSENT, DELETED = "unmatched:key-absent@u", "unmatched:deleted@u"
EMPTY = "no row that was released or discarded is old enough"


class Kept:
    """Epochs 1 to 4 were planned at their second and each took ten rows. `quarantined`: how many of them it quarantined
    with an absent key, and with a deleted one."""

    def __init__(self, root: Path, *quarantined: tuple[int, int], generation: int = 1) -> None:
        script = pipeline()
        if generation > 1:
            script = script.in_generation(script.insert("enriched"), generation, beside=True)
        self.made, self.now = HandmadeLake(root, script), 100_000
        self.name = self.made.insert.id
        if generation == 1:
            self.made.landed("users", 1, 5, flip=1)
        for epoch, (absent, deleted) in enumerate(quarantined or [(2, 1)] * 4, 1):
            if generation == 1:
                self.made.landed("clicks", epoch, 10)
            plan = self.made.planned(epoch, epoch - 1, epoch)
            found = {"matched": 10 - absent - deleted, "unmatched_key_absent_u": absent}
            self.publish(plan, **found, unmatched_deleted_u=deleted)

    @property
    def path(self) -> Path:
        return Path(self.made.lake.quarantine_path(self.made.target, self.made.insert))

    def publish(self, plan: ReleasePlan, **found: int) -> None:
        self.made.staged(plan, **found)
        self.made.judged(plan)
        names = {"unmatched_key_absent_u": ABSENT, "unmatched_deleted_u": DELETED, "discarded": "discarded"}
        reasons = [names[name] for name, number in found.items() if name in names for _ in range(number)]
        if reasons:
            own = {"_generation": pa.array([plan.generation] * len(reasons), pa.int32())}
            own["_epoch"] = pa.array([plan.epoch] * len(reasons))
            application = self.made.lake.application(self.made.owner, "quarantine", plan.generation)
            rows = pa.table(own | {"_reason": reasons})
            adopted(Location(self.path), f"e{plan.epoch}", rows, application, plan.epoch)
        self.made.published(plan)

    def lots(self, *, discards: bool = False, **asked: Any) -> tuple[Lot, ...]:
        """What is taken where this is asked for."""
        return lots_of(chosen(self.name, self.all, Asked(discards=discards, **asked)), self.all)

    def take(
        self, epoch: int, *, discards: bool = False, found: Mapping[str, int] | None = None, **asked: Any
    ) -> ReleasePlan:
        """Publish an epoch that releases what is asked for, and finds a match for all of it, or as `found` says; or
        that discards it."""
        lots = self.lots(discards=discards, **asked)
        last = stored_plan(self.made.lake.epochs.rows(self.made.owner)[-1])
        plan = asked_for(
            last,
            Asked(discards=discards, **asked),
            epoch=epoch,
            instant=epoch * 1_000,
            kind="quarantine-discard" if discards else "quarantine-release",
            lots=lots,
        )
        store(self.made.lake, plan.row())
        assert stored_plan(self.made.lake.epochs.rows(self.made.owner)[-1]) == plan
        self.publish(plan, **(found or {"matched": 0 if discards else sum(lot.rows for lot in lots)}))
        return plan

    @property
    def epochs(self) -> list[ReleasedEpoch]:
        return history_of(self.made.lake, self.made.pipeline, self.made.insert)

    @property
    def all(self) -> list[QuarantinedRows]:
        return quarantined_in(self.epochs)

    @property
    def upto(self) -> int:
        return removed_upto(self.made.lake, self.made.insert, Location(self.path))

    def remove(self, seconds: float = 10) -> tuple[int, str]:
        retention = QuarantineRetention(self.made.lake, self.made.pipeline, lambda: self.now, {})
        found = retention.apply(self.made.insert, timedelta(seconds=seconds))
        return found.removed, found.reason

    @property
    def there(self) -> list[tuple[int, str]]:
        rows = delta_log.read(DeltaTable(self.path), "_epoch", "_reason").to_pylist()
        return sorted({(row["_epoch"], row["_reason"].removeprefix("unmatched:")) for row in rows})


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    """The second epoch has quarantined none that is deleted."""
    return Kept(tmp_path, (1, 1), (3, 0), (3, 1), (4, 1))


def test_wholes_that_follow_one_another_are_one_lot(kept: Kept) -> None:
    assert kept.lots() == (Lot(DELETED, 1, 4, 3, 0, 4), Lot(ABSENT, 1, 4, 1 + 3 + 3 + 4, 0, 4))
    assert kept.lots(epochs=(1, 3, 4)) == (
        Lot(DELETED, 1, 4, 3, 0, 4),  # the second epoch had none of these
        Lot(ABSENT, 1, 1, 1, 0, 1),
        Lot(ABSENT, 3, 4, 7, 2, 4),
    )


@pytest.mark.parametrize("reason", ["unmatched:deleted@u", "deleted@u", "deleted"])
def test_a_reason_may_be_given_short(kept: Kept, reason: str) -> None:
    assert kept.lots(reasons=(reason,)) == (Lot(DELETED, 1, 4, 3, 0, 4),)


def test_what_is_taken_is_counted_where_it_is(kept: Kept) -> None:
    plan = kept.take(5, epochs=(1, 2), found={"matched": 3, "unmatched_key_absent_u": 2})
    assert (plan.reads, plan.looks_back, plan.rows_claimed) == ((0, 2), True, 5)
    assert kept.take(6, discards=True, reasons=("deleted",), by="ada", because="gone for good").joined == ()
    assert [(item.epoch, item.short, item.rows, item.state) for item in kept.all] == [
        (1, "deleted@u", 1, "released"),
        (1, "key-absent@u", 1, "released"),
        (2, "key-absent@u", 3, "released"),
        (3, "deleted@u", 1, "discarded"),
        (3, "key-absent@u", 3, "open"),
        (4, "deleted@u", 1, "discarded"),
        (4, "key-absent@u", 4, "open"),
        (5, "key-absent@u", 2, "open"),
    ]
    rows = where_rows_are(kept.made.lake, "enriched", "clicks", kept.epochs)
    assert (rows.landed, rows.matched, rows.waiting, rows.balanced) == (40, 8 + 7 + 6 + 5 + 3, 0, True)
    assert rows.quarantined == {"key-absent@u": 9, "discarded": 2}
    assert rows.released_again == {"key-absent@u": 4, "deleted@u": 1}
    assert rows.in_quarantine == 16
    # What is left is taken once, and leaves out what somebody has decided.
    assert kept.lots(discards=True) == (Lot(ABSENT, 3, 5, 9, 0, 4),)
    assert kept.lots(epochs=(1, 2)) == kept.lots(discards=True, reasons=("deleted",)) == ()


# --- 'quarantine.retention' -------------------------------------------------------------------------------------------


def test_what_nobody_has_decided_about_never_goes(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    assert kept.remove(seconds=0) == (0, EMPTY)
    assert len(kept.there) == 8


def test_what_was_decided_long_enough_ago_goes_and_is_known_by_its_decision(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    kept.take(5, reasons=("key-absent",), epochs=(1, 2))
    kept.take(6, discards=True, reasons=("deleted",))
    kept.now = 15_500
    assert (kept.remove(), kept.upto) == ((4, ""), 5)  # the discard is 9.5 s old
    left = [(epoch, "deleted@u") for epoch in range(1, 5)] + [(3, "key-absent@u"), (4, "key-absent@u")]
    assert kept.there == sorted(left)
    assert kept.remove() == (0, EMPTY)
    assert kept.remove(seconds=60) == (0, EMPTY)  # a longer one takes nothing back
    assert [(item.epoch, item.rows) for item in removed(kept.all, kept.upto)] == [(1, 2), (2, 2)]
    assert (kept.remove(seconds=5), kept.upto) == ((4, ""), 6)
    assert kept.there == [(3, "key-absent@u"), (4, "key-absent@u")]
    found = reconcile(kept.made.lake, kept.made.pipeline, kept.made.insert)
    assert (found.rows.in_quarantine, found.expected["quarantine"], found.tables["quarantine"]) == (12, 4, 4)


def test_two_generations_side_by_side_each_lose_what_was_decided_of_their_own(tmp_path: Path) -> None:
    """Their epochs have the same numbers, and were decided about in others."""
    first, second = Kept(tmp_path), Kept(tmp_path, *[(3, 2)] * 4, generation=2)
    assert first.path != second.path
    first.take(5, reasons=("key-absent",))
    second.take(5, discards=True, reasons=("deleted",), epochs=(1, 2))
    second.take(6, reasons=("key-absent",))
    before = second.there
    assert (first.remove(), first.upto, second.upto) == ((8, ""), 5, 0)
    assert (first.there, second.there) == ([(epoch, "deleted@u") for epoch in range(1, 5)], before)
    second.now = 15_500
    assert (second.remove(), first.upto, second.upto) == ((4, ""), 5, 5)
    second.now = 100_000
    assert (second.remove(), first.remove(), second.upto) == ((12, ""), (0, EMPTY), 6)
    assert second.there == [(3, "deleted@u"), (4, "deleted@u")]
    for kept, left in ((first, 4), (second, 4)):
        found = reconcile(kept.made.lake, kept.made.pipeline, kept.made.insert)
        assert (found.expected["quarantine"], found.tables["quarantine"]) == (left, left)
        assert kept.epochs[-1].plan.generation == kept.made.insert.generation


def test_rows_of_a_discarded_epoch_go_and_are_not_joined_again_then(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    kept.made.landed("clicks", 5, 10)
    plan = replace(kept.made.planned_row(5, 4, 5), kind="discard")
    store(kept.made.lake, plan.row())
    kept.publish(plan, discarded=10)
    assert (kept.remove(), kept.upto) == ((10, ""), 5)
    planner = ProcessingTimePlanner(InsertOnLake(kept.made.lake, kept.made.pipeline, kept.made.insert), lambda: 0)
    epochs = kept.epochs
    with pytest.raises(BeyondRetention, match=r"quarantined in epoch 5 \(discarded\).* are gone") as caught:
        planner.out_of_quarantine(plan, epochs, Asked(reasons=("discarded",)), None)
    assert caught.value.next_command.startswith("tidegate quarantine list SCRIPT enriched --by-epoch")
    asked = planner.out_of_quarantine(plan, epochs, Asked(reasons=("deleted",)), None)
    assert sum(lot.rows for lot in asked.lots) == 4


def test_few_rows_are_not_worth_writing_the_others_anew(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    compact(kept.path)
    kept.take(5, reasons=("deleted",), epochs=(1, 2))
    assert kept.remove() == (0, "2 of 12 rows may go, which is not worth writing the rest anew")
    kept.take(6, reasons=("deleted",))
    assert (kept.remove(), kept.upto) == ((4, ""), 6)
    assert kept.there == [(epoch, "key-absent@u") for epoch in range(1, 5)]


def test_a_row_without_a_reason_stays(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    nameless = pa.table(
        {"_generation": pa.array([1], pa.int32()), "_epoch": [2], "_reason": pa.array([None], pa.string())}
    )
    write_deltalake(str(kept.path), nameless, mode="append")
    compact(kept.path)
    kept.take(5, reasons=("key-absent",))
    assert kept.remove() == (8, "")
    assert delta_log.read(DeltaTable(kept.path), "_reason")["_reason"].null_count == 1


def test_where_rows_are_lost_none_goes(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    kept.take(5, reasons=("key-absent",))
    DeltaTable(kept.path).delete("_epoch = 2")
    assert kept.remove() == (0, "of 8 rows that may go, the quarantine has 6: tidegate verify")
    assert kept.upto == 0


@pytest.mark.parametrize("before", [True, False])
def test_a_kill_before_or_after_the_commit_leaves_no_row_unmarked(tmp_path: Path, before: bool) -> None:
    kept = Kept(tmp_path)
    kept.take(5, reasons=("key-absent",))
    with killed(retention, "replace", before=before):
        kept.remove()
    assert (len(kept.there), kept.upto) == ((8, 0) if before else (4, 5))
    assert kept.remove() == ((8, "") if before else (0, EMPTY))
    assert (len(kept.there), kept.upto) == (4, 5)


def test_the_target_of_a_process_is_refused_the_option() -> None:
    script = """
        CREATE TABLE clicks (id INT) WITH ('connector' = 'scripted');
        CREATE TABLE seen (id INT) WITH ('connector' = 'scripted', 'quarantine.retention' = '1 d')
    """
    with pytest.raises(
        PlanningError, match=r"'quarantine\.retention' has no meaning here: seen is written by a process"
    ):
        compile_script(script).process("seen", "clicks", None, fn.Forwarded(), None)


def test_released_rows_leave_the_disk_and_backfills_know_it(spark: SparkSession, tmp_path: Path) -> None:
    script = RATES.replace("'gate.on-unmatched'", "'quarantine.retention' = '1 s', 'gate.on-unmatched'")
    playing = Play(spark, tmp_path, script=script)
    harness = playing.harness
    playing.rate("EUR", 100, 10)
    for number, (currency, at) in enumerate([("EUR", 20), ("USD", 21), ("EUR", 120), ("USD", 121), ("GBP", 122)]):
        playing.order(number, currency, at)
    assert playing.upto(rates=50, orders=50) == [(0, 100)]
    assert playing.upto(rates=150, orders=150) == [(2, 100)]
    playing.rate("USD", 200, 15)  # late
    playing.upto(rates=160, orders=160)
    asked = Asked(reasons=("key-absent",))
    (again,) = harness.runner.out_of_quarantine("converted", asked)
    assert (again.rows, again.quarantined) == (2, 1)
    playing.now += 5_000
    found = {item.name: item for item in harness.runner.maintenance(timedelta(0)).run()}["converted"].retained
    assert (found.removed, found.reason) == (3, "")
    assert playing.quarantined.keys() == {4}
    report = harness.verify("converted")
    assert report.passed
    assert [epoch.state for epoch in report.epochs] == ["beyond retention"] * 3
    insert = harness.pipeline.insert("converted")
    assert reconcile(harness.lake, harness.pipeline, insert).problems == ()
    with pytest.raises(BeyondRetention, match="would have to be joined again"):
        harness.runner.backfill("converted", (MIN_TIMESTAMP, at_ms(50)))
    harness.runner.backfill("converted")
    assert playing.out == [(0, 100), (1, 200), (2, 100), (3, 200)]
    assert playing.quarantined.keys() == {4}
    report = harness.verify("converted")
    assert [epoch.state for epoch in report.epochs] == ["equal"]
    assert reconcile(harness.lake, harness.pipeline, insert).problems == ()
