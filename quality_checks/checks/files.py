"""The staged files: unchanged since they were staged, with the columns of the tables that adopt them, and without a
null in a key."""

from __future__ import annotations

from collections.abc import Mapping

from tidegate.pipelines.joins.outcome import MASK
from tidegate.pipelines.lake.stream import ORDERED, PLACED
from tidegate.pipelines.runtime.gate import CheckResult
from tidegate.pipelines.runtime.quarantine import PROBE
from tidegate.pipelines.text import counted
from tidegate.quality_checks.evidence import QUARANTINE_NULLS, Evidence, listed, subject
from tidegate.quality_checks.outcome_counts import OutcomeCounts

STAGED_FILES = "staged-files"


def staged_files(evidence: Evidence) -> CheckResult:
    """The footers, compared with the join's counts (rows by place) and with the record of the files (size and rows of
    each)."""
    staged = evidence.staged
    counts = OutcomeCounts(staged.staged.counts)
    recorded = {file["path"]: file for file in staged.staged.files}
    problems = [f"{path} {what}" for path, what in sorted(evidence.broken.items())]
    for footer in evidence.footers:
        file = recorded[footer.path]
        if (footer.size, footer.rows) != (file["size"], file["rows"]):
            problems.append(
                f"{footer.path} has {counted(footer.rows, 'row')} in {footer.size:,} bytes, "
                f"it was staged with {file['rows']:,} in {file['size']:,}"
            )
    elsewhere = sorted({str(file["disposition"]) for file in recorded.values()} - {"publish", "quarantine"})
    if elsewhere:
        problems.append(f"files are staged for {', '.join(elsewhere)}, where no row can go")
    found = {place: evidence.rows(place) for place in ("publish", "quarantine")}
    expected = {place: counts.to(place) for place in found}
    problems += [
        f"the files to {place} hold {counted(found[place], 'row')}, the join counted {expected[place]:,}"
        for place in found
        if found[place] != expected[place]
    ]
    return CheckResult(
        STAGED_FILES,
        passed=not problems,
        observed=found,
        expected=expected,
        detail=f"{len(evidence.footers)} files hold what was counted"
        if not problems
        else f"{subject(staged)}: the staged files are not what the join wrote: {'; '.join(problems[:3])}"
        f"{f' (and {len(problems) - 3} more)' if len(problems) > 3 else ''}. Nothing was published. "
        f"Find out who changed files in {staged.lake.target_path(staged.target)}, then join again",
    )


COLUMNS = "columns"

OWN = {"_op", "_generation", "_epoch"}
EXTRA = {"_probe_epoch", "_split", "_offset", "_reason"}
"""Columns of every staged file beside the target's; in the quarantine EXTRA too."""
STORED_PROBE = {PROBE}
"""Columns of a quarantined row that hold the probe's own columns, if they were stored."""
STAGED_ONLY = {MASK}
"""Columns that a staged file may have and no table has."""


def columns(evidence: Evidence) -> CheckResult:
    """Every declared column is in the table and in each of its files, of one type; and no file has any other.

    A column that somebody else added to the table reads as null and is no difference.
    """
    staged = evidence.staged
    problems: list[str] = []
    wanted = {column.name for column in staged.target.stored_columns}
    given = {name for footer in evidence.footers for name in footer.columns}
    places, order = set(PLACED) if "_rowtime" in given else set(), set(ORDERED) & given
    proof = {*staged.insert.proof_columns, *places, *order}
    for disposition, table in evidence.tables.items():
        more = EXTRA | order if disposition == "quarantine" else proof
        lacking = sorted((wanted | OWN | more) - set(table))
        if lacking:
            problems.append(f"the table to {disposition} lacks {', '.join(lacking)}")
    for footer in evidence.footers:
        table = evidence.tables.get(footer.disposition, {})
        problems += [
            f"{footer.path}: {what}"
            for what in differences(
                {name: type for name, type in footer.columns.items() if name not in STORED_PROBE or name not in table},
                table,
                wanted | OWN | EXTRA | STAGED_ONLY | proof,
            )
        ]
    return CheckResult(
        COLUMNS,
        passed=not problems,
        observed=problems,
        expected=[],
        detail=f"the files have the {len(wanted)} columns of {staged.target.name}"
        if not problems
        else f"{subject(staged)}: the staged columns are not those of {staged.target.name}: {'; '.join(problems[:5])}. "
        f"Nothing was published. Compare the script with the table, then join again",
    )


def differences(file: Mapping[str, str], table: Mapping[str, str], declared: set[str]) -> list[str]:
    """Why a table cannot adopt a file, as text; empty if it can."""
    found = [
        f"{name} is {file.get(name, 'not there')}, the table has {table[name]}"
        for name in sorted(declared & set(table))
        if file.get(name) != table[name]
    ]
    return found + [f"{name} is no column of the table" for name in file if name not in declared]


KEYS = "key-not-null"


def keys(evidence: Evidence) -> CheckResult:
    """The null counts of the key columns, from the footers of the files to publish. Without a key the check passes."""
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
        KEYS,
        passed=not problems,
        observed=nulls,
        expected=dict.fromkeys(key, 0),
        detail=("no key column is null" if key else f"{staged.target.name} declares no primary key")
        if not problems
        else f"{subject(staged)}: {' and '.join(problems)}. Nothing was published. "
        f"A row of {staged.plan.probe} has landed as it is: with {QUARANTINE_NULLS} in the script, release quarantines "
        "such rows and publishes the others. Or discard the epoch, which quarantines all of its rows",
    )
