"""Frames that hold several tables at once, under flat names, and expressions that name `alias`.`column`.

Spark loses an alias at the next projection; a struct column named like the alias does not get lost. So the columns of
a table travel flat, as `alias$column`, and are seen as structs just where an expression is evaluated. Catalyst folds
the structs away: nothing is copied.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipelines.lake.rows import quoted

INSTANT = "_instant"


def flat(alias: str, column: str) -> str:
    """The name under which a column of `alias` travels."""
    return f"{alias}${column}"


def flatten(
    frame: DataFrame, alias: str, columns: Sequence[str], extra: Mapping[str, Column] | None = None
) -> DataFrame:
    """`columns` of one table under their travelling names, and `extra` columns as they are named."""
    kept = [F.col(quoted(name)).alias(flat(alias, name)) for name in columns]
    return frame.select(*kept, *[column.alias(name) for name, column in (extra or {}).items()])


def evaluate(
    frame: DataFrame,
    scope: Mapping[str, Sequence[str]],
    expressions: Mapping[str, str],
    instant: int,
    keep: Sequence[str] | None = None,
) -> DataFrame:
    """`frame` (or its columns `keep`) and `expressions` (name -> Spark SQL over `alias`.`column`).

    `scope` says which columns each alias has; `instant` (ms, UTC) is what `_instant` stands for.
    """
    kept = [quoted(name) for name in (frame.columns if keep is None else keep)]
    seen = frame.select(
        "*",
        F.timestamp_millis(F.lit(instant)).alias(INSTANT),
        *[
            F.struct(*[F.col(quoted(flat(alias, name))).alias(name) for name in columns]).alias(alias)
            for alias, columns in scope.items()
        ],
    )
    return seen.select(*kept, *[F.expr(text).alias(name) for name, text in expressions.items()])
