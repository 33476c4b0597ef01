"""FLIP-499's news example beside the same in Structured Streaming's transformWithState, in one run.

Ours is the whole way of an epoch: plan, stage, the checks of the gate, publish. The peer's is its micro-batches, with
state in RocksDB and no checks.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Row, SparkSession

from benchmarks.measure import Figure, seconds
from pipelines.lake import Lake
from pipelines.process import (
    EventTimeExtension,
    OneInputEventTimeStreamProcessFunction,
    StateDeclarations,
)
from pipelines.runtime.runner import Runner
from pipelines.runtime.session import start_session
from pipelines.sql import compile_script

KEYS, EPOCHS, HOUR = 20_000, 3, 3_600_000
AFTER = (60_000, 300_000, 600_000, 1_800_000, HOUR)
RELEASE_TIME = StateDeclarations.value_state("release_time", "BIGINT")
CLICK_TIMES = StateDeclarations.list_state("click_times", "BIGINT")

SCRIPT = """
CREATE TABLE news (type STRING, news_id BIGINT, at BIGINT, rowtime AS TO_TIMESTAMP_LTZ(at, 3),
    WATERMARK FOR rowtime AS rowtime) WITH ('connector' = 'filesystem', 'path' = '{path}', 'format' = 'parquet');
"""


class CountClicks(OneInputEventTimeStreamProcessFunction):
    """The proposal's function."""

    def uses_states(self):
        return (RELEASE_TIME, CLICK_TIMES)

    def init_event_time_process_function(self, event_time_manager) -> None:
        self.time = event_time_manager

    def process_record(self, record, output, ctx) -> None:
        if record.type == "RELEASE":
            ctx.get_state_manager().get_state(RELEASE_TIME).update(record.at)
            for after in AFTER:
                self.time.register_timer(record.at + after)
        else:
            ctx.get_state_manager().get_state(CLICK_TIMES).add(record.at)

    def on_event_timer(self, timestamp, output, ctx) -> None:
        states = ctx.get_state_manager()
        clicks = sum(1 for time in states.get_state(CLICK_TIMES).get() if time <= timestamp)
        output.collect((states.get_current_key(), timestamp - states.get_state(RELEASE_TIME).value(), clicks))


def measure(rows: int = 1_000_000, peer_rows: int = 100_000) -> list[Figure]:
    """Rows a second over three epochs of `rows` rows and 20,000 keys; the peer on `peer_rows`, which it is told for."""
    spark = start_session()
    figures = []
    with tempfile.TemporaryDirectory() as folder:
        large, small = Path(folder) / "large", Path(folder) / "small"
        for place, count in ((large, rows), (small, peer_rows)):
            place.mkdir()
            for epoch in range(EPOCHS):
                pq.write_table(_events(epoch, count), place / f"{epoch}.parquet")
        own = _own(spark, large, Path(folder) / "own", rows)
        beside = _own(spark, small, Path(folder) / "beside", peer_rows)
        peer = _transform_with_state(spark, small, Path(folder), peer_rows)
        aim = "150,000 and more"
        figures.append(Figure(f"news example, {rows:,} rows an epoch, {KEYS:,} keys", own, "rows/s", aim=aim))
        name = f"the same, {peer_rows:,} rows an epoch"
        figures.append(Figure(name, beside, "rows/s", peer, "transformWithState", "over 2"))
    return figures


def _events(epoch: int, rows: int) -> pa.Table:
    """An hour of clicks; all news are released in the first second."""
    chosen = np.random.default_rng(epoch)
    news, at = chosen.integers(0, KEYS, rows), epoch * HOUR + chosen.integers(0, HOUR, rows)
    kind = np.full(rows, "CLICK")
    if epoch == 0:
        first = min(KEYS, rows)
        news[:first], kind[:first], at[:first] = np.arange(first), "RELEASE", chosen.integers(0, 1_000, first)
    at[-1] = (epoch + 1) * HOUR
    return pa.table({"type": kind, "news_id": news, "at": at})


def _own(spark: SparkSession, source: Path, lake: Path, rows: int) -> float:
    """Rows a second of the median epoch."""
    taken, folder = [], source.with_name(f"{source.name}-read")
    folder.mkdir()
    pipeline = compile_script(SCRIPT.format(path=folder)).process(
        "counts",
        "news",
        "news_id",
        EventTimeExtension.wrap_process_function(CountClicks()),
        "news_id BIGINT, after BIGINT, clicks BIGINT",
    )
    with Runner(pipeline, Lake(lake), spark=lambda: spark) as runner:
        for file in sorted(source.glob("*.parquet")):
            (folder / file.name).symlink_to(file)
            runner.advance("news")
            taken.append(seconds(lambda: runner.release("counts")))
    return rows / sorted(taken)[len(taken) // 2]


def _transform_with_state(spark: SparkSession, source: Path, scratch: Path, rows: int) -> float:
    """Rows a second of its median micro-batch."""
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    class Count(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self.handle = handle
            self.release = handle.getValueState("release", "at long")
            self.clicks = handle.getListState("clicks", "at long")

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:  # noqa: N802, N803
            clicks = []
            for row in rows:
                if row.type == "RELEASE":
                    self.release.update((row.at,))
                    for after in AFTER:
                        self.handle.registerTimer(row.at + after)
                else:
                    clicks.append((row.at,))
            if clicks:
                self.clicks.appendList(clicks)
            return iter([])

        def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Any:  # noqa: N802, N803
            at = expiredTimerInfo.getExpiryTimeInMs()
            clicks = sum(1 for (time,) in self.clicks.get() if time <= at)
            yield Row(news_id=key[0], after=at - self.release.get()[0], clicks=clicks)

        def close(self) -> None: ...

    provider = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", provider)
    stream = spark.readStream.schema(spark.read.parquet(str(source)).schema).option("maxFilesPerTrigger", 1)
    events = stream.parquet(str(source)).selectExpr("*", "timestamp_millis(at) AS rowtime")
    counts = (
        events.withWatermark("rowtime", "0 seconds")
        .groupBy("news_id")
        .transformWithState(Count(), "news_id long, after long, clicks long", "append", "eventTime")
    )
    query = (
        counts.writeStream.format("parquet")
        .option("path", str(scratch / "peer"))
        .option("checkpointLocation", str(scratch / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    taken = sorted(item["durationMs"]["triggerExecution"] for item in query.recentProgress if item["numInputRows"])
    return rows / taken[len(taken) // 2] * 1_000
