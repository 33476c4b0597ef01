"""Jobs that a person starts beside the assets: one job, of one step, a code location; its config names the pipeline."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import dagster as dg

from tidegate.assets.failures import NO_RETRY, explained
from tidegate.assets.jobs import PIPELINE_TAG, job_tags
from tidegate.assets.presentation import OnLake, Step, Steps
from tidegate.assets.resources import TidegateResource
from tidegate.pipelines.errors import PlanningError

if TYPE_CHECKING:
    from tidegate.pipelines.runtime.runner import Runner


PREFIX = "tidegate"
"""What the names of these jobs begin with."""

OPERATION_TAG = "tidegate/operation"
"""Run tag: which operation it is."""


class OperationConfig(dg.Config):
    """Of which pipeline (in the launchpad).

    Attributes:
        pipeline: Its name. May be left out where the code location has one.
    """

    pipeline: str = ""


C = TypeVar("C", bound=OperationConfig)


@dataclass(frozen=True)
class Started:
    """One start of an operation. What it finds goes into the metadata of the context's output."""

    context: dg.OpExecutionContext
    runner: Runner
    on: OnLake


@dataclass(frozen=True)
class Operation(Generic[C]):
    """A job of a code location, `tidegate_<name>` by default, with one step.

    Attributes:
        title: What the job does, for the Jobs page. `description`: how its step does it.
        gives: What the returned number counts.
        config: What may be set in the launchpad.
        run: Does it, and returns the number; or yields events of Dagster, and the number as an Output. A typed error is
            shown as a failed step.
    """

    name: str
    title: str
    step: str
    description: str
    gives: str
    config: type[C]
    run: Callable[[Started, C], int | Iterator[Any]]

    def job(self, pipelines: Sequence[OnLake], prefix: str = PREFIX) -> dg.JobDefinition:
        """The operation as a job for these pipelines."""
        name = f"{prefix}_{self.name}"

        def step(context, config):
            with explained():
                on = _chosen(pipelines, config.pipeline, name)
            if PIPELINE_TAG not in context.run.tags:  # by which alerts know whose run it is
                context.instance.add_run_tags(context.run.run_id, {PIPELINE_TAG: on.pipeline.name, **on.look.tags})
            tidegate: TidegateResource = getattr(context.resources, on.names.resource)

            def run() -> Iterator[Any]:
                with on.runner(context) as runner:
                    found = self.run(Started(context, runner, on), config)
                    yield from (dg.Output(found),) if isinstance(found, int) else found

            execute = on.look.execute
            yield from run() if execute is None else execute(context, tidegate, Step(self.name, self.step, run))

        # Dagster reads these as types, and the config's is another for every operation.
        step.__annotations__ = {"context": dg.OpExecutionContext, "config": self.config}
        first = pipelines[0].look.steps
        steps = first if all(on.look.steps == first for on in pipelines) else Steps()
        of_one = job_tags(pipelines[0]) if len(pipelines) == 1 else {}
        op = dg.op(
            name=self.step,
            out=dg.Out(int, description=self.gives, is_required=False),  # an `execute` may leave the step out
            required_resource_keys={on.names.resource for on in pipelines},
            description=self.description,
            tags=steps.tags,
            pool=steps.pool,
            retry_policy=steps.retry_policy,
        )(step)

        @dg.job(
            name=name,
            executor_def=dg.in_process_executor,
            tags={**of_one, **NO_RETRY, OPERATION_TAG: self.name},
            description=self.title,
        )
        def job() -> None:
            op()

        return job

    def request(self, on: OnLake) -> dg.RunRequest:
        """A run of the job for one pipeline, for a schedule."""
        config = {"ops": {self.step: {"config": {"pipeline": on.pipeline.name}}}}
        return dg.RunRequest(run_key=on.pipeline.name, run_config=config, tags=job_tags(on))


def _chosen(pipelines: Sequence[OnLake], name: str, job: str) -> OnLake:
    """The pipeline of this name; without one, the only one. Raises PlanningError, which names those that there are."""
    known = {on.pipeline.name: on for on in pipelines}
    if not name and len(known) == 1:
        return pipelines[0]
    if name not in known:
        what = f"has no pipeline {name}" if name else "has several pipelines, and the config names none"
        raise PlanningError(
            f"{job} {what}",
            where="the config of the run",
            state="nothing was done",
            next_command=f"set `pipeline` to one of {', '.join(sorted(known))}",
        )
    return known[name]
