"""'quarantine.retention': rows that somebody has decided about leave the quarantine, and those that nobody has stay."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from tests.pipelines.runtime.crashing import killed
from tests.pipelines.runtime.handmade import HandmadeLake, store
from tests.pipelines.runtime.plays import RATES, Play, at_ms
from tests.pipelines.runtime.processes import functions as fn
from tidegate.pipelines.errors import BeyondRetention, PlanningError
from tidegate.pipelines.lake import delta_log
from tidegate.pipelines.lake.adopt import adopt, survey
from tidegate.pipelines.lake.upkeep import compact
from tidegate.pipelines.location import Location
from tidegate.pipelines.runtime import retention
from tidegate.pipelines.runtime.epochs import FromQuarantine, ReleasePlan, StreamRequeue, stored_plan
from tidegate.pipelines.runtime.epochs.history import history_of
from tidegate.pipelines.runtime.epochs.position import InsertOnLake
from tidegate.pipelines.runtime.quarantine import chosen, lots_of, quarantined_in, removed, removed_upto
from tidegate.pipelines.runtime.releasing.planner import ProcessingTimePlanner
from tidegate.pipelines.runtime.retention import QuarantineRetention
from tidegate.pipelines.sql import compile_script
from tidegate.pipelines.watermarks import MIN_TIMESTAMP
from tidegate.quality_checks.reconcile import reconcile

ABSENT, DELETED = "unmatched:key-absent@u", "unmatched:deleted@u"
EMPTY = "no row that was released or discarded is old enough"


class Kept:
    """Epochs 1 to 4 were planned at their second; each has quarantined two rows with an absent key, one deleted."""

    def __init__(self, root: Path) -> None:
        self.made, self.now = HandmadeLake(root), 100_000
        self.made.landed("users", 1, 5, flip=1)
        for epoch in range(1, 5):
            self.made.landed("clicks", epoch, 10)
            plan = self.made.planned(epoch, epoch - 1, epoch)
            self.publish(plan, matched=7, unmatched_key_absent_u=2, unmatched_deleted_u=1)

    @property
    def path(self) -> Path:
        return Path(self.made.lake.quarantine_path(self.made.target, self.made.insert))

    def publish(self, plan: ReleasePlan, **found: int) -> None:
        self.made.staged(plan, **found)
        self.made.judged(plan)
        reasons = {"unmatched_key_absent_u": ABSENT, "unmatched_deleted_u": DELETED, "discarded": "discarded"}
        rows = [(plan.epoch, reasons[name]) for name, number in found.items() if name in reasons for _ in range(number)]
        if rows:
            columns = {
                "_generation": pa.array([1] * len(rows), pa.int32()),
                "_epoch": pa.array([epoch for epoch, _ in rows]),
                "_reason": pa.array([reason for _, reason in rows]),
            }
            table = pa.table(columns)
            self.path.mkdir(parents=True, exist_ok=True)
            DeltaTable.create(str(self.path), table.schema, mode="ignore")
            folder = self.path / f"e{plan.epoch}"
            folder.mkdir()
            pq.write_table(table, folder / "0.parquet")
            application = self.made.lake.application(self.made.owner, "quarantine", 1)
            adopt(self.path, folder, survey(folder), application=application, epoch=plan.epoch)
        self.made.published(plan)

    def take(self, epoch: int, *, discards: bool = False, **asked: Any) -> ReleasePlan:
        """An epoch that releases, or discards, what is asked for, and finds a match for all of it."""
        request, kept = FromQuarantine(discards, **asked), self.all
        last = stored_plan(self.made.lake.epochs.rows(self.made.owner)[-1])
        lots = lots_of(chosen("enriched", kept, request), kept)
        plan = last.as_kind(
            StreamRequeue,
            epoch=epoch,
            instant=epoch * 1_000,
            kind="quarantine-discard" if discards else "quarantine-release",
            after=4,
            from_quarantine=replace(request, lots=lots),
        )
        store(self.made.lake, plan.row())
        self.publish(plan, matched=0 if discards else sum(lot.rows for lot in lots))
        return plan

    @property
    def all(self) -> list[Any]:
        return quarantined_in(history_of(self.made.lake, self.made.pipeline, self.made.insert))

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


def test_rows_of_a_discarded_epoch_go_and_are_not_joined_again_then(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    kept.made.landed("clicks", 5, 10)
    plan = replace(kept.made.planned_row(5, 4, 5), kind="discard")
    store(kept.made.lake, plan.row())
    kept.publish(plan, discarded=10)
    assert (kept.remove(), kept.upto) == ((10, ""), 5)
    planner = ProcessingTimePlanner(InsertOnLake(kept.made.lake, kept.made.pipeline, kept.made.insert), lambda: 0)
    epochs = history_of(kept.made.lake, kept.made.pipeline, kept.made.insert)
    with pytest.raises(BeyondRetention, match=r"quarantined in epoch 5 \(discarded\).* are gone") as caught:
        planner.out_of_quarantine(plan, epochs, FromQuarantine(False, reasons=("discarded",)), None)
    assert caught.value.next_command.startswith("tidegate quarantine list SCRIPT enriched --by-epoch")
    asked = planner.out_of_quarantine(plan, epochs, FromQuarantine(False, reasons=("deleted",)), None)
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
    asked = FromQuarantine(False, reasons=("key-absent",))
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
