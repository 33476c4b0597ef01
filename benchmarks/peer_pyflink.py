"""FLIP-499's news example as a keyed process function of PyFlink, Parquet to Parquet, on its local cluster.

Run by benchmarks.peers in an environment of its own: `peer_pyflink.py MODE PARALLELISM WARM EVENTS OUT KEYS JAR…`
prints the seconds of a job over the file EVENTS, after one over WARM. MODE is where Python runs: `process`, beside the
JVM, or `thread`, within it. State is on the heap, and there are no checkpoints: the least that it can do.
"""

import os
import site
import sys
import time

from pyflink.common import Configuration, Row, Types  # pyright: ignore[reportMissingImports]
from pyflink.datastream import (  # pyright: ignore[reportMissingImports]
    KeyedProcessFunction,
    StreamExecutionEnvironment,
)
from pyflink.datastream.state import (  # pyright: ignore[reportMissingImports]
    ListStateDescriptor,
    ValueStateDescriptor,
)
from pyflink.table import StreamTableEnvironment  # pyright: ignore[reportMissingImports]

AFTER = (60_000, 300_000, 600_000, 1_800_000, 3_600_000)

# The events of an hour are in no order. The epochs are one file, so that they are read one after the other.
EVENTS = """
CREATE TABLE {name} (`type` STRING, news_id BIGINT, `at` BIGINT, rowtime AS TO_TIMESTAMP_LTZ(`at`, 3),
    WATERMARK FOR rowtime AS rowtime - INTERVAL '1' HOUR)
WITH ('connector' = 'filesystem', 'path' = '{path}', 'format' = 'parquet')
"""
COUNTS = """
CREATE TABLE {name} (news_id BIGINT, `after` BIGINT, clicks BIGINT)
WITH ('connector' = 'filesystem', 'path' = '{path}', 'format' = 'parquet')
"""


class CountClicks(KeyedProcessFunction):
    """The proposal's function."""

    def open(self, runtime_context):
        self.release = runtime_context.get_state(ValueStateDescriptor("release_time", Types.LONG()))
        self.clicks = runtime_context.get_list_state(ListStateDescriptor("click_times", Types.LONG()))

    def process_element(self, value, ctx):
        if value[0] == "RELEASE":
            self.release.update(value[2])
            for after in AFTER:
                ctx.timer_service().register_event_time_timer(value[2] + after)
        else:
            self.clicks.add(value[2])

    def on_timer(self, timestamp, ctx):
        clicks = sum(1 for time in self.clicks.get() if time <= timestamp)
        yield Row(ctx.get_current_key(), timestamp - self.release.value(), clicks)


def main(mode: str, parallelism: str, warm: str, events: str, out: str, keys: str, *jars: str) -> float:
    """The seconds from the job's submission to its end."""
    os.environ["PYTHONPATH"] = site.getsitepackages()[0]  # what runs within the JVM knows no virtual environment
    config = Configuration()
    settings = {
        "python.execution-mode": mode,
        "python.executable": sys.executable,
        "python.client.executable": sys.executable,
        "python.state.cache-size": keys,
        "python.fn-execution.bundle.time": "10000",  # of what process mode holds back; it is better than a second's
        "pipeline.jars": ";".join(f"file://{jar}" for jar in jars),
        "parallelism.default": parallelism,
    }
    for name, value in settings.items():
        config.set_string(name, value)
    tables = StreamTableEnvironment.create(StreamExecutionEnvironment.get_execution_environment(config))
    _job(tables, "warm", warm, f"{out}-warm")
    return _job(tables, "timed", events, out)


def _job(tables: StreamTableEnvironment, name: str, events: str, out: str) -> float:
    tables.execute_sql(EVENTS.format(name=f"{name}_news", path=events))
    tables.execute_sql(COUNTS.format(name=f"{name}_counts", path=out))
    rows = tables.to_data_stream(tables.sql_query(f"SELECT `type`, news_id, `at`, rowtime FROM {name}_news"))
    counts = (
        rows.rebalance()  # one file is read by one task
        .key_by(lambda row: row[1], key_type=Types.LONG())
        .process(CountClicks(), output_type=Types.ROW([Types.LONG(), Types.LONG(), Types.LONG()]))
    )
    found = tables.from_data_stream(counts).alias("news_id", "after", "clicks")
    start = time.perf_counter()
    found.execute_insert(f"{name}_counts").wait()
    return time.perf_counter() - start


if __name__ == "__main__":
    print(main(*sys.argv[1:]))
