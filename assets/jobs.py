"""The job of a pipeline, the schedule that starts it, and whether a tick of the schedule starts a run: not if the run
would find nothing to do."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from time import monotonic, time
from typing import TYPE_CHECKING, NoReturn

import dagster as dg

from tidegate.assets.failures import NO_RETRY
from tidegate.assets.presentation import OnLake
from tidegate.assets.resources import TidegateResource
from tidegate.pipelines.commands import RUN
from tidegate.pipelines.errors import PlanningError, TidegateError
from tidegate.pipelines.sql.compile import Pipeline

if TYPE_CHECKING:
    from tidegate.pipelines.runtime.runner import Runner

ANSWER_WITHIN_S = 5.0
LONGEST_REST = timedelta(hours=12)
"""A run is started after so long even if nothing is new: it checks that all rows are in their places. Sooner if an
asset would be stale by then."""
NOTHING_NEW = (
    "nothing is new: no source has more than has landed, no epoch is open, nothing that waits can be released, and no "
    "split becomes idle"
)
HELD_TAG = "tidegate/held"
"""Run tag: the INSERTs that a scheduled run leaves out, since the gate holds their epochs; a JSON array."""


@dataclass(frozen=True)
class Answer:
    """The result of a tick: why a run is to be started (empty if it would find nothing to do), and the INSERTs that it
    leaves out, as the gate holds their epochs until a person has decided. `known`: whether the lake could be read."""

    reason: str
    held: tuple[str, ...] = ()
    known: bool = False


@dataclass
class Ticks:
    """Checks with a pipeline's sources and its lake whether a run has something to do.

    It takes no lease, stores nothing, and starts no Spark. One thread at a time reads the lake, and one asks the
    sources: a source that never answers blocks one thread, not one for each tick.

    Attributes:
        tables, inserts: the source tables and INSERTs (by id) of the pipeline's job.
        rest: the longest time without a run.
    """

    pipeline: Pipeline
    tables: tuple[str, ...]
    inserts: tuple[str, ...]
    resource: TidegateResource
    rest: timedelta = LONGEST_REST
    _asking: dict[str, threading.Thread] = field(default_factory=dict, init=False)

    def answer(self, last: dg.RunRecord | None, now: float) -> Answer:
        """Whether a run is to be started, and of what. `last`: the job's newest run; `now`: seconds since 1970."""
        found = self._asked()
        if last is None:
            return replace(found, reason="the job has not run yet")
        if last.dagster_run.status != dg.DagsterRunStatus.SUCCESS:
            return replace(found, reason="the job's last run did not succeed")
        if now - last.create_timestamp.timestamp() >= self.rest.total_seconds():
            return replace(found, reason=f"the last run was {self.rest} ago, or longer")
        decided = {*json.loads(last.dagster_run.tags.get(HELD_TAG, "[]"))} - {*found.held}
        if decided and found.known:
            return replace(found, reason=f"the gate does not hold {', '.join(sorted(decided))} any more")
        return found

    def _asked(self) -> Answer:
        """The lake's answer, and then its sources'. A source that does not answer does not delay the lake's."""
        end = monotonic() + ANSWER_WITHIN_S
        of_lake = self._within("the lake", self._look, Answer(""), end)
        return self._within("the sources", self._ask, of_lake, end) if of_lake.known else of_lake

    def _within(self, asked: str, question: Callable[[Answer], Answer], known: Answer, end: float) -> Answer:
        """The result of a check of what is `known`, or why there is none by `end` (monotonic s)."""
        before = self._asking.get(asked)
        if before is not None and before.is_alive():
            return replace(known, reason="what was asked at an earlier tick has not been answered yet")
        answers = [replace(known, reason=f"there was no answer within {ANSWER_WITHIN_S:g} s")]

        def ask() -> None:
            try:
                answers.append(question(known))
            except TidegateError as error:  # the run will say why
                answers.append(replace(known, reason=error.what))
            except Exception as error:  # noqa: BLE001 the run says what it is; by its type alone: it may hold a secret
                answers.append(replace(known, reason=f"asking failed ({type(error).__name__})"))

        self._asking[asked] = thread = threading.Thread(target=ask, name=f"asks {asked}", daemon=True)
        thread.start()
        thread.join(max(0.0, end - monotonic()))
        return answers[-1]

    def _look(self, known: Answer) -> Answer:
        """Which INSERTs are held."""
        runner = self._runner()
        return Answer("", tuple(name for name in self.inserts if runner.held(name) is not None), known=True)

    def _ask(self, known: Answer) -> Answer:
        """Whether a run of the others would find something."""
        from tidegate.pipelines.runtime.dry_run import needed

        others = [name for name in self.inserts if name not in known.held]
        return replace(known, reason=needed(self._runner(), self.tables, others))

    def _runner(self) -> Runner:
        from tidegate.pipelines.lake import Lake

        Lake(self.resource.lake, create=False)
        runner = self.resource.runner(self.pipeline, label="dagster schedule")  # takes no lease: nothing to close
        runner.spark = _no_spark
        return runner


