"""Random interleavings of splits, epochs, crashes and restarts: the same watermarks at the end, the same released rows,
and on the way none that goes back or runs ahead of a row that is still to come."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from pipelines.lake import Lake
from pipelines.runtime.runner import Runner
from pipelines.watermarks import MIN_TIMESTAMP, Watermark, WatermarkStrategy
from tests.pipelines.runtime import event_tape, tape
from tests.pipelines.runtime.crashing import may_die

BOUND = 5
RATES = [{"k": n % 2, "v": n, "n": 80 + 7 * n} for n in range(12)]
_numbers = itertools.count()


class Bounded:
    """A generator of one's own that does what the DDL does."""

    def __init__(self) -> None:
        self.greatest = MIN_TIMESTAMP

    def on_event(self, event: Any, event_timestamp: int, output: Any) -> None:
        self.greatest = max(self.greatest, event["n"])

    def on_periodic_emit(self, output: Any) -> None:
        if self.greatest > MIN_TIMESTAMP:
            output.emit_watermark(Watermark(self.greatest - BOUND - 1))

    def state(self) -> dict[str, int]:
        return {"greatest": self.greatest}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.greatest = state["greatest"]


def met(click: Mapping[str, int]) -> int | None:
    """The rate that holds at a click's time."""
    return max((rate["v"] for rate in RATES if rate["k"] == click["k"] and rate["n"] <= click["n"]), default=None)


def tapes(seed: int) -> dict[str, list[dict[str, int]]]:
    """Two splits whose rows are out of order by `BOUND` ms at most."""
    chance = random.Random(seed)
    ids = itertools.count()
    return {
        split: [
            {"id": next(ids), "k": chance.randrange(3), "n": start + n * 3 - chance.randrange(BOUND + 1)}
            for n in range(chance.randrange(3, 8))
        ]
        for split, start in (("a", 100), ("b", 90))
    }


@pytest.mark.parametrize("own", [False, True], ids=["ddl", "generator of one's own"])
@settings(max_examples=2, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True)
@given(
    seed=st.integers(0, 10**6),
    pace=st.tuples(st.integers(2, 5), st.integers(2, 5)),
    aborts=st.lists(st.sampled_from(["source.planned", "source.appended", "source.landed", None]), max_size=3),
    interval=st.sampled_from([None, timedelta(0)]),
    release=st.integers(0, 2),
)
def test_interleavings_change_nothing(
    spark: SparkSession,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    own: bool,
    seed: int,
    pace: tuple[int, int],
    aborts: list[str | None],
    interval: timedelta | None,
    release: int,
) -> None:
    tape.install(monkeypatch)
    lake = Lake(tmp_path_factory.mktemp(f"times{next(_numbers)}"))
    note(f"lake in {lake.root}")
    story = tapes(seed)
    tape.write(lake, "clicks", story)
    tape.write(lake, "rates", {"0": RATES})
    pipeline = event_tape.compiled(clicks=f", 'rows-per-epoch' = 'a={pace[0]},b={pace[1]}', 'bounded' = '1'")
    if own:
        pipeline = pipeline.with_strategy("clicks", WatermarkStrategy.for_generator(Bounded))

    def runner() -> Runner:
        return Runner(
            pipeline, lake, spark=lambda: spark, clock=lambda: 0, environment={}, auto_watermark_interval=interval
        )

    def run(max_epochs: int | None = None) -> None:
        with runner() as active:
            active.advance("clicks", max_epochs=max_epochs)

    def released() -> list[tuple[int, int | None]]:
        with runner() as active:
            active.advance("rates")
            active.release("joined")
        return event_tape.published(spark, lake, pipeline)

    early: list[tuple[int, int | None]] = []
    for number, point in enumerate(aborts):
        if number == release:
            early = released()
        with may_die(point):
            run(max_epochs=1)
    run()

    log = lake.watermarks.rows("clicks")
    landed = dict.fromkeys(story, 0)
    last = MIN_TIMESTAMP
    plans = {plan.epoch: plan.plan["ranges"]["splits"] for plan in lake.epochs.rows("clicks")}
    for row in log:
        landed |= {split: stop for split, (_, stop) in plans[row.epoch].items()}
        to_come = [item["n"] for split, rows in story.items() for item in rows[landed[split] :]]
        assert last <= row.timestamp
        assert all(row.timestamp < rowtime for rowtime in to_come)
        assert row.late == 0
        last = row.timestamp
    greatest = {split: max(item["n"] for item in rows) - BOUND - 1 for split, rows in story.items()}
    assert {split["split"]: split["timestamp"] for split in log[-1].splits} == greatest
    assert last == min(greatest.values())
    due = sorted((item["id"], met(item)) for rows in story.values() for item in rows if item["n"] <= last)
    published = released()
    assert published == due
    assert set(early) <= set(due)
