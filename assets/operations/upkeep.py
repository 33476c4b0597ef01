"""What is done to all tables of a pipeline apart from moving rows, shown as assets of its own: upkeep (retention,
OPTIMIZE and VACUUM), and the comparison of build tables with their sources. No run of the other assets makes these two,
so that a run of all assets only moves rows."""

# No `from __future__ import annotations` here: Dagster reads the annotations of its functions as types.

from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import dagster as dg

from tidegate.assets.names import identifier
from tidegate.assets.operations.operation import Operation, OperationConfig, Started
from tidegate.assets.presentation import OnLake
from tidegate.assets.specs import upkeep_spec
from tidegate.assets.text import in_short, markdown_table
from tidegate.pipelines.commands import NextCommand
from tidegate.pipelines.connectors.table import Table
from tidegate.pipelines.errors import PlanningError
from tidegate.pipelines.text import counted

if TYPE_CHECKING:
    from tidegate.pipelines.runtime.runner import Runner
    from tidegate.quality_checks.against_source import SourceReconciliation


def upkeep_specs(on: OnLake) -> list[dg.AssetSpec]:
    """What the two jobs materialise; `reconcile` only where a build table can be compared."""
    maintenance = upkeep_spec(
        on,
        "maintenance",
        deps=[on.names.published(insert) for insert in on.parts.inserts],
        description="Removes rows past their retention ('changelog.retention', 'landed.retention', "
        "'quarantine.retention'), merges small files (OPTIMIZE) and deletes dead ones (VACUUM). The job "
        "`tidegate_maintenance` does it, weekly once its schedule is turned on.",
        kinds={"deltalake"},
    )
    if not on.parts.comparable:
        return [maintenance]
    reconcile = upkeep_spec(
        on,
        "reconcile",
        deps=[on.names.source(table.name) for table in on.parts.comparable],
        description="Reads build tables again at their source and compares them with the lake, at a known place of the "
        "source's log: checksums first, then down to the keys that differ. The job `tidegate_reconcile` does it.",
        kinds={"spark", "deltalake"},
    )
    return [maintenance, reconcile]


REMOVED = {
    "versions removed": "old versions",
    "landed rows removed": "landed rows",
    "quarantined rows removed": "quarantined rows",
}
"""Of metadata: which rows are counted."""

WEEKLY = "30 3 * * 0"
"""Sundays at 03:30."""


class MaintenanceConfig(OperationConfig):
    """What a person may ask of one run (in the launchpad).

    Attributes:
        keep_hours: Files that a version younger than this names stay on the disk: somebody may be reading it.
    """

    keep_hours: int = 7 * 24


def _maintain(started: Started, config: MaintenanceConfig) -> Iterator[Any]:
    """Run maintenance and report it: numbers to be plotted, and a line a table."""
    found = started.runner.maintenance(timedelta(hours=config.keep_hours)).run()
    rows = [
        (
            item.name,
            item.files_before,
            item.files_after,
            item.freed,
            item.retained.removed if item.retained else None,
            item.skipped or (item.retained.reason if item.retained else "") or item.note,
        )
        for item in found
    ]
    headers = ("table", "files before", "files", "bytes freed", "rows removed", "")
    removed = {
        name: sum(item.retained.removed for item in found if item.retained and item.retained.what == what)
        for name, what in REMOVED.items()
    }
    freed, passed_over = sum(item.freed for item in found), sum(bool(item.skipped) for item in found)
    files = sum(item.files_before for item in found), sum(item.files_after for item in found)
    left = f"; {counted(passed_over, 'table')} passed over" if passed_over else ""
    metadata = in_short(
        f"{counted(len(found), 'table')}: {counted(files[0], 'file')} became {files[1]:,}, {freed:,} bytes freed, "
        f"{counted(sum(removed.values()), 'row')} removed{left}",
        {"bytes freed": freed, **removed, "passed over": passed_over},
        tables=dg.MetadataValue.md(markdown_table(headers, rows)),
    )
    yield dg.AssetMaterialization(started.on.names.maintenance, metadata=metadata)
    yield dg.Output(freed, metadata=metadata)


MAINTENANCE = Operation(
    name="maintenance",
    title="Retention, OPTIMIZE and VACUUM of a pipeline's tables.",
    step="maintain",
    description="Its result is the newest materialisation of the pipeline's asset `maintenance`.",
    gives="Bytes that were freed.",
    config=MaintenanceConfig,
    run=_maintain,
)
"""Its schedule is weekly, and stopped until it is turned on."""


WAIT_SECONDS = 300.0
"""How long another runner may take to bring the changelog past the cut, unless another time is given."""


