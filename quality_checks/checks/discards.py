"""Does a discarded epoch publish nothing?"""

from __future__ import annotations

from tidegate.pipelines.runtime.gate import CheckResult
from tidegate.quality_checks.evidence import Evidence
from tidegate.quality_checks.outcome_counts import OutcomeCounts
from tidegate.quality_checks.words import give_up, many, subject

NAME = "discard-publishes-nothing"


def check(evidence: Evidence) -> CheckResult:
    """A discard quarantines every row that would leave, as discarded; one of quarantined rows has no rows to move. Of
    other plans nothing is asked."""
    staged = evidence.staged
    if not staged.plan.discards:
        return CheckResult(NAME, True, staged.plan.kind, None, "not a discard")
    counts = OutcomeCounts(staged.staged.counts)
    leaving = max(counts.to("publish"), evidence.rows("publish"))
    stray = counts.matched + sum(counts.unmatched.values())
    passed = leaving == 0 and stray == 0 and counts.discarded == counts.to("quarantine")
    return CheckResult(
        NAME,
        passed=passed,
        observed={"publish": leaving, "quarantine": counts.to("quarantine"), "discarded": counts.discarded},
        expected={"publish": 0, "quarantine": counts.discarded},
        detail=f"{many(counts.discarded, 'row')} to quarantine, none published"
        if passed
        else f"{subject(staged)}: the epoch was discarded, yet {many(leaving, 'row')} would be published and "
        f"{counts.discarded:,} of {counts.to('quarantine'):,} quarantined rows count as discarded. Nothing was "
        f"published. Discard it again: {give_up(staged)}",
    )
