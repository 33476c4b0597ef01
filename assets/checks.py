"""The gate's verdict as Dagster's asset checks: proof, rows, constraints and expectations, on the staged asset.

Each of the four asks some of the gate's questions, and has them, with what was observed, in the metadata of its result.
All four block: if one fails, the published asset does not run. The verdict is one, whatever is shown of it: publishing
reads it from the lake.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, TypeGuard
from urllib.parse import quote

import dagster as dg

from tidegate.assets.names import ADDS_UP, GATE
from tidegate.assets.text import in_short, markdown_table, records
from tidegate.pipelines.commands import AS_WRITTEN, Commands, NextCommand, either, resolving
from tidegate.pipelines.runtime.gate import CheckResult, GateVerdict, installed_gate
from tidegate.pipelines.sql.compile import Pipeline
from tidegate.pipelines.sql.model import Insert, ProcessInsert
from tidegate.pipelines.text import counted
from tidegate.pipelines.watermarks.watermark import instant
from tidegate.quality_checks.docs import QUALITY
from tidegate.quality_checks.gate import CHECKS, QUESTIONS

if TYPE_CHECKING:
    from tidegate.pipelines.lake import Lake

DOCS_VARIABLE = "TIDEGATE_DOCS_URL"
"""The address that a lake's folder of pages is served at; `tidegate ui` sets it."""


def linked(page: str | None) -> dict[str, Any]:
    """Metadata that leads to a page: its path, and a link if it is served. Empty without a page.

    A browser follows no file link from a page that came over HTTP, so there is none.
    """
    if not page:
        return {}
    links: dict[str, Any] = {"data docs file": dg.MetadataValue.path(page)}
    base = os.environ.get(DOCS_VARIABLE, "")
    if base:
        parts = Path(page).parts
        below = parts[len(parts) - parts[::-1].index(QUALITY) :] if QUALITY in parts else parts[-1:]
        links["data docs"] = dg.MetadataValue.url(f"{base.rstrip('/')}/{quote(str(PurePosixPath(*below)))}")
    return links


IN_DAGSTER = (
    "run the pipeline's job again with `held: release` (joins again) or `held: discard` (quarantines all "
    "of its rows, also those that nothing is wrong with) in the launchpad's config of the staged asset"
)
"""How a held epoch is resolved without a terminal."""

NOTHING_STAGED = "nothing is staged, so there is nothing to judge"


OF_CHECK = {
    "proof": "Was the epoch made as its plan says: flips, pins, files?",
    "rows": "Is every row that was released in the place where it belongs?",
    "constraints": "Do the rows keep what the target declares?",
    "expectations": "Do the rows meet the suites of expectations, and what other checks the installed gate has?",
}
"""What each check asks, in one sentence."""


def check_names() -> tuple[str, ...]:
    """The names of the installed gate's questions; none if it does not declare them."""
    return tuple(getattr(sys.modules[installed_gate().__module__], "CHECK_NAMES", ()))


def check_of(name: str) -> str:
    """The check that a question of the gate belongs to: those of a gate of one's own are expectations."""
    return next((check for check, asked in CHECKS.items() if name in asked), GATE[-1])


def check_specs(staged: dg.AssetKey) -> list[dg.AssetCheckSpec]:
    """The four checks of a staged asset."""
    return [dg.AssetCheckSpec(name, asset=staged, blocking=True, description=_asks(name)) for name in GATE]


def _asks(check: str) -> str:
    asked = [name for name in check_names() if check_of(name) == check]
    lines = [f"* `{name}`: {QUESTIONS[name]}" if name in QUESTIONS else f"* `{name}`" for name in asked]
    text = f"{OF_CHECK[check]} The verdict is stored once, and final; nothing is published without it."
    return "\n".join([text, "", *lines])


