"""FLIP-499's news example beside the same in PyFlink and in Structured Streaming's transformWithState, in one run.

Ours is the whole way of its epochs: plan, stage, the checks of the gate, publish, with state that is committed. The
peers: a job of PyFlink with its state on the heap and without checkpoints; micro-batches with state in RocksDB. What
each of them emits is compared with what numpy answers.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyspark.sql import Row, SparkSession

from benchmarks import news, peers
from benchmarks.measure import Figure, seconds
from benchmarks.news import AFTER, KEYS
from tidegate.pipelines.lake import Lake
from tidegate.pipelines.process import (
    EventTimeExtension,
    OneInputEventTimeStreamProcessFunction,
    StateDeclarations,
)
from tidegate.pipelines.runtime.runner import Runner
from tidegate.pipelines.runtime.session import start_session
from tidegate.pipelines.sql import compile_script

EPOCHS = 3
RELEASE_TIME = StateDeclarations.value_state("release_time", "BIGINT")
CLICK_TIMES = StateDeclarations.list_state("click_times", "BIGINT")

SCRIPT = """
CREATE TABLE news (type STRING, news_id BIGINT, at BIGINT{time})
    WITH ('connector' = 'filesystem', 'path' = '{path}', 'format' = 'parquet');
"""
WATERMARK = ", rowtime AS TO_TIMESTAMP_LTZ(at, 3), WATERMARK FOR rowtime AS rowtime"


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


@dataclass(frozen=True)
class Events:
    """EPOCHS hours of so many rows: `hours`, a file each; `whole`, one file of all; `wanted`, what is to be emitted."""

    rows: int
    hours: tuple[Path, ...]
    whole: Path
    wanted: pa.Table

    @property
    def per_second(self) -> float:
        """What a run of one second would be, in rows/s."""
        return float(self.rows * EPOCHS)


def measure(rows: int = 1_000_000, flink_rows: int = 300_000, spark_rows: int = 50_000) -> list[Figure]:
    """Rows/s over EPOCHS epochs of `rows` rows and KEYS keys; each peer on as many as it can take in a minute or so,
    and ours on as many beside it."""
    spark = start_session()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["TIDEGATE_FILES_ROOT"] = name
        small, warm = _written(folder / "small", spark_rows), _written(folder / "warm", KEYS + 1)
        middle, large = _written(folder / "middle", flink_rows), _written(folder / "large", rows)
        _own(spark, warm)
        landed, staged = _own(spark, large)
        landed_by_builder, staged_by_builder = _own(spark, large, by_builder=True)
        beside_flink, beside_spark = _own(spark, middle)[1], _own(spark, small)[1]
        streamed = _transform_with_state(spark, small)
        spark.stop()
        flink = _pyflink(warm, middle, folder / "flink")
    what = f"news example, {{:,}} rows an epoch, {KEYS:,} keys"
    return [
        Figure(what.format(rows), large.per_second / staged, "rows/s", aim="150,000 and more"),
        Figure("… its landing counted too", large.per_second / (landed + staged), "rows/s"),
        Figure("… event time by the builder", large.per_second / staged_by_builder, "rows/s",
               large.per_second / staged, "WATERMARK FOR"),
        Figure("… its landing counted too", large.per_second / (landed_by_builder + staged_by_builder), "rows/s",
               large.per_second / (landed + staged), "WATERMARK FOR"),
        Figure(what.format(flink_rows), middle.per_second / beside_flink, "rows/s",
               middle.per_second / flink, "PyFlink's keyed process function", "at least 2"),
        Figure(what.format(spark_rows), small.per_second / beside_spark, "rows/s",
               small.per_second / streamed, "transformWithState"),
    ]  # fmt: skip


def _written(folder: Path, rows: int) -> Events:
    hours = [news.events(epoch, rows) for epoch in range(EPOCHS)]
    for place, tables in (("hours", hours), ("whole", [pa.concat_tables(hours)])):
        (folder / place).mkdir(parents=True)
        for number, table in enumerate(tables):
            pq.write_table(table, folder / place / f"{number}.parquet")
    return Events(rows, tuple(sorted((folder / "hours").iterdir())), folder / "whole" / "0.parquet", news.counts(hours))


def _right(who: str, found: Path | Sequence[str], wanted: pa.Table) -> None:
    """Raise AssertionError where the files say something else than `wanted`."""
    files = sorted(map(str, found.rglob("part-*"))) if isinstance(found, Path) else found
    emitted = pa.concat_tables([pq.ParquetFile(file).read(wanted.column_names) for file in files]).cast(wanted.schema)
    if not emitted.sort_by([("news_id", "ascending"), ("after", "ascending")]).equals(wanted):
        raise AssertionError(f"{who} emits {len(emitted)} counts that are not the {len(wanted)} of numpy")


def _own(spark: SparkSession, events: Events, by_builder: bool = False) -> tuple[float, float]:
    """The seconds of all landings, and of all epochs of the process; event time by WATERMARK FOR, or by the builder as
    in the example."""
    landing = staging = 0.0
    folder = events.whole.parent.parent / ("builder" if by_builder else "own") / "read"
    folder.mkdir(parents=True)
    builder = EventTimeExtension.new_watermark_generator_builder(lambda event: event.at)
    script = SCRIPT.format(path=folder, time="" if by_builder else WATERMARK)
    pipeline = compile_script(script).process(
        "counts",
        ("news", builder.build_as_process_function()) if by_builder else "news",
        "news_id",
        EventTimeExtension.wrap_process_function(CountClicks()),
        "news_id BIGINT, after BIGINT, clicks BIGINT",
    )
    with Runner(pipeline, Lake(folder.with_name("lake")), spark=lambda: spark) as runner:
        for file in events.hours:
            (folder / file.name).symlink_to(file)
            landing += seconds(lambda: runner.advance("news"))
            staging += seconds(lambda: runner.release("counts"))
        published = DeltaTable(str(runner.lake.target_path(pipeline.table("counts")))).file_uris()
        _right("ours", published, events.wanted)
    return landing, staging


def _pyflink(warm: Events, events: Events, out: Path) -> float:
    """The seconds of its job, Python within the JVM: beside it, it is many times slower."""
    taken = peers.run(
        "bench-flink",
        "peer_pyflink.py",
        "thread",
        "2",
        str(warm.whole),
        str(events.whole),
        str(out),
        str(KEYS),
        *peers.flink_jars(),
    )
    _right("PyFlink", out, events.wanted)
    return taken


def _transform_with_state(spark: SparkSession, events: Events) -> float:
    """The seconds of its micro-batches."""
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

    scratch, source = events.whole.parent.parent / "peer", str(events.hours[0].parent)
    provider = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", provider)
    stream = spark.readStream.schema(spark.read.parquet(source).schema).option("maxFilesPerTrigger", 1)
    rows = stream.parquet(source).selectExpr("*", "timestamp_millis(at) AS rowtime")
    counts = (
        rows.withWatermark("rowtime", "0 seconds")
        .groupBy("news_id")
        .transformWithState(Count(), "news_id long, after long, clicks long", "append", "eventTime")
    )
    query = (
        counts.writeStream.format("parquet")
        .option("path", str(scratch / "out"))
        .option("checkpointLocation", str(scratch / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    _right("transformWithState", scratch / "out", events.wanted)
    return sum(item["durationMs"]["triggerExecution"] for item in query.recentProgress) / 1_000
