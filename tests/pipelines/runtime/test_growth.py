"""What a tick and a status look at does not grow with how long a pipeline has run: counted, not timed."""

from __future__ import annotations

import errno
import itertools
import json
import os
import shutil
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, Field, Schema
from deltalake.schema import PrimitiveType
from deltalake.transaction import RemoveAction

from tests.cases import at_length
from tests.pipelines.runtime.handmade import (
    HandmadeLake,
    all_counts,
    made_once,
    mark,
    no_spark,
    store,
    store_together,
    verdict_of,
)
from tests.pipelines.runtime.processes import functions as fn
from tidegate.orchestration.report.facts import MOST_POINTS, gather
from tidegate.pipelines.clock import system_clock
from tidegate.pipelines.connectors.protocol import SourceContext, Step
from tidegate.pipelines.lake import Lake, LedgerRow, StagedRow, WatermarkRow, delta_log
from tidegate.pipelines.lake.control import AT_ONCE, ControlTable
from tidegate.pipelines.lake.records import EpochRow, NewerRecord, Record
from tidegate.pipelines.lake.stream import Stream
from tidegate.pipelines.lake.upkeep import REMOVED
from tidegate.pipelines.process import EventTimeExtension
from tidegate.pipelines.progress import SilentProgress
from tidegate.pipelines.runtime import accounting
from tidegate.pipelines.runtime.accounting import (
    CHECKPOINT,
    Done,
    all_done,
    checkpoint,
    done_by,
    left_waiting,
    newest_of,
    sums_of,
    where_rows_are,
)
from tidegate.pipelines.runtime.definitions import Definitions
from tidegate.pipelines.runtime.epochs import (
    NOTHING_RELEASED,
    Backfill,
    BackfillPlan,
    FromQuarantine,
    InputSpan,
    Lot,
    ProcessPlan,
    ProcessSpan,
    ReleasePlan,
    StreamPlan,
    StreamRequeue,
    source_row,
)
from tidegate.pipelines.runtime.epochs.history import history_of, newest_epochs
from tidegate.pipelines.runtime.epochs.position import InsertOnLake
from tidegate.pipelines.runtime.epochs.processed import Given, Processed, Taken, processed_by
from tidegate.pipelines.runtime.landing.opening import position_of
from tidegate.pipelines.runtime.lost_commits import refuse_lost_source
from tidegate.pipelines.runtime.maintenance import Maintenance, waits_for
from tidegate.pipelines.runtime.quarantine import (
    QuarantinedSum,
    quarantined_by_epoch,
    removal,
    removed,
    summed,
)
from tidegate.pipelines.runtime.releasing.insert_runner import InsertRunner
from tidegate.pipelines.runtime.releasing.join_runner import JoinRunner
from tidegate.pipelines.runtime.retention import Retention
from tidegate.pipelines.runtime.splits import Splits
from tidegate.pipelines.runtime.status import status
from tidegate.pipelines.runtime.upkeep import Upkeep
from tidegate.pipelines.runtime.verifying.verify import Proof
from tidegate.pipelines.sql import compile_script
from tidegate.quality_checks.reconcile import reconcile

ROWS = 3
"""Of every epoch: one is published, one dropped, one quarantined."""


@made_once
def grown(made: HandmadeLake, epochs: int) -> None:
    """A lake whose INSERT has published `epochs`; the last of them by commits of their own, as ticks leave them."""
    made.landed("users", 1, 5, flip=1)
    _grow(made, 1, epochs - 20)
    for epoch in range(max(epochs - 20, 0) + 1, epochs + 1):
        _grow(made, epoch, epoch)
    made.published(_plan(made, epochs))
    made.appended("clicks", epochs)


def _plan(made: HandmadeLake, epoch: int, **changed: object):
    plan = made.planned_row(epoch, epoch - 1, epoch)
    kinds = {"from_quarantine": StreamRequeue, "backfill": BackfillPlan}
    return plan.as_kind(next((kind for name, kind in kinds.items() if name in changed), StreamPlan), **changed)


def _grow(made: HandmadeLake, first: int, last: int) -> None:
    epochs = range(first, last + 1)
    if not epochs:
        return
    plans = [_plan(made, epoch) for epoch in epochs]
    steps = [
        source_row("clicks", 1, epoch, epoch * 1000, Step({"from": epoch - 1, "to": epoch}, "unbounded"))
        for epoch in epochs
    ]
    log = []
    for epoch in epochs:
        row = WatermarkRow("clicks", 1, epoch, epoch * 1000, ROWS, 0, True, flip_epoch=1, flipped_at=1, late=1)
        log.append(replace(row, sums={"epochs": epoch, "rows": ROWS * epoch, "late": epoch, "rejected": 0}))
    counts = {"matched": 1, "dropped_where": 1, "unmatched_deleted_u": 1}
    staged = [
        StagedRow(made.owner, 1, plan.epoch, plan.digest, 0, "f", [], all_counts(made.insert, plan, counts), {})
        for plan in plans
    ]
    verdicts = [verdict_of(plan) for plan in plans]
    store_together(made.lake, steps, log, [plan.row() for plan in plans], staged, verdicts)


