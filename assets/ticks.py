"""Whether a tick of a pipeline's schedule starts a run: not where the run would find nothing to do."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import NoReturn

import dagster as dg

from tidegate.assets.resources import TidegateResource
from tidegate.pipelines.commands import RUN
from tidegate.pipelines.errors import PlanningError, TidegateError
from tidegate.pipelines.sql.pipeline import Pipeline

ANSWER_WITHIN_S = 5.0
LONGEST_REST = timedelta(hours=12)
"""A run is started after so long although nothing is new: it counts whether all rows are in their places. Sooner where
an asset would be stale by then."""
NOTHING_NEW = (
    "nothing is new: no source has more than has landed, no epoch is open, nothing that waits can be released, and no "
    "split becomes idle"
)
HELD_TAG = "tidegate/held"
"""Run tag: the INSERTs that a scheduled run leaves out, since the gate holds their epochs; a JSON array."""


@dataclass(frozen=True)
class Answer:
    """What a tick has found: why a run is to be started (empty where it would find nothing), and the INSERTs that it
    leaves out: the gate holds their epochs, until a person has decided. `known`: whether the lake was asked who is."""

    reason: str
    held: tuple[str, ...] = ()
    known: bool = False


@dataclass
class Ticks:
    """Asks a pipeline's sources and its lake whether a run has something to do.

    It takes no lease, stores nothing, and starts no Spark. One thread at a time asks: a source that never answers holds
    one, and not one for each tick.

    Attributes:
        tables, inserts: the source tables and INSERTs (by id) of the pipeline's job.
        rest: how long after a run nothing is asked for at the most.
    """

    pipeline: Pipeline
    tables: tuple[str, ...]
    inserts: tuple[str, ...]
    resource: TidegateResource
    rest: timedelta = LONGEST_REST
    _asking: threading.Thread | None = field(default=None, init=False)

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
        if self._asking is not None and self._asking.is_alive():
            return Answer("what was asked at an earlier tick has not been answered yet")
        answers = [Answer(f"there was no answer within {ANSWER_WITHIN_S:g} s")]

        def ask() -> None:
            for answer in self._answers(answers[0]):
                answers.append(answer)

        self._asking = threading.Thread(target=ask, daemon=True)
        self._asking.start()
        self._asking.join(ANSWER_WITHIN_S)
        return answers[-1]

    def _answers(self, none: Answer) -> Iterator[Answer]:
        """What the lake says, as long as the sources have given no answer (`none`), then what they say, too. Where they
        cannot be asked, the run will say why."""
        found = Answer("")
        try:
            from tidegate.pipelines.lake import Lake
            from tidegate.pipelines.runtime.dry_run import needed

            Lake(self.resource.lake, create=False)
            runner = self.resource.runner(self.pipeline, label="dagster schedule")  # takes no lease: nothing to close
            runner.spark = _no_spark
            held = tuple(name for name in self.inserts if runner.releasing(name).position().state == "held")
            found = Answer("", held, known=True)
            yield replace(found, reason=none.reason)
            others = [name for name in self.inserts if name not in held]
            yield replace(found, reason=needed(runner, self.tables, others))
        except TidegateError as error:
            yield replace(found, reason=error.what)
        except Exception as error:  # noqa: BLE001 the run says what it is; by its type alone: it may hold a secret
            yield replace(found, reason=f"asking failed ({type(error).__name__})")


def _no_spark() -> NoReturn:
    raise PlanningError("only Spark can read it", state="nothing was started", next_command=RUN)


def rest_of(assets: Sequence[dg.AssetsDefinition | dg.AssetSpec]) -> timedelta:
    """How long assets can go without a run: half of the shortest time after which one is stale, LONGEST_REST at most;
    none at all where one has to be made by some time of the day. What no run makes does not count."""
    specs = [spec for asset in assets if isinstance(asset, dg.AssetsDefinition) for spec in asset.specs]
    policies = [spec.freshness_policy for spec in specs if spec.freshness_policy is not None]
    windows = [getattr(policy, "warn_window", None) or getattr(policy, "fail_window", None) for policy in policies]
    found = [window.to_timedelta() / 2 if window is not None else timedelta() for window in windows]
    return min([LONGEST_REST, *found])
