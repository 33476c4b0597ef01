"""What an epoch of a process takes, by the watermark log alone; what the disk throws while one is published."""

from __future__ import annotations

import errno
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.pipelines.runtime.handmade import FREE, mark, store, verdict_of
from tests.pipelines.runtime.processes import functions as fn
from tests.pipelines.runtime.processes.test_processes import SCRIPT, wrapped
from tidegate.pipelines.errors import LakeError, PlanningError
from tidegate.pipelines.lake import Lake, StagedRow, WatermarkRow
from tidegate.pipelines.lake.stream import Stream
from tidegate.pipelines.process.spec import ProcessSpec
from tidegate.pipelines.process.watermarks.declarations import EVENT_TIME_WATERMARK_DECLARATION
from tidegate.pipelines.runtime.definitions import Definitions
from tidegate.pipelines.runtime.epochs import ReleasePlan, stored_plan
from tidegate.pipelines.runtime.epochs.position import InsertOnLake, Position, Waiting
from tidegate.pipelines.runtime.failures import StepFailed
from tidegate.pipelines.runtime.processes.inputs import ProcessTables, epoch_steps, planned_steps
from tidegate.pipelines.runtime.processes.outputs import OutputsTime
from tidegate.pipelines.runtime.processes.planning import ProcessPlanner
from tidegate.pipelines.runtime.processes.process_runner import ProcessRunner, time_after
from tidegate.pipelines.runtime.processes.state import FACT, StateFiles, state_before
from tidegate.pipelines.sinks.protocol import TableSink
from tidegate.pipelines.sql import compile_script
from tidegate.pipelines.watermarks import MIN_TIMESTAMP

TIME = EVENT_TIME_WATERMARK_DECLARATION.identifier


class Log:
    """A watermark log, written by hand, and the planner that reads it."""

    def __init__(self, folder: Path, script: str = SCRIPT, function: Any = None) -> None:
        pipeline = compile_script(script).process(
            "paired", ["events", "rules"], "k", wrapped(function or fn.Paired()), "k STRING, number BIGINT, rule BIGINT"
        )
        self.lake = Lake(folder)
        self.on_lake = InsertOnLake(self.lake, pipeline, pipeline.insert("paired"))
        self.epochs = Counter[str]()

    def landed(
        self,
        table: str,
        rows: int,
        timestamp: int = MIN_TIMESTAMP,
        at: int = 0,
        *,
        now: bool = False,
        generation: int = 1,
        idle: bool = False,
        flip: int | None = 1,
    ) -> None:
        self.epochs[table] += 1
        epoch = self.epochs[table]
        row = WatermarkRow(
            table, generation, epoch, at, rows, timestamp, now, idle, flip_epoch=flip, flipped_at=flip and 0
        )
        store(self.lake, row)

    @property
    def spec(self) -> ProcessSpec:
        return self.on_lake.process

    def next(
        self, last: ReleasePlan | None = None, now: int = 1_000, until: int | None = None
    ) -> ReleasePlan | Waiting:
        return ProcessPlanner(self.on_lake, lambda: now, until).next(last)

    def plan(self, last: ReleasePlan | None = None, now: int = 1_000, until: int | None = None) -> ReleasePlan:
        """The next epoch, which there is."""
        plan = self.next(last, now, until)
        assert isinstance(plan, ReleasePlan), plan
        return plan

    def releasing(self) -> ProcessRunner:
        without: Any = None
        own = self.on_lake
        defined = Definitions(own.lake, own.pipeline, {}, lambda: 7)
        return ProcessRunner(own.lake, own.pipeline, own.insert, FREE, without, lambda: 7, without, defined)

    def planned(self, plan: ReleasePlan) -> None:
        store(self.lake, plan.row())

    def staged(
        self, plan: ReleasePlan, watermark: int = MIN_TIMESTAMP, key: str = "k", timer: int | None = None
    ) -> StagedRow:
        """The row of an epoch that has written no state, but for a `timer`."""
        buckets = {} if timer is None else {0: (timer, 1)}
        files = StateFiles(f"g1-e{plan.epoch}-x", (), buckets, 64, ((key, "string"),))
        row = StagedRow(
            owner=self.on_lake.owner,
            generation=plan.generation,
            epoch=plan.epoch,
            plan_digest=plan.digest,
            staged_at=0,
            folder=files.folder,
            files=[],
            counts={"rows": 0, "to:publish": 0, "to:quarantine": 0},
            facts={FACT: files.fact(), "watermark": [watermark, False]},
        )
        self.lake.staged.settle(row, application=f"stage/{plan.epoch}")
        return row


