"""The assets of source tables: land what the sources have now, as the runner does it."""

# No `from __future__ import annotations` here: Dagster reads the annotations of its functions as types.

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import dagster as dg

from tidegate.assets.presentation import OnLake
from tidegate.assets.specs import source_spec
from tidegate.pipelines.connectors.table import Table
from tidegate.pipelines.errors import PlanningError
from tidegate.pipelines.sql.compile import Pipeline
from tidegate.pipelines.text import counted

if TYPE_CHECKING:
    from tidegate.pipelines.runtime.landing.advances import Advance, LandedEpoch
    from tidegate.pipelines.runtime.runner import Runner

ALIGNMENT_GROUP = "scan.watermark.alignment.group"


class SourceConfig(dg.Config):
    """What a person may ask of one run of a source (in the launchpad).

    Attributes:
        resnapshot: Start a new generation from a fresh snapshot; INSERTs stay on the old one until it has flipped.
        max_epochs: Land at most so many epochs; all there are when 0.
    """

    resnapshot: bool = False
    max_epochs: int = 0


class AlignedConfig(dg.Config):
    """What a person may ask of one run of sources that are aligned with each other.

    Attributes:
        resnapshot: Names of tables that start a new generation from a fresh snapshot.
        max_epochs: Land at most so many epochs of each table; all there are when 0.
    """

    resnapshot: list[str] = []  # noqa: RUF012 pydantic copies it
    max_epochs: int = 0


def source_assets(on: OnLake) -> list[dg.AssetsDefinition]:
    """An asset for each source table. Those that are in alignment groups are made by one step, for they take
    turns."""
    tables = on.parts.sources
    together = [table for table in tables if is_aligned(on.pipeline, table)]
    if len(together) < 2:
        together = []
    alone = [table for table in tables if table not in together]
    made = [source_asset(on, table) for table in alone]
    return [*made, aligned_assets(on, together)] if together else made


def is_aligned(pipeline: Pipeline, table: Table) -> bool:
    """Whether the table is in an alignment group, by its strategy or its DDL; the group's name is known when it
    runs."""
    given = pipeline.strategies.get(table.name)
    return ALIGNMENT_GROUP in table.options if given is None else given.alignment is not None


def source_asset(on: OnLake, table: Table) -> dg.AssetsDefinition:
    """The asset of one source table. Materialising it lands epochs up to the source's ends as of the start."""
    spec = source_spec(on, table)
    step = on.step(on.names.op(spec.key), spec.description, table.name, tags=_priority([table]))

    @dg.multi_asset(specs=[spec], **step)
    @on.executed("source")
    def land(context: dg.AssetExecutionContext, config: SourceConfig) -> dg.MaterializeResult:
        with on.runner(context) as runner:
            advance = runner.advance(
                table.name,
                resnapshot=config.resnapshot,
                max_epochs=config.max_epochs or None,
                on_epoch=lambda epoch: _observed(context, runner, table, spec.key, epoch),
            )
            return _materialized(runner, table, spec.key, advance)

    return land


def aligned_assets(on: OnLake, tables: Sequence[Table]) -> dg.AssetsDefinition:
    """The assets of the source tables that are in alignment groups. Those that are selected take turns, an epoch each,
    so that one run comes to the ends of all of them; the others are left alone. One that fails fails the step when the
    others are through."""
    specs = {table.name: source_spec(on, table) for table in tables}
    text = f"Lands {', '.join(specs)}, which are aligned: they take turns, an epoch each."

    @dg.multi_asset(
        specs=[spec.replace_attributes(skippable=True) for spec in specs.values()],
        can_subset=True,
        **on.step(on.names.aligned, text, *specs, tags=_priority(tables)),
    )
    @on.executed("source")
    def land(context: dg.AssetExecutionContext, config: AlignedConfig) -> Iterator[dg.MaterializeResult]:
        from tidegate.pipelines.runtime.failures import Failed

        chosen = [table for table in tables if specs[table.name].key in context.selected_asset_keys]
        wanted = [table.name for table in chosen]
        with on.runner(context) as runner:
            _check(config.resnapshot, wanted)
            most, failed = config.max_epochs or None, Failed()
            advances = runner.advance_all(
                wanted,
                max_epochs=most,
                resnapshot=config.resnapshot,
                on_epoch=lambda name, epoch: _observed(
                    context, runner, on.pipeline.table(name), specs[name].key, epoch
                ),
                failed=failed,
            )
            for advance in advances:
                yield _materialized(runner, on.pipeline.table(advance.table), specs[advance.table].key, advance)
            if failed:
                raise failed.error()

    return land


def _check(resnapshot: Sequence[str], selected: Sequence[str]) -> None:
    for name in resnapshot:
        if name not in selected:
            raise PlanningError(
                f"{name} is to be read from a new snapshot, and is not among the tables of this run: "
                f"{', '.join(selected)}",
                where="resnapshot",
                state="nothing was read",
                next_command="name tables that are selected",
            )


def _priority(tables: Sequence[Table]) -> dict[str, str]:
    """Builds first, as the runner does it: the release then pins the newest they have."""
    return {"dagster/priority": "1" if any(table.role == "build" for table in tables) else "0"}


def _observed(
    context: dg.AssetExecutionContext, runner: "Runner", table: Table, key: dg.AssetKey, epoch: "LandedEpoch"
) -> None:
    """Log a landed epoch, and report an observation of the asset if it belongs to a bounded phase. Dagster stores both
    while the step runs; the materialisation comes when it ends."""
    from tidegate.assets.metadata import of_loading

    context.log.info(
        f"{table.name}: epoch {epoch.epoch} ({epoch.phase}): {counted(epoch.rows, 'row')}, {epoch.summary}"
    )
    if epoch.phase == "bounded" or epoch.flipped:
        context.log_event(dg.AssetObservation(key, metadata=of_loading(runner.lake, table, epoch)))


def _materialized(runner: "Runner", table: Table, key: dg.AssetKey, advance: "Advance") -> dg.MaterializeResult:
    from tidegate.assets.metadata import of_advance

    return dg.MaterializeResult(asset_key=key, metadata=of_advance(runner.lake, table, advance))
