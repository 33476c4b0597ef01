"""What is asked of every staged epoch, and needs nothing but numbers."""

from __future__ import annotations

from tidegate.pipelines.runtime.gate import CheckResult
from tidegate.quality_checks.checks import (
    columns,
    constraints,
    counts_complete,
    discards,
    flips,
    keys,
    matches,
    one_place,
    processes,
    released_rows,
    staged_files,
    unmatched_policy,
    unmatched_ratio,
)
from tidegate.quality_checks.checks.processes import of_every_output
from tidegate.quality_checks.evidence import Check, Evidence

CHECKS: tuple[Check, ...] = (
    Check(counts_complete.NAME, counts_complete.check),
    Check(flips.NAME, flips.check),
    Check(matches.NAME, matches.check),
    Check(released_rows.NAME, released_rows.check),
    Check(one_place.NAME, one_place.check, of_every_output(processes.outputs)),
    Check(staged_files.NAME, staged_files.check, of_every_output(staged_files.check)),
    Check(unmatched_policy.NAME, unmatched_policy.check, processes.state),
    Check(discards.NAME, discards.check),
    Check(columns.NAME, columns.check, of_every_output(columns.check)),
    Check(keys.NAME, keys.check, of_every_output(keys.check)),
    Check(constraints.NAME, constraints.check, of_every_output(constraints.check)),
    Check(unmatched_ratio.NAME, unmatched_ratio.check),
)
"""In this order. Their names are in tidegate.quality_checks.gate too."""


def prove(evidence: Evidence) -> list[CheckResult]:
    """The results of the checks that need nothing but numbers."""
    return [check(evidence) for check in CHECKS]
