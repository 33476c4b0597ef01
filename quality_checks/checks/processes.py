"""Checks of a process's epoch: did every row that the function emitted go to one place, and are the state's files
there?

A process has no matches, and its output rows are not its input rows. So these checks replace those that follow joined
rows to their places (`one_place`, `policy_followed`). Checks of files cover both outputs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tidegate.pipelines.connectors.table import severest_first
from tidegate.pipelines.location import Location
from tidegate.pipelines.runtime.epochs.processed import NOT_HAVING
from tidegate.pipelines.runtime.gate import CheckResult
from tidegate.pipelines.runtime.releasing import violations as staged_violations
from tidegate.pipelines.text import counted
from tidegate.quality_checks.checks import counts as row_counts
from tidegate.quality_checks.checks import unmatched
from tidegate.quality_checks.evidence import Evidence, gather, listed, subject
from tidegate.quality_checks.outcome_counts import PROCESSED, OutcomeCounts

SECOND = "second"
"""The fact that has the files and the counts of the second output."""


def second_output(evidence: Evidence) -> Evidence | None:
    """The same epoch with its second output in place of the first; None if it has only one."""
    staged = evidence.staged
    outputs, stored = staged.insert.outputs, staged.staged.facts.get(SECOND)
    if len(outputs) < 2 or stored is None:
        return None
    target = staged.pipeline.table(outputs[1])
    counts = {name: number for name, number in stored.items() if name != "files"}
    emitted = stored.get("emitted", stored["to:publish"] + stored["to:quarantine"])  # rows from before it was stored
    insert = replace(staged.insert, constraints=severest_first(target.constraints))
    row = replace(staged.staged, files=stored["files"], counts=counts, facts={"emitted": emitted})
    found = gather(replace(staged, insert=insert, target=target, staged=row))
    violations = staged_violations.counted([footer.at for footer in found.footers], insert.constraints)
    row = replace(row, facts={**row.facts, **violations})
    return replace(found, staged=replace(found.staged, staged=row))


def of_every_output(check: Callable[[Evidence], CheckResult]) -> Callable[[Evidence], CheckResult]:
    """A check of both outputs: the first result that failed, else the first one's."""

    def both(evidence: Evidence) -> CheckResult:
        first, second = check(evidence), second_output(evidence)
        if second is None or not first.passed:
            return first
        found = check(second)
        name = second.staged.target.name
        if not found.passed:
            return replace(found, detail=f"second output {name}: {found.detail}")
        observed = {"first": first.observed, name: found.observed}
        warning = "; ".join(filter(None, [first.warning, found.warning and f"second output {name}: {found.warning}"]))
        return replace(
            first,
            observed=observed,
            expected={"first": first.expected, name: found.expected},
            detail=warning or first.detail,
            warning=warning,
        )

    return both


def outputs(evidence: Evidence) -> CheckResult:
    """The rows that the tasks have written, compared with what went to publish and to quarantine, and with the reasons
    for quarantine. For SQL's windows also with what HAVING left out; and every row that was read was aggregated, or
    left out for a reason."""
    staged = evidence.staged
    counts = OutcomeCounts(staged.staged.counts)
    emitted, left_out = staged.staged.facts.get("emitted"), staged.staged.facts.get(NOT_HAVING, 0)
    places = {place: counts.to(place) for place in ("publish", "quarantine")}
    quarantined, given = sum(counts.violated.values()) + counts.discarded, sum(places.values()) + left_out
    taken = _taken(evidence)
    passed = emitted == given and places["quarantine"] == quarantined and taken is None
    gave = f"the function gave {counted(emitted or 0, 'row')}"
    found = taken or f"{gave}, {listed(places)}, and {quarantined:,} have a reason to be quarantined"
    return CheckResult(
        row_counts.ONE_PLACE,
        passed=passed,
        observed={"emitted": emitted, **places, "quarantined for a reason": quarantined, **counts.dropped},
        expected={"emitted": given, "quarantined for a reason": places["quarantine"]},
        detail=listed(places)
        if passed
        else f"{subject(staged)}: {found}: a row is lost or in two places. Nothing was published. Compute it again",
    )


def _taken(evidence: Evidence) -> str | None:
    """Why the rows that were read do not add up; None if each went into the function, or was left out for a reason."""
    counts = OutcomeCounts(evidence.staged.staged.counts)
    taken = counts.counts.get(PROCESSED, 0) if evidence.staged.insert.windowed else counts.rows
    left_out = sum(counts.dropped.values())
    if counts.to("drop") == left_out and counts.rows == taken + left_out:
        return None
    read = f"{counted(counts.rows, 'row')} {'was' if counts.rows == 1 else 'were'} read"
    return f"{read}, {taken:,} taken, and {left_out:,} have a reason to be left out"


def state(evidence: Evidence) -> CheckResult:
    """Every state file that the epoch wrote is there, with the size that was written."""
    staged = evidence.staged
    stored = staged.staged.facts.get("state") or {}
    folder = staged.lake.state_path(staged.insert) / str(stored.get("folder"))
    problems = []
    for file in stored.get("files", ()):
        place = Location(folder) / file["path"]
        if not place.is_there():
            problems.append(f"{file['path']} is gone")
        elif place.size() != file["size"]:
            problems.append(f"{file['path']} has {place.size():,} bytes, {file['size']:,} were written")
    if "folder" not in stored:
        problems.append("the epoch does not say where its state is")
    rows = sum(file["rows"] for file in stored.get("files", ()))
    return CheckResult(
        unmatched.POLICY,
        passed=not problems,
        observed=problems,
        expected=[],
        detail=f"nothing to match; the state of {counted(rows, 'key')} was written"
        if not problems
        else f"{subject(staged)}: {'; '.join(problems)}. Nothing was published. Compute it again",
    )
