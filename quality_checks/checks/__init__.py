"""The checks of every staged epoch that need only numbers."""

from __future__ import annotations

from tidegate.pipelines.runtime.gate import CheckResult
from tidegate.quality_checks.checks import constraints, counts, files, pins, processes, unmatched
from tidegate.quality_checks.checks.processes import of_every_output
from tidegate.quality_checks.evidence import Check, Evidence

CHECKS: tuple[Check, ...] = (
    Check(counts.COUNTS_COMPLETE, counts.counts_complete),
    Check(pins.FLIPS, pins.flips),
    Check(pins.MATCHES, pins.matches),
    Check(files.STAGED_FILES, files.staged_files, of_every_output(files.staged_files)),
    Check(files.COLUMNS, files.columns, of_every_output(files.columns)),
    Check(counts.RELEASED_ROWS, counts.released_rows),
    Check(counts.ONE_PLACE, counts.one_place, of_every_output(processes.outputs)),
    Check(unmatched.POLICY, unmatched.policy_followed, processes.state),
    Check(unmatched.RATIO, unmatched.ratio_usual),
    Check(counts.DISCARDS, counts.discards),
    Check(files.KEYS, files.keys, of_every_output(files.keys)),
    Check(constraints.NAME, constraints.check, of_every_output(constraints.check)),
)
"""In the order of their questions in tidegate.quality_checks.gate."""


def prove(evidence: Evidence) -> list[CheckResult]:
    """The results of the checks that need nothing but numbers."""
    return [check(evidence) for check in CHECKS]
