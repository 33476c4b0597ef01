"""What a person starts beside the assets of a pipeline: a job of one step, whose config says of what."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

import dagster as dg

from tidegate.assets.jobs import job_tags
from tidegate.assets.names import Names
from tidegate.assets.presentation import Presentation
from tidegate.assets.resources import runner_of
from tidegate.pipelines.commands import Commands
from tidegate.pipelines.lake import Layout
from tidegate.pipelines.sql.pipeline import Pipeline

if TYPE_CHECKING:
    from tidegate.pipelines.runtime.runner import Runner

C = TypeVar("C", bound=dg.Config)


@dataclass(frozen=True)
class Started:
    """One start of an operation. What it finds goes into the metadata of the context's output."""

    context: dg.OpExecutionContext
    runner: Runner
    names: Names


@dataclass(frozen=True)
class Operation(Generic[C]):
    """A job for every pipeline, `<pipeline>_<name>`, with the step `<pipeline>_<step>`. It never runs by itself.

    Attributes:
        title: What the job does, for the Jobs page. `description`: how its step does it.
        gives: What the number is that it gives.
        config: What may be said in the launchpad.
        run: Does it. A typed error is shown as a failed step.
    """

    name: str
    title: str
    step: str
    description: str
    gives: str
    config: type[C]
    run: Callable[[Started, C], int]

    def job(self, pipeline: Pipeline, lake: Layout, names: Names, look: Presentation) -> dg.JobDefinition:
        """The operation as a job of one pipeline."""

        def step(context, config):
            with runner_of(context, pipeline, names, Commands(look.script, lake.root)) as runner:
                return self.run(Started(context, runner, names), config)

        # Dagster reads these as types, and the config's is another for every operation.
        step.__annotations__ = {"context": dg.OpExecutionContext, "config": self.config, "return": int}
        op = dg.op(
            name=f"{names.job}_{self.step}",
            out=dg.Out(int, description=self.gives),
            required_resource_keys={names.resource},
            description=self.description,
        )(step)

        @dg.job(
            name=f"{names.job}_{self.name}",
            executor_def=dg.in_process_executor,
            tags=job_tags(names, look),
            description=self.title,
        )
        def job() -> None:
            op()

        return job