def test_all_that_has_landed_and_how_far_time_comes(tmp_path: Path) -> None:
    log = Log(tmp_path)
    assert isinstance(log.next(), Waiting)
    log.landed("events", 5, 10)
    plan = log.plan()
    assert stored_plan(plan.row()) == plan
    assert [(span.after, span.upto, span.rows) for span in plan.takes] == [(0, 1, 5), (0, 0, 0)]
    assert (plan.state.end, plan.state.watermark) == (MIN_TIMESTAMP, (MIN_TIMESTAMP, False))
    waiting = log.next(plan)
    assert isinstance(waiting, Waiting)
    assert waiting.reason == "no rows of events or rules have landed since the last epoch"
    log.landed("rules", 0, 7)
    moved = log.plan(plan)  # no row, and the time has moved
    assert (moved.state.before, moved.state.end, moved.rows) == (MIN_TIMESTAMP, 7, 0)
    log.landed("rules", 0, 7)
    assert isinstance(log.next(moved), Waiting)  # it stands still


def test_what_a_process_gives_is_read_where_its_target_lies_and_else_as_a_source(tmp_path: Path) -> None:
    log = Log(tmp_path)
    pipeline, target = log.on_lake.pipeline, log.on_lake.target
    assert Stream.of(log.lake, pipeline, target.name).path == log.lake.target_path(target)
    assert Stream.of(log.lake, pipeline, "events") == Stream(log.lake, "events")
    log.landed(target.name, 5)
    own = Stream.of(log.lake, pipeline, target.name).generation(1)
    assert (own.landed(0, 1), own.removed.nothing, own.there()) == (5, True, 0)


def test_steps_are_in_the_order_in_which_they_landed(tmp_path: Path) -> None:
    log = Log(tmp_path)
    for table, timestamp, at in [("events", 5, 10), ("rules", 3, 11), ("rules", 8, 9), ("events", 9, 12)]:
        log.landed(table, 1, timestamp, at)
    plan = log.plan()
    spec = log.spec
    found = epoch_steps(log.lake, spec, plan.takes, last=plan.state.last, before=MIN_TIMESTAMP, now=0)
    # A clock that went back (9 after 11) does not put an epoch before the one that it followed.
    assert found.of_input == ((0, 3), (1, 2))
    assert found.steps.at == (MIN_TIMESTAMP, MIN_TIMESTAMP, 3, 5)
    assert found.steps.end == plan.state.end == 8


RULES_ARE_FILES = SCRIPT.replace(
    "rule BIGINT, at TIMESTAMP(3), WATERMARK FOR at AS at) WITH ('connector' = 'scripted')",
    "rule BIGINT) WITH ('connector' = 'filesystem', 'path' = 'rules', 'format' = 'json')",
)
IN_PHASES = SCRIPT.replace("'scripted'", "'scripted', 'phases' = 'true', 'signals' = 'true'")


@pytest.mark.parametrize(
    ("script", "function", "waits"),
    [
        pytest.param(RULES_ARE_FILES, fn.Ruled(), True, id="broadcast"),
        pytest.param(IN_PHASES, fn.Paired(), True, id="phases"),
        pytest.param(RULES_ARE_FILES, fn.Paired(), False, id="neither"),
        pytest.param(SCRIPT, fn.Ruled(), False, id="without phases, written by hand"),
    ],
)
def test_a_process_waits_for_a_flip_and_takes_what_landed_before_it_first(
    tmp_path: Path, script: str, function: Any, waits: bool
) -> None:
    log = Log(tmp_path, script, function)
    if script == IN_PHASES:  # both have phases
        log.landed("events", 0, at=1)
    log.landed("events", 3, at=10)
    log.landed("rules", 2, at=20, flip=None)
    spec = log.spec
    if not waits:
        assert log.plan()
        return
    waiting = log.next()
    assert isinstance(waiting, Waiting)
    assert (waiting.rows, waiting.unflipped) == (5, ("rules",))
    assert waiting.reason == "rules is still loading: it has not flipped yet"
    log.landed("rules", 1, at=30, flip=2)
    log.landed("events", 1, at=40)
    log.landed("rules", 1, at=50, flip=2)
    plan = log.plan()
    assert [span.loaded for span in plan.takes] == [1 if script == IN_PHASES else 0, 2]
    assert stored_plan(plan.row()) == plan
    found = planned_steps(log.lake, spec, plan)
    wanted = ((0, 3, 4), (1, 2, 5)) if script == IN_PHASES else ((2, 3), (0, 1, 4))
    assert found.of_input == wanted
    log.landed("rules", 1, at=60, flip=2)
    later = log.plan(plan)
    assert [span.loaded for span in later.takes] == [0, 0]
    assert "loaded" not in str(later.row().plan), "as plans of before there was such a flip"


