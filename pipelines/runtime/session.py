"""The one Spark session of a process, made for Delta and for small and large epochs alike."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from delta import configure_spark_with_delta_pip  # noqa: F401  (fails early, and clearly, where delta-spark is missing)
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from tidegate.pipelines.errors import TidegateError
from tidegate.pipelines.jars import AVRO, DELTA, KAFKA, java, resolve
from tidegate.pipelines.progress import Progress, SilentProgress, step
from tidegate.pipelines.runtime.failures import first_line
from tidegate.pipelines.sql.model import SECRET_NAMES


class EngineNotStarted(TidegateError):
    """Spark's JVM ended before it was there, or did not take its settings."""


DEFAULTS: Mapping[str, str] = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Small epochs dominate: a few tasks, and Delta's log replayed by few of them.
    "spark.sql.shuffle.partitions": "4",
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.databricks.delta.stalenessLimit": "0",
    # Files are named one by one: listing them is not worth a job.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
    # Staged rows are written one folder a disposition in a single unsorted pass.
    "spark.sql.maxConcurrentOutputFileWriters": "16",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.redaction.regex": SECRET_NAMES,
    "spark.sql.redaction.options.regex": f"{SECRET_NAMES}|(?i:url)",
    "spark.scheduler.mode": "FAIR",
}


LOOPBACK: Mapping[str, str] = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
"""Where executors are processes of this machine. Those of a cluster must reach the driver by the name that Spark finds,
or that $TIDEGATE_DRIVER_HOST gives."""


def settings(master: str, config: Mapping[str, str] | None = None) -> Mapping[str, str]:
    """What a session on `master` is given; `config` is laid over it."""
    if master.startswith("local"):
        network = LOOPBACK
    else:
        host = os.environ.get("TIDEGATE_DRIVER_HOST")
        network = {} if host is None else {"spark.driver.host": host}
    memory = os.environ.get("TIDEGATE_DRIVER_MEMORY", "2g")
    return {**DEFAULTS, **network, "spark.driver.memory": memory, **(config or {})}


def start_session(
    *, master: str | None = None, config: Mapping[str, str] | None = None, progress: Progress | None = None
) -> SparkSession:
    """The active session, or a new one on `master` ($TIDEGATE_MASTER, else all cores of this machine).

    `config` is laid over `settings`; both are laid over what spark-defaults.conf says. Starting takes 6 to 8 s.
    Raises JavaMissing, JarsUnavailable and EngineNotStarted.
    """
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    java()
    progress = progress or SilentProgress()
    # Those of Kafka and Avro too, though few scripts need them: a session is shared, and they cost it nothing that
    # shows.
    alone = resolve([*KAFKA, AVRO], transitive=False, progress=progress)
    jars = [*resolve([DELTA], progress=progress), *alone]
    # Workers must run this very Python: `python3` on PATH may be another one.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    master = master or os.environ.get("TIDEGATE_MASTER", "local[*]")
    builder = SparkSession.builder.master(master).appName("tidegate")
    builder = builder.config("spark.jars", ",".join(str(jar) for jar in jars))
    for key, value in settings(master, config).items():
        builder = builder.config(key, value)
    try:
        with step(progress, "start Spark"):
            _start_engine({"spark.master": master, "spark.jars": ",".join(map(str, jars)), **settings(master, config)})
            session = builder.getOrCreate()
            session.sparkContext.setLogLevel(os.environ.get("TIDEGATE_SPARK_LOG", "ERROR"))
    except (PySparkException, Py4JError) as error:
        raise EngineNotStarted(
            f"Spark did not start: {first_line(error)}",
            where=f"master {master}, driver memory {settings(master, config)['spark.driver.memory']}",
            state="nothing was read or written",
            next_command="check --master (or $TIDEGATE_MASTER), $TIDEGATE_DRIVER_MEMORY, $TIDEGATE_SPARK_LOG and "
            "`java -version`, then run the same command again",
        ) from error
    return session


def _start_engine(config: Mapping[str, str]) -> None:
    """Start the JVM in a session of its own, so that a signal for this process's group (Ctrl-C, a supervisor's SIGTERM)
    does not take it away in the middle of a step. It ends with this process: its standard input ends then."""
    if SparkContext._gateway is None:
        given = SparkConf(loadDefaults=False).setAll(list(config.items()))
        gateway = launch_gateway(given, {"start_new_session": True})
        SparkContext._ensure_initialized(gateway=gateway)
