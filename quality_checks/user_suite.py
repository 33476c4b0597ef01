"""The Great Expectations suite that a target names ('quality.suite'), run on the rows that an epoch would publish.

It sees the target's own columns as a Spark DataFrame, whatever the number of rows, so that an expectation means the
same in every epoch. Without a suite nothing of this is imported.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tidegate.pipelines.connectors.table import Suite
from tidegate.pipelines.frames import empty_frame
from tidegate.pipelines.lake.rows import struct_type
from tidegate.pipelines.runtime.gate import CheckResult
from tidegate.pipelines.syntax.types import quoted
from tidegate.pipelines.text import counted
from tidegate.quality_checks import docs
from tidegate.quality_checks.evidence import Evidence, subject
from tidegate.quality_checks.suite import judged

if TYPE_CHECKING:
    from great_expectations.core import ExpectationSuiteValidationResult
    from pyspark.sql import DataFrame, SparkSession

NAME = "suite"


def check(evidence: Evidence, spark: Callable[[], SparkSession]) -> CheckResult:
    """Run the suite, store its result and its page, and return whether every expectation was met.

    One that only warns does not hold the epoch; one that could not be evaluated does, and so does a result that does
    not cover every expectation.
    """
    staged = evidence.staged
    suite = staged.target.suite
    if suite is None:
        return CheckResult(NAME, True, detail=f"{staged.target.name} names no 'quality.suite'")
    if staged.plan.discards:
        return CheckResult(NAME, True, detail="a discard publishes nothing, so its suite is not asked")
    if staged.plan.says_only_how_far:
        return CheckResult(NAME, True, detail="the epoch takes no row, so its suite is not asked")
    result = run(evidence, suite, _rows(evidence, spark()))
    asked = [item["type"] for item in json.loads(suite.text)["expectations"]]
    answered = [item.expectation_config.type for item in result.results if item.expectation_config]
    failed = [described(item) for item in result.results if not item.success and not _warns(item)]
    warned = [described(item) for item in result.results if not item.success and _warns(item)]
    if sorted(answered) != sorted(asked):
        failed.append(f"{len(asked)} expectations were asked, {len(answered)} answered: {', '.join(answered)}")
    path, page = docs.keep(staged, result, "suite-", bool(failed))
    warning = f"{suite.path}: {'; '.join(warned)}" if warned else ""
    return CheckResult(
        NAME,
        passed=not failed,
        observed={
            "expectations": len(answered),
            "failed": failed,
            "warned": warned,
            "suite": suite.digest,
            "result": path,
            "page": page,
        },
        expected={"expectations": len(asked), "failed": []},
        detail=f"{subject(staged)}: {suite.path} is not met: {'; '.join(failed)} (all expectations: {page}). "
        f"Nothing was published. Mend the cause, or the suite, and release; or discard the epoch, which "
        "quarantines all of its rows"
        if failed
        else warning or f"{len(asked)} expectations are met",
        warning=warning,
    )


def _rows(evidence: Evidence, spark: SparkSession) -> DataFrame:
    """The rows to publish; an empty DataFrame if there are none."""
    columns = evidence.staged.target.physical_columns
    rows = evidence.staged.rows(spark)
    if rows is None:
        return empty_frame(spark, struct_type({column.name: column.spark_type for column in columns}))
    return rows.select(*[quoted(column.name) for column in columns])


def run(evidence: Evidence, suite: Suite, rows: DataFrame) -> ExpectationSuiteValidationResult:
    """Judge rows."""
    content = json.loads(suite.text)
    known = ("type", "kwargs", "meta", "notes", "description", "severity")
    asked = [{key: item[key] for key in known if key in item} for item in content["expectations"]]
    return judged(evidence, rows, content.get("name") or suite.path, asked)


def _warns(item: Any) -> bool:
    """Whether an expectation only warns: its meta says so, or else its severity. One that raised never does."""
    if item.exception_info and _raised(item.exception_info):
        return False
    config = item.expectation_config
    policy = (config.meta or {}).get("on_violation")
    severity = getattr(config.severity, "value", config.severity)
    return policy == "warn" or (policy is None and severity in ("warning", "info"))


def _raised(info: Mapping[str, Any]) -> str:
    """What an expectation raised; empty when nothing. GX reports it by itself, or once for each metric."""
    each = [info] if "raised_exception" in info else list(info.values())
    return "; ".join(str(one.get("exception_message")) for one in each if one.get("raised_exception"))


def described(item: Any) -> str:
    """An expectation that was not met, in a few words."""
    config = item.expectation_config
    raised = _raised(item.exception_info or {})
    of = config.kwargs.get("column") or config.kwargs.get("column_list") or ""
    name = f"{config.type}{f'({of})' if of else ''}"
    if raised:
        return f"{name} could not be evaluated: {raised.splitlines()[0][:200]}"
    result = item.result or {}
    if result.get("unexpected_count") is not None:
        wrong = result["unexpected_count"]
        every = counted(result.get("element_count", 0), "row")
        return f"{name}: {wrong:,} of {every} {'does' if wrong == 1 else 'do'} not"
    return f"{name}: observed {str(result.get('observed_value'))[:100]}"