class ReconcileConfig(OperationConfig):
    """What a person may ask of one run (in the launchpad).

    Attributes:
        tables: Only these; all that can be compared when empty.
        wait_seconds: How long another runner may take to bring the changelog past the cut.
    """

    tables: list[str] = []  # noqa: RUF012 pydantic copies it
    wait_seconds: float = WAIT_SECONDS


def reconcile_checks(on: OnLake) -> dg.AssetChecksDefinition:
    """A check for each table, which compares it. The step fails where a key differs, so that whoever is alerted to
    failed runs is alerted."""
    key = on.names.reconcile
    specs = {table.name: _check_of(key, table) for table in on.parts.comparable}

    @dg.multi_asset_check(specs=list(specs.values()), can_subset=True, **on.step(on.names.op(key), None))
    @on.executed("reconcile")
    def compare(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        with on.runner(context) as runner:
            asked = [name for name, spec in specs.items() if spec.key in context.selected_asset_check_keys]
            found = _compared(runner, asked, WAIT_SECONDS, context.log)
            for item in found:
                yield _result(specs[item.table], item)
            _refuse(found)

    return compare


def _compared(
    runner: "Runner", tables: Iterable[str], wait_seconds: float, log: dg.DagsterLogManager
) -> "list[SourceReconciliation]":
    from tidegate.quality_checks.against_source import reconcile_source

    found = [reconcile_source(runner, table, wait_seconds) for table in tables]
    for item in found:
        log.info(f"{item.table}: {item.differences} keys differ at {item.cut.text}")
    return found


def _refuse(found: "Sequence[SourceReconciliation]") -> None:
    """Fail where a key differs. After the results are recorded: a run that fails is what people are alerted to."""
    for item in found:
        if not item.passed:
            raise item.error(NextCommand("reconcile", ("--table", item.table), "lists the keys"))


def _check_of(key: dg.AssetKey, table: Table) -> dg.AssetCheckSpec:
    return dg.AssetCheckSpec(
        identifier(table.name), asset=key, description=f"Whether `{table.name}` in the lake is what its source holds."
    )


def _result(spec: dg.AssetCheckSpec, item: "SourceReconciliation") -> dg.AssetCheckResult:
    return dg.AssetCheckResult(
        passed=item.passed,
        asset_key=spec.asset_key,
        check_name=spec.name,
        metadata={
            "rows compared": item.rows,
            "keys that differ": item.differences,
            "keys read twice": item.rechecked,
            "at": item.cut.text,
        },
    )


def of_reconciled(found: "Sequence[SourceReconciliation]") -> dict[str, Any]:
    """The metadata of a materialisation: numbers to be plotted, and a line a table."""
    rows = [
        (item.table, item.rows, item.differences, item.rechecked, item.cut.text, round(item.seconds, 1))
        for item in found
    ]
    headers = ("table", "rows", "keys that differ", "keys read twice", "at", "seconds")
    return {
        "rows compared": sum(item.rows for item in found),
        "keys that differ": sum(item.differences for item in found),
        "seconds": sum(item.seconds for item in found),
        "tables": dg.MetadataValue.md(markdown_table(headers, rows)),
    }


def _reconcile(started: Started, config: ReconcileConfig) -> Iterator[Any]:
    key = started.on.names.reconcile
    tables = {table.name: table for table in started.on.parts.comparable}
    unknown = [name for name in config.tables if name not in tables]
    if unknown:
        raise PlanningError(
            f"{', '.join(unknown)} cannot be compared with a source",
            where="the config of the run",
            state="nothing was read",
            next_command=f"set `tables` to some of {', '.join(tables)}",
        )
    found = _compared(started.runner, config.tables or tables, config.wait_seconds, started.context.log)
    for item in found:
        result = _result(_check_of(key, tables[item.table]), item)
        yield dg.AssetCheckEvaluation(
            asset_key=key, check_name=result.check_name or "", passed=result.passed, metadata=result.metadata
        )
    metadata = of_reconciled(found)
    yield dg.AssetMaterialization(key, metadata=metadata)
    _refuse(found)
    yield dg.Output(metadata["keys that differ"], metadata=metadata)


RECONCILE = Operation(
    name="reconcile",
    title="Build tables of a pipeline against their sources.",
    step="reconcile",
    description="Its result is the newest materialisation of the pipeline's asset `reconcile`, and its checks'. Fails "
    "where a key differs.",
    gives="Keys that differ.",
    config=ReconcileConfig,
    run=_reconcile,
)
"""Its schedule is weekly by default, and runs from the start."""
