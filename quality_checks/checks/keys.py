"""Is the target's primary key never null in what is published?"""

from __future__ import annotations

from tidegate.pipelines.runtime.gate import CheckResult
from tidegate.quality_checks.evidence import Evidence
from tidegate.quality_checks.words import give_up, join_again, listed, subject

NAME = "key-not-null"


def check(evidence: Evidence) -> CheckResult:
    """Null counts of the key columns, from the footers of the files to publish. No key declared: nothing asked."""
    staged = evidence.staged
    key = staged.target.primary_key
    files = [footer for footer in evidence.footers if footer.disposition == "publish" and footer.rows]
    nulls: dict[str, int] = {}
    unknown: list[str] = []
    for column in key:
        found = [footer.nulls.get(column) for footer in files]
        if None in found:
            unknown.append(column)
        nulls[column] = sum(count or 0 for count in found)
    broken = {column: count for column, count in nulls.items() if count}
    problems = (
        [f"the primary key of {staged.target.name} is null in rows to publish ({listed(broken)})"] if broken else []
    )
    if unknown:
        problems.append(f"the staged files do not say how often {', '.join(unknown)} is null")
    return CheckResult(
        NAME,
        passed=not problems,
        observed=nulls,
        expected=dict.fromkeys(key, 0),
        detail=("no key column is null" if key else f"{staged.target.name} declares no primary key")
        if not problems
        else f"{subject(staged)}: {' and '.join(problems)}. Nothing was published. Mend the rows at "
        f"their source and join again: {join_again(staged)}; or quarantine the epoch: {give_up(staged)}",
    )
