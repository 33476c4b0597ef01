"""The component for YAML: a SQL script becomes assets without a line of Python.

type: tidegate.TidegateComponent
attributes:
  script: pipeline.sql
  lake: .tidegate/lake
  owners: [team:data]
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, Literal, Self
from weakref import WeakKeyDictionary

import dagster as dg
from dagster.components.utils.translation import TranslationFn, TranslationFnResolver
from pydantic import BaseModel, Field, PrivateAttr

from tidegate.assets.factories import definitions_of, is_first_load, on_lake
from tidegate.assets.names import refuse_equal_jobs, refuse_equal_names
from tidegate.assets.presentation import OnLake, Partitions, PipelineAsset, Presentation, Step, Steps, since
from tidegate.assets.resources import WAIT, TidegateResource
from tidegate.assets.scaffold import TidegateScaffolder
from tidegate.pipelines.commands import default_lake
from tidegate.pipelines.errors import PlanningError
from tidegate.pipelines.paths import local
from tidegate.pipelines.runtime.scripts import load_script, pipeline_name

log = logging.getLogger(__name__)

LAKE_VARIABLE = "TIDEGATE_LAKE"
_JOBS: WeakKeyDictionary[Any, dict[Any, tuple[str, list[str]]]] = WeakKeyDictionary()
"""By project, or by what Dagster knows of its state: what each of its components is, and the jobs that it makes. One
that Dagster builds again, with another name, takes its own place."""


Hours = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Alerting(dg.Component):
    """A component that alerts of the pipelines of its code location: `tidegate.TidegateAlerts`."""


def _seen(asset: PipelineAsset) -> dict[str, Any]:
    """What `translation` can name."""
    return {"asset": asset, "kind": asset.kind, "name": asset.name, "pipeline": asset.pipeline}


@dg.scaffold_with(TidegateScaffolder)
class TidegateComponent(dg.Component, dg.Model, dg.Resolvable):
    """A SQL script as Dagster assets: its sources, and per INSERT a staged asset, the gate's checks and a published
    asset; with a job, and a schedule that is stopped until you turn it on."""

    script: Annotated[
        str, Field(description="The SQL script, relative to this file's folder.", examples=["pipeline.sql"])
    ]
    name: Annotated[
        str | None, Field(description="Prefix of every asset key; the script's file name when left out.")
    ] = None
    lake: Annotated[
        str | None,
        Field(
            description="The lake's folder, relative to the project's root. When left out: $TIDEGATE_LAKE, else "
            ".tidegate/lake in the script's folder."
        ),
    ] = None
    master: Annotated[
        str | None,
        Field(
            description="A Spark master URL. When left out: $TIDEGATE_MASTER, else all cores of this machine.",
            examples=["spark://host:7077"],
        ),
    ] = None
    spark_config: Annotated[
        dict[str, str | int | float | bool],
        Field(default_factory=dict, description="Laid over the session's settings. No secrets: Dagster shows it."),
    ]
    owners: Annotated[
        list[str], Field(default_factory=list, description="E-mail addresses, or team:name.", examples=[["team:data"]])
    ]
    tags: Annotated[dict[str, str], Field(default_factory=dict, description="Put on every asset and run.")]
    group: Annotated[str | None, Field(description="The asset group; the pipeline's name when left out.")] = None
    cron: Annotated[
        str,
        Field(description="When the schedule starts a run; it is stopped until it is turned on in the UI."),
    ] = "* * * * *"
    timezone: Annotated[
        str,
        Field(
            description="Of `cron` and `reconcile_cron`, and where days, weeks and months of partitions begin.",
            examples=["Europe/Berlin"],
        ),
    ] = "UTC"
    automation: Annotated[
        bool,
        Field(
            description="Let the assets carry AutomationConditions: sources are due by `cron`, and what reads them "
            "follows. Dagster's automation sensor, where it is on, then starts runs."
        ),
    ] = False
    fresh_within_hours: Annotated[
        Hours | None, Field(description="Published assets are stale after so long without a run; null: never.")
    ] = 24
    build_fresh_within_hours: Annotated[
        Hours | None, Field(description="The same of build tables: nothing was asked of the source.")
    ] = 24
    probe_fresh_within_hours: Annotated[Hours | None, Field(description="The same of probe tables.")] = 24
    reconcile_cron: Annotated[
        str | None,
        Field(description="When build tables are compared with their sources; null: only when asked to."),
    ] = "30 4 * * 0"

    wait: Annotated[
        str,
        Field(
            description="How long a step waits for a table or an INSERT that another run works on, before it fails. It "
            "holds no slot meanwhile.",
            examples=["10 min", "0 s"],
        ),
    ] = WAIT
    op: Annotated[
        Steps | None,
        Field(
            description="Of every step: the name it begins with, tags, pool, retry policy; and the backfill policy.",
            examples=[{"pool": "spark", "retry_policy": {"max_retries": 3, "delay": 10}}],
        ),
    ] = None
    translation: Annotated[
        TranslationFn[PipelineAsset] | None,
        TranslationFnResolver[PipelineAsset](_seen),
        Field(
            description="Changes the spec of every asset: key, key_prefix, group_name, tags, owners, description, and "
            "deps beside those of the script. Can name `kind` (source, staged, published, by_time, maintenance, "
            "reconcile), `name` (of the table or the INSERT), `pipeline`, `spec` and `asset`.",
            examples=[{"key_prefix": "shop", "group_name": "{{ kind }}"}],
        ),
    ] = None
    select: Annotated[
        list[str],
        Field(
            default_factory=list,
            description="Source tables and INSERTs that get assets, by name (`*` matches any text), with all that "
            "these INSERTs read; everything when left out.",
            examples=[["enriched_click"]],
        ),
    ]
    exclude: Annotated[
        list[str], Field(default_factory=list, description="Those that get none, because something else makes them.")
    ]
    partitions_from: Annotated[
        str | None,
        Field(
            description="Event-time outputs can be backfilled by partitions of time, from the one on that this day or "
            "moment lies in (of `timezone` where it names none).",
            examples=["2024-01-01"],
        ),
    ] = None
    partitions_every: Annotated[
        Literal["hour", "day", "week", "month"], Field(description="How long one partition is.")
    ] = "day"

    _folder: Path | None = PrivateAttr(None)
    """Where its YAML lies."""
    _made: OnLake | None = PrivateAttr(None)

    @classmethod
    def load(cls, attributes: BaseModel | None, context: dg.ComponentLoadContext) -> Self:
        made = super().load(attributes, context)
        made._folder = context.path
        return made

    @classmethod
    def get_spec(cls) -> dg.ComponentTypeSpec:
        return dg.ComponentTypeSpec(
            description="Joins streams to tables that are still loading, and never lets a row through early.",
            tags=["spark", "deltalake", "streaming", "sql"],
        )

    def get_asset_spec(self, asset: PipelineAsset) -> dg.AssetSpec:
        """The spec of one asset; to be overridden. `translation` is applied to what it returns."""
        return asset.spec

    def execute(self, context: Any, tidegate: TidegateResource, step: Step) -> Iterator[Any]:
        """Runs one step; to be overridden. `context` is an AssetExecutionContext, of a check an
        AssetCheckExecutionContext, of an operation an OpExecutionContext. A step that an override leaves out publishes
        nothing."""
        yield from step.run()

    def _translated(self, asset: PipelineAsset) -> dg.AssetSpec:
        spec = self.get_asset_spec(asset)
        return spec if self.translation is None else self.translation(spec, asset)

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        made, project = self._definitions(context), context.component_tree.state_tracker
        if project not in _JOBS and isinstance(context.component_tree.defs_module, ModuleType):
            _say_at_load(context, self)  # a component that is built by itself, for a test, is in no project
        name, declared = self._declared()
        place = f"the pipeline {name} ({context.path}: {declared})"
        jobs = [job.name for job in made.jobs or ()]
        refuse_equal_jobs(_JOBS.setdefault(project, {}), context.component_path, jobs, place)
        return made

    def _definitions(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        root = context.project_root
        if self._folder is None:  # made by Python: it is not among those of the project, so its operations are its own
            own = self._on_lake(context.path if context.path.is_dir() else context.path.parent, root)
            return definitions_of(own, [own], own.names.job)
        of_project = [(item, item._folder) for item in _components(context) if item._folder is not None]
        refuse_equal_names(item._declared() for item, _ in of_project)
        first = of_project[0][0] is self  # it has the operations of all
        operated = [item._on_lake(folder, root) for item, folder in of_project] if first else []
        return definitions_of(self._on_lake(self._folder, root), operated)

    def _on_lake(self, folder: Path, root: Path) -> OnLake:
        if self._made is None:
            self._made = self._make(folder, root)
        return self._made

    def _make(self, folder: Path, root: Path) -> OnLake:
        script = (folder / self.script).resolve()
        lake = self.lake or os.environ.get(LAKE_VARIABLE) or default_lake(script)
        return on_lake(
            load_script(script, self.name),
            lake=local(lake, "the component's lake", root),
            master=self.master,
            # YAML makes numbers and booleans of what Spark wants as text.
            spark_config={
                name: str(value).lower() if isinstance(value, bool) else str(value)
                for name, value in self.spark_config.items()
            },
            wait=self.wait,
            look=Presentation(
                owners=tuple(self.owners),
                tags=self.tags,
                group=self.group,
                cron=self.cron,
                timezone=self.timezone,
                automation=self.automation,
                fresh_within=_hours(self.fresh_within_hours),
                build_fresh_within=_hours(self.build_fresh_within_hours),
                probe_fresh_within=_hours(self.probe_fresh_within_hours),
                reconcile_cron=self.reconcile_cron,
                partitions=self._partitions(),
                select=tuple(self.select),
                exclude=tuple(self.exclude),
                script=script,
                steps=self.op or Steps(),
                translate=self._translated if self.translation or self._overrides("get_asset_spec") else None,
                execute=self.execute if self._overrides("execute") else None,
            ),
        )

    def _declared(self) -> tuple[str, str]:
        """The pipeline's name, and where it is declared."""
        script = (self._folder or Path()) / self.script
        return self.name or pipeline_name(script), f"{script} (lake: {self.lake or 'by default'})"

    def _overrides(self, method: str) -> bool:
        return getattr(type(self), method) is not getattr(TidegateComponent, method)

    def _partitions(self) -> Partitions | None:
        if self.partitions_from is None:
            return None
        try:
            return Partitions(since(self.partitions_from, self.timezone), self.partitions_every)
        except ValueError as error:
            raise PlanningError(
                f"{self.partitions_from!r} is neither a day nor a moment",
                where="partitions_from",
                state="nothing was loaded",
                next_command="write it as 2024-01-31, or as 2024-01-31T06:00+01:00",
            ) from error


def _components(context: dg.ComponentLoadContext) -> list[TidegateComponent]:
    return context.component_tree.get_all_components(of_type=TidegateComponent)


def _say_at_load(context: dg.ComponentLoadContext, first: TidegateComponent) -> None:
    """Log that a code location has no component that alerts: when it is loaded, and not by each of its runs. `first`:
    the one that is asked for its definitions first; Python may have made it, so that it is not among the others."""
    if is_first_load() and not context.component_tree.get_all_components(of_type=Alerting):
        log.warning(
            "This code location has no component tidegate.TidegateAlerts: unless its Python adds ALERTS, nobody is "
            "alerted to held gates, failed runs and lag of %s. Next: put `type: tidegate.TidegateAlerts` into a "
            "defs.yaml.",
            ", ".join(sorted({item._declared()[0] for item in (first, *_components(context))})),
        )


def _hours(number: float | None) -> timedelta | None:
    return None if number is None else timedelta(hours=number)
