"""Is everything counted that the other checks rely on, and nothing that they do not know?"""

from __future__ import annotations

from tidegate.pipelines.runtime.definitions import mixed_definitions
from tidegate.pipelines.runtime.epochs.commits import LAST_COMMITS
from tidegate.pipelines.runtime.gate import CheckResult
from tidegate.pipelines.sql.canonical import computed
from tidegate.quality_checks.evidence import Evidence
from tidegate.quality_checks.outcome_counts import OF_PROCESSES, expected_facts, expected_names
from tidegate.quality_checks.words import join_again, subject

NAME = "counts-complete"


def check(evidence: Evidence) -> CheckResult:
    """A count that is missing, negative or of an unknown name fails: the gate never guesses. So does an epoch that was
    staged under another text of the INSERT: what was counted then answers for other constraints; and one whose rows, or
    the versions that they may meet, were stored under two definitions of their table."""
    staged = evidence.staged
    retained = any(pin.horizon is not None for pin in staged.plan.pins)
    expected = expected_names(staged.insert, retained=retained) | expected_facts(staged.insert)
    found = {**staged.staged.counts, **staged.staged.facts}
    found.pop(LAST_COMMITS, None)  # counts nothing, and is read before the gate is asked
    missing = sorted(expected - set(found))
    unknown = sorted(set(found) - expected)
    wrong = sorted(name for name in expected & set(found) if not _fits(name, found[name]))
    same_plan = staged.staged.plan_digest == staged.plan.digest
    problems = [
        f"{what} {', '.join(names)}"
        for what, names in (("is without", missing), ("has unknown", unknown), ("has no number for", wrong))
        if names
    ]
    if not computed(staged.plan.computes, staged.pipeline, staged.insert):
        problems.insert(0, "was staged under another text of the INSERT or its constraints")
    mixed = mixed_definitions(staged.lake, staged.plan)
    if mixed:
        problems.insert(0, f"has rows of two definitions of {' and '.join(mixed)}")
    if not same_plan:
        problems.insert(0, "was staged from another plan")
    return CheckResult(
        NAME,
        passed=not problems,
        observed={"missing": missing, "unknown": unknown, "wrong": wrong, "plan": staged.staged.plan_digest},
        expected={"missing": [], "unknown": [], "wrong": [], "plan": staged.plan.digest},
        detail=f"{subject(staged)}: what was staged {' and '.join(problems)}, so nothing can be proved of it. "
        f"Stage it again: {join_again(staged)}"
        if problems
        else f"all {len(expected)} counts are there",
    )


def _fits(name: str, value: object) -> bool:
    """Whether a value can be what its name says: a count, an epoch where there is a match, a time of either sign."""
    if value is None:
        return name.startswith("greatest-epoch")
    if name in (*OF_PROCESSES, "second") and name != "emitted":
        return True  # what is in them is looked at by whoever reads them
    a_time = name.startswith(("least-time@", "greatest-time@"))
    return isinstance(value, int) and not isinstance(value, bool) and (a_time or value >= 0)
