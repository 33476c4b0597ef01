"""The built-in gate (entry point `tidegate.gates`, default): the checks of a staged epoch, and what they add up to.

Every check compares what the join counted in its own pass with numbers that come from elsewhere: the watermark log, the
Parquet footers, the plan, the tables' schemas. What can not be shown is held: missing is never good.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tidegate.pipelines.runtime.gate import CheckResult, GateVerdict, StagedEpoch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CHECK_NAMES: tuple[str, ...] = (
    "counts-complete",
    "released-after-flip",
    "matches-in-pin",
    "released-rows",
    "one-place",
    "staged-files",
    "unmatched-policy",
    "discard-publishes-nothing",
    "columns",
    "key-not-null",
    "constraints",
    "unmatched-ratio",
    "expectations",
    "suite",
)
"""What `judge` reports, by name: known before anything runs or is loaded, so that Dagster can show each check as one of
its own."""

READABLE = ("counts-complete", "staged-files")
"""Where one of these failed, the files are not what was staged, and the suite does not read them."""


def prepare() -> None:
    """Load what the first judging of a process would wait for (4 s of Great Expectations), while the join runs."""
    from tidegate.quality_checks import suite

    suite.load()


def judge(staged: StagedEpoch, spark: Callable[[], SparkSession]) -> GateVerdict:
    """All checks of one staged epoch, then the suites. It passes when every one does; `reasons` say what failed.

    An exception is no verdict: the epoch stays staged and the next run judges it.
    """
    from tidegate.quality_checks import suite, user_suite
    from tidegate.quality_checks.builtin import prove
    from tidegate.quality_checks.evidence import gather

    evidence = gather(staged)
    results = prove(evidence)
    unreadable = [result.name for result in results if not result.passed and result.name in READABLE]
    own = suite.not_run(evidence, unreadable) if unreadable else suite.check(evidence, spark)
    if unreadable and staged.target.suite is not None:
        users = suite.not_run(evidence, unreadable, user_suite.NAME)
    else:
        users = user_suite.check(evidence, spark)
    return verdict(staged, [*results, own, users])


def verdict(staged: StagedEpoch, results: Sequence[CheckResult]) -> GateVerdict:
    """What the results of the checks add up to."""
    plan = staged.plan
    failed = [result for result in results if not result.passed]
    return GateVerdict(
        insert=plan.insert,
        generation=plan.generation,
        epoch=plan.epoch,
        plan_digest=plan.digest,
        passed=not failed,
        checks=tuple(results),
        reasons=tuple(result.detail for result in failed),
    )
