"""What the suite looks at: one row of numbers about a staged epoch, whatever its size.

Great Expectations on the staged rows themselves costs four to eight Spark jobs, which is more than the join of a small
epoch. So the numbers are taken first (from the Parquet footers, or by one aggregate over the staged rows where there
are so many that it does not show), and the suite judges them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import pandas as pd

from tidegate.pipelines.connectors.table import RESERVED_PREFIX
from tidegate.pipelines.syntax.types import quoted
from tidegate.quality_checks.evidence import Evidence

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AGGREGATE_FROM = 500_000
"""From so many rows to publish on, they are read back and counted by Spark; below, their footers are believed."""

ROWS, KEPT_OUT, COLUMNS, READ_BY = "rows to publish", "rows to quarantine", "columns", "read by"


def nulls(column: str) -> str:
    """The metric of how often a column is null."""
    return f"nulls in {column}"


def expected_columns(evidence: Evidence) -> str:
    """What the metric COLUMNS must be: the target's columns with their types, then the lake's own."""
    staged, table = evidence.staged, evidence.tables["publish"]
    return _spelled({column.name: table.get(column.name, "not there") for column in staged.target.stored_columns})


def measure(evidence: Evidence, spark: Callable[[], SparkSession]) -> pd.DataFrame:
    """One row: rows by place, the columns of the files to publish, and the nulls in each column of the key."""
    keys = evidence.staged.target.primary_key
    if evidence.rows("publish") >= AGGREGATE_FROM:
        found = _aggregated(evidence, keys, spark())
    else:
        found = _from_footers(evidence, keys)
    shapes = sorted({_spelled(footer.columns) for footer in evidence.footers if footer.disposition == "publish"})
    # An epoch that publishes nothing has no file that could have the wrong columns.
    row = {COLUMNS: " | ".join(shapes) or expected_columns(evidence), KEPT_OUT: evidence.rows("quarantine"), **found}
    return pd.DataFrame([row])


def _from_footers(evidence: Evidence, keys: tuple[str, ...]) -> dict[str, int | str]:
    files = [footer for footer in evidence.footers if footer.disposition == "publish" and footer.rows]
    # A file that does not say how often a column is null counts as all null: it fails.
    counted = {
        nulls(key): sum(footer.rows if (n := footer.nulls.get(key)) is None else n for footer in files) for key in keys
    }
    return {ROWS: evidence.rows("publish"), **counted, READ_BY: "footers"}


def _aggregated(evidence: Evidence, keys: tuple[str, ...], spark: SparkSession) -> dict[str, int | str]:
    rows = evidence.staged.rows(spark)
    assert rows is not None
    counts = [f"count_if({quoted(key)} IS NULL) AS {quoted(nulls(key))}" for key in keys]
    found = rows.selectExpr(f"count(1) AS {quoted(ROWS)}", *counts).first()
    assert found is not None
    return {**{name: int(value) for name, value in found.asDict().items()}, READ_BY: "Spark"}


def _spelled(columns: Mapping[str, str]) -> str:
    """Columns and types as one text, those that every staged file carries left out."""
    return ", ".join(f"{name} {kind}" for name, kind in sorted(columns.items()) if not name.startswith(RESERVED_PREFIX))
