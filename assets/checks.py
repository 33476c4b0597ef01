"""The gate's verdict as Dagster's asset checks.

`gate` blocks: if it fails with severity ERROR, the published asset does not run. The checks that make up the verdict
are a table in its result. Checks that the user has asked for (the target's constraints, its suite, and those of a
custom gate) are asset checks of their own; they do not block, since only the gate gives the verdict.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, TypeGuard
from urllib.parse import quote

import dagster as dg
from dagster._core.definitions.asset_checks.asset_check_evaluation import AssetCheckEvaluationTargetMaterializationData
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecord

from tidegate.assets.names import ADDS_UP, GATE, identifier
from tidegate.assets.text import facts_of, in_short, markdown_table, records
from tidegate.pipelines.commands import AS_WRITTEN, Commands, NextCommand, either, resolving
from tidegate.pipelines.runtime.gate import CheckResult, GateVerdict, installed_gate
from tidegate.pipelines.sql.compile import Pipeline
from tidegate.pipelines.sql.model import Insert, ProcessInsert
from tidegate.pipelines.text import counted
from tidegate.pipelines.watermarks.watermark import instant
from tidegate.quality_checks.docs import QUALITY
from tidegate.quality_checks.gate import QUESTIONS, written_by_the_user

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


def check_names() -> tuple[str, ...]:
    """The names of the installed gate's checks; none if it does not declare them."""
    return tuple(getattr(sys.modules[installed_gate().__module__], "CHECK_NAMES", ()))


def names_of_gate() -> set[str]:
    """The names of all checks that the gate may have on a staged asset; a person may have added others."""
    return {GATE, *map(identifier, check_names())}


def shown_apart(pipeline: Pipeline, insert: Insert) -> list[str]:
    """The checks of the installed gate that are shown beside its verdict: constraints and the suite, if the target has
    them, and checks that the built-in gate does not have."""
    asked = written_by_the_user(pipeline, insert)
    return [name for name in check_names() if name in asked or name not in QUESTIONS]


def check_specs(staged: dg.AssetKey, apart: Sequence[str] = ()) -> list[dg.AssetCheckSpec]:
    """The check `gate`, and one for each of the names."""
    verdict = dg.AssetCheckSpec(GATE, asset=staged, blocking=True, description=_asks())
    return [verdict, *(dg.AssetCheckSpec(identifier(name), asset=staged, description=_asks(name)) for name in apart)]


def _asks(name: str = GATE) -> str:
    """The question of a check, for its description."""
    if name in QUESTIONS:
        return QUESTIONS[name]
    if name != GATE:
        return f"`{name}`, a check of the installed gate."
    asked = [f"* `{name}`: {QUESTIONS[name]}" if name in QUESTIONS else f"* `{name}`" for name in check_names()]
    text = "May the staged epoch be published? The verdict is stored once, and final; nothing is published without it."
    return "\n".join([text, "", *asked])


def results(
    specs: Sequence[dg.AssetCheckSpec], verdict: GateVerdict | None, state: str | None, commands: Commands = AS_WRITTEN
) -> Iterator[dg.AssetCheckResult]:
    """A result for every spec; without a staged epoch all of them pass, and say that there was none."""
    found = {identifier(check.name): check for check in verdict.checks} if verdict else {}
    for spec in specs:
        if verdict is None:
            yield _result(spec, True, {"summary": NOTHING_STAGED, "epoch state": state or "none planned yet"})
        elif spec.name == GATE:
            yield _result(spec, verdict.passed, of_verdict(verdict, state, commands))
        elif spec.name in found:
            check = found[spec.name]
            yield _result(spec, check.passed, of_check(check, verdict, commands), warned=bool(check.warning))
        else:
            unknown = "the gate did not report this check on this epoch"
            yield _result(spec, verdict.passed, {"summary": unknown, "epoch": verdict.epoch})


def not_judged(staged: dg.AssetKey, insert: str, epoch: int, held: int) -> dg.AssetCheckResult:
    """The gate's result after a person has decided about a held epoch, as long as the epoch that replaces it is not
    judged: it stays failed, but asks for no decision any more."""
    return dg.AssetCheckResult(
        asset_key=staged,
        check_name=GATE,
        passed=False,
        description=f"epoch {epoch} takes the place of epoch {held}, which the gate held, and is not judged yet",
        metadata={
            "verdict": "none yet",
            "epoch": epoch,
            "held epoch": held,
            "next": f"nothing: who works on {insert} finishes it, or else the next run",
        },
    )


