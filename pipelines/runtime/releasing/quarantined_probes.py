"""The probe's own columns of the rows that an epoch quarantines, in one column: `_probe`, a STRUCT.

They are read once the epoch is staged, by the places that its quarantined rows carry. So no release reads, joins or
writes a column for rows that it publishes, and whatever staged the rows need not know of it.

By the same places the landed rows are found again that a plan takes out of quarantine: they are joined as they landed.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from functools import reduce
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tidegate.pipelines.commands import VERIFY
from tidegate.pipelines.connectors.table import Table
from tidegate.pipelines.errors import LakeError
from tidegate.pipelines.lake import delta_log
from tidegate.pipelines.lake import rows as lake_rows
from tidegate.pipelines.location import Location, dataset_of
from tidegate.pipelines.parquet import bounded, bounds_of_files
from tidegate.pipelines.runtime.epochs import Lot, ReleasePlan
from tidegate.pipelines.runtime.quarantine.rows import PROBE
from tidegate.pipelines.sources.arrow_types import arrow_schema

PLACE = {"_probe_epoch": "_epoch", "_op": "_op", "_split": "_split", "_offset": "_offset"}
"""What identifies a row within a probe's generation: its name in a quarantined row, and in the landed one."""

FEW = 100_000
"""Up to so many quarantined rows are held in memory, which takes ms; Spark takes a job for them, and can do more."""

FEW_PLACES = 500_000
"""Up to so many quarantined rows, their places are sent to every task rather than the probe's rows shuffled."""

_FOLDER = "_disposition=quarantine"


def probe_column(probe: Table) -> dict[str, str]:
    """`_probe` -> its Spark type; nothing where the table stores no column."""
    own = ", ".join(f"{lake_rows.quoted(column.name)}: {column.spark_type}" for column in probe.stored_columns)
    return {PROBE: f"STRUCT<{own}>"} if own else {}


def with_probes(
    spark: SparkSession,
    probe: Table,
    landed: Path,
    plan: ReleasePlan,
    folder: Path,
    names: Sequence[str],
    rows: int,
) -> list[str]:
    """Put files with the column in the place of the staged ones without it. `landed`: the probe's table; `names`: the
    epoch's files in `folder`; `rows`: how many of their rows are quarantined.

    The epoch's files from then on. Raises LakeError where the probe's table does not tell its rows apart, OSError.
    """
    old = [name for name in names if name.startswith(f"{_FOLDER}/")]
    if not rows or not old or not probe.stored_columns:
        return list(names)
    paths = [Location(folder) / name for name in old]
    footers = [path.footer() for path in paths]
    epochs = bounds_of_files(footers, "_probe_epoch")
    least, greatest = epochs if epochs is not None and epochs[0] is not None else (0, plan.upto)
    table = delta_log.opened(landed)
    if rows <= FEW and table is not None and delta_log.plain(table):
        files = delta_log.data_files(table, plan.probe_generation, least - 1, greatest).paths
        new = _by_columns(probe, files, plan.probe_generation, paths)
    else:
        new = _by_spark(spark, probe, landed, plan, (least, greatest), paths)
    written = sum(path.footer().num_rows for path in new)
    if written != sum(footer.num_rows for footer in footers):
        raise LakeError(
            f"{probe.name} has several rows of one place (epoch, op, split, offset), so quarantined rows cannot be "
            f"identified: {written:,} for {rows:,}",
            where=str(landed),
            state="nothing of the epoch is staged",
            next_command=VERIFY,
        )
    for path in paths:
        path.delete()
    written_names = [path.below(Location(folder)) for path in new]
    return [*(name for name in names if name not in old), *written_names]


def _by_columns(probe: Table, landed: Sequence[str], generation: int, staged: Sequence[Location]) -> list[Location]:
    """By Arrow, in memory."""
    staged_rows = pa.concat_tables([path.parquet().read() for path in staged])
    own = [column.name for column in probe.stored_columns]
    types = arrow_schema(probe.stored_columns)
    kinds = {"_epoch": pa.int64(), "_op": pa.string(), "_split": pa.string(), "_offset": pa.int64()}
    schema = pa.schema([("_generation", pa.int32()), *kinds.items(), *types])
    wanted = (pc.field("_generation") == generation) & pc.field("_epoch").isin(staged_rows["_probe_epoch"].unique())
    wanted &= pc.field("_offset").isin(staged_rows["_offset"].unique())
    rows = dataset_of(landed, schema).to_table([*kinds, *own], filter=wanted)
    # Arrow joins no nested columns: the places are joined, and tell where the columns are taken from.
    left = pa.table({place: staged_rows[name] for name, place in PLACE.items()}).append_column(
        "_kept", _numbers(staged_rows)
    )
    right = rows.select(list(kinds)).append_column("_row", _numbers(rows))
    pairs = left.join(right, list(kinds), join_type="left outer").sort_by("_kept")
    found = rows.select(own).combine_chunks().take(pairs["_row"])
    values = pa.StructArray.from_arrays(
        [column.combine_chunks() for column in found.columns],
        fields=list(types),
        mask=pc.is_null(pairs["_row"]).combine_chunks(),  # type: ignore[attr-defined]
    )
    table = staged_rows.take(pairs["_kept"]).append_column(PROBE, values)
    path = staged[0].parent / f"probe-{uuid.uuid4().hex[:8]}.parquet"
    statistics = bounded(table.schema)
    path.write_parquet(table, write_statistics=statistics, store_schema=False, store_decimal_as_integer=True)
    return [path]


def _numbers(rows: pa.Table) -> pa.Array:
    return pa.array(range(rows.num_rows), pa.int64())


def _by_spark(
    spark: SparkSession,
    probe: Table,
    landed: Path,
    plan: ReleasePlan,
    epochs: tuple[int, int],
    staged: Sequence[Location],
) -> list[Location]:
    """By a join in Spark, however many rows there are."""
    staged_rows = spark.read.parquet(*map(str, staged))
    rows = lake_rows.between(spark, landed, plan.probe_generation, epochs[0] - 1, epochs[1])
    own = F.struct(*(F.col(lake_rows.quoted(column.name)) for column in probe.stored_columns)).alias(PROBE)
    rows = rows.select(own, *(F.col(place).alias(f"_of{name}") for name, place in PLACE.items()))
    same = [staged_rows[name] == rows[f"_of{name}"] for name in PLACE]
    joined = staged_rows.join(rows, reduce(Column.__and__, same), "left").select(
        *(staged_rows[name] for name in staged_rows.columns), PROBE
    )
    beside = staged[0].parent.parent / "_with_probes"
    joined.write.mode("errorifexists").parquet(str(beside))
    found = [path.move(staged[0].parent / path.name) for path in beside.files(".parquet")]
    beside.delete_all()
    return found


# --- the landed rows behind quarantined ones --------------------------------------------------------------------------


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
