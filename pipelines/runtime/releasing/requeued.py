"""The landed rows behind quarantined ones: what a plan that takes lots joins again.

A quarantined row says which probe row it is (probe epoch, op, split, offset); the probe row is read anew, since the
quarantine has the target's columns only.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tidegate.pipelines.lake import rows as lake_rows
from tidegate.pipelines.runtime.epochs import Lot, ReleasePlan

PLACE = ("_epoch", "_op", "_split", "_offset")
"""What tells the rows of a probe's generation apart."""

FEW = 500_000
"""Up to so many quarantined rows, their places are sent to every task rather than the probe's rows shuffled."""


def landed_again(spark: SparkSession, probe: Path, quarantine: Path, plan: ReleasePlan) -> DataFrame:
    """The rows of the probe's table that lie in the plan's lots."""
    lots = plan.lots
    first, last = min(lot.first for lot in lots), max(lot.last for lot in lots)
    after, upto = min(lot.after for lot in lots), max(lot.upto for lot in lots)
    kept = lake_rows.between(spark, quarantine, plan.generation, first - 1, last).where(in_lots(lots))
    names = ["_probe_epoch", *PLACE[1:]]
    places = kept.select(*(F.col(name).alias(f"_kept{name}") for name in names))
    if sum(lot.rows for lot in lots) <= FEW:
        places = F.broadcast(places)
    landed = lake_rows.between(spark, probe, plan.probe_generation, after, upto)
    same = [landed[name] == places[f"_kept{kept}"] for name, kept in zip(PLACE, names, strict=True)]
    return landed.join(places, reduce(Column.__and__, same), "left_semi")


def in_lots(lots: Sequence[Lot]) -> Column:
    """Whether a quarantined row is in one of the lots. Reasons are literals of the expression, never text of a query;
    it is halved again and again, as deep expressions are walked by recursion."""
    if len(lots) > 1:
        middle = len(lots) // 2
        return in_lots(lots[:middle]) | in_lots(lots[middle:])
    lot = lots[0]
    return (F.col("_reason") == F.lit(lot.reason)) & F.col("_epoch").between(lot.first, lot.last)
