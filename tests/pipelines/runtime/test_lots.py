"""What plans say of quarantined rows, read from control tables alone: no Spark."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.pipelines.runtime.handmade import HandmadeLake, store
from tidegate.pipelines.errors import PlanningError
from tidegate.pipelines.runtime.accounting import where_rows_are
from tidegate.pipelines.runtime.epochs import FromQuarantine, Lot, ReleasePlan, StreamRequeue, stored_plan
from tidegate.pipelines.runtime.epochs.history import history_of
from tidegate.pipelines.runtime.quarantine import QuarantinedRows, chosen, lots_of, quarantined_in

ABSENT, DELETED = "unmatched:key-absent@u", "unmatched:deleted@u"


@pytest.fixture
def made(tmp_path: Path) -> HandmadeLake:
    """Epochs 1 to 4: each publishes six rows and quarantines rows; the second has none that are deleted."""
    made = HandmadeLake(tmp_path / "lake")
    made.landed("users", 1, 5, flip=1)
    for epoch in range(1, 5):
        made.landed("clicks", epoch, 10)
        deleted = 0 if epoch == 2 else 1
        absent = epoch + 1 - deleted
        found = {"matched": 9 - epoch, "unmatched_key_absent_u": absent, "unmatched_deleted_u": deleted}
        made.released(epoch, epoch - 1, epoch, **found)
    return made


def quarantined_rows(made: HandmadeLake) -> list[QuarantinedRows]:
    return quarantined_in(history_of(made.lake, made.pipeline, made.insert))


def lots(made: HandmadeLake, request: FromQuarantine) -> tuple[Lot, ...]:
    return lots_of(chosen("enriched", quarantined_rows(made), request), quarantined_rows(made))


def taken(made: HandmadeLake, epoch: int, request: FromQuarantine, **found: int) -> ReleasePlan:
    """Publish an epoch that takes what is asked for."""
    kind = "quarantine-discard" if request.discards else "quarantine-release"
    drafted = stored_plan(made.lake.epochs.rows(made.owner)[-1]).as_kind(
        StreamRequeue,
        epoch=epoch,
        kind=kind,
        after=4,
        upto=4,
        from_quarantine=replace(request, lots=lots(made, request)),
    )
    store(made.lake, drafted.row())
    plan = stored_plan(made.lake.epochs.rows(made.owner)[-1])
    assert plan == drafted
    made.staged(plan, **found)
    made.judged(plan)
    made.published(plan)
    return plan


def states(made: HandmadeLake) -> list[tuple[int, str, int, str]]:
    return [(item.epoch, item.short, item.rows, item.state) for item in quarantined_rows(made)]


def test_wholes_that_follow_one_another_are_one_lot(made: HandmadeLake) -> None:
    assert lots(made, FromQuarantine(discards=False)) == (
        Lot(DELETED, 1, 4, 3, 0, 4),
        Lot(ABSENT, 1, 4, 1 + 3 + 3 + 4, 0, 4),
    )
    assert lots(made, FromQuarantine(discards=False, epochs=(1, 3, 4))) == (
        Lot(DELETED, 1, 4, 3, 0, 4),  # the second epoch had none of these
        Lot(ABSENT, 1, 1, 1, 0, 1),
        Lot(ABSENT, 3, 4, 7, 2, 4),
    )


@pytest.mark.parametrize("reason", ["unmatched:deleted@u", "deleted@u", "deleted"])
def test_a_reason_may_be_given_short(made: HandmadeLake, reason: str) -> None:
    assert lots(made, FromQuarantine(discards=False, reasons=(reason,))) == (Lot(DELETED, 1, 4, 3, 0, 4),)


def test_what_is_taken_is_counted_where_it_is(made: HandmadeLake) -> None:
    plan = taken(made, 5, FromQuarantine(False, epochs=(1, 2)), matched=3, unmatched_key_absent_u=2)
    assert (plan.reads, plan.follows, sum(lot.rows for lot in plan.lots)) == ((0, 2), False, 5)
    discard = FromQuarantine(True, reasons=("deleted",), by="ada", because="gone for good")
    assert taken(made, 6, discard).lots == ()
    assert states(made) == [
        (1, "deleted@u", 1, "released"),
        (1, "key-absent@u", 1, "released"),
        (2, "key-absent@u", 3, "released"),
        (3, "deleted@u", 1, "discarded"),
        (3, "key-absent@u", 3, "open"),
        (4, "deleted@u", 1, "discarded"),
        (4, "key-absent@u", 4, "open"),
        (5, "key-absent@u", 2, "open"),
    ]
    epochs = history_of(made.lake, made.pipeline, made.insert)
    rows = where_rows_are(made.lake, "enriched", "clicks", epochs)
    assert (rows.landed, rows.matched, rows.waiting, rows.balanced) == (40, 8 + 7 + 6 + 5 + 3, 0, True)
    assert rows.quarantined == {"key-absent@u": 9, "discarded": 2}
    assert rows.released_again == {"key-absent@u": 4, "deleted@u": 1}
    assert rows.in_quarantine == 16
    # What is left is taken once, and leaves out what somebody has decided.
    assert lots(made, FromQuarantine(discards=True)) == (Lot(ABSENT, 3, 5, 9, 0, 4),)
    assert lots(made, FromQuarantine(discards=False, epochs=(1, 2))) == ()
    assert lots(made, discard) == ()


def test_what_never_was_is_refused(made: HandmadeLake) -> None:
    with pytest.raises(PlanningError, match="was ever quarantined for the reason key-null"):
        lots(made, FromQuarantine(discards=False, reasons=("key-null",)))
    with pytest.raises(PlanningError, match="was ever quarantined in epoch 5"):
        lots(made, FromQuarantine(discards=True, epochs=(5,)))


def test_plans_of_before_keep_their_digests(made: HandmadeLake) -> None:
    for row in made.lake.epochs.rows(made.owner):
        assert "from_quarantine" not in row.plan
        assert stored_plan(row).digest == row.digest
