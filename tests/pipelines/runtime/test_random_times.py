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
from pipelines.lake import rows as lake_rows
from pipelines.runtime import faults
from pipelines.runtime.runner import Runner
from pipelines.sql import compile_script
from pipelines.watermarks import MIN_TIMESTAMP, Watermark, WatermarkStrategy
from tests.pipelines.runtime import tape

BOUND = 5
SCRIPT = """
CREATE TABLE clicks (id BIGINT, n BIGINT, at AS TO_TIMESTAMP_LTZ(n, 3),
    WATERMARK FOR at AS at - INTERVAL '0.006' SECOND)
WITH ('connector' = 'tape', 'rows-per-epoch' = '{pace}'{options});
CREATE TABLE kept (id BIGINT) WITH ('connector' = 'delta');
INSERT INTO kept SELECT id FROM clicks
"""
_numbers = itertools.count()


class Abort(BaseException):
    """Stands for the death of the process."""


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


def tapes(seed: int) -> dict[str, list[dict[str, int]]]:
    """Two splits whose rows are out of order by `BOUND` ms at most."""
    chance = random.Random(seed)
    ids = itertools.count()
    return {
        split: [
            {"id": next(ids), "n": start + n * 3 - chance.randrange(BOUND + 1)} for n in range(chance.randrange(3, 8))
        ]
        for split, start in (("a", 100), ("b", 90))
    }


@pytest.mark.parametrize("own", [False, True], ids=["ddl", "generator of one's own"])
@settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True)
@given(
    seed=st.integers(0, 10**6),
    pace=st.tuples(st.integers(2, 5), st.integers(2, 5)),
    aborts=st.lists(st.sampled_from(["source.planned", "source.appended", "source.landed", None]), max_size=3),
    interval=st.sampled_from([None, timedelta(0)]),
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
) -> None:
    tape.install(monkeypatch)
    lake = Lake(tmp_path_factory.mktemp(f"times{next(_numbers)}"))
    note(f"lake in {lake.root}")
    story = tapes(seed)
    tape.write(lake, "clicks", story)
    pipeline = compile_script(SCRIPT.format(pace=f"a={pace[0]},b={pace[1]}", options=", 'bounded' = '1'"))
    if own:
        pipeline = pipeline.with_strategy("clicks", WatermarkStrategy.for_generator(Bounded))

    def run(max_epochs: int | None = None) -> None:
        runner = Runner(
            pipeline, lake, spark=lambda: spark, clock=lambda: 0, environment={}, auto_watermark_interval=interval
        )
        with runner:
            runner.advance("clicks", max_epochs=max_epochs)

    for point in aborts:

        def abort(passed: str, point: str | None = point) -> None:
            if passed == point:
                raise Abort

        disarm = faults.arm(abort)
        try:
            run(max_epochs=1)
        except Abort:
            pass
        finally:
            disarm()
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
    released = lake_rows.read(spark, lake.table_path("clicks")).where(f"unix_millis(_rowtime) <= {last}").select("id")
    assert sorted(row["id"] for row in released.collect()) == sorted(
        item["id"] for rows in story.values() for item in rows if item["n"] <= last
    )
