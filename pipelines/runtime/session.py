"""The one Spark session of a process, made for Delta and for small and large epochs alike."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import IO

from delta import configure_spark_with_delta_pip  # noqa: F401  (fails early, and clearly, where delta-spark is missing)
from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tidegate.pipelines.jars import AVRO, DELTA, KAFKA, java, resolve
from tidegate.pipelines.progress import Progress, SilentProgress, step
from tidegate.pipelines.runtime.engine import Engine, EngineNotStarted, settings
from tidegate.pipelines.runtime.failures import first_line


def start_session(
    *,
    master: str | None = None,
    config: Mapping[str, str] | None = None,
    progress: Progress | None = None,
    log: Path | None = None,
) -> SparkSession:
    """The active session, or a new one on `master` ($TIDEGATE_MASTER, else all cores of this machine).

    `config` is laid over `settings`; both are laid over what spark-defaults.conf says. What the JVM
    prints goes into the file `log`, unless $TIDEGATE_SPARK_LOG is set. Starting takes 6 to 8 s.
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
    builder = SparkSession.builder.appName("tidegate")
    given = {"spark.master": master, "spark.jars": ",".join(map(str, jars)), **settings(master, config)}
    for key, value in given.items():
        builder = builder.config(key, value)
    try:
        with step(progress, "start Spark"):
            _start_engine(given, log)
            session = builder.getOrCreate()
            session.sparkContext.setLogLevel(os.environ.get("TIDEGATE_SPARK_LOG", "ERROR"))
    except (PySparkException, Py4JError, EOFError) as error:
        raise EngineNotStarted(
            f"Spark did not start: {first_line(error)}",
            where=f"master {master}, driver memory {given['spark.driver.memory']}",
            state="nothing was read or written",
            next_command="check --master (or $TIDEGATE_MASTER), $TIDEGATE_DRIVER_MEMORY, $TIDEGATE_SPARK_LOG and "
            "`java -version`, then run the same command again",
        ) from error
    return session


def _start_engine(config: Mapping[str, str], log: Path | None) -> None:
    """Start the JVM, unless this process has one. Where it fails or is interrupted, no JVM is left behind."""
    if SparkContext._gateway is not None:
        return
    if "PYSPARK_GATEWAY_PORT" in os.environ:  # spark-submit started this program, and a JVM before it
        SparkContext._ensure_initialized()
        return
    with _opened(log) as file:
        engine = Engine(config, file)
    try:
        SparkContext._ensure_initialized(gateway=engine.gateway())
    except BaseException:
        engine.kill()
        raise


def _opened(log: Path | None) -> AbstractContextManager[IO[bytes] | None]:
    if log is None or "TIDEGATE_SPARK_LOG" in os.environ:  # a person wants to read along
        return nullcontext()
    log.parent.mkdir(parents=True, exist_ok=True)
    return log.open("ab")
