"""The rows of a UNION ALL, or of UNNEST, as those of one table: the landed rows of each branch, through its queries.

A row's split begins with the number and the table of its branch, so that no two rows have one place, even if a table is
in two branches. `_kept` says whether the WHERE of its queries leave the row in: what they leave out is counted.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidegate.pipelines.connectors.table import Table
from tidegate.pipelines.functions import called_where
from tidegate.pipelines.joins.task import FIRST_SEQ, FURTHER
from tidegate.pipelines.lake.ordinals import WANTED, place_of
from tidegate.pipelines.sql.model import Insert
from tidegate.pipelines.sql.tree import KEPT
from tidegate.pipelines.syntax.types import quoted, spark_string


def through(rows: DataFrame, landed: Table, insert: Insert, number: int, instant: int) -> DataFrame:
    """The landed rows of a branch as rows of the union. `instant`: PROCTIME(), ms, UTC."""
    branch, united = insert.branches[number], insert.united
    assert united is not None
    there = {name.casefold() for name in rows.columns}
    columns = {
        column.name: quoted(column.name) if column.name.casefold() in there else f"CAST(NULL AS {column.spark_type})"
        for column in landed.stored_columns
    }
    own = {
        "_op": "_op",
        "_epoch": "_epoch",
        "_split": f"concat({spark_string(insert.splits_of(number))}, _split)",
        "_offset": "_offset",
        "_rowtime": "_rowtime" if united.watermark or insert.time == "event" else "CAST(NULL AS TIMESTAMP)",
        "_instant": f"timestamp_millis({instant}L)",
        **({FIRST_SEQ: FIRST_SEQ} if FIRST_SEQ in rows.columns else {}),
        KEPT: "true",
        **({FURTHER: "false"} if insert.unnests else {}),
        **({WANTED: WANTED} if WANTED in rows.columns else {}),
    }
    rows = rows.selectExpr(
        *(f"{text} AS {name}" for name, text in own.items()), f"{_struct(columns)} AS {quoted(branch.steps[0].alias)}"
    )
    for step, alias in zip(branch.steps, [*(step.alias for step in branch.steps[1:]), "_union"], strict=True):
        last = KEPT
        if step.kept or step.elements:
            tested = f"IF({KEPT}, coalesce({called_where(KEPT, step.kept or 'true')}, false), false)"
            rows, last = rows.selectExpr("*", f"{tested} AS _now"), "_now"
        names = {**dict.fromkeys(own), KEPT: last}
        if (of := step.elements) is not None:
            rows = rows.selectExpr("*", called_where("_now", of.exploded))
            names |= place_of("_split", "_offset", "coalesce(_position, 0)")
            names |= {FURTHER: f"{FURTHER} OR coalesce(_position > 0, false)"}
            if not of.outer:
                rows = rows.withColumn("_now", F.expr("_now AND _position IS NOT NULL"))
        made = _struct(dict(step.columns), last)
        rows = rows.selectExpr(
            *(f"{text or name} AS {name}" for name, text in names.items()), f"{made} AS {quoted(alias)}"
        )
    if WANTED in own:
        rows = rows.where(f"array_contains({WANTED}, _offset)").withColumn(FURTHER, F.lit(False))
    names = [name for name in own if name not in (KEPT, "_instant", WANTED)]
    made = (
        f"CAST({KEPT if column.name == KEPT else f'_union.{quoted(column.name)}'} AS {column.spark_type}) "
        f"AS {quoted(column.name)}"
        for column in united.stored_columns
    )
    return rows.selectExpr(*names, *made)


def _struct(columns: dict[str, str], kept: str | None = None) -> str:
    """What is left out is only counted: an expression that fails on such a row fails nothing."""
    if kept:
        columns = {name: f"CASE WHEN {kept} THEN ({called_where(kept, text)}) END" for name, text in columns.items()}
    return f"named_struct({', '.join(f'{spark_string(name)}, {text}' for name, text in columns.items())})"
