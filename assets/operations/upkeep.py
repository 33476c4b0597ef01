"""What is done to all tables of a pipeline apart from moving rows, shown as assets of its own: upkeep (retention,
OPTIMIZE and VACUUM), and the comparison of build tables with their sources. No run of the other assets makes these two,
so that a run of all assets only moves rows."""

# No `from __future__ import annotations` here: Dagster reads the annotations of its functions as types.

from collections.abc import Iterator

import dagster as dg

from tidegate.assets.names import identifier
from tidegate.assets.presentation import OnLake
from tidegate.assets.specs import upkeep_spec
from tidegate.assets.text import metadata
from tidegate.pipelines.connectors.table import Table


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


def reconcile_checks(on: OnLake) -> dg.AssetChecksDefinition:
    """A check for each table, which compares it. The step fails where a key differs, so that whoever is alerted to
    failed runs is alerted."""
    key = on.names.reconcile
    specs = {table.name: check_of(key, table) for table in on.parts.comparable}

    @dg.multi_asset_check(specs=list(specs.values()), can_subset=True, **on.step(on.names.op(key), None))
    @on.executed("reconcile")
    def compare(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        from tidegate.quality_checks.against_source import reconcile

        with on.runner(context) as runner:
            asked = [name for name, spec in specs.items() if spec.key in context.selected_asset_check_keys]
            found = reconcile(runner, asked)
            for item in found.tables:
                name, of = specs[item.table].name, metadata(item, on.commands)
                yield dg.AssetCheckResult(passed=item.passed, asset_key=key, check_name=name, metadata=of)
            if found.cause is not None:
                raise found.cause

    return compare


def check_of(key: dg.AssetKey, table: Table) -> dg.AssetCheckSpec:
    """The check that compares a table."""
    return dg.AssetCheckSpec(
        identifier(table.name), asset=key, description=f"Whether `{table.name}` in the lake is what its source holds."
    )
