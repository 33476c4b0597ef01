"""Timers by the system's time in the continuous mode: from (t, true) on every tick looks at the clock."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from tidegate.pipelines.process import EventTimeExtension, OneInputEventTimeStreamProcessFunction
from tidegate.pipelines.runtime.continuous import Continuous, Tick
from tidegate.pipelines.sql import compile_script
from tidegate.pipelines.testing import Harness

SCRIPT = "CREATE TABLE events (k STRING, due BIGINT) WITH ('connector' = 'scripted')"


class Reminded(OneInputEventTimeStreamProcessFunction):
    """Tells each key at the `due` of its record."""

    def init_event_time_process_function(self, event_time_manager) -> None:
        self.time = event_time_manager

    def process_record(self, record, output, ctx) -> None:
        self.time.register_timer(record.due)

    def on_event_timer(self, timestamp: int, output, ctx) -> None:
        output.collect((ctx.get_state_manager().get_current_key(), timestamp))


def test_a_pending_timer_fires_at_the_tick_that_its_time_has_come_without_a_row(
    spark: SparkSession, tmp_path: Path
) -> None:
    function = EventTimeExtension.wrap_process_function(Reminded())
    pipeline = compile_script(SCRIPT).process("told", "events", "k", function, "k STRING, at BIGINT", buckets=1)
    now = [10]
    harness = Harness(pipeline, spark, tmp_path, clock=lambda: now[0])
    harness.push("events", [{"k": "a", "due": 50}])
    harness.end_of_snapshot("events")
    clock = iter([49, 50, 50])
    seen: list[tuple[bool, list[tuple[str, int]]]] = []

    def tell(tick: Tick) -> None:
        landed = any(advance.epochs for advance in tick.advances)
        seen.append((landed, [(row["k"], row["at"]) for row in harness.published("told")]))
        now[0] = next(clock)

    assert Continuous(harness.runner, every=0.0, on_tick=tell).run(max_ticks=3) == "limit"
    assert seen == [(True, []), (False, []), (False, [("a", 50)])]