def _no_spark() -> NoReturn:
    raise PlanningError("only Spark can read it", state="nothing was started", next_command=RUN)


def rest_of(assets: Sequence[dg.AssetsDefinition | dg.AssetSpec]) -> timedelta:
    """How long assets can go without a run: half of the shortest freshness limit, at most LONGEST_REST; zero if one has
    to be made by some time of the day. Assets that no run makes do not count."""
    specs = [spec for asset in assets if isinstance(asset, dg.AssetsDefinition) for spec in asset.specs]
    policies = [spec.freshness_policy for spec in specs if spec.freshness_policy is not None]
    windows = [getattr(policy, "warn_window", None) or getattr(policy, "fail_window", None) for policy in policies]
    found = [window.to_timedelta() / 2 if window is not None else timedelta() for window in windows]
    return min([LONGEST_REST, *found])


PIPELINE_TAG = "tidegate/pipeline"
"""Run tag: whose job it is."""

IN_PROGRESS = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]


def job_tags(on: OnLake) -> dict[str, str]:
    """The tags of every job. A crashed run may be tried again, a failed step is not."""
    return {PIPELINE_TAG: on.names.pipeline, **NO_RETRY, **on.look.tags}


def _keys(on: OnLake, held: Collection[str] = ()) -> list[dg.AssetKey]:
    """The assets of the job; without those of `held` INSERTs."""
    released = [insert for insert in on.parts.inserts if insert.id not in held]
    sources = [on.names.source(table.name) for table in on.parts.sources]
    return [*sources, *(key for insert in released for key in (on.names.staged(insert), on.names.published(insert)))]


def pipeline_job(on: OnLake) -> dg.JobDefinition:
    """Sources, staged, checks and published of one pipeline, in one process: their Spark steps share a session."""
    unresolved = dg.define_asset_job(
        on.names.job,
        selection=dg.AssetSelection.assets(*_keys(on)),
        executor_def=dg.in_process_executor,
        description="Land what the sources have, then stage, judge and publish the next epoch of every INSERT.",
        tags=job_tags(on),
    )
    return unresolved  # type: ignore[return-value]


def pipeline_schedule(on: OnLake, job: dg.JobDefinition, ticks: Ticks) -> dg.ScheduleDefinition:
    """Starts the job at every tick of `cron`, unless its last run is still going or a run would find nothing to do.
    What the gate holds is left out until a person has decided: its check stays failed, and no run asks it again.
    Stopped until it is turned on."""

    @dg.schedule(
        name=on.names.schedule,
        job=job,
        cron_schedule=on.look.cron,
        execution_timezone=on.look.timezone,
        default_status=dg.DefaultScheduleStatus.STOPPED,
        description=f"Runs {on.names.job} by cron ({on.look.cron}, {on.look.timezone}); a tick is passed over while a "
        "run is in progress, and where a run would find nothing to do.",
    )
    def tick(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        going = context.instance.get_runs(dg.RunsFilter(job_name=on.names.job, statuses=IN_PROGRESS), limit=1)
        if going:
            return dg.SkipReason(f"run {going[0].run_id} is still in progress")
        last = context.instance.get_run_records(dg.RunsFilter(job_name=on.names.job), limit=1)
        found = ticks.answer(last[0] if last else None, time())
        held = ", ".join(found.held)
        left_out = f"; left out, until a person decides what the gate holds: {held}" if held else ""
        if not found.reason:
            return dg.SkipReason(NOTHING_NEW + left_out)
        context.log.info(f"{on.names.job} is started: {found.reason}{left_out}")
        if not held:
            return dg.RunRequest()
        tags = {HELD_TAG: json.dumps(found.held)}
        return dg.RunRequest(asset_selection=_keys(on, found.held), tags=tags)

    return tick
