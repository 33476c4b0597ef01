"""What a tick and a status look at does not grow with how long a pipeline has run: counted, not timed."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable, Field, Schema
from deltalake.schema import PrimitiveType

from tests import cases
from tests.cases import at_length
from tests.pipelines.runtime.grown import ROWS, asked_at, decoded, grow, grown, upkeep
from tests.pipelines.runtime.handmade import HandmadeLake, mark, no_spark, store, store_together, verdict_of
from tests.pipelines.runtime.plans import STATE, release, taken
from tests.pipelines.runtime.processes import functions as fn
from tidegate.pipelines.clock import system_clock
from tidegate.pipelines.connectors.protocol import SourceContext
from tidegate.pipelines.facts.report import MOST_POINTS, gather
from tidegate.pipelines.lake import Lake, LedgerRow, StagedRow, WatermarkRow
from tidegate.pipelines.lake.records import NewerRecord, Sums
from tidegate.pipelines.lake.stream import Stream
from tidegate.pipelines.process import EventTimeExtension
from tidegate.pipelines.progress import SilentProgress
from tidegate.pipelines.runtime import ledger
from tidegate.pipelines.runtime.definitions import Definitions
from tidegate.pipelines.runtime.epochs import Asked, Bounds, Lot, ReleasePlan
from tidegate.pipelines.runtime.epochs.history import history_of, newest_epochs
from tidegate.pipelines.runtime.epochs.position import InsertOnLake
from tidegate.pipelines.runtime.epochs.processed import Given, Processed, TakenSoFar, processed_by
from tidegate.pipelines.runtime.ledger import (
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
from tidegate.pipelines.runtime.lost_commits import refuse_lost_source
from tidegate.pipelines.runtime.maintenance import Maintenance
from tidegate.pipelines.runtime.opening import position_of
from tidegate.pipelines.runtime.quarantine import QuarantinedSum, quarantined_by_epoch, removal, removed, summed
from tidegate.pipelines.runtime.releasing.insert_runner import InsertRunner
from tidegate.pipelines.runtime.releasing.join_runner import JoinRunner
from tidegate.pipelines.runtime.retention import Retention
from tidegate.pipelines.runtime.splits import Splits
from tidegate.pipelines.runtime.status import status
from tidegate.pipelines.runtime.verifying.verify import Proof
from tidegate.pipelines.sql import compile_script
from tidegate.pipelines.sql.canonical import computes
from tidegate.quality_checks.reconcile import reconcile


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
    return tick, shown, sum(len(log._files()) for log in fresh.logs.there())


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
        (lake.logs.of(made.owner).path / "_delta_log").files(".json")[-1].delete()
    target = lake.target_path(made.target)
    newest, rows = newest_of(Lake(tmp_path), insert, target)
    assert rows == expected
    assert newest.state == "published"


AGED = CHECKPOINT + 40
LOT = Lot("unmatched:deleted@u", 1, 10, 10, 0, 10)
LOOK_BACKS: dict[str, dict[str, Any]] = {
    "a requeue": {"kind": "quarantine-release", "asked": Asked(), "lots": (LOT,)},
    "a discard": {"kind": "quarantine-discard", "asked": Asked(discards=True), "lots": (LOT,)},
    "a backfill": {"kind": "backfill", "asked": Asked(((0, 1),)), "replaces": ((3, 9),), "bounds": Bounds()},
}
TOOK = {"a requeue": {"matched": 10}, "a discard": {}, "a backfill": {"matched": 20, "dropped_where": 1}}


def looking_back(made: HandmadeLake, epoch: int, what: str, *held: str) -> ReleasePlan:
    """The epoch staged and judged, but not in the target yet."""
    plan = asked_at(made, epoch, rows_again=21 if what == "a backfill" else 0, **LOOK_BACKS[what])
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
    defined = Definitions(made.lake, made.pipeline, {}, system_clock)
    yield JoinRunner(made.lake, made.pipeline, made.insert, leases, no_spark, system_clock, SilentProgress(), defined)
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
    plan = asked_at(made, 91, **{**LOOK_BACKS["a backfill"], "kind": "discard"})
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
        grow(made, epoch + 1, epoch + 60)  # of a lake that goes on
        seen = max(seen, looks(made, monkeypatch))
    assert seen <= looks(young, monkeypatch)


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
    assert Done.of(LedgerRow.from_row(row.owner, row.to_row())) == Done(sums=together, since=3)


@pytest.mark.parametrize("place", ["", "sums", "processed", "taken", "given"])
def test_a_checkpoint_with_a_field_of_a_newer_tidegate_is_refused(place: str) -> None:
    processed = Processed(taken={"clicks": TakenSoFar()}, given=(Given(),))
    done = Done(sums=(QuarantinedSum("open", "a", 1, 1, (1, 1), (1, 1)),), processed=processed)
    row = LedgerRow.from_row("insert e", LedgerRow("insert e", 1, 5, 0, "", asdict(done)).to_row())
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
    assert refused.value.where == "insert e, generation 1, epoch 5 of the lake's ledger"


def test_of_more_decisions_than_a_checkpoint_has_the_list_reads_every_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = grown(tmp_path, CHECKPOINT + 20)
    for epoch in (CHECKPOINT + 21, CHECKPOINT + 22):
        lots = (Lot("unmatched:deleted@u", epoch - 21, epoch - 21, 1, 0, 1),)
        plan = asked_at(made, epoch, Asked(discards=True), kind="quarantine-discard", lots=lots)
        store(made.lake, plan.row())
        made.staged(plan)
        made.judged(plan)
        made.published(plan)
    expected = sums_of(made.lake, made.pipeline, made.insert)
    assert [(item.state, item.decided[0]) for item in expected] == [
        ("open", 0), ("discarded", CHECKPOINT + 21), ("discarded", CHECKPOINT + 22)
    ]  # fmt: skip
    monkeypatch.setattr(ledger, "DECISIONS", 1)
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
        seen.append(rows)
    assert seen[1]["epochs"] <= seen[0]["epochs"]
    assert seen[1]["watermarks"] <= seen[0]["watermarks"] + 30 * 5  # an epoch is found by halves


def test_a_report_and_the_list_of_a_quarantine_read_what_they_show_and_sums(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    for epochs in (2 * CHECKPOINT, 2_000 if cases.AT_LENGTH else 600):
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
    assert [(item.state, item.epochs) for item in summed(expected)] == [("open", epochs - 10), ("discarded", 10)]
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
    monkeypatch.setattr("tidegate.pipelines.runtime.ledger.DECISIONS", decisions)
    seen = []
    for root, epochs in zip(aged, (90, AGED), strict=True):
        made = copied(root, tmp_path / str(epochs))
        quarantine = made.lake.quarantine_path(made.target, made.insert)
        with runner_of(made) as runner:
            for number, what in enumerate(("a requeue", "a discard")):
                lots = (replace(LOT, first=1 + 10 * number, last=10 + 10 * number),)
                monkeypatch.setitem(LOOK_BACKS[what], "lots", lots)
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
            {"events": TakenSoFar(epochs * 7, epochs, 1)},
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
            assert [(name, item.given, item.published, item.quarantined) for name, item in found.outputs.items()] == [
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
        takes = taken("events", epoch - 1, epoch, 7, 7 * (epoch - 1))
        digest = computes(made.pipeline, made.insert)
        plan = release(made.insert.id, epoch, takes, instant=epoch * 1000, computes=digest, state=STATE)
        counts = {"rows": 7, "processed": 4, "dropped:where": 3, "to:publish": 1, "to:quarantine": 2}
        second = {"to:publish": 1, "to:quarantine": 0, "emitted": 1}
        facts = {"emitted": 3, "second": second}
        staged.append(StagedRow(made.owner, 1, epoch, plan.digest, 0, "f", [], counts, facts))
        plans.append(plan)
    log = []
    for epoch in range(1, epochs + 2):
        rows, total = (7, 7 * epoch) if epoch <= epochs else (2, 7 * epochs + 2)
        row = WatermarkRow("events", 1, epoch, 0, rows, 0, False)
        log.append(replace(row, sums=Sums(epoch, total)))
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
    assert seen[1] <= seen[0] < 11


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