@contextmanager
def decoded(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """How many control rows are decoded meanwhile, by their table."""
    found: Counter[str] = Counter()
    of = Record.from_row.__func__  # type: ignore[attr-defined]

    def seen(cls: type[Record], row: Mapping[str, Any]) -> Record:
        found[cls.table] += 1
        return of(cls, row)

    with monkeypatch.context() as patched:
        patched.setattr(Record, "from_row", classmethod(seen))
        yield found


@contextmanager
def upkeep_of(made: HandmadeLake, *owners: str, keep: timedelta = timedelta(0), **more: Any) -> Iterator[Upkeep]:
    """Upkeep under the leases of these owners, which end with the block."""
    leases = made.lake.leases("test")
    for owner in owners:
        leases.acquire(owner)
    yield Upkeep(Lake(made.root), made.pipeline, leases, system_clock, keep, **more)
    leases.close()


def to_the_end(upkeep: Upkeep) -> None:
    """All that there is to do, as the loop does it."""
    while upkeep.piece():
        pass


def upkeep(made: HandmadeLake) -> None:
    """All of it, and a lake that is opened anew."""
    with upkeep_of(made, "users", "clicks", made.owner) as kept:
        to_the_end(kept)


def examined(made: HandmadeLake, monkeypatch: pytest.MonkeyPatch) -> tuple[Counter[str], Counter[str], int]:
    """What a tick, and a status, of a process that has just started decode; and the data files of control tables."""
    lake = Lake(made.root)
    with decoded(monkeypatch) as tick:
        splits = Splits(lake, "clicks", 1)
        context = SourceContext(made.pipeline.table("clicks"), {}, 1, splits, "", system_clock)
        assert position_of(context, lake).first is not None
        refuse_lost_source(lake, "clicks", 1)
        on_lake = InsertOnLake(lake, made.pipeline, made.insert)
        position = on_lake.position()
        assert position.state == "published"
        assert on_lake.waiting(position) == 0
        newest = lake.watermarks.last("clicks")
        assert Stream(lake, "clicks").generation(1).sums(newest.epoch).rows == ROWS * newest.epoch
        Retention(lake, made.pipeline, system_clock, None).lost_before(made.pipeline.table("clicks"), 1)
    fresh = Lake(made.root)
    with decoded(monkeypatch) as shown:
        found = status(fresh, made.pipeline)
    epochs = newest.epoch
    assert found.imbalanced == ()
    rows = found.inserts[0].rows
    assert (rows.landed, rows.matched, rows.waiting) == (ROWS * epochs, epochs, 0)
    assert (rows.dropped, rows.quarantined) == ({"where": epochs}, {"deleted@u": epochs})
    assert found.sources[1].late == epochs
    return tick, shown, sum(len(table._files()) for table in fresh.control_tables)


@pytest.mark.parametrize("epochs", at_length([2_345, 12_345]))
def test_a_tick_and_a_status_look_at_no_more_after_many_epochs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, epochs: int
) -> None:
    young, old = grown(tmp_path / "young", 90), grown(tmp_path / "old", epochs)
    for made in (young, old):
        upkeep(made)
    small, large = examined(young, monkeypatch), examined(old, monkeypatch)
    assert sum(large[0].values()) <= sum(small[0].values())
    # Of an INSERT what came after the last checkpoint, three tables of it, and what a checkpoint leaves out.
    assert sum(large[1].values()) <= sum(small[1].values()) + 3 * CHECKPOINT
    assert large[2] <= small[2] + 5 * 16


@pytest.mark.parametrize("without", ["nothing is missing", "the checkpoint is lost", "it is of another history"])
def test_a_checkpoint_changes_no_answer(tmp_path: Path, without: str) -> None:
    made = grown(tmp_path, CHECKPOINT + 60)
    lake, insert = made.lake, made.insert.id
    expected = where_rows_are(lake, insert, "clicks", history_of(lake, made.pipeline, made.insert))
    if without == "it is of another history":
        wrong = LedgerRow(made.owner, 1, CHECKPOINT + 59, 0, "another", asdict(Done(matched=7)))
        lake.ledger.append([wrong], application=lake.application(made.owner, "ledger", 1), version=wrong.epoch)
    else:
        assert checkpoint(lake, insert, lake.target_path(made.target), 0)
        stored = lake.ledger.last(made.owner)
        assert stored.epoch == CHECKPOINT + 60
    assert not checkpoint(lake, insert, lake.target_path(made.target), 0)
    if without == "the checkpoint is lost":
        (lake.ledger.path / "_delta_log").files(".json")[-1].delete()
    target = lake.target_path(made.target)
    newest, rows = newest_of(Lake(tmp_path), insert, target)
    assert rows == expected
    assert newest.state == "published"


