"""Which jobs Spark runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.sql import SparkSession


def jobs_of(spark: SparkSession, work: Callable[[], object]) -> list[str]:
    """What `work` runs, a name a job, oldest first."""
    context: Any = spark.sparkContext._jsc.sc()  # type: ignore[union-attr]

    def jobs() -> dict[int, str]:
        context.listenerBus().waitUntilEmpty()
        found = context.statusStore().jobsList(None)
        return {job.jobId(): job.name() for job in map(found.apply, range(min(found.size(), 50)))}  # newest first

    before = max(jobs(), default=-1)
    work()
    return [name for number, name in sorted(jobs().items()) if number > before]
