"""How far retention may go, and what is refused once versions are gone: by the control tables alone, without Spark."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from tests.pipelines.runtime.handmade import mark, no_spark, store, verdict_of
from tests.pipelines.runtime.plans import STATE, asked_for, release, taken
from tests.pipelines.runtime.plays import RATES
from tests.pipelines.runtime.processes import functions as fn
from tidegate.pipelines.connectors.options import OnUnmatched
from tidegate.pipelines.errors import PlanningError
from tidegate.pipelines.joins.outcome import outcomes
from tidegate.pipelines.lake import Lake, StagedRow, WatermarkRow
from tidegate.pipelines.lake.layout import beside
from tidegate.pipelines.lake.stream import Removed, Stream
from tidegate.pipelines.runtime.definitions import Definitions
from tidegate.pipelines.runtime.epochs import Asked, Bounds, Lot, Pin, ReleasePlan, insert_owner, stored_plan
from tidegate.pipelines.runtime.epochs.history import ReleasedEpoch
from tidegate.pipelines.runtime.epochs.position import InsertOnLake, Position
from tidegate.pipelines.runtime.quarantine import may_match
from tidegate.pipelines.runtime.releasing.backfill import BackfillPlanner
from tidegate.pipelines.runtime.releasing.swap import begin, give_up
from tidegate.pipelines.runtime.retention import Horizon, Retention
from tidegate.pipelines.sql import compile_script
from tidegate.pipelines.sql.canonical import computes
from tidegate.pipelines.watermarks import MAX_TIMESTAMP, MIN_TIMESTAMP

SCRIPT = RATES.format(policy="publish", kind="LEFT", more="").replace(
    "ENFORCED) WITH (", "ENFORCED) WITH ('phases' = 'true', 'signals' = 'true', "
)
PIPELINE = compile_script(SCRIPT)
INSERT = PIPELINE.insert("converted")
RATES_TABLE = PIPELINE.table("rates")
TEN = timedelta(milliseconds=10)


class ByHand:
    """A lake of control rows: rates and orders have landed up to epoch 1, with these watermarks."""

    def __init__(self, root: Path, rates: int = 1_000, orders: int = 1_000) -> None:
        self.lake = Lake(root)
        self.landed("rates", 1, 1, rates)
        self.landed("orders", 1, 1, orders)
        self.retention = Retention(self.lake, PIPELINE, lambda: 0, {})
        self.planner = BackfillPlanner(InsertOnLake(self.lake, PIPELINE, INSERT), lambda: 5, no_spark, {})

    def landed(self, table: str, generation: int, epoch: int, watermark: int, rows: int = 0) -> None:
        row = WatermarkRow(table, generation, epoch, 0, rows, watermark, False, flip_epoch=1, flipped_at=0)
        store(self.lake, row)

    def plan(
        self, *, least: int | None, horizon: int | None = None, watermark: int = 900, insert: str = "converted"
    ) -> ReleasePlan:
        """Epoch 1 of the INSERT, planned and no more: the releases before it stood at 800."""
        plan = release(
            insert,
            1,
            taken("orders", 0, 1, 1),
            bounds=Bounds(800, watermark),
            pins=(Pin("rates", 1, 1, 1, horizon),),
            on_unmatched="publish",
            computes=computes(PIPELINE, INSERT),
            oldest=MIN_TIMESTAMP if least is None else least,
        )
        store(self.lake, plan.row())
        assert stored_plan(plan.row()) == plan
        return plan

    def publish(self, plan: ReleasePlan) -> None:
        store(self.lake, verdict_of(plan))
        target, number = self.lake.target_path(PIPELINE.table("converted")), plan.generation
        mark(
            Path(target if number == 1 else beside(target, number)),
            {self.lake.application(insert_owner(plan.insert), "publish", number): 1},
        )

    def removed(self, **marks: int) -> None:
        """What retention has removed of rates: `time` (ms), `epoch`, `rows`."""
        found = {self.lake.application("rates", f"retention-{name}", 1): value for name, value in marks.items()}  # type: ignore[arg-type]
        mark(Path(self.lake.table_path("rates")), found)

    def lost_before_500(self) -> None:
        """Retention has removed versions of rates that were valid before 500 ms: a row that landed is gone."""
        self.removed(time=500)
        self.landed("rates", 1, 2, 1_000, rows=1)

    def horizon(self) -> Horizon:
        found = self.retention.horizon(RATES_TABLE, 1, TEN)
        assert isinstance(found, Horizon), found
        return found


@pytest.mark.parametrize(
    ("least", "horizon", "expected"),
    [
        (850, None, 790),  # as far as the releases before it stood
        (300, None, 290),  # a late row of the plan
        (300, 500, 490),  # it is before the horizon that the plan knew, so it finds nothing in any case
        (MAX_TIMESTAMP, None, 790),  # no row of the plan has a time
    ],
)
def test_a_plan_that_is_not_published_holds_retention_by_its_least_time(
    tmp_path: Path, least: int, horizon: int | None, expected: int
) -> None:
    hand = ByHand(tmp_path)
    hand.plan(least=least, horizon=horizon)
    assert hand.horizon() == Horizon(expected, None, pinned=1)


def test_a_plan_without_a_least_time_holds_all(tmp_path: Path) -> None:
    hand = ByHand(tmp_path)
    hand.plan(least=None)
    assert hand.retention.horizon(RATES_TABLE, 1, TEN) == "nothing is old enough"


def test_once_all_inputs_have_ended_any_version_with_a_successor_may_go(tmp_path: Path) -> None:
    hand = ByHand(tmp_path, MAX_TIMESTAMP, MAX_TIMESTAMP)
    hand.publish(hand.plan(least=850, watermark=MAX_TIMESTAMP))
    assert hand.horizon() == Horizon(MAX_TIMESTAMP, None)


def test_an_insert_that_the_script_does_not_name_is_asked_too(tmp_path: Path) -> None:
    hand = ByHand(tmp_path)
    alone = Retention(hand.lake, replace(PIPELINE, inserts=()), lambda: 0, {})
    hand.publish(hand.plan(least=850))
    assert alone.horizon(RATES_TABLE, 1, TEN) == "nothing is old enough"  # the lake has no definition of it
    Definitions(hand.lake, PIPELINE, {}, lambda: 0).number(insert_owner("converted"))
    held_by = "converted, which this script does not name, has come no further"
    assert alone.horizon(RATES_TABLE, 1, TEN) == Horizon(890, None, held_by=held_by)
    assert hand.horizon() == Horizon(890, None)


def test_a_generation_beside_holds_the_versions_that_it_may_still_meet(tmp_path: Path) -> None:
    hand = ByHand(tmp_path)
    hand.publish(hand.plan(least=850))
    assert hand.horizon() == Horizon(890, None)
    assert begin(hand.lake, PIPELINE, "converted", lambda: 0) == 2
    made = PIPELINE.in_generation(INSERT, 2, beside=True)
    Definitions(hand.lake, made, {}, lambda: 0).number(insert_owner("converted~2"))
    hand.publish(hand.plan(least=850, watermark=850, insert="converted~2"))
    held_by = "converted~2, which this script does not name, has come no further"
    assert hand.horizon() == Horizon(840, None, held_by=held_by)
    give_up(hand.lake, PIPELINE, "converted", 2, hand.lake.leases("a person"), lambda: 0)
    assert hand.horizon() == Horizon(890, None)


def test_a_process_holds_the_rows_that_it_has_not_read(tmp_path: Path) -> None:
    """It has to meet every version once, also those that no join asks for any more."""
    hand = ByHand(tmp_path)
    hand.publish(hand.plan(least=850))
    columns = "k STRING, number BIGINT, name STRING, at TIMESTAMP(3)"
    reading = Retention(hand.lake, PIPELINE.process("copied", "rates", None, fn.Forwarded(), columns), lambda: 0, {})
    assert hand.horizon() == Horizon(890, None)
    assert reading.horizon(RATES_TABLE, 1, TEN) == "copied has not read anything yet"
    for epoch, after in ((1, 0), (2, 3)):
        store(hand.lake, release("copied", epoch, taken("rates", after, after + 3, 5), state=STATE).row())
        held_by = "" if after else "copied, which has to meet every row, has not read all of it"
        assert reading.horizon(RATES_TABLE, 1, TEN) == Horizon(890, None, pinned=after, held_by=held_by)
    assert hand.horizon() == Horizon(890, None, pinned=3)  # another script's process reads it as well
    assert reading.horizon(RATES_TABLE, 2, TEN) == "converted still joins generation 1"


def test_a_key_that_another_build_gives_holds_retention_where_it_is_null() -> None:
    script = """
        CREATE TABLE a (id INT, b_id INT, t TIMESTAMP(3), WATERMARK FOR t AS t, PRIMARY KEY (id) NOT ENFORCED)
            WITH ('connector' = 'scripted');
        CREATE TABLE b (id INT, name STRING, t TIMESTAMP(3), WATERMARK FOR t AS t, PRIMARY KEY (id) NOT ENFORCED)
            WITH ('connector' = 'scripted');
        CREATE TABLE p (a_id INT, t TIMESTAMP(3), WATERMARK FOR t AS t) WITH ('connector' = 'scripted');
        CREATE TABLE sink (name STRING) WITH ('connector' = 'scripted');
        INSERT INTO sink SELECT b.name FROM p
            JOIN a FOR SYSTEM_TIME AS OF p.t AS a ON p.a_id = a.id
            JOIN b FOR SYSTEM_TIME AS OF p.t AS b ON a.b_id = b.id;
    """
    insert = compile_script(script).inserts[0]
    found = {
        reason: may_match(f"unmatched:{reason}", insert)
        for reason in ("key-null@a", "key-null@b", "key-absent@b", "deleted@a", "beyond-retention@a", "key-null@gone")
    }
    assert found == {
        "key-null@a": False,  # the probe's own column
        "key-null@b": True,
        "key-absent@b": True,
        "deleted@a": True,
        "beyond-retention@a": False,
        "key-null@gone": True,
    }
    assert not may_match("time-null", insert)


def test_what_was_removed_is_in_every_pin_that_is_planned_from_then_on(tmp_path: Path) -> None:
    hand = ByHand(tmp_path)
    assert Stream(hand.lake, "rates").generation(1).removed.nothing
    hand.removed(time=40, epoch=1, rows=2)
    assert Stream(hand.lake, "rates").generation(1).removed == Removed(40, 1, 2)
    assert hand.planner._pins() == (Pin("rates", 1, 1, 1, 40),)
    assert not any("beyond-retention" in name for name in outcomes(INSERT))
    assert [name for name in outcomes(INSERT, retained=True) if "beyond-retention" in name] == [
        "unmatched:beyond-retention@r",
        "dropped:beyond-retention@r",
    ]


def held(hand: ByHand, plan: ReleasePlan) -> Position:
    staged = StagedRow(insert_owner(plan.insert), 1, 1, plan.digest, 0, "folder", [], {}, {})
    return Position(plan, staged, verdict_of(plan, "no"), 0)


@pytest.mark.parametrize("kind", ["backfill", "release"])
def test_a_held_epoch_is_not_joined_again_to_a_snapshot_that_is_newer_than_its_pins(tmp_path: Path, kind: str) -> None:
    hand = ByHand(tmp_path)
    plan = hand.plan(least=850)
    if kind == "backfill":
        plan = asked_for(plan, Asked(((0, 900),)), kind="backfill", oldest=100)
    again = hand.planner.instead_of(held(hand, plan), "re-release", None)
    assert (again.supersedes, again.pins) == (1, plan.pins)
    hand.landed("rates", 2, 1, 1_000)
    with pytest.raises(PlanningError, match="rates was read from a new snapshot since epoch 1 was planned") as caught:
        hand.planner.instead_of(held(hand, plan), "re-release", None)
    assert caught.value.next_command.startswith("tidegate discard SCRIPT converted")
    assert hand.planner.instead_of(held(hand, plan), "discard", None).pins == plan.pins


def test_a_held_backfill_is_not_joined_again_once_versions_of_its_span_are_gone(tmp_path: Path) -> None:
    hand = ByHand(tmp_path)
    plan = hand.plan(least=None)
    span = asked_for(plan, Asked(((0, 900),)), kind="backfill", oldest=100)
    hand.lost_before_500()
    with pytest.raises(PlanningError, match=r"versions of rates that were valid before .* are gone") as caught:
        hand.planner.instead_of(held(hand, span), "re-release", None)
    assert caught.value.next_command.startswith("tidegate discard SCRIPT converted")
    newer = replace(span, asked=Asked(((500, 900),)), oldest=500)
    assert hand.planner.instead_of(held(hand, newer), "re-release", None).pins[0].horizon == 500


@pytest.mark.parametrize(
    ("on_unmatched", "discards", "refused"),
    [("quarantine", False, False), ("publish", False, True), ("publish", True, False)],
)
def test_a_held_release_out_of_quarantine_is_refused_only_where_it_would_publish_without_a_match(
    tmp_path: Path, on_unmatched: OnUnmatched, discards: bool, refused: bool
) -> None:
    """Once versions of its rows' time are gone."""
    hand = ByHand(tmp_path)
    plan = hand.plan(least=None)
    lots = (Lot("beyond-retention@rates", 1, 1, 2, 0, 1),)
    requeue = asked_for(
        plan, Asked(discards=discards), kind="quarantine-release", lots=lots, oldest=100, on_unmatched=on_unmatched
    )
    hand.lost_before_500()
    if refused:
        with pytest.raises(PlanningError, match=r"versions of rates that were valid before .* are gone"):
            hand.planner.instead_of(held(hand, requeue), "re-release", None)
    else:
        assert hand.planner.instead_of(held(hand, requeue), "re-release", None).supersedes == 1


def test_quarantined_rows_are_not_published_without_a_match_once_versions_of_their_time_are_gone(
    tmp_path: Path,
) -> None:
    """A discarded row may have had a match, and holds no retention."""
    hand = ByHand(tmp_path)
    plan = replace(hand.plan(least=100), kind="discard")
    hand.publish(plan)
    facts = {"least-time@": 100_000, "greatest-time@": 700_000}
    staged = StagedRow(insert_owner(plan.insert), 1, 1, plan.digest, 0, "folder", [], {"discarded": 2}, facts)
    epochs = [ReleasedEpoch(plan, staged, verdict_of(plan), published=True, superseded=False)]
    asked = Asked(reasons=("discarded",))
    again = hand.planner.out_of_quarantine(plan, epochs, asked, "publish")
    assert (again.oldest, again.on_unmatched) == (100, "publish")
    hand.lost_before_500()
    with pytest.raises(PlanningError, match=r"versions of rates that were valid before .* are gone") as caught:
        hand.planner.out_of_quarantine(plan, epochs, asked, "publish")
    assert caught.value.next_command.startswith("tidegate quarantine release SCRIPT converted")
    again = hand.planner.out_of_quarantine(plan, epochs, asked, None)
    assert again.on_unmatched == "quarantine"
