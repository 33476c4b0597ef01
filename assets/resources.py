"""Where a pipeline runs: its lake, and the Spark session of the process."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import dagster as dg
from pydantic import Field
from pyspark.sql import SparkSession

from tidegate.assets.names import Names
from tidegate.assets.progress import step_progress
from tidegate.pipelines.errors import PlanningError
from tidegate.pipelines.lake import Lake
from tidegate.pipelines.progress import Progress, SilentProgress
from tidegate.pipelines.runtime.runner import Runner
from tidegate.pipelines.runtime.session import start_session
from tidegate.pipelines.sources.paths import local
from tidegate.pipelines.sql.durations import parse_duration
from tidegate.pipelines.sql.model import is_secret
from tidegate.pipelines.sql.pipeline import Pipeline


class TidegateResource(dg.ConfigurableResource):
    """The lake and the Spark session of a pipeline.

    Attributes:
        lake: The lake's folder.
        master: A Spark master URL; $TIDEGATE_MASTER, else all cores of this machine, when empty.
        spark_config: Laid over the session's settings. Dagster shows it, so secrets belong in spark-defaults.conf.
        auto_watermark_interval: "0" tells watermarks row by row; when empty $TIDEGATE_AUTO_WATERMARK_INTERVAL, else
            what the script has SET, else at the end of every epoch.
    """

    lake: str
    master: str = ""
    spark_config: dict[str, str] = Field(default_factory=dict)
    auto_watermark_interval: str = ""

    @classmethod
    def at(
        cls, lake: str | Path, master: str | None = None, spark_config: dict[str, str] | None = None
    ) -> TidegateResource:
        """The resource of a lake. Raises PlanningError for a setting that must not be shown."""
        config = dict(spark_config or {})
        secret = next((name for name in config if is_secret(name)), None)
        if secret is not None:
            raise PlanningError(
                f"{secret} is a secret, and Dagster shows the settings of resources",
                where="spark_config",
                state="nothing was loaded",
                next_command="put it into spark-defaults.conf ($SPARK_CONF_DIR) and leave it out here",
            )
        return cls(lake=str(local(lake, "the lake")), master=master or "", spark_config=config)

    def session(self, progress: Progress | None = None) -> SparkSession:
        """The session of this process, started if there is none: steps of one job share it."""
        return start_session(master=self.master or None, config=self.spark_config, progress=progress)

    def runner(
        self,
        pipeline: Pipeline,
        *,
        progress: Progress | None = None,
        label: str = "dagster",
        say: Callable[[str], None] = lambda line: None,
    ) -> Runner:
        """A runner of `pipeline` on the lake; close it to let its leases go. `say`: see `Runner`."""
        progress = progress or SilentProgress()
        interval = self.auto_watermark_interval or os.environ.get("TIDEGATE_AUTO_WATERMARK_INTERVAL", "")
        return Runner(
            pipeline,
            Lake(self.lake),
            spark=lambda: self.session(progress),
            progress=progress,
            label=label,
            auto_watermark_interval=parse_duration(interval) if interval else None,
            say=say,
        )


def runner_of(
    context: dg.AssetExecutionContext | dg.AssetCheckExecutionContext | dg.OpExecutionContext,
    pipeline: Pipeline,
    names: Names,
) -> Runner:
    """The runner of one step; leave it to let its leases go."""
    resource: TidegateResource = getattr(context.resources, names.resource)
    return resource.runner(
        pipeline,
        progress=step_progress(context.log),
        label=f"dagster run {context.run.run_id}",
        say=context.log.info,
    )
