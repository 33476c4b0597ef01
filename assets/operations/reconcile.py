"""Build tables against their sources, as an asset of its own: off the path of rows, weekly."""

# No `from __future__ import annotations` here: Dagster reads the annotations of its functions as types.

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import dagster as dg

from tidegate.assets.jobs import job_of
from tidegate.assets.names import Names, identifier
from tidegate.assets.presentation import Presentation
from tidegate.assets.resources import runner_of
from tidegate.assets.specs import upkeep_spec
from tidegate.assets.text import markdown_table
from tidegate.pipelines.commands import Commands
from tidegate.pipelines.lake import Layout
from tidegate.pipelines.sql.model import Table
from tidegate.pipelines.sql.pipeline import Pipeline

if TYPE_CHECKING:
    from tidegate.quality_checks.against_source import SourceReconciliation

Compared = Iterator[dg.MaterializeResult | dg.AssetCheckResult]


class ReconcileConfig(dg.Config):
    """What a person may ask of one run (in the launchpad).

    Attributes:
        tables: Only these; all that can be compared when empty.
        wait_seconds: How long another runner may take to bring the changelog past the cut.
    """

    tables: list[str] = []  # noqa: RUF012 pydantic copies it
    wait_seconds: float = 300.0


def reconcile_asset(
    pipeline: Pipeline, tables: Sequence[Table], lake: Layout, names: Names, look: Presentation
) -> dg.AssetsDefinition:
    """Fails where a key differs, so that whoever is told of failed runs is told. It has no part in the pipeline's own
    job."""
    spec = upkeep_spec(
        "reconcile",
        names,
        look,
        deps=[names.source(table.name) for table in tables],
        description="Build tables are read again at their source and compared with the lake, at a known place of the "
        "source's log: checksums first, then down to the keys that differ.",
        kinds={"spark", "deltalake"},
    )
    key = spec.key
    checks = {table.name: _check_of(key, table) for table in tables}

    @dg.multi_asset(
        name=names.op(key),
        specs=[spec.replace_attributes(skippable=True)],
        check_specs=list(checks.values()),
        can_subset=True,  # tables that a run leaves out have no result in it
        required_resource_keys={names.resource},
        description=look.steps.description or spec.description,
        **look.steps.options(),
    )
    @look.executed(names, "reconcile")
    def reconcile(context: dg.AssetExecutionContext, config: ReconcileConfig) -> Compared:
        from tidegate.quality_checks.against_source import reconcile_source

        with runner_of(context, pipeline, names, Commands(look.script, lake.root)) as runner:
            wanted = config.tables or [table.name for table in tables]
            found = [reconcile_source(runner, table, config.wait_seconds) for table in wanted]
            for item in found:
                context.log.info(f"{item.table}: {item.differences} keys differ at {item.cut.text}")
                if checks[item.table].key in context.selected_asset_check_keys:
                    yield _result(checks[item.table], item)
            if key in context.selected_asset_keys:
                yield dg.MaterializeResult(asset_key=key, metadata=of_reconciled(found))
            # After its results are recorded: a run that fails is what people are told of.
            for item in found:
                if not item.passed:
                    raise item.error(f"tidegate reconcile SCRIPT --table {item.table}   (lists the keys)")

    return reconcile


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
    """What a materialisation tells: numbers to be plotted, and a line a table."""
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


def reconcile_schedules(names: Names, look: Presentation) -> list[dg.ScheduleDefinition]:
    """By cron, weekly by default, and running from the start; none where the cron is None."""
    if look.reconcile_cron is None:
        return []
    job = job_of(names, f"{names.job}_reconcile", [names.reconcile], "Build tables against their sources.")
    return [
        dg.ScheduleDefinition(
            name=f"{names.job}_reconcile_schedule",
            job=job,
            cron_schedule=look.reconcile_cron,
            execution_timezone=look.timezone,
            default_status=dg.DefaultScheduleStatus.RUNNING,
        )
    ]
