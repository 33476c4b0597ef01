"""The upkeep of a pipeline's tables as an asset of its own: retention, OPTIMIZE and VACUUM."""

# No `from __future__ import annotations` here: Dagster reads the annotations of its functions as types.

from collections.abc import Sequence
from datetime import timedelta

import dagster as dg

from tidegate.assets.jobs import job_of
from tidegate.assets.names import Names
from tidegate.assets.presentation import Presentation
from tidegate.assets.resources import runner_of
from tidegate.assets.specs import upkeep_spec
from tidegate.assets.text import markdown_table
from tidegate.pipelines.commands import Commands
from tidegate.pipelines.lake import Layout
from tidegate.pipelines.sql.model import Insert
from tidegate.pipelines.sql.pipeline import Pipeline

REMOVED = {
    "versions removed": "old versions",
    "landed rows removed": "landed rows",
    "quarantined rows removed": "quarantined rows",
}
"""Of metadata: which rows are counted."""

WEEKLY = "30 3 * * 0"
"""Sundays at 03:30."""


class MaintenanceConfig(dg.Config):
    """What a person may ask of one run (in the launchpad).

    Attributes:
        keep_hours: Files that a version younger than this names stay on the disk: somebody may be reading it.
    """

    keep_hours: int = 7 * 24


def maintenance_asset(
    pipeline: Pipeline, inserts: Sequence[Insert], lake: Layout, names: Names, look: Presentation
) -> dg.AssetsDefinition:
    """Comes after all that the pipeline publishes, so that one run of everything does it last."""
    spec = upkeep_spec(
        "maintenance",
        names,
        look,
        deps=[names.published(insert) for insert in inserts],
        description="Rows that nobody asks for any more go ('changelog.retention', 'landed.retention', "
        "'quarantine.retention'), small files are put together (OPTIMIZE), dead ones leave the disk (VACUUM).",
        kinds={"deltalake"},
    )
    key = spec.key

    @dg.multi_asset(
        name=names.op(key),
        specs=[spec],
        required_resource_keys={names.resource},
        description=look.steps.description or spec.description,
        **look.steps.options(),
    )
    @look.executed(names, "maintenance")
    def maintain(context: dg.AssetExecutionContext, config: MaintenanceConfig) -> dg.MaterializeResult:
        with runner_of(context, pipeline, names, Commands(look.script, lake.root)) as runner:
            found = runner.maintenance(timedelta(hours=config.keep_hours)).run()
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
        return dg.MaterializeResult(
            asset_key=key,
            metadata={
                "bytes freed": sum(item.freed for item in found),
                **{
                    name: sum(item.retained.removed for item in found if item.retained and item.retained.what == what)
                    for name, what in REMOVED.items()
                },
                "passed over": sum(bool(item.skipped) for item in found),
                "tables": dg.MetadataValue.md(markdown_table(headers, rows)),
            },
        )

    return maintain


def maintenance_schedule(names: Names, look: Presentation) -> dg.ScheduleDefinition:
    """Weekly. Stopped until it is turned on."""
    said = "Retention, OPTIMIZE and VACUUM of the pipeline's tables."
    job = job_of(names, f"{names.job}_maintenance", [names.maintenance], said)
    return dg.ScheduleDefinition(
        name=f"{names.job}_maintenance_schedule",
        job=job,
        cron_schedule=WEEKLY,
        execution_timezone=look.timezone,
        default_status=dg.DefaultScheduleStatus.STOPPED,
    )
