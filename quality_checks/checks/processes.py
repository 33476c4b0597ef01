"""Of an epoch of a process: did every row that the function gave go to one place, and is its state where it says?

A process has no matches; what it gives are other rows than it takes. So these answer in the place of the checks that
follow joined rows to where they go (`one_place`, `unmatched_policy`).
"""

from __future__ import annotations

from pathlib import Path

from pipelines.runtime.gate import CheckResult
from quality_checks.checks import one_place, unmatched_policy
from quality_checks.evidence import Evidence
from quality_checks.outcome_counts import OutcomeCounts
from quality_checks.words import join_again, listed, many, subject


def outputs(evidence: Evidence) -> CheckResult:
    """What was counted as given against what went to publish and to quarantine, and why it was kept out."""
    staged = evidence.staged
    counts = OutcomeCounts(staged.staged.counts)
    emitted = staged.staged.facts.get("emitted")
    places = {place: counts.to(place) for place in ("publish", "quarantine")}
    kept_out = sum(counts.violated.values()) + counts.discarded
    passed = emitted == sum(places.values()) and places["quarantine"] == kept_out and counts.to("drop") == 0
    return CheckResult(
        one_place.NAME,
        passed=passed,
        observed={"emitted": emitted, **places, "kept out for a reason": kept_out},
        expected={"emitted": sum(places.values()), "kept out for a reason": places["quarantine"]},
        detail=listed(places)
        if passed
        else f"{subject(staged)}: the function gave {emitted} rows, {listed(places)}, and {kept_out:,} have a reason "
        f"to be kept out: a row is lost or in two places. Nothing was published. Stage it again: {join_again(staged)}",
    )


def state(evidence: Evidence) -> CheckResult:
    """Every state file that the epoch wrote is there, as long as it was when it was written."""
    staged = evidence.staged
    told = staged.staged.facts.get("state") or {}
    folder = staged.lake.state_path(staged.insert) / str(told.get("folder"))
    problems = []
    for file in told.get("files", ()):
        path = Path(folder) / file["path"]
        if not path.exists():
            problems.append(f"{file['path']} is gone")
        elif path.stat().st_size != file["size"]:
            problems.append(f"{file['path']} has {path.stat().st_size:,} bytes, {file['size']:,} were written")
    if "folder" not in told:
        problems.append("the epoch does not say where its state is")
    rows = sum(file["rows"] for file in told.get("files", ()))
    return CheckResult(
        unmatched_policy.NAME,
        passed=not problems,
        observed=problems,
        expected=[],
        detail=f"nothing to match; the state of {many(rows, 'key')} was written"
        if not problems
        else f"{subject(staged)}: {'; '.join(problems)}. Nothing was published. Stage it again: {join_again(staged)}",
    )


INSTEAD_OF = {one_place.NAME: outputs, unmatched_policy.NAME: state}
"""By the name of the check whose place they take."""
