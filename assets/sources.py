"""The asset of a source table: land what the source has now, as the runner does it."""

# No `from __future__ import annotations` here: Dagster reads the annotations of its functions as types.

import dagster as dg

from assets.failures import explained
from assets.metadata import of_advance
from assets.names import Names
from assets.presentation import Presentation
from assets.resources import runner_of
from assets.specs import source_spec
from pipelines.lake import Layout
from pipelines.sql.model import Pipeline, Table


class SourceConfig(dg.Config):
    """What a person may ask of one run of a source (in the launchpad).

    Attributes:
        resnapshot: Start a new generation from a fresh snapshot; INSERTs stay on the old one until it has flipped.
        max_epochs: Land at most so many epochs; all there are when 0.
    """

    resnapshot: bool = False
    max_epochs: int = 0


def source_asset(
    pipeline: Pipeline, table: Table, lake: Layout, names: Names, look: Presentation
) -> dg.AssetsDefinition:
    """The asset of one source table. Materialising it lands epochs up to the source's ends as of the start."""
    spec = source_spec(pipeline, table, lake, names, look)

    @dg.multi_asset(
        name=names.op(spec.key),
        specs=[spec],
        required_resource_keys={names.resource},
        description=spec.description,
        # Builds first, as the runner does it: the release then pins the newest they have.
        op_tags={"dagster/priority": "1" if table.role == "build" else "0"},
    )
    def land(context: dg.AssetExecutionContext, config: SourceConfig) -> dg.MaterializeResult:
        with explained(look.script), runner_of(context, pipeline, names) as runner:
            advance = runner.advance(table.name, resnapshot=config.resnapshot, max_epochs=config.max_epochs or None)
            for epoch in advance.epochs:
                context.log.info(f"epoch {epoch.epoch} ({epoch.phase}): {epoch.rows:,} rows, {epoch.summary}")
            return dg.MaterializeResult(asset_key=spec.key, metadata=of_advance(runner.lake, table, advance))

    return land
