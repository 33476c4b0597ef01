"""Was every match made inside the pin: the build's pinned generation, an epoch not after the pinned one?"""

from __future__ import annotations

from tidegate.pipelines.runtime.gate import CheckResult
from tidegate.quality_checks.evidence import Evidence
from tidegate.quality_checks.outcome_counts import OutcomeCounts
from tidegate.quality_checks.words import join_again, many, subject

NAME = "matches-in-pin"


def check(evidence: Evidence) -> CheckResult:
    """The match proof: what the join's own pass saw of every matched version, against the plan's pins."""
    staged = evidence.staged
    facts, pins = staged.staged.facts, {pin.table: pin for pin in staged.plan.pins}
    matched = OutcomeCounts(staged.staged.counts).matched
    problems: list[str] = []
    observed: dict[str, list[int | None]] = {}
    for join in staged.insert.joins:
        matches, outside = facts.get(f"matches@{join.alias}"), facts.get(f"outside-pin@{join.alias}")
        greatest, pin = facts.get(f"greatest-epoch@{join.alias}"), pins.get(join.build)
        observed[join.alias] = [matches, outside, greatest]
        if matches is None or outside is None or pin is None:
            problems.append(f"nothing is known of the matches with {join.build}")
            continue
        if outside:
            problems.append(f"{many(outside, 'match')} with {join.build} lie outside its pin")
        if matches and (greatest is None or greatest > pin.epoch):
            problems.append(f"a match with {join.build} is of epoch {greatest}, the pin is epoch {pin.epoch}")
        if matches < matched:
            problems.append(
                f"{many(matched, 'row')} count as matched, but only {matches:,} found a version of {join.build}"
            )
    return CheckResult(
        NAME,
        passed=not problems,
        observed=observed,
        expected={
            join.alias: [None, 0, pins[join.build].epoch if join.build in pins else None]
            for join in staged.insert.joins
        },
        detail="every match lies inside its pin"
        if not problems
        else f"{subject(staged)}: {'; '.join(problems)}. Rows that were matched against another state of the build are "
        f"not published. Join again: {join_again(staged)}",
    )
