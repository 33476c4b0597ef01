"""The Great Expectations suite of an INSERT: schema, keys not null, and the reconciliation of row counts.

It judges the one row of metrics that `tidegate.quality_checks.metrics` takes of a staged epoch. Its result is stored as
JSON, and shown as a page of Data Docs (`tidegate.quality_checks.docs`).
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from typing import TYPE_CHECKING, Any

import pandas as pd

from tidegate.pipelines.runtime.gate import CheckResult
from tidegate.quality_checks import docs, metrics
from tidegate.quality_checks.evidence import Evidence, subject
from tidegate.quality_checks.outcome_counts import OutcomeCounts

if TYPE_CHECKING:
    from great_expectations.core import ExpectationSuiteValidationResult
    from great_expectations.expectations.expectation import Expectation
    from pyspark.sql import SparkSession


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
    """Run the suite, keep its result, and say whether every expectation was met."""
    staged = evidence.staged
    result, wanted = run(evidence, metrics.measure(evidence, spark)), len(expectations(evidence))
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
        f"Nothing was published. Mend the cause and join again; or discard the epoch, which quarantines its rows",
    )


def not_run(evidence: Evidence, because: list[str], name: str = NAME) -> CheckResult:
    """The result where the files are not those that were staged: nothing in them is worth reading."""
    return CheckResult(
        name, False, observed={"expectations": 0}, detail=f"the suite was not run, because of: {', '.join(because)}"
    )


def load() -> None:
    """Import Great Expectations, once a process."""
    name_main_module()
    import great_expectations
    import great_expectations.render.renderer.page_renderer  # noqa: F401


def run(evidence: Evidence, frame: pd.DataFrame) -> ExpectationSuiteValidationResult:
    """Judge one row of metrics. The context lives in memory and is thrown away."""
    name_main_module()
    import great_expectations as gx

    name = evidence.staged.insert.id
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        context = gx.get_context(mode="ephemeral")
        context.variables.progress_bars = {"globally": False, "metric_calculations": False}  # type: ignore[assignment]
        asset = context.data_sources.add_pandas("staged").add_dataframe_asset(name)
        batch = asset.add_batch_definition_whole_dataframe(f"epoch {evidence.staged.plan.epoch}")
        suite = context.suites.add(gx.ExpectationSuite(name, expectations=expectations(evidence)))
        definition = gx.ValidationDefinition(name=name, data=batch, suite=suite)
        found = context.validation_definitions.add(definition).run(
            batch_parameters={"dataframe": frame}, result_format="BASIC"
        )
    return found


def expectations(evidence: Evidence) -> list[Expectation]:
    """What must hold of the metrics of this epoch."""
    from great_expectations.expectations.core.expect_column_max_to_be_between import ExpectColumnMaxToBeBetween
    from great_expectations.expectations.core.expect_column_most_common_value_to_be_in_set import (
        ExpectColumnMostCommonValueToBeInSet,
    )

    staged = evidence.staged
    counts = OutcomeCounts(staged.staged.counts)
    exactly = {
        metrics.ROWS: (counts.to("publish"), "As many rows are staged for the target as the join sent there."),
        metrics.KEPT_OUT: (counts.to("quarantine"), "As many rows are staged for quarantine as the join quarantined."),
        **{
            metrics.nulls(key): (0, f"`{key}` belongs to the primary key of `{staged.target.name}`.")
            for key in staged.target.primary_key
        },
    }
    return [
        ExpectColumnMostCommonValueToBeInSet(
            column=metrics.COLUMNS,
            value_set=[metrics.expected_columns(evidence)],
            notes=f"Every staged file has the columns of `{staged.target.name}`.",
        ),
        *(
            ExpectColumnMaxToBeBetween(column=name, min_value=number, max_value=number, notes=why)
            for name, (number, why) in exactly.items()
        ),
    ]


def described(item: Any) -> str:
    """One expectation that was not met, in a few words."""
    if item.exception_info.get("raised_exception"):
        return f"{item.expectation_config.kwargs.get('column')}: {item.exception_info.get('exception_message')}"
    wanted = item.expectation_config.kwargs
    bound = wanted.get("value_set", [wanted.get("max_value")])[0]
    return f"{wanted['column']} should be {bound}, is {item.result.get('observed_value')}"
