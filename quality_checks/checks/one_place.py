"""Is every released row in exactly one place: published, quarantined or dropped?"""

from __future__ import annotations

from tidegate.pipelines.runtime.gate import CheckResult
from tidegate.quality_checks.evidence import Evidence
from tidegate.quality_checks.outcome_counts import PLACES, OutcomeCounts
from tidegate.quality_checks.words import join_again, listed, subject

NAME = "one-place"


def check(evidence: Evidence) -> CheckResult:
    """Places add up to the rows, outcomes add up to the rows, and what was dropped is what was dropped for a reason."""
    staged = evidence.staged
    counts = OutcomeCounts(staged.staged.counts)
    places = {place: counts.to(place) for place in PLACES}
    by_place, by_outcome, dropped = sum(places.values()), sum(counts.by_outcome.values()), sum(counts.dropped.values())
    passed = by_place == by_outcome == counts.rows and dropped == places["drop"]
    return CheckResult(
        NAME,
        passed=passed,
        observed={"rows": counts.rows, **places, "outcomes": by_outcome, "dropped with a reason": dropped},
        expected={"rows": counts.rows, "places": counts.rows, "outcomes": counts.rows},
        detail=listed(places)
        if passed
        else f"{subject(staged)}: {counts.rows:,} rows were released, {by_place:,} went somewhere ({listed(places)}), "
        f"{by_outcome:,} have an outcome ({listed(counts.by_outcome)}): a row is lost or in two places. "
        f"Nothing was published. Stage it again: {join_again(staged)}",
    )
