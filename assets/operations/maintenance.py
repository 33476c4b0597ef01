"""The upkeep of a pipeline's tables, shown as an asset of its own: retention, OPTIMIZE and VACUUM."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import dagster as dg

from tidegate.assets.operations.operation import Operation, OperationConfig, Started
from tidegate.assets.presentation import OnLake
from tidegate.assets.specs import upkeep_spec
from tidegate.assets.text import in_short, markdown_table
from tidegate.pipelines.text import counted

if TYPE_CHECKING:
    from tidegate.pipelines.runtime.runner import Runner

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


def maintenance_spec(on: OnLake) -> dg.AssetSpec:
    """What the job materialises. No run of assets makes it, so that a run of all of them is of rows alone."""
    return upkeep_spec(
        on,
        "maintenance",
        deps=[on.names.published(insert) for insert in on.parts.inserts],
        description="Rows that nobody asks for any more go ('changelog.retention', 'landed.retention', "
        "'quarantine.retention'), small files are put together (OPTIMIZE), dead ones leave the disk (VACUUM). The job "
        "`tidegate_maintenance` does it, weekly once its schedule is turned on.",
        kinds={"deltalake"},
    )


def _maintained(runner: Runner, keep_hours: int) -> dict[str, Any]:
    """Run maintenance and report it: numbers to be plotted, and a line a table."""
    found = runner.maintenance(timedelta(hours=keep_hours)).run()
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
    return in_short(
        f"{counted(len(found), 'table')}: {counted(files[0], 'file')} became {files[1]:,}, {freed:,} bytes freed, "
        f"{counted(sum(removed.values()), 'row')} removed{left}",
        {"bytes freed": freed, **removed, "passed over": passed_over},
        tables=dg.MetadataValue.md(markdown_table(headers, rows)),
    )


def _maintain(started: Started, config: MaintenanceConfig) -> Iterator[Any]:
    metadata = _maintained(started.runner, config.keep_hours)
    yield dg.AssetMaterialization(started.on.names.maintenance, metadata=metadata)
    yield dg.Output(metadata["bytes freed"], metadata=metadata)


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
