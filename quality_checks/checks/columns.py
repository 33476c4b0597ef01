"""Do the staged files have the columns of the tables that would adopt them?"""

from __future__ import annotations

from collections.abc import Mapping

from tidegate.pipelines.joins.outcome import MASK
from tidegate.pipelines.runtime.gate import CheckResult
from tidegate.pipelines.runtime.quarantine.rows import PROBE
from tidegate.pipelines.runtime.releasing.staging import proof_columns
from tidegate.quality_checks.evidence import Evidence
from tidegate.quality_checks.words import join_again, subject

NAME = "columns"

OWN = {"_op", "_generation", "_epoch"}
EXTRA = {"_probe_epoch", "_split", "_offset", "_reason"}
"""What every staged file carries beside the target's columns; the quarantine keeps EXTRA too."""
KEPT_PROBE = {PROBE}
"""What a quarantined row has where the probe's own columns were stored with it."""
STAGED_ONLY = {MASK}
"""What may be in a staged file and is in no table."""


def check(evidence: Evidence) -> CheckResult:
    """Every declared column is in the table and in each of its files, of one type; and no file has any other.

    A column that somebody else added to the table reads as null and is no difference.
    """
    staged = evidence.staged
    problems: list[str] = []
    wanted = {column.name for column in staged.target.stored_columns}
    proof = set(proof_columns(staged.insert))
    for disposition, table in evidence.tables.items():
        more = EXTRA if disposition == "quarantine" else proof
        lacking = sorted((wanted | OWN | more) - set(table))
        if lacking:
            problems.append(f"the table to {disposition} lacks {', '.join(lacking)}")
    for footer in evidence.footers:
        table = evidence.tables.get(footer.disposition, {})
        problems += [
            f"{footer.path}: {what}"
            for what in differences(
                {name: type for name, type in footer.columns.items() if name not in KEPT_PROBE or name not in table},
                table,
                wanted | OWN | EXTRA | STAGED_ONLY | proof,
            )
        ]
    return CheckResult(
        NAME,
        passed=not problems,
        observed=problems,
        expected=[],
        detail=f"the files have the {len(wanted)} columns of {staged.target.name}"
        if not problems
        else f"{subject(staged)}: the staged columns are not those of {staged.target.name}: {'; '.join(problems[:5])}. "
        f"Nothing was published. Compare the script with the table, then stage it again: {join_again(staged)}",
    )


def differences(file: Mapping[str, str], table: Mapping[str, str], declared: set[str]) -> list[str]:
    """What keeps a file from being adopted by a table, in words; empty when nothing does."""
    found = [
        f"{name} is {file.get(name, 'not there')}, the table has {table[name]}"
        for name in sorted(declared & set(table))
        if file.get(name) != table[name]
    ]
    return found + [f"{name} is no column of the table" for name in file if name not in declared]