def worse(found: Iterable[dg.AssetCheckResult], ranks: dict[str, int]) -> Iterator[dg.AssetCheckResult]:
    """The results of an epoch that are worse than what the run has shown so far: Dagster shows the newest. `ranks` (0
    passed, 1 with a warning, 2 failed) stores the worst by check; a check that is not in it is new."""
    for result in found:
        name = _check(result).name
        rank = 0 if result.passed else 1 if result.severity == dg.AssetCheckSeverity.WARN else 2
        if rank > ranks.get(name, -1):
            ranks[name] = rank
            yield result


def evaluation(
    result: dg.AssetCheckResult, of: AssetCheckEvaluationTargetMaterializationData | None = None
) -> dg.AssetCheckEvaluation:
    """A result as an event by itself; `of` is the materialisation of the staged asset that it judges."""
    key = _check(result)
    return dg.AssetCheckEvaluation(
        asset_key=key.asset_key,
        check_name=key.name,
        passed=result.passed,
        severity=result.severity,
        metadata=result.metadata,
        target_materialization_data=of,
        description=result.description,
        blocking=result.check_name == GATE,
    )


def reported(
    found: Iterable[dg.AssetCheckResult], instance: dg.DagsterInstance | None = None
) -> list[dg.AssetCheckEvaluation]:
    """Results of one staged asset as events without a run, which Dagster shows as those of its newest materialisation:
    the one that the `instance` has, or one that is reported just before them."""
    own = list(found)
    newest = _materialization(instance, _check(own[0]).asset_key) if own and instance else None
    return [evaluation(result, newest) for result in own]


def _shown(
    record: AssetCheckExecutionRecord | None, newest: AssetCheckEvaluationTargetMaterializationData | None
) -> dg.AssetCheckEvaluation | None:
    """The result that Dagster shows of a check whose newest record this is; None if it shows none, or shows that a run
    is in progress or was skipped. `newest`: the newest materialisation of the check's asset.

    Dagster shows only the newest record, and only for the asset's newest materialisation. A record is as old as its
    run: it is made with the run, as `planned`, and the result is written into it.
    """
    found = result_of(record)
    if record is None or found is None:
        return None
    judged = found.target_materialization_data
    if newest is None or newest.run_id == record.run_id:
        return found
    current = newest.timestamp < record.create_timestamp if judged is None else judged.storage_id == newest.storage_id
    return found if current else None


def unshown(
    instance: dg.DagsterInstance, found: Iterable[dg.AssetCheckResult], run_id: str = "", *, again: bool = False
) -> list[dg.AssetCheckEvaluation]:
    """The results of the newest judged epoch, all of one staged asset, that Dagster does not show; they are to be
    reported without a run. The history is read twice, however many results there are.

    A failed result is shown whatever runs are queued. A passed one replaces another result, but is left to a queued or
    running run if there is one. Two things are not reported again: what the run `run_id` has stored itself, unless
    something newer hides it; and, with `again`, a failure while another failure is shown. Otherwise two code locations
    with assets of one name and a lake each would take turns for ever.
    """
    wanted = {_check(result): result for result in found}
    if not wanted:
        return []
    records = instance.event_log_storage.get_latest_asset_check_execution_by_key([*wanted])
    newest = _materialization(instance, next(iter(wanted)).asset_key)
    hidden = []
    for key, result in wanted.items():
        record = records.get(key)
        now = _shown(record, newest)
        if now is not None and (_same(now, evaluation(result)) or (record and record.run_id == run_id != "")):
            continue
        if again and fails(result) and now is not None and fails(now):
            continue
        if fails(result) or (record is not None and not _is_awaited(instance, record)):
            hidden.append(evaluation(result, newest))
    return hidden


def fails(result: dg.AssetCheckResult | dg.AssetCheckEvaluation) -> bool:
    """Whether it failed, and does not only warn."""
    return not result.passed and result.severity == dg.AssetCheckSeverity.ERROR


def _check(result: dg.AssetCheckResult) -> dg.AssetCheckKey:
    assert result.asset_key is not None and result.check_name is not None  # noqa: PT018
    return dg.AssetCheckKey(result.asset_key, result.check_name)


def result_of(record: AssetCheckExecutionRecord | None) -> dg.AssetCheckEvaluation | None:
    """The result in a record; None if it is only planned."""
    event = record.event.dagster_event if record and record.event else None
    found = event.event_specific_data if event else None
    return found if isinstance(found, dg.AssetCheckEvaluation) else None


def _materialization(
    instance: dg.DagsterInstance, key: dg.AssetKey
) -> AssetCheckEvaluationTargetMaterializationData | None:
    """The newest one of an asset."""
    records = instance.fetch_materializations(key, limit=1).records
    return next(
        (
            AssetCheckEvaluationTargetMaterializationData(
                storage_id=record.storage_id, run_id=record.run_id, timestamp=record.timestamp
            )
            for record in records
        ),
        None,
    )


