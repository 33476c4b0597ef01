"""The latest version of every key, by seq, as a pin sees it. What a processing-time join matches.

A key's latest row may be a delete, or older than the last truncate: it is kept, marked as gone, so that a probe row
that finds it can say why it has no match.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from pipelines.lake.rows import quoted

GONE = "_gone"


def latest(changelog: DataFrame, keys: Sequence[str]) -> DataFrame:
    """One row a key: the one with the greatest `_seq`, and `_gone` (BOOLEAN).

    `changelog`: a build side's rows of one generation up to the pinned epoch.
    """
    versions = changelog.where("_op <> 't'")
    newest_first = Window.partitionBy(*[F.col(quoted(key)) for key in keys]).orderBy(
        *[F.col(f"_seq.{part}").desc() for part in ("phase", "log", "file", "position", "row")]
    )
    newest = versions.withColumn("_rank", F.row_number().over(newest_first)).where("_rank = 1").drop("_rank")
    truncated = changelog.where("_op = 't'").agg(F.max("_seq").alias("_truncated"))
    marked = newest.crossJoin(F.broadcast(truncated))
    gone = (F.col("_op") == "d") | F.coalesce(F.col("_seq") < F.col("_truncated"), F.lit(False))
    return marked.withColumn(GONE, gone).drop("_truncated")


def pruned(changelog: DataFrame, wanted: DataFrame, keys: Sequence[str]) -> DataFrame:
    """The rows of `changelog` whose key is among `wanted` (the same key columns), and every truncate.

    For a probe batch that is small beside the build: the keys are broadcast, and the build is scanned but not shuffled.
    """
    condition = F.lit(True)
    for key in keys:
        condition = condition & (changelog[quoted(key)] == wanted[quoted(key)])
    truncates = changelog.where("_op = 't'")
    rows = changelog.where("_op <> 't'").join(F.broadcast(wanted), condition, "left_semi")
    return rows.unionByName(truncates)
