"""Lakes whose INSERT has published many epochs, what is decoded of their control tables, and their upkeep."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from tests.pipelines.runtime.handmade import HandmadeLake, all_counts, made_once, store_together, verdict_of
from tests.pipelines.runtime.plans import asked_for
from tidegate.pipelines.clock import system_clock
from tidegate.pipelines.connectors.protocol import Step
from tidegate.pipelines.lake import Lake, StagedRow, WatermarkRow
from tidegate.pipelines.lake.records import Record, Sums
from tidegate.pipelines.runtime.epochs import Asked, ReleasePlan, source_row
from tidegate.pipelines.runtime.upkeep import Upkeep

ROWS = 3
"""Of every epoch: one is published, one dropped, one quarantined."""


@made_once
def grown(made: HandmadeLake, epochs: int) -> None:
    """A lake whose INSERT has published `epochs`; the last of them by commits of their own, as ticks leave them."""
    made.landed("users", 1, 5, flip=1)
    grow(made, 1, epochs - 20)
    for epoch in range(max(epochs - 20, 0) + 1, epochs + 1):
        grow(made, epoch, epoch)
    made.published(plan_of(made, epochs))
    made.appended("clicks", epochs)


def plan_of(made: HandmadeLake, epoch: int) -> ReleasePlan:
    """The plan of an epoch, which takes that epoch of the probe."""
    return made.planned_row(epoch, epoch - 1, epoch, rows=ROWS, earlier=ROWS * (epoch - 1))


def asked_at(made: HandmadeLake, epoch: int, asked: Asked, rows_again: int = 0, **changed: Any) -> ReleasePlan:
    """The plan of an epoch that a person asked for: of what has landed it takes `rows_again` once more."""
    last = plan_of(made, epoch - 1)
    own = replace(last.first.nothing(), rows_again=rows_again)
    return asked_for(last, asked, own, epoch=epoch, instant=epoch * 1000, **changed)


def grow(made: HandmadeLake, first: int, last: int) -> None:
    """Land, stage and judge the epochs from `first` to `last`, in one commit of each table."""
    epochs = range(first, last + 1)
    if not epochs:
        return
    plans = [plan_of(made, epoch) for epoch in epochs]
    steps = [
        source_row("clicks", 1, epoch, epoch * 1000, Step({"from": epoch - 1, "to": epoch}, "unbounded"))
        for epoch in epochs
    ]
    log = []
    for epoch in epochs:
        row = WatermarkRow("clicks", 1, epoch, epoch * 1000, ROWS, 0, True, flip_epoch=1, flipped_at=1, late=1)
        log.append(replace(row, sums=Sums(epoch, ROWS * epoch, epoch)))
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

    def seen(cls: type[Record], owner: str, row: Mapping[str, Any]) -> Record:
        found[cls.table] += 1
        return of(cls, owner, row)

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
