"""Jobs that a person starts beside the assets: one job, of one step, a code location. Each is a function that returns a
record:

    @operation("plan_only", "Show what a run would do next.")
    def dry_run(started: Started, *, resnapshot: Sequence[str] = ()):
        '''Asks every source for its next step.

        Args:
            resnapshot: Tables that are planned as if they began a new generation.
        '''

Its parameters are the config of the job's step, beside the name of the pipeline; the record is the metadata of the
step's output. If the record has a `cause`, the step fails by it, after everything is recorded.
"""

from __future__ import annotations

import collections.abc
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from inspect import Parameter, getdoc, signature
from typing import TYPE_CHECKING, Any, get_args, get_origin

import dagster as dg
from pydantic import Field, create_model

from tidegate.assets.failures import NO_RETRY, explained
from tidegate.assets.jobs import PIPELINE_TAG, job_tags
from tidegate.assets.presentation import OnLake, Step, Steps
from tidegate.assets.resources import TidegateResource
from tidegate.assets.text import metadata
from tidegate.pipelines.errors import PlanningError
from tidegate.pipelines.sql.model import Insert

if TYPE_CHECKING:
    from tidegate.pipelines.runtime.runner import Runner

PREFIX = "tidegate"
"""What the names of these jobs begin with."""
OPERATION_TAG = "tidegate/operation"
"""Run tag: which operation it is."""

Events = Iterable[dg.AssetMaterialization | dg.AssetCheckEvaluation]
_ARGUMENT = re.compile(r"^    (\w+): (.+(?:\n {8}.+)*)", re.MULTILINE)


@dataclass(frozen=True)
class Started:
    """One start of an operation."""

    context: dg.OpExecutionContext
    runner: Runner
    on: OnLake

    @property
    def who(self) -> str:
        """Who has started it: the run, and its tag `user` where it has one."""
        user, run = self.context.run.tags.get("user", ""), f"dagster run {self.context.run.run_id}"
        return f"{user} ({run})" if user else run

    def inserts(self, target: str, among: Sequence[Insert] | None = None, what: str = "INSERT") -> list[Insert]:
        """The INSERT of a target; all of them where none is named. Raises PlanningError."""
        known = self.on.pipeline.inserts if among is None else among
        if target and target not in [item.id for item in known]:
            raise _not_one(f"{self.on.pipeline.name} has no {what} {target}", known)
        return [item for item in known if target in ("", item.id)]

    def insert(self, target: str) -> Insert:
        """The same; the only one where none is named."""
        found = self.inserts(target)
        if len(found) != 1:
            raise _not_one(f"{self.on.pipeline.name} has several INSERTs", found)
        return found[0]


def _not_one(what: str, known: Iterable[Insert]) -> PlanningError:
    ids = ", ".join(item.id for item in known)
    where, do = "the config of the run", f"set `target` to one of {ids}"
    return PlanningError(what, where=where, state="nothing was changed", next_command=do)


@dataclass(frozen=True)
class Operation:
    """A job of a code location, `tidegate_<name>` by default, with one step.

    Attributes:
        function: Does it; its name is the operation's. What the step does is in its docstring.
        step: The name of the step.
        title: What the job does, for the Jobs page.
        seen: What of the record Dagster shows at assets and checks, given the record and its metadata.
    """

    function: Callable[..., Any]
    step: str
    title: str
    seen: Callable[[Started, Any, dict[str, Any]], Events] | None = None

    @property
    def name(self) -> str:
        return self.function.__name__

    @property
    def _doc(self) -> tuple[str, dict[str, str]]:
        """What the step does, and what its parameters mean."""
        does, _, arguments = (getdoc(self.function) or "").partition("\n\nArgs:\n")
        return " ".join(does.split()), {name: " ".join(of.split()) for name, of in _ARGUMENT.findall(arguments)}

    @property
    def config(self) -> type[dg.Config]:
        """What may be set in the launchpad."""
        own = "The pipeline's name. May be left out where the code location has one."
        found: dict[str, Any] = {"pipeline": (str, Field("", description=own))}
        for name, parameter in signature(self.function).parameters.items():
            if parameter.kind is Parameter.KEYWORD_ONLY:
                kind, default = parameter.annotation, parameter.default
                if get_origin(kind) is collections.abc.Sequence:
                    kind = list[get_args(kind)[0]]
                given = ... if default is Parameter.empty else [] if default == () else default
                found[name] = (kind, Field(given, description=self._doc[1].get(name)))
        return create_model(f"{self.name}_config", __base__=dg.Config, **found)

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
                    yield from self._done(Started(context, runner, on), config)

            execute = on.look.execute
            yield from run() if execute is None else execute(context, tidegate, Step(self.name, self.step, run))

        # Dagster reads these as types, and the config's is another for every operation.
        step.__annotations__ = {"context": dg.OpExecutionContext, "config": self.config}
        first = pipelines[0].look.steps
        steps = first if all(on.look.steps == first for on in pipelines) else Steps()
        of_one = job_tags(pipelines[0]) if len(pipelines) == 1 else {}
        op = dg.op(
            name=self.step,
            out=dg.Out(dg.Nothing, is_required=False),  # an `execute` may leave the step out
            required_resource_keys={on.names.resource for on in pipelines},
            description=self._doc[0],
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

    def _done(self, started: Started, config: dg.Config) -> Iterator[Any]:
        record = self.function(started, **{name: value for name, value in config if name != "pipeline"})
        shown = metadata(record, started.on.commands)
        if self.seen is not None:
            yield from self.seen(started, record, shown)
        cause = getattr(record, "cause", None)
        if cause is not None:
            raise cause
        yield dg.Output(None, metadata=shown)

    def request(self, on: OnLake) -> dg.RunRequest:
        """A run of the job for one pipeline, for a schedule."""
        config = {"ops": {self.step: {"config": {"pipeline": on.pipeline.name}}}}
        return dg.RunRequest(run_key=on.pipeline.name, run_config=config, tags=job_tags(on))


def operation(
    step: str, title: str, seen: Callable[[Started, Any, dict[str, Any]], Events] | None = None
) -> Callable[[Callable[..., Any]], Operation]:
    """A function as the operation of its name."""
    return lambda function: Operation(function, step, title, seen)


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
