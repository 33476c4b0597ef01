"""Do the rows satisfy the constraints of the target, and did violating rows go where ON VIOLATION sends them?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tidegate.pipelines.connectors.table import Constraint
from tidegate.pipelines.joins.outcome import VIOLATED, quarantined_from
from tidegate.pipelines.runtime.gate import CheckResult
from tidegate.pipelines.runtime.releasing.violations import fact, null_samples, samples
from tidegate.pipelines.sql.tables.constraints import not_null
from tidegate.pipelines.text import counted
from tidegate.quality_checks.evidence import QUARANTINE_NULLS, Evidence, subject

NAME = "constraints"
SAMPLES = 5


def check(evidence: Evidence) -> CheckResult:
    """FAIL: one row holds the epoch. QUARANTINE: no such row is among those to publish. WARN: counted, and reported.

    What the join's pass counted as quarantined is compared with the masks of the staged rows themselves. NULL in a NOT
    NULL column is a violation too, which the files' own counts of NULLs show.
    """
    staged = evidence.staged
    columns = _not_null(evidence)
    constraints, facts = (*staged.insert.constraints, *columns), staged.staged.facts
    observed = {
        each.name: evidence.nulls(columns[each]) if each in columns else facts.get(fact(each)) for each in constraints
    }
    expected = {each.name: 0 for each in constraints if each.action == "fail"}
    if not constraints:
        return CheckResult(NAME, True, observed, expected, f"{staged.target.name} declares no constraint")
    broken = [each for each in constraints if each.action == "fail" and observed[each.name] != 0]
    problems = _misplaced(evidence) if staged.insert.constraints else []
    warned = [each for each in constraints if each.action == "warn" and observed[each.name]]
    sentences = _sentences(evidence, [*broken, *warned], columns, observed)
    warning = "; ".join(sentences[each.name] for each in warned)
    failed = [sentences[each.name] for each in broken] + problems
    return CheckResult(
        NAME,
        passed=not failed,
        observed=observed,
        expected=expected,
        detail=f"{subject(staged)}: {'; '.join(failed)}. Nothing was published. {_ways_out(evidence, broken, columns)}"
        if failed
        else warning or f"{counted(len(constraints), 'constraint')} hold, or their rows are quarantined",
        warning=warning,
    )


def _ways_out(evidence: Evidence, broken: Sequence[Constraint], columns: Mapping[Constraint, str]) -> str:
    """What a person can do about an epoch that these constraints hold. `columns`: of NOT NULL constraints."""
    staged = evidence.staged
    instead = [
        *(["ON VIOLATION QUARANTINE in place of FAIL"] if any(each not in columns for each in broken) else []),
        *([QUARANTINE_NULLS] if any(each in columns for each in broken) else []),
    ]
    builds = " and ".join(staged.insert.builds)
    mend = f" A value of {builds} can be mended at its source, landed, and released." if builds else ""
    return (
        f"A row of {staged.plan.probe} has landed as it is: with {' and '.join(instead)} in the script, release "
        f"quarantines such rows and publishes the others.{mend} Or discard the epoch, which quarantines all of its rows"
        if instead
        else "Join its rows again"
    )


def _not_null(evidence: Evidence) -> dict[Constraint, str]:
    """The NOT NULL columns of the target, each as a constraint without ON VIOLATION, or by the script's setting; with
    the column. Key columns have a check of their own. If such rows are quarantined, there is a constraint already."""
    staged, taken = evidence.staged, [each.name for each in evidence.staged.insert.constraints]
    enforcer, key = staged.pipeline.not_null_enforcer, staged.target.primary_key
    return {
        not_null([column], "fail" if enforcer == "ERROR" else "warn", taken): column.name
        for column in staged.target.physical_columns
        if not column.nullable and column.name not in key and enforcer != "DROP"
    }


def _misplaced(evidence: Evidence) -> list[str]:
    """Where the masks of the staged rows contradict the counts."""
    staged = evidence.staged
    counts, facts = staged.staged.counts, staged.staged.facts
    limit, problems = quarantined_from(staged.insert.constraints), []
    for footer in evidence.footers:
        if footer.rows and (footer.violated is None or (footer.disposition == "publish" and footer.violated >= limit)):
            problems.append(f"{footer.path} to {footer.disposition} may hold rows that a constraint quarantines")
    hard = [each for each in staged.insert.constraints if each.action != "warn"]
    for place, each in enumerate(hard):
        quarantined, violating = counts.get(VIOLATED + each.name, 0), facts.get(fact(each))
        # Of the severest nothing can be taken by another; the rest are counted under the severest that a row violates.
        if violating is None or quarantined > violating or (place == 0 and quarantined != violating):
            problems.append(
                f"{counted(quarantined, 'row')} quarantined by {each.name}, {violating or 0:,} staged violate it"
            )
    return problems


def _sentences(
    evidence: Evidence, which: Sequence[Constraint], columns: Mapping[Constraint, str], observed: Mapping[str, Any]
) -> dict[str, str]:
    """Name -> a sentence on each of these constraints, with some keys. `columns`: of NOT NULL constraints."""
    if not which:
        return {}
    staged = evidence.staged
    files = [footer.at for footer in evidence.footers]
    declared = [each for each in which if each not in columns]
    keys = samples(files, staged.insert.constraints, declared, staged.target, SAMPLES)
    published = [footer.at for footer in evidence.footers if footer.disposition == "publish"]
    found = {}
    for each in which:
        number = observed[each.name]
        if each in columns:
            keys[each.name] = null_samples(published, columns[each], staged.target, SAMPLES) if number else ()
        shown = f", among them {', '.join(keys[each.name])}" if keys[each.name] else ""
        if number is None:
            found[each.name] = f"nothing is known of the constraint {each.name}"
        else:
            does = "violates" if number == 1 else "violate"
            found[each.name] = f"{counted(number, 'row')} {does} the constraint {each.name} ({each.sql}){shown}"
    return found
