"""The built-in gate (entry point `tidegate.gates`, default): the checks of a staged epoch, and what they add up to.

Every check compares what the join counted in its own pass with numbers that come from elsewhere: the watermark log, the
Parquet footers, the plan, the tables' schemas. What can not be shown is held: missing is never good.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tidegate.pipelines.runtime.gate import CheckResult, GateVerdict, StagedEpoch
from tidegate.quality_checks import suite, user_suite
from tidegate.quality_checks.checks import (
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
from tidegate.quality_checks.checks.processes import of_every_output
from tidegate.quality_checks.evidence import Check, Evidence, gather

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CHECKS: tuple[Check, ...] = (
    Check(counts_complete.NAME, counts_complete.check),
    Check(flips.NAME, flips.check),
    Check(matches.NAME, matches.check),
    Check(released_rows.NAME, released_rows.check),
    Check(one_place.NAME, one_place.check, of_every_output(processes.outputs)),
    Check(staged_files.NAME, staged_files.check, of_every_output(staged_files.check)),
    Check(unmatched_policy.NAME, unmatched_policy.check, processes.state),
    Check(discards.NAME, discards.check),
    Check(columns.NAME, columns.check, of_every_output(columns.check)),
    Check(keys.NAME, keys.check, of_every_output(keys.check)),
    Check(constraints.NAME, constraints.check, of_every_output(constraints.check)),
    Check(unmatched_ratio.NAME, unmatched_ratio.check),
)
"""What is asked of every staged epoch, and needs nothing but numbers."""

CHECK_NAMES: tuple[str, ...] = (*(check.name for check in CHECKS), suite.NAME, user_suite.NAME)
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
    return [check(evidence) for check in CHECKS]


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
