"""Where a pipeline runs: its lake, and the Spark session of the process."""

from __future__ import annotations

import logging
import multiprocessing
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg
from pydantic import Field, PrivateAttr

from tidegate.assets.failures import StepContext, Waits, explained
from tidegate.assets.names import Names
from tidegate.pipelines.commands import Commands
from tidegate.pipelines.errors import PlanningError
from tidegate.pipelines.lake import Layout
from tidegate.pipelines.location import Address
from tidegate.pipelines.paths import local
from tidegate.pipelines.progress import LoggedProgress, Progress, SilentProgress
from tidegate.pipelines.sql.compile import Pipeline
from tidegate.pipelines.syntax.durations import EXAMPLES, parse_duration
from tidegate.pipelines.syntax.secrets import is_secret

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidegate.pipelines.lake.leases import Reservation
    from tidegate.pipelines.runtime.runner import Runner

_elsewhere: ContextVar[Progress | None] = ContextVar("tidegate_progress", default=None)


@contextmanager
def shown_by(progress: Progress | None) -> Iterator[None]:
    """Show the progress of steps of this thread inside the block in `progress`; None leaves it to their logs."""
    token = _elsewhere.set(progress)
    try:
        yield
    finally:
        _elsewhere.reset(token)


def step_progress(log: logging.Logger) -> Progress:
    """The progress of a step whose log is `log`."""
    return _elsewhere.get() or LoggedProgress(log)


OF_DAGSTER = "dagster run"
"""Prefix of the lease labels of Dagster's runs."""
WAIT = "10 min"
"""How long a step waits for another runner, unless another time is given."""


class TidegateResource(dg.ConfigurableResource):
    """The lake and the Spark session of a pipeline.

    Attributes:
        lake: The lake's folder.
        master: A Spark master URL; $TIDEGATE_MASTER, else all cores of this machine, when empty.
        spark_config: Laid over the session's settings. Dagster shows it, so secrets belong in spark-defaults.conf.
        auto_watermark_interval: "0" emits watermarks row by row; when empty $TIDEGATE_AUTO_WATERMARK_INTERVAL, else
            what the script has SET, else at the end of every epoch.
        wait: How long a step waits for a table or an INSERT that another runner works on, before it fails.
    """

    lake: str
    master: str = ""
    spark_config: dict[str, str] = Field(default_factory=dict)
    auto_watermark_interval: str = ""
    wait: str = WAIT

    _reservations: dict[str, Reservation] = PrivateAttr(default_factory=dict)

    @classmethod
    def at(
        cls,
        lake: Address,
        master: str | None = None,
        spark_config: dict[str, str] | None = None,
        wait: str = WAIT,
    ) -> TidegateResource:
        """The resource of a lake. Raises PlanningError for a setting that must not be shown, or cannot be read."""
        try:
            parse_duration(wait)
        except ValueError as error:
            raise PlanningError(
                f"wait is {wait!r}: {error}",
                state="nothing was loaded",
                next_command=f"write a duration, such as {EXAMPLES}",
            ) from error
        config = dict(spark_config or {})
        secret = next((name for name in config if is_secret(name)), None)
        if secret is not None:
            raise PlanningError(
                f"{secret} is a secret, and Dagster shows the settings of resources",
                where="spark_config",
                state="nothing was loaded",
                next_command="put it into spark-defaults.conf ($SPARK_CONF_DIR) and leave it out here",
            )
        return cls(lake=str(local(lake, "the lake")), master=master or "", spark_config=config, wait=wait)

    def target(self, name: str) -> Path:
        """The folder of a target's Delta table; a target with a 'path' of its own lies there instead."""
        return Path(Layout(self.lake).root / "targets" / name)

    def session(self, progress: Progress | None = None) -> SparkSession:
        """The session of this process, started if there is none: steps of one job share it. What its JVM prints goes
        into the lake's `_scratch/spark.log`, unless $TIDEGATE_SPARK_LOG is set."""
        from tidegate.pipelines.runtime.session import start_session

        log = Layout(self.lake).scratch("spark.log")
        return start_session(master=self.master or None, config=self.spark_config, progress=progress, log=log)

    def runner(
        self,
        pipeline: Pipeline,
        *,
        progress: Progress | None = None,
        label: str = "dagster",
        say: Callable[[str], None] = lambda line: None,
        reservation: Reservation | None = None,
    ) -> Runner:
        """A runner of `pipeline` on the lake; close it to let its leases go. `say`: see `Runner`."""
        from tidegate.pipelines.lake import Lake
        from tidegate.pipelines.runtime.runner import Runner

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
            reservation=reservation,
        )

    def reservation(self, context: StepContext, names: Names) -> Reservation | None:
        """The reservation through which the steps of a pipeline in one run hand leases on: the run's own, as long as
        its process lives. None if the executor's retries are disabled: then it is not known which process that is."""
        from tidegate.pipelines.lake.leases import Reservation

        mode, run_id = context.get_step_execution_context().retry_mode, context.run.run_id
        holder = f"{run_id}/{names.resource}"
        if mode.disabled:
            return None
        if mode.deferred:  # a process of the executor's own for this step; elsewhere where it was not forked
            parent = multiprocessing.parent_process()
            return Reservation(holder, f"{OF_DAGSTER} {run_id}", pid=parent.pid if parent else 0)
        if holder not in self._reservations:
            self._reservations[holder] = Reservation(holder, f"{OF_DAGSTER} {run_id}")
        return self._reservations[holder]

    def teardown_after_execution(self, context: dg.InitResourceContext) -> None:
        """The run, or its process of one step, is over."""
        from tidegate.pipelines.lake import Lake

        for reservation in self._reservations.values():
            reservation.end(Lake(self.lake).logs)
        self._reservations.clear()


@contextmanager
def runner_of(context: StepContext, pipeline: Pipeline, names: Names, commands: Commands) -> Iterator[Runner]:
    """The runner of one step; leave it to let its leases go. A typed error of the block becomes a failed step, and a
    lease that another runner holds one that waits."""
    resource: TidegateResource = getattr(context.resources, names.resource)
    with (
        explained(commands, Waits(context, parse_duration(resource.wait))),
        resource.runner(
            pipeline,
            progress=step_progress(context.log),
            label=f"{OF_DAGSTER} {context.run.run_id}",
            say=context.log.info,
            reservation=resource.reservation(context, names),
        ) as runner,
    ):
        yield runner
