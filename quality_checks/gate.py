"""The built-in gate (entry point `tidegate.gates`, default): the checks of a staged epoch, and what they add up to.

Every check compares what the join counted in its own pass with numbers that come from elsewhere: the watermark log, the
Parquet footers, the plan, the tables' schemas. What can not be shown is held: missing is never good.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from pipelines.runtime.gate import CheckResult, GateVerdict, StagedEpoch
from quality_checks import suite, user_suite
from quality_checks.checks import (
    columns,
    constraints,
    counts_complete,
    discards,
    flips,
    keys,
    matches,
    one_place,
    processes,
    released_rows,
    staged_files,
    unmatched_policy,
    unmatched_ratio,
)
from quality_checks.evidence import Evidence, gather

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CHECKS: tuple[Callable[[Evidence], CheckResult], ...] = (
    counts_complete.check,
    flips.check,
    matches.check,
    released_rows.check,
    one_place.check,
    staged_files.check,
    unmatched_policy.check,
    discards.check,
    columns.check,
    keys.check,
    constraints.check,
    unmatched_ratio.check,
)

CHECK_NAMES: tuple[str, ...] = (
    counts_complete.NAME,
    flips.NAME,
    matches.NAME,
    released_rows.NAME,
    one_place.NAME,
    staged_files.NAME,
    unmatched_policy.NAME,
    discards.NAME,
    columns.NAME,
    keys.NAME,
    constraints.NAME,
    unmatched_ratio.NAME,
    suite.NAME,
    user_suite.NAME,
)
"""What `judge` reports, by name: known before anything runs, so that Dagster can show each check as one of its own."""

READABLE = (counts_complete.NAME, staged_files.NAME)
"""Where one of these failed, the files are not what was staged, and the suite does not read them."""


def prepare() -> None:
    """Load what the first judging of a process would wait for (4 s of Great Expectations), while the join runs."""
    suite.load()


def judge(staged: StagedEpoch, spark: Callable[[], SparkSession]) -> GateVerdict:
    """All checks of one staged epoch, then the suites. It passes when every one does; `reasons` say what failed.

    An exception is no verdict: the epoch stays staged and the next run judges it.
    """
    evidence = gather(staged)
    results = prove(evidence)
    unreadable = [result.name for result in results if not result.passed and result.name in READABLE]
    own = suite.not_run(evidence, unreadable) if unreadable else suite.check(evidence, spark)
    if unreadable and staged.target.suite is not None:
        users = suite.not_run(evidence, unreadable, user_suite.NAME)
    else:
        users = user_suite.check(evidence, spark)
    return verdict(staged, [*results, own, users])


def prove(evidence: Evidence) -> list[CheckResult]:
    """The results of the checks that need nothing but numbers."""
    if evidence.staged.insert.process is None:
        return [check(evidence) for check in CHECKS]
    own = zip(CHECK_NAMES, CHECKS, strict=False)
    return [processes.INSTEAD_OF.get(name, check)(evidence) for name, check in own]


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