def is_awaited(instance: dg.DagsterInstance, check: dg.AssetCheckKey) -> bool:
    """Whether Dagster shows a check as in progress: a run that has not ended will give its result."""
    record = instance.event_log_storage.get_latest_asset_check_execution_by_key([check]).get(check)
    return record is not None and _is_awaited(instance, record)


def _is_awaited(instance: dg.DagsterInstance, record: AssetCheckExecutionRecord) -> bool:
    """Whether a run that has not ended will give the result."""
    run = instance.get_run_by_id(record.run_id) if result_of(record) is None else None
    return run is not None and not run.is_finished


def _same(one: dg.AssetCheckEvaluation, other: dg.AssetCheckEvaluation) -> bool:
    """Whether two results are equal: both passed, or both failed (or warned) on the same epoch."""
    if (one.passed, one.severity) != (other.passed, other.severity):
        return one.passed and other.passed
    facts = [facts_of(found.metadata) for found in (one, other)]
    return one.passed or all(facts[0].get(name) == facts[1].get(name) for name in ("plan", "epoch"))


def _result(
    spec: dg.AssetCheckSpec, passed: bool, metadata: Mapping[str, Any], *, warned: bool = False
) -> dg.AssetCheckResult:
    """The result as Dagster shows it. A check that passed with a warning is shown as failed with severity WARN, as
    Dagster has no other sign. Its sentence is the description, since Dagster sorts the metadata of checks by name."""
    return dg.AssetCheckResult(
        description=metadata.get("summary"),
        asset_key=spec.asset_key,
        check_name=spec.name,
        passed=passed and not warned,
        severity=dg.AssetCheckSeverity.WARN if passed and warned else dg.AssetCheckSeverity.ERROR,
        metadata={name: value for name, value in metadata.items() if name != "summary"},
    )


def of_verdict(verdict: GateVerdict, state: str | None, commands: Commands = AS_WRITTEN) -> dict[str, Any]:
    """The whole verdict; for an epoch that was published before, so that nothing was judged now, that it passed."""
    if state == "published":
        return {"summary": f"nothing new is staged; epoch {verdict.epoch} passed, and is published", "gate passed": 1}
    failed = [check.name for check in verdict.checks if not check.passed]
    passed = f"epoch {verdict.epoch} passed {counted(len(verdict.checks), 'check')}; next: it is published"
    ways_out = {
        "reasons": "\n".join(verdict.reasons),
        "next": commands.shown(either(*resolving(verdict.insert))),
        "next in Dagster": IN_DAGSTER,
    }
    table = [(check.name, _outcome(check), check.observed, check.expected, check.detail) for check in verdict.checks]
    return in_short(
        passed if verdict.passed else f"epoch {verdict.epoch} is held by {' and '.join(failed) or 'the gate'}",
        {
            "verdict": "passed" if verdict.passed else "held",
            "gate passed": int(verdict.passed),
            "epoch": verdict.epoch,
            "checks failed": len(failed),
            "decided at": instant(verdict.decided_at),
        },
        {"generation": verdict.generation, "plan": verdict.plan_digest, "epoch state": state or ""},
        **({} if verdict.passed else ways_out),
        warnings="\n".join(verdict.warnings) or None,
        checks=dg.MetadataValue.md(markdown_table(("check", "outcome", "observed", "expected", "detail"), table)),
        **data_docs(verdict),
    )


def _outcome(check: CheckResult) -> str:
    return "failed" if not check.passed else "warned" if check.warning else "passed"


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


def data_docs(verdict: GateVerdict) -> dict[str, Any]:
    """The page that the script's suite wrote for this verdict; empty if it has no suite."""
    pages = (check.observed.get("page") for check in verdict.checks if _maps(check.observed))
    return linked(next((page for page in pages if page), None))


def _maps(value: Any) -> TypeGuard[Mapping[str, Any]]:
    return isinstance(value, Mapping)


def of_check(check: CheckResult, verdict: GateVerdict, commands: Commands = AS_WRITTEN) -> dict[str, Any]:
    """One check of a verdict. A plain number stays one, so that it can be plotted."""
    metadata: dict[str, Any] = {"summary": check.detail, "epoch": verdict.epoch}
    if not check.passed:
        metadata["next"] = commands.shown(either(*resolving(verdict.insert)))
    if _maps(check.observed):
        metadata |= linked(check.observed.get("page"))
    for name, value in (("observed", check.observed), ("expected", check.expected)):
        if isinstance(value, int | float) and not isinstance(value, bool):
            metadata[name] = value
        elif isinstance(value, Mapping):
            metadata[name] = dg.MetadataValue.md(markdown_table((name, ""), list(value.items())))
        elif value is not None:
            metadata[name] = str(value)
    return metadata
