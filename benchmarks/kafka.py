"""A Kafka topic to committed Delta, beside plain Structured Streaming (AvailableNow to Delta) from the same topic."""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.measure import Figure, seconds
from tests.pipelines.sources.kafka.server import EmbeddedKafka
from tidegate.pipelines.lake import Lake
from tidegate.pipelines.runtime.runner import Runner
from tidegate.pipelines.runtime.session import start_session
from tidegate.pipelines.sql import compile_script

ROWS, PARTITIONS = 5_000_000, 4
TOPIC = "clicks"
COLUMNS = "user_id BIGINT, item_id BIGINT, amount DECIMAL(10, 2), note STRING"

SCRIPT = """
CREATE TABLE clicks ({columns}) WITH (
    'connector' = 'kafka', 'topic' = '{topic}', 'properties.bootstrap.servers' = '{servers}',
    'format' = 'json'{options});
CREATE TABLE kept (user_id BIGINT) WITH ('connector' = 'delta');
INSERT INTO kept SELECT user_id FROM clicks
"""
QUARANTINE = ", 'format.on-error' = 'quarantine'"

OWN_TOPICS = {"auto.create.topics.enable": "true", "num.partitions": str(PARTITIONS)}

_MESSAGE = (
    "to_json(named_struct('user_id', id % 1000000, 'item_id', id, 'amount', CAST(id % 100000 / 100 AS DECIMAL(10, 2)), "
    "'note', repeat('n', 32)))"
)
"""About 100 bytes."""


def measure(rows: int = ROWS, runs: int = 3) -> list[Figure]:
    """Rows a second of each way, the median of `runs`, taken in turns after one that does not count."""
    spark = start_session()
    with (
        tempfile.TemporaryDirectory() as folder,
        EmbeddedKafka(Path(folder) / "kafka", options=OWN_TOPICS, heap="512m") as broker,
    ):
        _fill(spark, broker, rows)
        took: dict[str, list[float]] = {"plain": [], "fail": [], "quarantine": []}
        for number in range(runs + 1):
            values = {
                "plain": seconds(lambda: _plain(spark, broker.bootstrap)),
                "fail": _landed(spark, broker.bootstrap, ""),
                "quarantine": _landed(spark, broker.bootstrap, QUARANTINE),
            }
            for kind, value in values.items() if number else ():
                took[kind].append(rows / value)
    rate = {kind: statistics.median(values) for kind, values in took.items()}
    peer = "plain Structured Streaming"
    aim = "0.9, and 500,000 rows/s"
    return [
        Figure(f"{rows:,} messages of 100 bytes to committed Delta", rate["fail"], "rows/s", rate["plain"], peer, aim),
        Figure("the same with 'format.on-error' = 'quarantine'", rate["quarantine"], "rows/s", rate["plain"], peer),
    ]


def _fill(spark: SparkSession, broker: EmbeddedKafka, rows: int) -> None:
    messages = spark.range(rows).selectExpr("CAST(id AS STRING) AS key", f"{_MESSAGE} AS value")
    messages.write.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap).option("topic", TOPIC).save()


def _plain(spark: SparkSession, servers: str) -> None:
    """What one would write without Tidegate: values that do not fit become NULL."""
    with tempfile.TemporaryDirectory() as folder:
        source = spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers)
        source = source.option("subscribe", TOPIC).option("startingOffsets", "earliest").load()
        rows = source.selectExpr(
            f"from_json(CAST(value AS STRING), '{COLUMNS}') AS row", "partition", "offset", "timestamp"
        ).selectExpr("row.*", "partition", "offset", "timestamp")
        query = rows.writeStream.format("delta").trigger(availableNow=True)
        query.option("checkpointLocation", f"{folder}/checkpoint").start(f"{folder}/table").awaitTermination()


def _landed(spark: SparkSession, servers: str, options: str) -> float:
    """Seconds to land the topic in a new lake."""
    script = SCRIPT.format(columns=COLUMNS, topic=TOPIC, servers=servers, options=options)
    with (
        tempfile.TemporaryDirectory() as folder,
        Runner(compile_script(script), Lake(Path(folder) / "lake"), spark=lambda: spark) as runner,
    ):
        return seconds(lambda: runner.advance("clicks"))
