"""Did rows without a match go where 'gate.on-unmatched' sends them?"""

from __future__ import annotations

from tidegate.pipelines.runtime.gate import CheckResult
from tidegate.pipelines.text import counted
from tidegate.quality_checks.evidence import Evidence, listed, subject
from tidegate.quality_checks.outcome_counts import OutcomeCounts

NAME = "unmatched-policy"


def check(evidence: Evidence) -> CheckResult:
    """block: no row without a match. quarantine: what is published has matched, every row of it. publish: counted."""
    staged = evidence.staged
    policy, counts = staged.plan.on_unmatched, OutcomeCounts(staged.staged.counts)
    unmatched = sum(counts.unmatched.values())
    observed = {
        "publish": counts.to("publish"),
        "quarantine": counts.to("quarantine"),
        "drop": counts.to("drop"),
        "unmatched": counts.unmatched,
    }
    if staged.plan.discards:
        return CheckResult(NAME, True, observed, {"policy": policy}, "a discard publishes nothing, matched or not")
    if policy == "block" and unmatched:
        tables = " or ".join(dict.fromkeys(_builds(evidence)))
        return CheckResult(
            NAME,
            False,
            observed,
            {"policy": policy, "unmatched": {}},
            f"{subject(staged)}: {unmatched:,} of {counted(counts.rows, 'released row')} found no match in {tables} "
            f"({listed(counts.unmatched)}), and 'gate.on-unmatched' is 'block'. Bring the missing rows into {tables} "
            "and join again; or discard the epoch, which quarantines all of its rows",
        )
    published = unmatched if policy == "publish" else 0
    expected = {
        "publish": counts.matched + published,
        "quarantine": unmatched - published + counts.timeless + sum(counts.violated.values()),
        "drop": sum(counts.dropped.values()),
    }
    inner = {name: n for name, n in counts.dropped.items() if name != "where"}
    problems = [
        f"{observed[place]:,} rows go to {place}, by their outcomes it should be {number:,}"
        for place, number in expected.items()
        if observed[place] != number
    ]
    if inner and policy != "publish":
        problems.append(f"{counted(sum(inner.values()), 'row')} without a match would be dropped ({listed(inner)})")
    if counts.discarded:
        problems.append(f"{counted(counts.discarded, 'row')} count as discarded, but nobody discarded the epoch")
    return CheckResult(
        NAME,
        passed=not problems,
        observed=observed,
        expected={"policy": policy, **expected},
        detail=f"{counted(unmatched, 'row')} without a match ({listed(counts.unmatched)})"
        if not problems
        else f"{subject(staged)}: under 'gate.on-unmatched' = '{policy}' {'; '.join(problems)}. Nothing was published. "
        "Join its rows again",
    )


def _builds(evidence: Evidence) -> list[str]:
    joins = {join.alias: join.build for join in evidence.staged.insert.joins}
    aliases = [name.partition("@")[2] for name in OutcomeCounts(evidence.staged.staged.counts).unmatched]
    return [joins[alias] for alias in sorted(aliases) if alias in joins]