def results(
    specs: Iterable[dg.AssetCheckSpec],
    verdict: GateVerdict | None,
    state: str | None = None,
    commands: Commands = AS_WRITTEN,
) -> Iterator[dg.AssetCheckResult]:
    """A result for every check of `specs`; without a staged epoch all of them pass, and say that there was none."""
    for spec in specs:
        if verdict is None:
            yield _result(spec, True, {"summary": NOTHING_STAGED, "epoch state": state or "none planned yet"})
        elif state == "published":
            text = f"nothing new is staged; epoch {verdict.epoch} passed, and is published"
            yield _result(spec, verdict.passed, {"summary": text, "passed": int(verdict.passed)})
        else:
            asked = [check for check in verdict.checks if check_of(check.name) == spec.name]
            yield _result(spec, _passes(asked, verdict), of_check(asked, verdict, commands))


def _passes(asked: Sequence[CheckResult], verdict: GateVerdict) -> bool:
    """Whether a check passes. If the gate holds an epoch and names no question, none does."""
    if verdict.passed or all(check.passed for check in verdict.checks):
        return verdict.passed
    return all(check.passed for check in asked)


def not_judged(staged: dg.AssetKey, insert: str, epoch: int, held: int) -> list[dg.AssetCheckEvaluation]:
    """The checks after a person has decided about a held epoch, as long as the epoch that replaces it is not judged:
    they stay failed, but ask for no decision any more."""
    metadata = {
        "verdict": "none yet",
        "epoch": epoch,
        "held epoch": held,
        "next": f"nothing: who works on {insert} finishes it, or else the next run",
    }
    text = f"epoch {epoch} takes the place of epoch {held}, which the gate held, and is not judged yet"
    failed = {"asset_key": staged, "passed": False, "metadata": metadata, "description": text, "blocking": True}
    return [dg.AssetCheckEvaluation(check_name=name, **failed) for name in GATE]


def worse(found: Iterable[dg.AssetCheckResult], ranks: dict[str, int]) -> Iterator[dg.AssetCheckResult]:
    """The results of an epoch that are worse than what the run has shown so far: Dagster shows the newest. `ranks` (0
    passed, 1 failed) stores the worst by check; a check that is not in it is new."""
    for result in found:
        name = result.check_name or ""
        rank = 0 if result.passed else 1
        if rank > ranks.get(name, -1):
            ranks[name] = rank
            yield result


def evaluation(result: dg.AssetCheckResult) -> dg.AssetCheckEvaluation:
    """A result as an event by itself."""
    assert result.asset_key is not None and result.check_name is not None  # noqa: PT018
    return dg.AssetCheckEvaluation(
        asset_key=result.asset_key,
        check_name=result.check_name,
        passed=result.passed,
        severity=result.severity,
        metadata=result.metadata,
        description=result.description,
        blocking=result.check_name in GATE,
    )


def fails(result: dg.AssetCheckResult | dg.AssetCheckEvaluation) -> bool:
    """Whether it failed, and does not only warn."""
    return not result.passed and result.severity == dg.AssetCheckSeverity.ERROR


def _result(spec: dg.AssetCheckSpec, passed: bool, metadata: Mapping[str, Any]) -> dg.AssetCheckResult:
    """The result as Dagster shows it. Its sentence is the description, since Dagster sorts the metadata of checks by
    name. A warning is in that sentence: with a severity of its own the check would be shown as failed, and automation
    would wait for a check that blocks."""
    return dg.AssetCheckResult(
        description=metadata.get("summary"),
        asset_key=spec.asset_key,
        check_name=spec.name,
        passed=passed,
        metadata={name: value for name, value in metadata.items() if name != "summary"},
    )


