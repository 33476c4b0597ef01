"""For tests, Tidegate's own and its users': a session, and a harness that drives a script by hand."""

from __future__ import annotations

from pyspark.sql import SparkSession

from pipelines.runtime.session import start_session


def spark_session() -> SparkSession:
    """A local session with Delta on two cores; the active one if there is one."""
    return start_session(master="local[2]")