AGED = CHECKPOINT + 40
LOT = Lot("unmatched:deleted@u", 1, 10, 10, 0, 10)
AGAIN = Backfill(0, 1, replaces=((3, 9),), rows_again=21)
LOOK_BACKS: dict[str, dict[str, object]] = {
    "a requeue": {"kind": "quarantine-release", "from_quarantine": FromQuarantine(discards=False, lots=(LOT,))},
    "a discard": {"kind": "quarantine-discard", "from_quarantine": FromQuarantine(discards=True, lots=(LOT,))},
    "a backfill": {"kind": "backfill", "time": NOTHING_RELEASED, "backfill": AGAIN},
}
TOOK = {"a requeue": {"matched": 10}, "a discard": {}, "a backfill": {"matched": 20, "dropped_where": 1}}


def looking_back(made: HandmadeLake, epoch: int, what: str, *held: str) -> ReleasePlan:
    """The epoch staged and judged, but not in the target yet."""
    plan = _plan(made, epoch, after=epoch - 1, upto=epoch - 1, **LOOK_BACKS[what])
    store(made.lake, plan.row())
    made.staged(plan, **TOOK[what])
    made.judged(plan, *held)
    return plan


def looks(made: HandmadeLake, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many control rows a status and retention decode, of which each gets the right answer."""
    expected = where_rows_are(made.lake, made.insert.id, "clicks", history_of(made.lake, made.pipeline, made.insert))
    target = made.lake.target_path(made.target)
    with decoded(monkeypatch) as rows:
        newest, found = newest_of(Lake(made.root), made.insert.id, target)
        kept = all_done(Lake(made.root), made.insert.id, target)
    assert kept == done_by(history_of(made.lake, made.pipeline, made.insert))
    assert newest.key == newest_epochs(made.lake, made.insert.id, target)[0].key
    assert found == expected
    return sum(rows.values())


@pytest.fixture(scope="module")
def aged(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A young lake and an old one, to be copied."""
    young, old = (grown(tmp_path_factory.mktemp("lakes") / str(epochs), epochs) for epochs in (90, AGED))
    for made in (young, old):
        upkeep(made)
    return young.root, old.root


def copied(root: Path, to: Path) -> HandmadeLake:
    shutil.copytree(root, to, dirs_exist_ok=True)
    return HandmadeLake(to)


@contextmanager
def runner_of(made: HandmadeLake) -> Iterator[InsertRunner]:
    """The runner of the INSERT, which has a quarantine."""
    columns = {"_generation": "integer", "_epoch": "long"}
    fields = [Field(name, PrimitiveType(kind)) for name, kind in columns.items()]
    DeltaTable.create(str(made.lake.quarantine_path(made.target, made.insert)), Schema(fields))
    leases = made.lake.leases("test")
    yield JoinRunner(made.lake, made.pipeline, made.insert, leases, no_spark, system_clock, SilentProgress())
    leases.close()


def test_a_look_back_is_published_though_its_checkpoint_cannot_be_written(
    aged: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A person who is shown an error would do it again."""
    made = copied(aged[0], tmp_path / "young")
    looking_back(made, 91, "a backfill")

    def full(*_: object, **__: object) -> bool:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("tidegate.pipelines.runtime.releasing.insert_runner.checkpoint", full)
    with runner_of(made) as runner:
        published = runner.publish()
        assert published.epoch == 91
        assert runner.position().state == "published"
    assert "no checkpoint was written behind epoch 91 of" in caplog.text


def test_a_backfill_that_was_given_up_has_filled_nothing(aged: tuple[Path, Path], tmp_path: Path) -> None:
    made = copied(aged[0], tmp_path / "young")
    plan = _plan(made, 91, after=90, upto=90, **{**LOOK_BACKS["a backfill"], "kind": "discard"})
    store(made.lake, plan.row())
    made.staged(plan)
    made.judged(plan)
    with runner_of(made) as runner:
        runner.publish()
        assert runner.position().state == "published"
        assert runner.filled([(0, 1)], (0, 1), 0) is None


@pytest.mark.parametrize("what", LOOK_BACKS)
@pytest.mark.parametrize("ended", ["its runner", "upkeep, since its runner was killed", "nobody, since it is held"])
def test_after_a_look_back_a_look_reads_no_more_than_on_a_new_lake(
    aged: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, ended: str
) -> None:
    young, made = copied(aged[0], tmp_path / "young"), copied(aged[1], tmp_path / "old")
    epoch = AGED + 1
    plan = looking_back(made, epoch, what, *(["too many"] if "held" in ended else []))
    if ended == "its runner":
        with runner_of(made) as runner:
            runner.publish()
    elif "killed" in ended:
        made.published(plan)
        upkeep(made)
    seen = looks(made, monkeypatch)
    if "held" not in ended:
        _grow(made, epoch + 1, epoch + 60)  # of a lake that goes on
        seen = max(seen, looks(made, monkeypatch))
    assert seen <= looks(young, monkeypatch)


def test_a_checkpoint_of_an_older_lake_gets_what_retention_asks_for(tmp_path: Path) -> None:
    made = grown(tmp_path, CHECKPOINT + 60)
    lake, insert, target = made.lake, made.insert.id, made.lake.target_path(made.target)
    before = history_of(lake, made.pipeline, made.insert)[:-60]
    sums = {name: value for name, value in asdict(done_by(before)).items() if name not in ("sums", "since")}
    row = LedgerRow(made.owner, 1, CHECKPOINT, 0, before[-1].plan.digest, sums)
    lake.ledger.append([row], application=lake.application(made.owner, "ledger", 1), version=row.epoch)
    whole = done_by(history_of(lake, made.pipeline, made.insert))
    assert [(item.reason, item.epochs, item.landed) for item in whole.undecided] == [
        ("unmatched:deleted@u", CHECKPOINT + 60, 1)
    ]
    assert all_done(lake, insert, target) == whole
    # Each look reads all epochs until there is a checkpoint of this version, so it comes as soon as it can.
    assert checkpoint(lake, insert, target, 0)
    stored = lake.ledger.last(made.owner)
    assert stored is not None
    assert Done.of(stored) == all_done(lake, insert, target) == whole
    assert not checkpoint(lake, insert, target, 0)


def test_how_far_back_quarantined_rows_lie_is_known_by_the_pins_of_their_epochs() -> None:
    def quarantined(reason: str, epoch: int, generation: int, landed: int, needed: dict[str, tuple[int, int]]):
        at = (epoch, 10 * epoch)
        return QuarantinedSum("open", reason, 1, 1, at, at, probe_generation=generation, landed=landed, needed=needed)

    found = [
        quarantined("a", 2, 1, 7, {"users 1": (50, 2), "": (40, 2)}),
        quarantined("a", 3, 1, 5, {"users 1": (60, 3), "": (60, 3)}),
        quarantined("a", 4, 1, 9, {"users 2": (10, 4), "": (10, 4)}),
        quarantined("b", 5, 1, 8, {"users 1": (1, 5), "": (1, 5)}),
    ]
    together = summed(found)
    assert [(item.epochs, item.landed) for item in together] == [(2, 5), (1, 9), (1, 8)]
    assert [item.needed_of("users", 1) for item in together] == [(50, 2), (10, 4), (1, 5)]
    row = LedgerRow("insert e", 1, 5, 0, "", asdict(Done(sums=together, since=3)))
    assert Done.of(LedgerRow.from_row(row.to_row())) == Done(sums=together, since=3)


@pytest.mark.parametrize("place", ["", "sums", "processed", "taken", "given"])
def test_a_checkpoint_with_a_field_of_a_newer_tidegate_is_refused(place: str) -> None:
    processed = Processed(taken={"clicks": Taken()}, given=(Given(),))
    done = Done(sums=(QuarantinedSum("open", "a", 1, 1, (1, 1), (1, 1)),), processed=processed)
    row = LedgerRow.from_row(LedgerRow("insert e", 1, 5, 0, "", asdict(done)).to_row())
    assert Done.of(row) == done
    stored = json.loads(json.dumps(row.sums))
    records = {
        "": stored,
        "sums": stored["sums"][0],
        "processed": stored["processed"],
        "taken": stored["processed"]["taken"]["clicks"],
        "given": stored["processed"]["given"][0],
    }
    records[place]["paused"] = 1
    with pytest.raises(NewerRecord, match="does not know its paused") as refused:
        Done.of(replace(row, sums=stored))
    assert refused.value.where == "insert e, generation 1, epoch 5 of the lake's table ledger"


def test_of_more_decisions_than_a_checkpoint_has_the_list_reads_every_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = grown(tmp_path, CHECKPOINT + 20)
    for epoch in (CHECKPOINT + 21, CHECKPOINT + 22):
        again = FromQuarantine(discards=True, lots=(Lot("unmatched:deleted@u", epoch - 21, epoch - 21, 1, 0, 1),))
        plan = _plan(made, epoch, kind="quarantine-discard", from_quarantine=again, after=epoch - 1, upto=epoch - 1)
        store(made.lake, plan.row())
        made.staged(plan)
        made.judged(plan)
        made.published(plan)
    expected = sums_of(made.lake, made.pipeline, made.insert)
    assert [(item.state, item.decided[0]) for item in expected] == [
        ("open", 0), ("discarded", CHECKPOINT + 21), ("discarded", CHECKPOINT + 22)
    ]  # fmt: skip
    monkeypatch.setattr(accounting, "DECISIONS", 1)
    done = all_done(made.lake, made.insert.id, made.lake.target_path(made.target))
    assert done.since == CHECKPOINT + 21
    assert [item.decided[0] for item in done.sums] == [0, CHECKPOINT + 22]
    assert sums_of(made.lake, made.pipeline, made.insert) == expected


def test_what_shows_the_newest_epochs_reads_no_others(aged: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    for made in map(HandmadeLake, aged):
        expected = left_waiting(made.lake, history_of(made.lake, made.pipeline, made.insert)[-30:])
        assert expected == [0] * 30
        lake = Lake(made.root)
        with decoded(monkeypatch) as rows:
            epochs = newest_epochs(lake, made.insert.id, lake.target_path(made.target), 30)
            assert left_waiting(lake, epochs) == expected
            waits_for(lake, made.pipeline, made.insert)
        seen.append(rows)
    assert seen[1]["epochs"] <= seen[0]["epochs"]
    assert seen[1]["watermarks"] <= seen[0]["watermarks"] + 30 * 5  # an epoch is found by halves


def test_a_report_and_the_list_of_a_quarantine_read_what_they_show_and_sums(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    for epochs in (2 * CHECKPOINT, 2_000):
        made = grown(tmp_path / str(epochs), epochs)
        upkeep(made)
        looking_back(made, epochs + 1, "a discard")
        with runner_of(made) as runner:
            runner.publish()
        expected = [
            QuarantinedSum.of(item).shown for item in quarantined_by_epoch(made.lake, made.pipeline, made.insert)
        ]
        with decoded(monkeypatch) as listed:
            assert sums_of(Lake(made.root), made.pipeline, made.insert) == summed(expected)
        with decoded(monkeypatch) as shown:
            facts = gather(Lake(made.root), made.pipeline)
        log = made.lake.watermarks.rows("clicks")
        assert facts.inserts[0].planned == epochs + 1
        assert [epoch.plan.epoch for epoch in facts.inserts[0].epochs] == [*range(epochs - 28, epochs + 2)]
        assert facts.sources[1].log == (*log[:: -(-epochs // MOST_POINTS)], *log[-1:] * (epochs > MOST_POINTS))
        seen.append((sum(listed.values()), sum(shown.values())))
    assert [(item.state, item.epochs) for item in summed(expected)] == [("open", 1_990), ("discarded", 10)]
    assert seen[1][0] <= seen[0][0] < 20
    assert seen[1][1] <= seen[0][1] + MOST_POINTS


def test_that_rows_add_up_is_checked_without_reading_what_checkpoints_have_summed(
    aged: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    for made in map(HandmadeLake, aged):
        with decoded(monkeypatch) as rows:
            found = reconcile(Lake(made.root), made.pipeline, made.insert)
        epochs = history_of(made.lake, made.pipeline, made.insert)
        assert found.rows == where_rows_are(made.lake, made.insert.id, "clicks", epochs)
        assert found.rows.balanced
        seen.append(sum(rows.values()))
    assert seen[1] <= seen[0]


def test_of_a_table_that_a_script_declares_anew_the_sums_say_whether_it_stores_rows(
    aged: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = HandmadeLake(aged[1])
    with decoded(monkeypatch) as rows:
        assert not Definitions(Lake(made.root), made.pipeline, {}, system_clock)._stores_nothing("clicks")
    assert sum(rows.values()) <= 4


@pytest.mark.parametrize("decisions", [500, 1])
def test_what_retention_took_out_of_the_quarantine_is_in_the_checkpoint_too(
    aged: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, decisions: int
) -> None:
    monkeypatch.setattr("tidegate.pipelines.runtime.accounting.DECISIONS", decisions)
    seen = []
    for root, epochs in zip(aged, (90, AGED), strict=True):
        made = copied(root, tmp_path / str(epochs))
        quarantine = made.lake.quarantine_path(made.target, made.insert)
        with runner_of(made) as runner:
            for number, what in enumerate(("a requeue", "a discard")):
                lots = (replace(LOT, first=1 + 10 * number, last=10 + 10 * number),)
                taken = replace(LOOK_BACKS[what]["from_quarantine"], lots=lots)  # type: ignore[type-var]
                monkeypatch.setitem(LOOK_BACKS[what], "from_quarantine", taken)
                looking_back(made, epochs + 1 + number, what)
                assert runner.publish() is not None
        target = made.lake.target_path(made.target)
        kept = quarantined_by_epoch(made.lake, made.pipeline, made.insert)
        for upto, rows in ((epochs, 0), (epochs + 1, 10), (epochs + 2, 20)):
            known = all_done(made.lake, made.insert.id, target).decided_upto(upto)
            assert known == rows or (known is None and upto <= epochs + 2 - decisions)
            assert sum(item.rows for item in removed(kept, upto)) == rows
            if upto > epochs:
                mark(Path(quarantine), {removal(made.lake, made.insert): upto})
            with decoded(monkeypatch) as decoding:
                found = reconcile(Lake(made.root), made.pipeline, made.insert)
            assert found.rows.in_quarantine - found.expected["quarantine"] == rows
        seen.append(sum(decoding.values()))
    assert seen[1] <= seen[0]


PROCESS = """
CREATE TABLE events (k STRING, number BIGINT) WITH ('connector' = 'scripted');
CREATE TABLE evens (k STRING, number BIGINT) WITH ('connector' = 'scripted');
CREATE TABLE odds (k STRING, number BIGINT) WITH ('connector' = 'scripted');
"""


def test_that_the_rows_of_a_process_add_up_is_checked_without_reading_what_checkpoints_have_summed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    for epochs in (90, AGED + CHECKPOINT):
        function = EventTimeExtension.wrap_process_function(fn.Halved())
        pipeline = compile_script(PROCESS).process(["evens", "odds"], "events", "k", function)
        made = HandmadeLake(tmp_path / str(epochs), pipeline)
        processed(made, epochs)
        expected = processed_by(history_of(made.lake, made.pipeline, made.insert))
        assert expected == Processed(
            epochs * 7,
            epochs * 4,
            {"where": 3 * epochs},
            {"events": Taken(epochs * 7, epochs, 1)},
            (Given(epochs * 3, epochs, 2 * epochs), Given(epochs, epochs)),
        )
        for _ in range(2):  # without a checkpoint, and with one
            with decoded(monkeypatch) as rows:
                found = reconcile(Lake(made.root), made.pipeline, made.insert).rows
            assert (found.read, found.left_out) == (expected.read, expected.left_out)
            assert [vars(item) for item in found.inputs] == [
                {
                    **{"table": "events", "generation": 1, "upto": epochs + 1},
                    **{"landed": 7 * epochs + 2, "taken": 7 * epochs, "waiting": 2},
                }
            ]
            assert [(item.table, item.given, item.published, item.quarantined) for item in found.outputs] == [
                ("evens", epochs * 3, epochs, 2 * epochs),
                ("odds", epochs, epochs, 0),
            ]
            upkeep(made)
        seen.append(sum(rows.values()))
    assert seen[1] <= seen[0]


def processed(made: HandmadeLake, epochs: int) -> None:
    """Epochs of the process, each of which has taken seven rows; two more rows wait."""
    plans, staged = [], []
    for epoch in range(1, epochs + 1):
        span = ProcessSpan((InputSpan("events", 1, epoch - 1, epoch, 7),), 0, 5, (0, False), (5, False), 0)
        plan = ProcessPlan(
            *(made.insert.id, 1, epoch, "release", epoch * 1000, "events", 1, epoch - 1, epoch, (), "quarantine"),
            made.pipeline.digest(made.insert),
            process=span,
        )
        counts = {"rows": 7, "processed": 4, "dropped:where": 3, "to:publish": 1, "to:quarantine": 2}
        second = {"to:publish": 1, "to:quarantine": 0, "emitted": 1}
        facts = {"emitted": 3, "second": second}
        staged.append(StagedRow(made.owner, 1, epoch, plan.digest, 0, "f", [], counts, facts))
        plans.append(plan)
    log = []
    for epoch in range(1, epochs + 2):
        rows, total = (7, 7 * epoch) if epoch <= epochs else (2, 7 * epochs + 2)
        row = WatermarkRow("events", 1, epoch, 0, rows, 0, False)
        log.append(replace(row, sums={"epochs": epoch, "rows": total, "late": 0, "rejected": 0}))
    store_together(made.lake, [plan.row() for plan in plans], staged, [verdict_of(plan) for plan in plans], log)
    made.published(plans[-1])


def test_maintenance_of_a_target_reads_the_newest_epoch_alone_and_leaves_what_it_has_staged(
    aged: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    for root, epochs in zip(aged, (90, AGED), strict=True):
        made = copied(root, tmp_path / str(epochs))
        looking_back(made, epochs + 1, next(iter(LOOK_BACKS)))
        place = Path(made.lake.staged_paths(made.target, made.insert)["publish"])
        files = {epoch: place / f"g1-e{epoch}-0" / "a.parquet" for epoch in (1, epochs, epochs + 1)}
        for file in files.values():
            file.parent.mkdir(parents=True)
            file.touch()
            os.utime(file, (0, 0))
        leases = made.lake.leases("test")
        with decoded(monkeypatch) as rows:
            upkeep_of = Maintenance(
                Lake(made.root), made.pipeline, leases, no_spark, system_clock, SilentProgress(), {}, timedelta(0)
            )
            upkeep_of._published(made.target.name, [made.insert])
        leases.close()
        assert [epoch for epoch, file in files.items() if file.exists()] == [epochs + 1]
        seen.append(sum(rows.values()))
    assert seen[1] <= seen[0] < 10


def test_what_can_be_recomputed_is_found_for_any_epochs_by_one_look_at_the_logs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = grown(tmp_path, 60)
    epochs = history_of(made.lake, made.pipeline, made.insert)
    provable = Proof(made.pipeline, made.lake, made.insert)
    with decoded(monkeypatch) as rows:
        assert provable.unproved({"gone clicks": {}, "gone users": {}}, epochs) == {}
        found = provable.unproved({"gone clicks": {(1, 7): 2}, "gone users": {}}, epochs)
    assert {key: state for key, (state, _) in found.items()} == {(1, 7): "rows lost"}
    assert rows["watermarks"] == 0


def test_the_files_of_control_tables_go_after_their_time_and_the_rows_stay(tmp_path: Path) -> None:
    made = grown(tmp_path, 300)
    before = made.lake.epochs.rows(made.owner), made.lake.watermarks.rows("clicks")
    files = len([*(tmp_path / "_control").rglob("*.parquet")])
    upkeep(made)
    assert len([*(tmp_path / "_control").rglob("*.parquet")]) < files / 2
    for lake in (made.lake, Lake(tmp_path)):
        assert (lake.epochs.rows(made.owner), lake.watermarks.rows("clicks")) == before
    made.landed("clicks", 301, ROWS)
    assert isinstance(made.lake.epochs.last("clicks"), EpochRow)


def listed_removals(path: Path) -> int:
    """The removals in a checkpoint of a table as it is now."""
    table = DeltaTable(path)
    table.create_checkpoint()
    stored = pq.ParquetFile(path / "_delta_log" / f"{table.version():020}.checkpoint.parquet")
    return len(stored.read(["remove.path"])["remove"].drop_null())


def test_checkpoints_of_control_tables_forget_removals_soon_those_of_older_lakes_from_their_next_upkeep_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An hour ago 60 files were put together; a week of them was listed."""
    monkeypatch.setattr(delta_log, "BRIEF", {})  # an older version made the lake
    made = HandmadeLake(tmp_path)
    now = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: now() - 3_600 * 10**9)
    for epoch in range(1, 61):
        _grow(made, epoch, epoch)
    for table in made.lake.control_tables:
        table.compact()
    monkeypatch.undo()
    tables = {path: listed_removals(Path(path)) for path in (made.lake.epochs.path, made.lake.watermarks.path)}
    assert min(tables.values()) >= 60
    before, identity = made.lake.epochs.rows(made.owner), made.lake.id
    upkeep(made)
    assert {path: listed_removals(Path(path)) for path in tables} == dict.fromkeys(tables, 0)
    fresh = Lake(tmp_path)
    assert (fresh.epochs.rows(made.owner), fresh.id) == (before, identity)
    versions = [DeltaTable(path).version() for path in tables]
    upkeep(made)
    assert [DeltaTable(path).version() for path in tables] == versions
    young = HandmadeLake(tmp_path / "young")
    _grow(young, 1, 1)
    for path in (young.lake.epochs.path, young.lake.watermarks.path):
        assert delta_log.BRIEF.items() <= DeltaTable(path).metadata().configuration.items()


def test_upkeep_that_fails_is_said_and_tried_again_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = [100.0]

    def full(owner: str) -> int:
        raise OSError(28, "No space left on device")

    with upkeep_of(grown(tmp_path, 60), now=lambda: now[0], least=0) as upkeep:
        with monkeypatch.context() as patched:
            patched.setattr(upkeep.lake.epochs, "together", full)
            assert not upkeep.piece()
        assert "No space left on device" in caplog.text
        assert not upkeep.piece()  # it rests
        now[0] += 61
        assert upkeep.piece()


def test_what_is_not_leased_is_left_alone(tmp_path: Path) -> None:
    made = grown(tmp_path, 60)
    for number in range(40):
        made.appended("clicks", 61 + number)
    examined = []
    with upkeep_of(made) as upkeep:
        upkeep._small_files = lambda place: examined.append(place.path) or iter(())  # type: ignore[method-assign]
        to_the_end(upkeep)
        assert examined == []
        upkeep.leases.acquire("clicks")
        to_the_end(upkeep)
    assert examined == [made.lake.table_path("clicks")]


def test_a_work_of_upkeep_ends_where_its_lease_goes(tmp_path: Path) -> None:
    """The next owner of the lease writes to the same tables."""
    made, done = grown(tmp_path, 60), list[Path]()

    def endless(place: Any) -> Iterator[None]:
        while True:
            done.append(place.path)
            yield

    with upkeep_of(made, made.owner, least=0) as upkeep:
        upkeep._small_files = endless  # type: ignore[method-assign]
        while len(done) < 2:
            assert upkeep.piece()
        upkeep.leases.release(made.owner)
        to_the_end(upkeep)
    assert done == [made.lake.target_path(made.target)] * 2


def test_a_round_of_upkeep_takes_fewer_pieces_than_there_are_folders(tmp_path: Path) -> None:
    """A loop that is behind does a piece a tick, and each tick leaves a folder: its rounds end all the same."""
    made, millisecond = grown(tmp_path, 60), itertools.count()
    target = made.lake.target_path(made.target)
    for number in range(500):
        Path(target / f"epoch-{number}").mkdir()
    with upkeep_of(made, made.owner, keep=timedelta(days=1), now=lambda: next(millisecond) / 1000) as kept:
        assert sum(1 for _ in iter(kept.piece, False)) < 50


@pytest.mark.thorough
def test_an_old_lake_is_brought_up_in_pieces_of_bounded_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No checkpoint, a long log that has expired, thousands of files: as an older version may have left it."""
    made = grown(tmp_path, 3_000)
    lake, owner = made.lake, made.owner
    for table in (lake.epochs, lake.verdicts):
        expired(Path(table.path), 1_000)
    in_files_of_few_rows(lake.staged, owner, 600)
    expected = lake.staged.rows(owner)
    work: Counter[str] = Counter()
    opened, unlink = pq.ParquetFile, os.unlink

    def seen(path: str) -> None:
        work["removed"] += 1
        unlink(path)

    def read(path: Path, **options: Any) -> pq.ParquetFile:
        work["opened"] += 1
        return opened(path, **options)

    monkeypatch.setattr(os, "unlink", seen)
    monkeypatch.setattr(pq, "ParquetFile", read)
    most, total = Counter(), Counter()
    with upkeep_of(made, owner, least=0) as kept:
        more = True
        while more:
            work.clear()
            with decoded(monkeypatch) as rows:
                more = kept.piece()
            work["rows"] = sum(rows.values())
            most |= work
            total += work
    assert total["removed"] > 2_000
    assert total["opened"] > 600
    assert most["removed"] <= REMOVED
    assert most["opened"] <= AT_ONCE
    assert most["rows"] <= 3 * 2 * CHECKPOINT + 10  # three tables of an INSERT
    assert Lake(tmp_path).staged.rows(owner) == expected
    stored = lake.ledger.last(owner)
    assert 3_000 - stored.epoch <= CHECKPOINT
    history = where_rows_are(lake, made.insert.id, "clicks", history_of(lake, made.pipeline, made.insert))
    assert newest_of(lake, made.insert.id, lake.target_path(made.target))[1] == history


def expired(path: Path, versions: int) -> None:
    """Versions of long ago that change nothing, a checkpoint after them."""
    first = DeltaTable(path).version() + 1
    for version in range(first, first + versions):
        (path / "_delta_log" / f"{version:020}.json").write_text('{"commitInfo":{"timestamp":0}}\n')
    DeltaTable(path).create_checkpoint()
    for file in (path / "_delta_log").iterdir():
        os.utime(file, (0, 0))


def in_files_of_few_rows(table: ControlTable[Any], owner: str, files: int) -> None:
    """Rewrite what an owner has, into many files, in one commit."""
    stored = DeltaTable(table.path)
    assert stored is not None
    old = [file for file in table._files() if file.owner == owner]
    rows = pa.concat_tables([pq.ParquetFile(table.path / file.path).read() for file in old]).sort_by("epoch")
    few = rows.num_rows // files
    added = [table._written(owner, rows.slice(start, few)) for start in range(0, rows.num_rows, few)]
    gone = [RemoveAction(file.path, False, 0, size=file.size, partition_values={"owner": owner}) for file in old]
    stored.create_write_transaction([*added, *gone], "append", stored.schema(), partition_by=["owner"])
