"""The three nodes of an INSERT: staged, checked, published. Each is one call of the runner."""

# No `from __future__ import annotations` here: Dagster reads the annotations of its functions as types.

from collections.abc import Iterator

import dagster as dg

from assets.checks import check_specs, results
from assets.failures import explained
from assets.metadata import of_held, of_published, of_staged, of_waiting
from assets.names import Names
from assets.presentation import Presentation
from assets.resources import runner_of
from assets.specs import published_spec, staged_spec
from pipelines.lake import Layout
from pipelines.runtime.releasing import Waiting
from pipelines.sql.model import Insert, Pipeline


def staged_asset(
    pipeline: Pipeline, insert: Insert, lake: Layout, names: Names, look: Presentation
) -> dg.AssetsDefinition:
    """Plans the next epoch (or takes up the unfinished one) and stages it.

    Waiting for a build to flip, and an epoch that is still held, are told in the metadata: neither is this asset's
    failure. A held epoch fails the gate's check, again.
    """
    spec = staged_spec(pipeline, insert, lake, names, look)

    @dg.multi_asset(
        name=names.op(spec.key), specs=[spec], required_resource_keys={names.resource}, description=spec.description
    )
    def stage(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
        with explained(look.script), runner_of(context, pipeline, names) as runner:
            releasing = runner.releasing(insert.id)
            if releasing.position().state == "held":
                metadata = of_held(releasing, look.script)
            else:
                staged = runner.stage(insert.id)
                metadata = of_waiting(releasing, staged) if isinstance(staged, Waiting) else of_staged(releasing)
            return dg.MaterializeResult(asset_key=spec.key, metadata=metadata)

    return stage


def gate_checks(pipeline: Pipeline, insert: Insert, names: Names, look: Presentation) -> dg.AssetChecksDefinition:
    """The gate on the staged epoch: one blocking check with the verdict, and one for each check it is made of."""
    specs = check_specs(names.staged(insert))

    @dg.multi_asset_check(
        name=names.op(names.staged(insert), "__checks"), specs=specs, required_resource_keys={names.resource}
    )
    def judge(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        with explained(look.script), runner_of(context, pipeline, names) as runner:
            verdict = runner.judge(insert.id)
            yield from results(specs, verdict, runner.releasing(insert.id).position().state, look.script)

    return judge


def published_asset(
    pipeline: Pipeline, insert: Insert, lake: Layout, names: Names, look: Presentation
) -> dg.AssetsDefinition:
    """Adds the staged epoch to quarantine and target. It re-reads the stored verdict and fails without a good one."""
    spec = published_spec(pipeline, insert, lake, names, look)

    @dg.multi_asset(
        name=names.op(spec.key), specs=[spec], required_resource_keys={names.resource}, description=spec.description
    )
    def publish(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
        with explained(look.script), runner_of(context, pipeline, names) as runner:
            releasing = runner.releasing(insert.id)
            before = releasing.position()
            published = runner.publish(insert.id)
            return dg.MaterializeResult(asset_key=spec.key, metadata=of_published(releasing, before, published))

    return publish
