"""The component for YAML: a SQL script becomes assets without a line of Python.

type: tidegate.TidegateComponent
attributes:
  script: pipeline.sql
  lake: .tidegate/lake
  owners: [team:data]
"""

from __future__ import annotations

import os
import warnings
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Literal

import dagster as dg
from pydantic import Field

from tidegate.assets.factories import build_pipeline_definitions
from tidegate.assets.presentation import Partitions, Presentation
from tidegate.assets.resources import WAIT
from tidegate.pipelines.runtime.scripts import load_script
from tidegate.pipelines.sources.paths import local
from tidegate.pipelines.watermarks.watermark import parse_moment

LAKE_VARIABLE = "TIDEGATE_LAKE"
OLD_TYPE = "assets.components.TidegateComponent"
"""What the component is called in older YAML."""
DEFAULT_LAKE = Path(".tidegate") / "lake"


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
            ".tidegate/lake."
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
        Field(description="When the schedule starts a run (UTC); it is stopped until it is turned on in the UI."),
    ] = "* * * * *"
    automation: Annotated[
        bool, Field(description="Let the assets carry AutomationConditions that respect failed checks.")
    ] = True
    fresh_within_hours: Annotated[
        float | None, Field(description="Published assets are stale after so long without a run; null: never.", gt=0)
    ] = 24
    build_fresh_within_hours: Annotated[
        float | None, Field(description="The same of build tables: nothing was asked of the source.", gt=0)
    ] = 24
    probe_fresh_within_hours: Annotated[float | None, Field(description="The same of probe tables.", gt=0)] = 24
    reconcile_cron: Annotated[
        str | None,
        Field(description="When build tables are compared with their sources (UTC); null: only when asked to."),
    ] = "30 4 * * 0"

    wait: Annotated[
        str,
        Field(
            description="How long a step waits for a table or an INSERT that another run works on, before it fails. It "
            "holds no slot meanwhile.",
            examples=["10 min", "0 s"],
        ),
    ] = WAIT
    partitions_from: Annotated[
        str | None,
        Field(
            description="Event-time outputs can be backfilled by partitions of time, from this day or moment on (UTC "
            "where it names no zone).",
            examples=["2024-01-01"],
        ),
    ] = None
    partitions_every: Annotated[
        Literal["hour", "day", "week", "month"], Field(description="How long one partition is.")
    ] = "day"

    @classmethod
    def get_spec(cls) -> dg.ComponentTypeSpec:
        return dg.ComponentTypeSpec(
            description="Joins streams to tables that are still loading, and never lets a row through early.",
            tags=["spark", "deltalake", "streaming", "sql"],
        )

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        written = getattr(getattr(context.component_decl, "component_file_model", None), "type", "")
        if written == OLD_TYPE:
            note = f"{context.path}: write `type: tidegate.TidegateComponent`; only a clone has `{OLD_TYPE}`"
            warnings.warn(note, FutureWarning, stacklevel=2)
        script = (context.path / self.script).resolve()
        lake = self.lake or os.environ.get(LAKE_VARIABLE) or DEFAULT_LAKE
        return build_pipeline_definitions(
            load_script(script, self.name),
            lake=local(lake, "the component's lake", context.project_root),
            master=self.master,
            spark_config={name: _setting(value) for name, value in self.spark_config.items()},
            wait=self.wait,
            look=Presentation(
                owners=tuple(self.owners),
                tags=self.tags,
                group=self.group,
                cron=self.cron,
                automation=self.automation,
                fresh_within=_hours(self.fresh_within_hours),
                build_fresh_within=_hours(self.build_fresh_within_hours),
                probe_fresh_within=_hours(self.probe_fresh_within_hours),
                reconcile_cron=self.reconcile_cron,
                partitions=self._partitions(),
                script=script,
            ),
        )

    def _partitions(self) -> Partitions | None:
        if self.partitions_from is None:
            return None
        return Partitions(datetime.fromtimestamp(parse_moment(self.partitions_from) / 1000, UTC), self.partitions_every)


def _hours(number: float | None) -> timedelta | None:
    return None if number is None else timedelta(hours=number)


def _setting(value: str | float | bool) -> str:
    """A Spark setting; YAML makes numbers and booleans of what Spark wants as text."""
    return str(value).lower() if isinstance(value, bool) else str(value)
