"""The user functions of a table while its rows land: tried before anything is committed, blamed when they fail."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F

from pipelines.errors import SourceError
from pipelines.functions import UserFunction, used_in
from pipelines.functions.failures import failure
from pipelines.sources.protocol import StoredStep
from pipelines.sql.model import Table


def functions_of(table: Table, functions: Mapping[str, UserFunction]) -> tuple[UserFunction, ...]:
    """The functions that a table's computed columns and its watermark call."""
    watermark = table.watermark.expression if table.watermark is not None else None
    return used_in(functions.values(), watermark, *(column.expression for column in table.columns))


def tried(rows: DataFrame, table: Table, called: Sequence[UserFunction], stored: StoredStep) -> DataFrame:
    """`rows`, with the functions of the table's watermark called for each of them while they are written.

    The watermark is computed from committed rows; a function that can not take one of them must fail before that.
    """
    if table.watermark is None or not used_in(called, table.watermark.expression):
        return rows
    seen = rows.withColumn("_instant", plan_instant(stored)).withColumn(
        "_watermark", F.expr(table.watermark.expression)
    )
    # Counted, so that Spark does not leave the calls out of the plan.
    counted = seen.observe(Observation(), F.count("_watermark").alias("watermarks"))
    return counted.drop("_instant", "_watermark")


def blamed(error: BaseException, table: Table, stored: StoredStep) -> SourceError | None:
    """The typed error of a user function that failed while `stored` landed; None where no function did."""
    told = failure(error)
    if told is None:
        return None
    return SourceError(
        f"{table.name}: {told}",
        where=f"generation {stored.generation}, epoch {stored.epoch}: {stored.step.summary}",
        state="the epoch is planned, none of its rows are committed; epochs before it stand",
        next_command="mend the function, then run the same command again: it goes on at this epoch",
    )


def plan_instant(stored: StoredStep) -> Column:
    """The plan's instant, which stands for every "now" of a step."""
    return F.timestamp_millis(F.lit(stored.planned_at))
