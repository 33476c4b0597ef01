"""What a table's expressions need while its rows land: their user functions, and the plan's instant."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column
from pyspark.sql import functions as F

from tidegate.pipelines.frames import given
from tidegate.pipelines.functions import UserFunction, used_in
from tidegate.pipelines.sources.protocol import StoredStep
from tidegate.pipelines.sql.model import Table


def functions_of(table: Table, functions: Mapping[str, UserFunction]) -> tuple[UserFunction, ...]:
    """The functions that a table's computed columns and its watermark call."""
    watermark = table.watermark.expression if table.watermark is not None else None
    return used_in(functions.values(), watermark, *(column.expression for column in table.columns))


def plan_instant(stored: StoredStep) -> Column:
    """The plan's instant, which stands for every "now" of a step."""
    return F.expr(given(f"timestamp_millis({stored.planned_at}L)"))