def test_an_input_that_was_started_again_is_refused(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.landed("events", 1)
    plan = log.plan()
    log.landed("events", 1, generation=2)
    with pytest.raises(PlanningError, match=r"events was started again \(generation 2\)"):
        log.next(plan)


def planned_for_another_function(folder: Path) -> tuple[Log, ReleasePlan]:
    """A log with an epoch that is planned, for a function that is no more."""
    log = Log(folder)
    log.landed("events", 1, 5)
    plan = log.plan()
    old = replace(plan, computes="another function")
    log.planned(old)
    return log, old


def test_an_epoch_that_was_planned_for_another_function_is_planned_anew(tmp_path: Path) -> None:
    log, old = planned_for_another_function(tmp_path)
    log.landed("events", 1, 9)
    on_lake, releasing = log.on_lake, log.releasing()
    with pytest.raises(PlanningError, match="has changed since epoch 1 was planned"):
        releasing.stage(old)
    plan = releasing.plan()
    assert isinstance(plan, ReleasePlan)
    computes = on_lake.computes
    assert plan == replace(old, epoch=2, instant=7, computes=computes, definition=1, supersedes=1)
    assert releasing.plan() == plan == releasing.position().plan
    assert state_before(on_lake, 2, 0).epochs == ()  # nothing is missed of epoch 1
    planner = ProcessPlanner(on_lake, lambda: 8)
    assert old.state is not None
    with pytest.raises(PlanningError, match="epoch 1 is planned over rules, events"):
        planner.anew(replace(old, takes=old.takes[::-1]))


def test_what_is_staged_is_the_old_functions(tmp_path: Path) -> None:
    log, old = planned_for_another_function(tmp_path)
    log.staged(old)
    assert log.releasing().plan() == old


def test_another_key_is_refused_before_anything_is_planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.pipelines.runtime.processes.state.committed", lambda path, application: 1)
    log = Log(tmp_path)
    log.landed("events", 1)
    plan = log.plan()
    log.planned(plan)
    log.staged(plan, key="other")
    log.landed("events", 1)
    with pytest.raises(PlanningError, match="has stored its state by other string, and is now given k string"):
        log.next(plan)


def test_idleness_alone_is_an_epoch(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.landed("events", 1, 5)
    log.landed("rules", 1, 7)
    first = log.plan()
    log.landed("events", 0, 5, idle=True)
    second = log.plan(first)
    assert second.state.end == 7  # rules alone
    log.landed("rules", 0, 7, idle=True)
    third = log.plan(second)  # now all of them are, which is in the log
    log.landed("rules", 0, 7, idle=True)
    assert isinstance(log.next(third), Waiting)


def test_in_processing_time_the_plans_moment_is_its_end(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.landed("events", 1, at=100, now=True)
    log.landed("rules", 1, at=110, now=True)
    log.landed("events", 1, at=120, now=True)
    plan = log.plan(now=500)
    assert (plan.state.end, plan.state.watermark) == (500, (MIN_TIMESTAMP, True))
    assert isinstance(log.next(plan, now=600), Waiting)


def test_a_run_follows_the_clock_no_further_than_its_beginning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A timer in processing time that is always set again is due at every plan: a run ends all the same."""
    monkeypatch.setattr("tidegate.pipelines.runtime.processes.state.committed", lambda path, application: 1)
    log = Log(tmp_path)
    log.landed("events", 1, at=100, now=True)
    log.landed("rules", 1, at=110, now=True)
    first = log.plan(now=502, until=500)
    assert (first.instant, first.state.end) == (502, 500)
    log.planned(first)
    log.staged(first, timer=503)
    assert isinstance(log.next(first, now=504, until=500), Waiting)
    second = log.plan(first, now=600, until=590)
    assert (second.state.before, second.state.end) == (500, 590)
    assert log.plan(first, now=504)


def test_a_held_epoch_ends_where_it_was_planned_to_end(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.landed("events", 1, at=100, now=True)
    log.landed("rules", 1, at=110, now=True)
    held, spec = log.plan(now=500), log.spec
    log.planned(held)
    position = Position(held, log.staged(held), verdict_of(held, "no"), 0)
    again = ProcessPlanner(log.on_lake, lambda: 900).instead_of(position, "re-release", None)
    assert (again.instant, again.supersedes) == (900, 1)
    assert planned_steps(log.lake, spec, again).steps.end == again.state.end == 500
    log.landed("events", 1, at=600, now=True)
    log.landed("rules", 1, at=600, now=True)
    spans = [replace(span, after=1, upto=2) for span in again.takes]
    after = epoch_steps(log.lake, spec, spans, last=(MIN_TIMESTAMP, True), before=again.state.end, now=600)
    assert after.steps.at == (600, 600)


def test_the_outputs_watermark_stands_through_two_holds(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.landed("events", 1, 5)
    log.landed("rules", 1, 5)
    first = log.plan()
    held = replace(first, epoch=2)
    again = replace(first, epoch=3, supersedes=2)
    last = replace(first, epoch=4, supersedes=3)
    for plan in (first, held, again, last):
        log.planned(plan)
    log.staged(first, 5)
    tables = ProcessTables(log.on_lake)
    assert time_after(tables, last, []) == OutputsTime(5)
    assert time_after(tables, last, [{"emitted": {TIME: 9}}, {"emitted": {TIME: 7}}]) == OutputsTime(7)


@pytest.mark.parametrize("lost", [1, 3])
def test_state_that_no_row_tells_of_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: int) -> None:
    monkeypatch.setattr("tidegate.pipelines.runtime.processes.state.committed", lambda path, application: 3)
    log = Log(tmp_path)
    log.landed("events", 1)
    first = log.plan()
    plans = [first, replace(first, epoch=2), replace(first, epoch=3, supersedes=2)]
    for plan in plans:
        log.planned(plan)
        if plan.epoch not in (2, lost):
            log.staged(plan)
    with pytest.raises(LakeError, match=f"state of paired is lost: no row says what epoch {lost} has written"):
        log.next(plans[-1])
    log.staged(plans[lost - 1])
    assert [epoch.folder for epoch in state_before(log.on_lake, 4, 0).epochs] == ["g1-e1-x", "g1-e3-x"]
    assert [epoch.folder for epoch in state_before(log.on_lake, 4, 3).epochs] == ["g1-e3-x"]


# --- publishing -------------------------------------------------------------------------------------------------------


def full(*arguments: Any, **more: Any) -> int:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_is_a_failed_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log(tmp_path)
    log.landed("events", 1)
    plan = log.plan()
    log.planned(plan)
    staged = log.staged(plan)
    store(log.lake, verdict_of(plan))
    releasing = log.releasing()
    monkeypatch.setattr(TableSink, "adopt", full)
    with pytest.raises(StepFailed, match="No space left on device") as failed:
        releasing.publish()
    assert failed.value.state == "the epoch passed the gate; where it was added it stands, and is added once"
    assert "epoch 1" in failed.value.where
    monkeypatch.setattr(type(log.lake.watermarks), "append", full)
    with pytest.raises(StepFailed, match="No space left on device") as failed:
        releasing._made(plan, releasing.commits(plan, staged).after[-1])
    assert failed.value.state == "the epoch is published; its watermark is logged with the next run"


def test_a_log_row_that_is_lost_is_written_before_the_next_epoch_s(tmp_path: Path) -> None:
    """Of a published epoch whose next one is planned already, as a power cut may leave the lake."""
    log = Log(tmp_path)
    log.landed("events", 1)
    first = log.plan()
    log.planned(first)
    log.staged(first, watermark=5)
    store(log.lake, verdict_of(first))
    mark(Path(log.on_lake.target_path), {log.lake.application(log.on_lake.owner, "publish", 1): 1})
    log.planned(replace(first, epoch=2))
    assert log.lake.watermarks.last("paired") is None
    log.releasing()._log_again()
    row = log.lake.watermarks.last("paired")
    assert (row.epoch, row.timestamp) == (1, 5)
    log.releasing()._log_again()
    assert len(log.lake.watermarks.rows("paired")) == 1
