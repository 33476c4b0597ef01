"""The plan of an epoch: as it is stored, read back, what each says of its rows, and which ends a run."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.pipelines.runtime.handmade import pipeline
from tests.pipelines.runtime.plans import asked_for, release, shifted, taken
from tidegate.pipelines.errors import LakeError
from tidegate.pipelines.lake import EpochRow, Lake
from tidegate.pipelines.lake.records import NewerRecord
from tidegate.pipelines.lake.releasable import Area, Part
from tidegate.pipelines.runtime.epochs import Asked, Bounds, Lot, Pin, ReleasePlan, StateSpan, stored_plan, stored_step
from tidegate.pipelines.runtime.epochs.position import End
from tidegate.pipelines.runtime.releasing.insert_runner import Published
from tidegate.pipelines.runtime.runner import Runner
from tidegate.pipelines.watermarks import MIN_TIMESTAMP, Watermark

LOT = Lot("unmatched:deleted@u", 1, 2, 3, 0, 4)
PINS = (Pin("users", 1, 2, 1), Pin("rates", 1, 3, 1, horizon=7))
AREA = Area(0, 3, 5, 9)
CLICKS = taken("clicks", 1, 3, 200, 100)
STREAM = release("e", 2, CLICKS, instant=5, pins=PINS, computes="c")
IN_TIME = release("e", 2, replace(CLICKS, rows=4, earlier=6), bounds=Bounds(10, 20), since=1, instant=5, pins=PINS)
PART = Part((AREA,), (AREA,))
REPLACED = replace(IN_TIME.first, after=3, fresh=(PART,), again=(PART,), rows_again=4, ahead=(AREA,))
SPANS_ASKED = Asked(((5, 9), (20, 30)))
FILL = asked_for(IN_TIME, SPANS_ASKED, REPLACED, kind="backfill", replaces=((1, 2),), lots=(LOT,), oldest=4)
ASKED = Asked((), ("deleted",), (1,), 5, by="ada", because="x")
AGAIN = asked_for(STREAM, ASKED, kind="quarantine-release", lots=(LOT,), oldest=4)
DISCARD = asked_for(IN_TIME, Asked(discards=True), kind="quarantine-discard", lots=(LOT,))
INPUTS = (CLICKS, taken("rules", 0, 2, 1, loaded=2))
PROCESS = replace(STREAM, pins=(), takes=INPUTS, state=StateSpan(0, 9, (0, False), (9, True), base=1, rewrite=True))


BY_KIND = {"ids": lambda value: type(value).__name__ if isinstance(value, ReleasePlan) else ""}


@pytest.mark.parametrize("plan", [STREAM, IN_TIME, FILL, AGAIN, DISCARD, PROCESS], **BY_KIND)
def test_a_plan_is_read_back_as_it_was_stored(plan: ReleasePlan) -> None:
    stored = EpochRow.from_row(plan.row().owner, plan.row().to_row())
    assert stored_plan(stored) == plan
    assert stored.digest == plan.digest == stored_plan(stored).digest


def test_what_a_plan_leaves_out_is_not_stored() -> None:
    """So that a field which comes later does not change what an earlier plan is called."""
    assert STREAM.row().plan.keys() == {"kind", "instant", "takes", "pins", "on_unmatched", "computes"}
    assert "horizon" not in STREAM.row().plan["pins"][0]


def records_in(stored: Any) -> Iterator[dict[str, Any]]:
    """All that a plan stores with fields of its own, itself first."""
    if isinstance(stored, dict):
        yield stored
    for item in stored.values() if isinstance(stored, dict) else stored if isinstance(stored, list) else ():
        yield from records_in(item)


@pytest.mark.parametrize("plan", [STREAM, IN_TIME, FILL, AGAIN, DISCARD, PROCESS], **BY_KIND)
def test_a_plan_with_a_field_of_a_newer_tidegate_is_refused_wherever_it_is(plan: ReleasePlan) -> None:
    row = EpochRow.from_row(plan.row().owner, plan.row().to_row())
    for number in range(len(list(records_in(row.plan)))):
        stored = copy.deepcopy(dict(row.plan))
        list(records_in(stored))[number]["paused"] = 1
        with pytest.raises(LakeError, match="paused") as refused:
            stored_plan(replace(row, plan=stored))
        assert "generation 1, epoch 2" in refused.value.where
        assert refused.value.state == "nothing was changed"
        assert "install the Tidegate" in refused.value.next_command


def test_a_step_of_a_source_with_a_field_of_a_newer_tidegate_is_refused() -> None:
    row = EpochRow("clicks", 1, 2, "source", 5, {"ranges": {}, "paused": 1})
    with pytest.raises(NewerRecord, match="wrote this Step: this one does not know its paused") as refused:
        stored_step(row)
    assert refused.value.where == "clicks, generation 1, epoch 2 of the lake's epochs"


@pytest.mark.parametrize(
    ("plan", "rows", "as_landed", "waiting", "taken"),
    [
        (STREAM, 200, 200, 200, 300),
        (IN_TIME, 4, 4, 4, 10),
        (FILL, 11, 8, 4, 10),
        (AGAIN, 3, 0, 0, 300),
        (DISCARD, 0, 0, 0, 10),
        (PROCESS, 201, 201, 200, 300),
    ],
    **BY_KIND,
)
def test_how_many_rows_a_plan_takes(plan: ReleasePlan, rows: int, as_landed: int, waiting: int, taken: int) -> None:
    found = plan.rows, plan.rows_landed, plan.rows_waiting, plan.first.taken
    assert found == (rows, as_landed, waiting, taken)


@pytest.mark.parametrize(
    ("plan", "reads", "oldest", "late"),
    [
        (STREAM, (1, 3), MIN_TIMESTAMP, None),
        (IN_TIME, (1, 3), MIN_TIMESTAMP, 10_000),
        (FILL, (0, 4), 4, None),
        (AGAIN, (0, 4), 4, None),
        (DISCARD, (0, 0), MIN_TIMESTAMP, None),
        (PROCESS, (1, 3), MIN_TIMESTAMP, None),
    ],
    **BY_KIND,
)
def test_what_a_plan_reads(plan: ReleasePlan, reads: tuple[int, int], oldest: int, late: int | None) -> None:
    assert (plan.reads, plan.oldest, plan.late_upto) == (reads, oldest, late)
    assert [t.table for t in plan.takes] == (["clicks", "rules"] if plan is PROCESS else ["clicks"])


def test_a_discard_takes_nothing_that_waits_or_stays_elsewhere() -> None:
    fill, again = replace(FILL, kind="discard").given_up(), replace(AGAIN, kind="discard").given_up()
    assert (fill.first.parts, fill.lots, fill.rows, fill.ahead_of(fill.first)) == ((), (), 0, (AREA,))
    assert (fill.spans, fill.oldest) == (FILL.spans, FILL.oldest)
    assert (again.rows, again.lots, again.asked.by) == (0, (), "ada")
    assert IN_TIME.given_up() == IN_TIME


def test_what_a_discard_gives_up_is_not_what_was_asked_for() -> None:
    assert FILL.answers(SPANS_ASKED)
    assert not replace(FILL, kind="discard").answers(SPANS_ASKED)
    assert not IN_TIME.answers(SPANS_ASKED)
    assert AGAIN.answers(ASKED)
    assert not replace(AGAIN, kind="discard").answers(ASKED)
    assert not AGAIN.answers(replace(ASKED, epochs=()))


def test_how_far_what_is_published_is_complete() -> None:
    now, emitted = Watermark(MIN_TIMESTAMP, True), Watermark(50)
    assert [plan.complete_until(emitted) for plan in (STREAM, IN_TIME, FILL, AGAIN, DISCARD)] == [
        emitted, Watermark(20), Watermark(20), emitted, Watermark(20),
    ]  # fmt: skip
    assert replace(IN_TIME, instant=20).complete_until(now) == now
    assert replace(IN_TIME, instant=21).complete_until(now) == Watermark(20)
    assert PROCESS.complete_until(emitted) == Watermark(9, True)


OVER_SPANS = replace(PROCESS, takes=(taken("a", 0, 3), taken("b", 0, 5)))


@pytest.mark.parametrize(
    ("plan", "end", "reached"),
    [
        (STREAM, End({"clicks": (1, 3)}), True),
        (STREAM, End({"clicks": (1, 4)}), False),
        (STREAM, End({"clicks": (2, 1)}), False),
        (STREAM, End({}), True),
        (replace(STREAM, kind="discard"), End({"clicks": (1, 3)}), True),
        (IN_TIME, End({"clicks": (1, 3)}, 20), True),
        (IN_TIME, End({"clicks": (1, 3)}, 21), False),
        (OVER_SPANS, End({"a": (1, 3), "b": (1, 5)}), True),
        (OVER_SPANS, End({"a": (1, 3), "b": (1, 6)}), False),
    ],
)
def test_which_epoch_is_the_last_one_of_a_run(plan: ReleasePlan, end: End, reached: bool) -> None:
    assert end.reached(plan) is reached


def test_a_run_ends_though_more_lands_all_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each epoch takes one more epoch of the probe, of which another runner always lands the next."""
    planned = (replace(shifted(STREAM, upto=number), insert="enriched", epoch=number) for number in itertools.count(1))
    published = (replace(shifted(STREAM, upto=number), epoch=number) for number in itertools.count(1))

    def publish(runner: Runner, insert: str) -> Published:
        plan = next(published)
        return Published(insert, 1, plan.epoch, 1, 0, plan, None)  # type: ignore[arg-type]

    monkeypatch.setattr(Runner, "stage", lambda *_: (next(planned), None))
    monkeypatch.setattr(Runner, "judge", lambda *_: SimpleNamespace())
    monkeypatch.setattr(Runner, "publish", publish)
    with Runner(pipeline(), Lake(tmp_path)) as runner:
        epochs = runner.epochs("enriched", End({"clicks": (1, 3)}))
        assert [epoch.epoch for epoch in epochs] == [1, 2, 3]
