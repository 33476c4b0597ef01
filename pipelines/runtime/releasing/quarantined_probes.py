"""The probe's own columns of the rows that an epoch quarantines, in one column: `_probe`, a STRUCT; and the landed rows
that a plan takes out of quarantine, found by the places that quarantined rows carry: they are joined as they landed.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tidegate.pipelines.connectors.table import Table
from tidegate.pipelines.lake import rows as lake_rows
from tidegate.pipelines.runtime.epochs import Lot, ReleasePlan
from tidegate.pipelines.runtime.quarantine.rows import PROBE

PLACE = {"_probe_epoch": "_epoch", "_op": "_op", "_split": "_split", "_offset": "_offset"}
"""What identifies a row within a probe's generation: its name in a quarantined row, and in the landed one."""

FEW_PLACES = 500_000
"""Up to so many quarantined rows, their places are sent to every task rather than the probe's rows shuffled."""


def columns_of(probe: Table) -> dict[str, str]:
    """The probe's columns that a quarantined row holds, with their Spark types."""
    return {column.name: column.spark_type for column in probe.stored_columns}


def probe_column(probe: Table) -> dict[str, str]:
    """`_probe` -> its Spark type; nothing where the table stores no column."""
    own = ", ".join(f"{lake_rows.quoted(name)}: {kind}" for name, kind in columns_of(probe).items())
    return {PROBE: f"STRUCT<{own}>"} if own else {}


def landed_again(spark: SparkSession, probe: Path, quarantine: Path, plan: ReleasePlan) -> DataFrame:
    """The rows of the probe's table that lie in the plan's lots."""
    lots = plan.lots
    first, last = min(lot.first for lot in lots), max(lot.last for lot in lots)
    after, upto = min(lot.after for lot in lots), max(lot.upto for lot in lots)
    quarantined = lake_rows.between(spark, quarantine, plan.generation, first - 1, last).where(in_lots(lots))
    places = quarantined.select(*(F.col(name).alias(f"_kept{name}") for name in PLACE))
    if sum(lot.rows for lot in lots) <= FEW_PLACES:
        places = F.broadcast(places)
    landed = lake_rows.between(spark, probe, plan.probe_generation, after, upto)
    same = [landed[name] == places[f"_kept{at}"] for at, name in PLACE.items()]
    return landed.join(places, reduce(Column.__and__, same), "left_semi")


def in_lots(lots: Sequence[Lot]) -> Column:
    """Whether a quarantined row is in one of the lots. Reasons are literals of the expression, never text of a query;
    it is halved again and again, as deep expressions are walked by recursion."""
    if len(lots) > 1:
        middle = len(lots) // 2
        return in_lots(lots[:middle]) | in_lots(lots[middle:])
    lot = lots[0]
    return (F.col("_reason") == F.lit(lot.reason)) & F.col("_epoch").between(lot.first, lot.last)
