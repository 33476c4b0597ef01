"""The built-in gate (entry point `tidegate.gates`, default): the checks of a staged epoch, and the verdict.

Every check compares what the join counted in its own pass with numbers that come from elsewhere: the watermark log, the
Parquet footers, the plan, the tables' schemas. What cannot be shown is held: missing is never good.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from tidegate.pipelines.runtime.gate import CheckResult, GateVerdict, StagedEpoch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


CHECKS: Mapping[str, Mapping[str, str]] = {
    "proof": {
        "counts-complete": "Is everything counted that the other checks rely on?",
        "released-after-flip": "Had every build side flipped before a row was released against it?",
        "matches-in-pin": "Was every match made inside the pins of the epoch's plan?",
        "staged-files": "Are the staged files those that were written, with the rows that were counted?",
        "columns": "Do the staged files have the columns of the tables that would adopt them?",
    },
    "rows": {
        "released-rows": "Did the join see every row that the plan releases, and no other?",
        "one-place": "Is every released row in exactly one place: published, quarantined or dropped?",
        "unmatched-policy": "Did rows without a match go where 'gate.on-unmatched' sends them?",
        "unmatched-ratio": "Is the share of rows without a match inside its bound, and inside its own recent range?",
        "discard-publishes-nothing": "Does a discarded epoch publish nothing?",
    },
    "constraints": {
        "key-not-null": "Is the target's primary key never NULL in what would be published?",
        "constraints": "Do the rows keep the target's constraints and its NOT NULL, and are those that do not where ON "
        "VIOLATION sends them?",
    },
    "expectations": {
        "expectations": "Are schema, keys and row counts as a Great Expectations suite of Tidegate's own expects them?",
        "suite": "Do the rows meet every expectation of the suite that the target names ('quality.suite')?",
    },
}
"""The checks that people see, and the questions of each: the names are those of the results that `judge` reports. Known
before anything runs or is imported, so that Dagster can show them."""

QUESTIONS: Mapping[str, str] = {name: text for questions in CHECKS.values() for name, text in questions.items()}

CHECK_NAMES: tuple[str, ...] = tuple(QUESTIONS)

READABLE = ("counts-complete", "staged-files")
"""If one of these failed, the files are not what was staged, and the suite does not read them."""


def prepare() -> None:
    """Import what the first verdict of a process would wait for (4 s of Great Expectations), while the join runs."""
    from tidegate.quality_checks import suite

    suite.load()


def judge(staged: StagedEpoch, spark: Callable[[], SparkSession]) -> GateVerdict:
    """All checks of one staged epoch, then the suites. It passes when every one does; `reasons` say what failed.

    An exception is no verdict: the epoch stays staged and the next run judges it.
    """
    from tidegate.quality_checks import suite, user_suite
    from tidegate.quality_checks.checks import prove
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
    """The verdict for the results of the checks."""
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
