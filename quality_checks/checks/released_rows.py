"""Did the join see every probe row that the plan releases, and no other?"""

from __future__ import annotations

from tidegate.pipelines.runtime.epochs import RequeuePlan
from tidegate.pipelines.runtime.gate import CheckResult, StagedEpoch
from tidegate.quality_checks.evidence import Evidence
from tidegate.quality_checks.outcome_counts import OutcomeCounts
from tidegate.quality_checks.words import join_again, many, subject

NAME = "released-rows"


def check(evidence: Evidence) -> CheckResult:
    """The rows that went through the join against the watermark log's count of what landed: two separate counts."""
    staged = evidence.staged
    joined, landed = OutcomeCounts(staged.staged.counts).rows, staged.released
    what = "fewer" if joined < landed else "more"
    return CheckResult(
        NAME,
        passed=joined == landed,
        observed=joined,
        expected=landed,
        detail=f"{many(joined, 'row')} of {staged.plan.probe} released, as many as landed"
        if joined == landed
        else f"{subject(staged)}: the join saw {many(joined, 'row')} of {staged.plan.probe}, but {_expected(staged)}: "
        f"{abs(landed - joined):,} {what} than there are. Nothing was published. Look at the table of "
        f"{staged.plan.probe}, then join again: {join_again(staged)}",
    )


def _expected(staged: StagedEpoch) -> str:
    if isinstance(staged.plan, RequeuePlan):
        return f"earlier epochs have quarantined {staged.released:,} of what it releases again"
    after, upto = staged.plan.reads
    return f"by the watermark log {staged.released:,} landed in its epochs {after + 1} to {upto}"
