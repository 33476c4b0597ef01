"""Do the staged files hold the rows that were counted, and are they the files that were staged?"""

from __future__ import annotations

from tidegate.pipelines.runtime.gate import CheckResult
from tidegate.quality_checks.evidence import Evidence
from tidegate.quality_checks.outcome_counts import OutcomeCounts
from tidegate.quality_checks.words import join_again, subject

NAME = "staged-files"


def check(evidence: Evidence) -> CheckResult:
    """Footers against the join's counts (rows by place) and against the record of the files (size and rows of each)."""
    staged = evidence.staged
    counts = OutcomeCounts(staged.staged.counts)
    recorded = {file["path"]: file for file in staged.staged.files}
    problems = [f"{path} {what}" for path, what in sorted(evidence.broken.items())]
    for footer in evidence.footers:
        file = recorded[footer.path]
        if (footer.size, footer.rows) != (file["size"], file["rows"]):
            problems.append(
                f"{footer.path} has {footer.rows:,} rows in {footer.size:,} bytes, "
                f"it was staged with {file['rows']:,} in {file['size']:,}"
            )
    elsewhere = sorted({str(file["disposition"]) for file in recorded.values()} - {"publish", "quarantine"})
    if elsewhere:
        problems.append(f"files are staged for {', '.join(elsewhere)}, where no row can go")
    found = {place: evidence.rows(place) for place in ("publish", "quarantine")}
    expected = {place: counts.to(place) for place in found}
    problems += [
        f"the files to {place} hold {found[place]:,} rows, the join counted {expected[place]:,}"
        for place in found
        if found[place] != expected[place]
    ]
    return CheckResult(
        NAME,
        passed=not problems,
        observed=found,
        expected=expected,
        detail=f"{len(evidence.footers)} files hold what was counted"
        if not problems
        else f"{subject(staged)}: the staged files are not what the join wrote: {'; '.join(problems[:3])}"
        f"{f' (and {len(problems) - 3} more)' if len(problems) > 3 else ''}. Nothing was published. "
        f"Find out who changed files in {staged.lake.target_path(staged.target)}, then stage it again: "
        f"{join_again(staged)}",
    )