def of_check(asked: Sequence[CheckResult], verdict: GateVerdict, commands: Commands = AS_WRITTEN) -> dict[str, Any]:
    """The questions of one check on a judged epoch: `asked` are their results."""
    failed = [check for check in asked if not check.passed]
    table = [(check.name, _outcome(check), check.observed, check.expected, check.detail) for check in asked]
    numbers = {check.name: check.observed for check in asked if _is_number(check.observed)}
    ways_out = {
        "reasons": "\n".join(check.detail for check in failed) or "\n".join(verdict.reasons),
        "next": commands.shown(either(*resolving(verdict.insert))),
        "next in Dagster": IN_DAGSTER,
    }
    return in_short(
        _sentence(asked, verdict),
        {
            "verdict": "passed" if verdict.passed else "held",
            "epoch": verdict.epoch,
            "passed": int(_passes(asked, verdict)),
            "decided at": instant(verdict.decided_at),
        },
        {"generation": verdict.generation, "plan": verdict.plan_digest},
        **numbers,
        **({} if _passes(asked, verdict) else ways_out),
        warnings="\n".join(check.warning for check in asked if check.warning) or None,
        questions=dg.MetadataValue.md(markdown_table(("question", "outcome", "observed", "expected", "detail"), table)),
        **_pages(asked),
    )


def _sentence(asked: Sequence[CheckResult], verdict: GateVerdict) -> str:
    failed, warned = ([check for check in asked if _outcome(check) == which] for which in ("failed", "warned"))
    if failed:
        return f"epoch {verdict.epoch} is held by {' and '.join(check.name for check in failed)}"
    if not _passes(asked, verdict):
        return f"epoch {verdict.epoch} is held by the gate: {verdict.reasons[0] if verdict.reasons else 'no reason'}"
    if warned:
        return f"epoch {verdict.epoch} passed with a warning: {warned[0].warning}"
    if not asked:
        return f"epoch {verdict.epoch}: the installed gate asks nothing of this"
    return f"epoch {verdict.epoch} passed {counted(len(asked), 'question')}"


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _outcome(check: CheckResult) -> str:
    return "failed" if not check.passed else "warned" if check.warning else "passed"


def data_docs(verdict: GateVerdict) -> dict[str, Any]:
    """The page that the script's suite wrote for this verdict; empty if it has no suite."""
    return _pages(verdict.checks)


def _pages(checks: Iterable[CheckResult]) -> dict[str, Any]:
    pages = (check.observed.get("page") for check in checks if isinstance(check.observed, Mapping))
    return linked(next((page for page in pages if page), None))


def adds_up_specs(insert: Insert, published: dg.AssetKey) -> list[dg.AssetCheckSpec]:
    """The check that the rows of an INSERT add up."""
    of = "rows of the probe = published + quarantined + dropped + waiting"
    if isinstance(insert, ProcessInsert):
        of = (
            "rows of the inputs = handled + left out + waiting, and of each output, rows given = published + "
            "quarantined + left out by HAVING"
        )
    description = f"Over all history: {of}, exactly, and the tables hold as many as the control tables say."
    return [dg.AssetCheckSpec(ADDS_UP, asset=published, description=description)]


def adds_up(
    lake: Lake, pipeline: Pipeline, insert: Insert, published: dg.AssetKey, commands: Commands = AS_WRITTEN
) -> list[dg.AssetCheckResult]:
    """Its result; no Spark, the counts are in the logs."""
    from tidegate.quality_checks.reconcile import reconcile

    found = reconcile(lake, pipeline, insert)
    counts = list(found.counts.items())
    tables = [(place, count, found.tables[place]) for place, count in found.expected.items()]
    metadata = in_short(
        f"every row of {insert.probe} is in exactly one place, and the tables hold as many"
        if found.passed and not isinstance(insert, ProcessInsert)
        else found.problems[0]
        if found.problems
        else "the rows of inputs and outputs add up, and the tables hold as many",
        dict(counts[:5]),
        {
            **dict(counts[5:]),
            "tables": records(("table", "rows by the control tables", "rows by its own log"), tables),
        },
    )
    if found.problems:
        verb = "status" if isinstance(insert, ProcessInsert) else "verify"  # what functions gave is not computed anew
        metadata |= {"problems": "\n".join(found.problems), "next": commands.shown(NextCommand(verb))}
    return [_result(dg.AssetCheckSpec(ADDS_UP, asset=published), found.passed, metadata)]
