"""The Great Expectations suite of an INSERT: schema, keys not null, and the reconciliation of row counts.

It judges one row of numbers about a staged epoch, whatever its size: Great Expectations on the staged rows themselves
costs four to eight Spark jobs, which is more than the join of a small epoch. So the numbers are taken first (from the
Parquet footers, or by one aggregate over the staged rows where there are so many that it does not show), and the suite
judges them. Its result is stored as JSON, and shown as a page of Data Docs (`tidegate.quality_checks.docs`).
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib.machinery import ModuleSpec
from typing import TYPE_CHECKING, Any

import pandas as pd

from tidegate.pipelines.connectors.table import RESERVED_PREFIX
from tidegate.pipelines.runtime.gate import CheckResult
from tidegate.pipelines.syntax.types import quoted
from tidegate.quality_checks import docs
from tidegate.quality_checks.evidence import Evidence, subject
from tidegate.quality_checks.outcome_counts import OutcomeCounts

if TYPE_CHECKING:
    from great_expectations.core import ExpectationSuiteValidationResult
    from great_expectations.expectations.expectation import Expectation
    from pyspark.sql import DataFrame, SparkSession


def name_main_module() -> None:
    """Give `__main__` a spec if it has neither a spec nor a file.

    Great Expectations imports PySpark's Connect client, which takes a process without them for a run of doctests and
    ends it with status 0 (pyspark/sql/connect/utils.py, check_dependencies). A process that multiprocessing has
    spawned, as every run that Dagster launches is, has neither. Multiprocessing itself passes over this name.
    """
    main = sys.modules["__main__"]
    if main.__spec__ is None and not hasattr(main, "__file__"):
        main.__spec__ = ModuleSpec("__main__", None)


NAME = "expectations"


def check(evidence: Evidence, spark: Callable[[], SparkSession]) -> CheckResult:
    """Run the suite, store its result, and return whether every expectation was met."""
    staged = evidence.staged
    result, wanted = run(evidence, measure(evidence, spark)), len(expectations(evidence))
    path, _ = docs.keep(staged, result)
    failed = [described(item) for item in result.results if not item.success]
    if len(result.results) != wanted:
        failed.append(f"{wanted} expectations were asked, {len(result.results)} answered")
    passed = bool(result.success) and not failed
    return CheckResult(
        NAME,
        passed=passed,
        observed={"expectations": len(result.results), "failed": failed, "result": path},
        expected={"expectations": wanted, "failed": []},
        detail=f"{wanted} expectations are met"
        if passed
        else f"{subject(staged)}: the suite's expectations are not met: {'; '.join(failed)} (all of them: {path}). "
        f"Nothing was published. Mend the cause and release; or discard the epoch, which quarantines "
        "all of its rows",
    )


def not_run(evidence: Evidence, because: list[str], name: str = NAME) -> CheckResult:
    """The result if the files are not those that were staged: nothing in them is worth checking."""
    return CheckResult(
        name, False, observed={"expectations": 0}, detail=f"the suite was not run, because of: {', '.join(because)}"
    )


def load() -> None:
    """Import Great Expectations, once a process."""
    name_main_module()
    import great_expectations
    import great_expectations.render.renderer.page_renderer  # noqa: F401


def run(evidence: Evidence, frame: pd.DataFrame) -> ExpectationSuiteValidationResult:
    """Judge the row of metrics."""
    return judged(evidence, frame, evidence.staged.insert.id, expectations(evidence))


def judged(
    evidence: Evidence, frame: pd.DataFrame | DataFrame, name: str, asked: Sequence[Expectation | dict[str, Any]]
) -> ExpectationSuiteValidationResult:
    """Judge a DataFrame of pandas or Spark by the expectations of the suite `name`. The context lives in memory and is
    thrown away."""
    name_main_module()
    import great_expectations as gx

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        context = gx.get_context(mode="ephemeral")
        context.variables.progress_bars = {"globally": False, "metric_calculations": False}  # type: ignore[assignment]
        sources = context.data_sources
        if isinstance(frame, pd.DataFrame):
            source = sources.add_pandas("staged")
        else:
            source = sources.add_spark("staged", persist=False)
        asset = source.add_dataframe_asset(evidence.staged.insert.id)
        batch = asset.add_batch_definition_whole_dataframe(f"epoch {evidence.staged.plan.epoch}")
        suite = context.suites.add(gx.ExpectationSuite(name, expectations=[*asked]))
        definition = gx.ValidationDefinition(name=suite.name, data=batch, suite=suite)
        return context.validation_definitions.add(definition).run(
            batch_parameters={"dataframe": frame}, result_format="BASIC"
        )


def expectations(evidence: Evidence) -> list[Expectation]:
    """The expectations on the metrics of this epoch."""
    name_main_module()
    # Whole before its parts: where another thread imports it (`load`), only this waits for that thread's end.
    import great_expectations  # noqa: F401
    from great_expectations.expectations.core.expect_column_max_to_be_between import ExpectColumnMaxToBeBetween
    from great_expectations.expectations.core.expect_column_most_common_value_to_be_in_set import (
        ExpectColumnMostCommonValueToBeInSet,
    )

    staged = evidence.staged
    counts = OutcomeCounts(staged.staged.counts)
    exactly = {
        ROWS: (counts.to("publish"), "As many rows are staged for the target as the join sent there."),
        QUARANTINED: (counts.to("quarantine"), "As many rows are staged for quarantine as the join quarantined."),
        **{
            nulls(key): (0, f"`{key}` belongs to the primary key of `{staged.target.name}`.")
            for key in staged.target.primary_key
        },
    }
    return [
        ExpectColumnMostCommonValueToBeInSet(
            column=COLUMNS,
            value_set=[expected_columns(evidence)],
            notes=f"Every staged file has the columns of `{staged.target.name}`.",
        ),
        *(
            ExpectColumnMaxToBeBetween(column=name, min_value=number, max_value=number, notes=why)
            for name, (number, why) in exactly.items()
        ),
    ]


def described(item: Any) -> str:
    """An expectation that was not met, in a few words."""
    if item.exception_info.get("raised_exception"):
        return f"{item.expectation_config.kwargs.get('column')}: {item.exception_info.get('exception_message')}"
    wanted = item.expectation_config.kwargs
    bound = wanted.get("value_set", [wanted.get("max_value")])[0]
    return f"{wanted['column']} should be {bound}, is {item.result.get('observed_value')}"


AGGREGATE_FROM = 500_000
"""With so many rows to publish or more, they are read back and counted by Spark; with fewer, their footers are
trusted."""

ROWS, QUARANTINED, COLUMNS, READ_BY = "rows to publish", "rows to quarantine", "columns", "read by"


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
    row = {COLUMNS: " | ".join(shapes) or expected_columns(evidence), QUARANTINED: evidence.rows("quarantine"), **found}
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
    (found,) = rows.selectExpr(f"count(1) AS {quoted(ROWS)}", *counts).collect()
    return {**{name: int(value) for name, value in found.asDict().items()}, READ_BY: "Spark"}


def _spelled(columns: Mapping[str, str]) -> str:
    """Columns and types as one text, those that every staged file carries left out."""
    return ", ".join(f"{name} {kind}" for name, kind in sorted(columns.items()) if not name.startswith(RESERVED_PREFIX))
