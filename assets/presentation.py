"""What a user chooses about a pipeline's assets, beside the script; and which parts of it get assets (`select`,
`exclude`)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import dagster as dg
from dagster.components.resolved.core_models import OpSpec
from pydantic import Field

from tidegate.assets.names import Names, pool
from tidegate.assets.resources import StepContext, TidegateResource, runner_of
from tidegate.pipelines.commands import Commands
from tidegate.pipelines.connectors.registry import comparable
from tidegate.pipelines.connectors.table import Table
from tidegate.pipelines.errors import PlanningError
from tidegate.pipelines.lake import Layout
from tidegate.pipelines.sql.compile import Pipeline
from tidegate.pipelines.sql.model import Insert

if TYPE_CHECKING:
    from tidegate.pipelines.runtime.runner import Runner

Kind = Literal["source", "staged", "published", "by_time", "maintenance", "reconcile"]


@dataclass(frozen=True)
class Partitions:
    """The spans of time that an output can be materialised by: the first is the one that `start` (with a timezone) lies
    in."""

    start: datetime
    every: Literal["hour", "day", "week", "month"] = "day"


def zone_of(timezone: str) -> ZoneInfo:
    """The time zone of this name. Raises PlanningError where there is none."""
    try:
        return ZoneInfo(timezone)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise PlanningError(
            f"there is no time zone {timezone!r}",
            where="timezone",
            state="nothing was loaded",
            next_command="write a name of the IANA database, such as Europe/Berlin or UTC",
        ) from error


def since(text: str, timezone: str = "UTC") -> datetime:
    """ISO 8601: a day is its midnight, and what names no zone is in `timezone`. Raises ValueError."""
    moment = datetime.fromisoformat(text.strip())
    return moment if moment.tzinfo else moment.replace(tzinfo=zone_of(timezone))


@dataclass(frozen=True)
class PipelineAsset:
    """One asset of a pipeline, before a person's own changes to its spec.

    Attributes:
        kind: what it is.
        name: the table's name, or the INSERT's id; the kind's own name of `maintenance` and `reconcile`.
        pipeline: the pipeline's name.
        spec: the asset as Tidegate makes it.
        table: of a source, the table.
        insert: of `staged`, `published` and `by_time`, the INSERT.
    """

    kind: Kind
    name: str
    pipeline: str
    spec: dg.AssetSpec
    table: Table | None = None
    insert: Insert | None = None


@dataclass(frozen=True)
class Step:
    """One step of a pipeline, about to run.

    Attributes:
        kind: what it makes, as of a PipelineAsset; `gate` judges a staged epoch; of an operation, its name, such as
            `quarantine_release`.
        name: the op's name.
        run: does it, and yields its results. Each call does it again.
    """

    kind: str
    name: str
    run: Callable[[], Iterator[Any]]


Body: TypeAlias = Callable[..., Any]
Execute: TypeAlias = Callable[[Any, TidegateResource, Step], Iterator[Any]]
"""(the step's context, its lake and Spark session, the step) -> its results. The context is of an asset, of a check
(AssetCheckExecutionContext) or of an operation (OpExecutionContext)."""


class RetryPolicySpec(dg.Model, dg.Resolvable):
    """How often a step that failed is tried again. A held gate, and what a person has to change first, is not."""

    max_retries: Annotated[int, Field(ge=1)] = 1
    delay: Annotated[float, Field(description="Seconds before a retry.", ge=0)] = 10.0
    backoff: Literal["linear", "exponential"] | None = None
    jitter: Literal["full", "plus_minus"] | None = None


def _retry_policy(context: dg.ResolutionContext, model: Any) -> dg.RetryPolicy | None:
    if model is None:
        return None
    given = RetryPolicySpec.resolve_from_model(context, model)
    return dg.RetryPolicy(
        max_retries=given.max_retries,
        delay=given.delay,
        backoff=dg.Backoff(given.backoff.upper()) if given.backoff else None,
        jitter=dg.Jitter(given.jitter.upper()) if given.jitter else None,
    )


class Steps(OpSpec):
    """What Dagster is given for every step of a pipeline's assets and checks; the `op:` of YAML.

    Attributes:
        name: what step names begin with; the pipeline's name when None.
        description: of every step; what each does when None.
        tags: put on every step.
        pool: the concurrency pool that every step takes a slot of, in the place of one for each table and INSERT.
        retry_policy: how often a step that failed is tried again. A held gate, and what a person has to change first,
            is not.
        backfill_policy: how many runs a backfill of partitions is; one when None.
    """

    retry_policy: Annotated[
        dg.RetryPolicy | None, dg.Resolver(_retry_policy, model_field_type=RetryPolicySpec.model() | None)
    ] = None

    def options(self, pool: str | None = None, tags: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The arguments of a step's decorator; `pool` and `tags` are the step's own."""
        policy = self.retry_policy
        return {"op_tags": {**(tags or {}), **(self.tags or {})}, "pool": self.pool or pool, "retry_policy": policy}


@dataclass(frozen=True)
class Presentation:
    """How the assets of a pipeline appear and when they run.

    Attributes:
        owners: e-mail addresses or `team:name`.
        tags: put on every asset.
        group: the asset group; the pipeline's name when None.
        cron: when the schedule (stopped until it is turned on) starts a run, and, with `automation`, when sources are
            due by themselves once the automation sensor is on.
        timezone: of `cron`, `reconcile_cron` and the weekly maintenance, and where days, weeks and months of
            `partitions` begin; a name of the IANA database.
        automation: whether assets carry AutomationConditions: with them Dagster's automation sensor starts runs.
        fresh_within: the published assets are stale after so long without a run; None: no freshness policy.
        build_fresh_within, probe_fresh_within: the same of build and probe tables.
        reconcile_cron: when build tables are compared with their sources by themselves; None: never.
        partitions: event-time outputs can be materialised by time (Dagster's backfills); None: only by the stream.
        select: source tables and INSERTs (by id) that get assets, `*` matches any text; all when empty. An INSERT
            brings what it reads.
        exclude: those that get none: they are made elsewhere.
        script: where the SQL lies, so that the UI can link to it.
        steps: names, tags, pool and policies of steps.
        translate: changes an asset's spec: key, group, texts, and more dependencies; None leaves them as they are.
        execute: runs a step, around or in the place of `step.run()`; None runs it.
    """

    owners: tuple[str, ...] = ()
    tags: Mapping[str, str] = field(default_factory=dict)
    group: str | None = None
    cron: str = "* * * * *"
    timezone: str = "UTC"
    automation: bool = False
    fresh_within: timedelta | None = timedelta(hours=24)
    partitions: Partitions | None = None
    build_fresh_within: timedelta | None = timedelta(hours=24)
    probe_fresh_within: timedelta | None = timedelta(hours=24)
    reconcile_cron: str | None = "30 4 * * 0"
    select: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    script: Path | None = None
    steps: Steps = field(default_factory=Steps)
    translate: Callable[[PipelineAsset], dg.AssetSpec] | None = None
    execute: Execute | None = None


@dataclass(frozen=True)
class Parts:
    """The source tables and INSERTs of a pipeline that get assets; an INSERT's gate always comes with it."""

    sources: tuple[Table, ...]
    inserts: tuple[Insert, ...]
    comparable: tuple[Table, ...]
    """The build tables that can be compared with their sources."""


@dataclass(frozen=True)
class OnLake:
    """A pipeline of a code location on its lake: all that its definitions are made of."""

    pipeline: Pipeline
    lake: Layout
    names: Names
    look: Presentation
    parts: Parts
    resource: TidegateResource

    @property
    def commands(self) -> Commands:
        """Those that errors and metadata name."""
        return Commands(self.look.script, self.lake.root)

    def runner(self, context: StepContext) -> AbstractContextManager[Runner]:
        """The runner of a step, by the run's resource."""
        return runner_of(context, self.pipeline, self.names, self.commands)

    def step(
        self, name: str, description: str | None, *owners: str, tags: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """The arguments of a step's decorator. `owners`: the tables and INSERTs that no other run is to work on
        meanwhile."""
        steps = self.look.steps
        return {
            "name": name,
            "required_resource_keys": {self.names.resource},
            "description": steps.description or description,
            **steps.options(pool(self.lake, *owners) if owners else None, tags),
        }

    def executed(self, kind: Kind | Literal["gate"]) -> Callable[[Body], Body]:
        """A decorator, beneath Dagster's own, of the body of a step: `execute` runs it. A step that `execute` leaves
        out publishes nothing, for publishing reads the gate's stored verdict."""

        def around(body: Body) -> Body:
            execute = self.look.execute
            if execute is None:
                return body

            @functools.wraps(body)  # Dagster reads the arguments and their types
            def step(context: Any, *config: Any, **named: Any) -> Iterator[Any]:
                def run() -> Iterator[Any]:
                    given = body(context, *config, **named)
                    yield from given if isinstance(given, Iterator) else (given,)

                tidegate: TidegateResource = getattr(context.resources, self.names.resource)
                yield from execute(context, tidegate, Step(kind, context.op_def.name, run))

            return step

        return around


def selected(pipeline: Pipeline, look: Presentation) -> Parts:
    """The parts that `look.select` and `look.exclude` leave. A selected INSERT brings what it reads.

    Raises PlanningError for a name that the script does not have, and where nothing is left.
    """
    known = [*(table.name for table in pipeline.sources), *(insert.id for insert in pipeline.inserts)]
    wanted = _with_inputs(pipeline, _matched(look.select, known, "select")) if look.select else set(known)
    wanted -= _matched(look.exclude, known, "exclude")
    if known and not wanted:
        raise PlanningError(
            f"`select` and `exclude` leave nothing of {pipeline.name}",
            state="nothing was loaded",
            next_command=f"leave some of {', '.join(known)}",
        )
    return Parts(
        sources=tuple(table for table in pipeline.sources if table.name in wanted),
        inserts=tuple(insert for insert in pipeline.inserts if insert.id in wanted),
        comparable=tuple(table for table in comparable(pipeline.sources) if table.name in wanted),
    )


def _matched(patterns: Iterable[str], known: Sequence[str], option: str) -> set[str]:
    found: set[str] = set()
    for pattern in patterns:
        names = [name for name in known if fnmatchcase(name, pattern)]
        if not names:
            near = get_close_matches(pattern, known, n=1)
            raise PlanningError(
                f"the script has no source table and no INSERT {pattern}",
                where=option,
                state="nothing was loaded",
                next_command=f"did you mean {near[0]}?" if near else f"name some of {', '.join(known)}",
            )
        found.update(names)
    return found


def _with_inputs(pipeline: Pipeline, names: set[str]) -> set[str]:
    """The same, with all that the INSERTs among them read, down to the source tables."""
    open_, found = list(names), set(names)
    inserts = {insert.id: insert for insert in pipeline.inserts}
    while open_:
        insert = inserts.get(open_.pop())
        for name in insert.inputs if insert else ():
            process = pipeline.process_of(name)
            read = process.id if process else name
            if read not in found:
                found.add(read)
                open_.append(read)
    return found
