"""Every epoch of an INSERT and how far it came, from control tables and the target's log alone: no Spark, no JVM."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from tidegate.pipelines.generations import FIRST, generation_of, insert_of, insert_owner
from tidegate.pipelines.lake import Lake, StagedRow, VerdictRow
from tidegate.pipelines.lake.delta_log import committed
from tidegate.pipelines.lake.layout import beside
from tidegate.pipelines.lake.releasable import micros
from tidegate.pipelines.location import Location, folders_in
from tidegate.pipelines.runtime.epochs import ReleasePlan, stored_plan
from tidegate.pipelines.runtime.epochs.generations import is_over
from tidegate.pipelines.watermarks import MAX_TIMESTAMP, MIN_TIMESTAMP

if TYPE_CHECKING:
    from tidegate.pipelines.sql.compile import Pipeline
    from tidegate.pipelines.sql.model import Insert

State = Literal["planned", "staged", "passed", "held", "published", "superseded"]
"""superseded: another epoch has taken its rows, since it was held, replaced by a backfill, or planned for another text
of the INSERT."""


def state_of(staged: StagedRow | None, verdict: VerdictRow | None, published: bool) -> State:
    """How far a planned epoch has come."""
    if published:
        return "published"
    if staged is None:
        return "planned"
    if verdict is None:
        return "staged"
    return "passed" if verdict.passed else "held"


@dataclass(frozen=True)
class ReleasedEpoch:
    """One epoch of an INSERT: its plan, what it staged, its verdict, and whether the target has it.

    `replaced`: the target had it until a backfill replaced it; it counts as superseded, not as published.
    """

    plan: ReleasePlan
    staged: StagedRow | None
    verdict: VerdictRow | None
    published: bool
    superseded: bool
    replaced: bool = False

    @property
    def key(self) -> tuple[int, int]:
        """Generation and epoch."""
        return self.plan.generation, self.plan.epoch

    @property
    def state(self) -> State:
        return "superseded" if self.superseded else state_of(self.staged, self.verdict, self.published)

    @property
    def extent(self) -> tuple[int, int]:
        """In event time: the least and the greatest rowtime (us) of its rows; (MAX, MIN) if none has a time.

        An epoch that has not stored them may have any up to its watermark.
        """
        facts = self.staged.facts if self.staged else {}
        stored = {name.partition("@")[0]: value for name, value in facts.items()}
        if "least-time" not in stored:
            return MIN_TIMESTAMP, micros(self.plan.watermark)
        return int(stored["least-time"]), int(stored["greatest-time"])

    @property
    def oldest(self) -> int:
        """In event time: no row of it lies before this (ms, UTC)."""
        least = self.extent[0]
        return least if least in (MIN_TIMESTAMP, MAX_TIMESTAMP) else least // 1000


def history(
    lake: Lake, insert: str, target: Location | None, since: int = 0, upto: int | None = None
) -> list[ReleasedEpoch]:
    """The epochs of the INSERT called `insert` from `since` to `upto`, oldest first. `target`: where its target's table
    lies. Whether an epoch is replaced or superseded follows from later ones, so only without `upto` is the answer
    exact.

    Without a target, a newest epoch that is published cannot be told from one that only passed, and counts as passed.
    """
    owner = insert_owner(insert)
    plans = [stored_plan(row) for row in lake.epochs.rows(owner, since=since, upto=upto)]
    staged, verdicts = (
        lake.staged.rows(owner, since=since, upto=upto),
        lake.verdicts.rows(owner, since=since, upto=upto),
    )
    staged_by = {(row.generation, row.epoch, row.plan_digest): row for row in reversed(staged)}
    verdict_by = {(row.generation, row.epoch, row.plan_digest): row for row in reversed(verdicts)}
    newest = -1
    if target is not None and plans:  # who only looks at an empty lake writes nothing
        newest = committed(target, lake.application(owner, "publish", generation_of(insert)))
    superseded = {plan.supersedes for plan in plans if plan.supersedes is not None}
    found = []
    for number, plan in enumerate(plans):
        key = (plan.generation, plan.epoch, plan.digest)
        verdict = verdict_by.get(key)
        # The next epoch is planned only after this one was published, or in the place of it.
        followed = number + 1 < len(plans)
        done = plan.epoch <= newest or followed
        found.append(
            ReleasedEpoch(
                plan=plan,
                staged=staged_by.get(key),
                verdict=verdict,
                published=done and verdict is not None and verdict.passed,
                superseded=plan.epoch in superseded,
            )
        )
    return _without_replaced(found)


def _without_replaced(epochs: list[ReleasedEpoch]) -> list[ReleasedEpoch]:
    """The epochs, where those that a published backfill has replaced are no longer published."""
    fills = [item.plan for item in epochs if item.published and item.plan.replaces]
    return [
        replace(item, published=False, superseded=True, replaced=True)
        if item.published and any(fill.takes_the_place_of(item.plan) for fill in fills)
        else item
        for item in epochs
    ]


def target_of(lake: Lake, pipeline: Pipeline | None, insert: str) -> Location | None:
    """Where the table lies that an INSERT publishes to.

    Without the script it is searched among the lake's own targets; None if it is none of them.
    """
    if pipeline is not None:
        return lake.target_path(pipeline.table(pipeline.insert(insert).target))
    number = generation_of(insert)
    application = lake.application(insert_owner(insert), "publish", number)
    tables = sorted(folders_in(lake.root / "targets"), key=str)
    if number != FIRST:  # once it was swapped in, the target has its epochs too
        tables += [beside(target, number) for target in tables]
    return next((path for path in tables if committed(path, application) >= 0), None)


def newest_epochs(lake: Lake, insert: str, target: Location | None, number: int = 1) -> list[ReleasedEpoch]:
    """The last `number` epochs of an INSERT, oldest first, as in `history`; no others are read."""
    last = lake.epochs.last(insert_owner(insert))
    return history(lake, insert, target, last.epoch - number + 1) if last is not None else []


def newest_plans(lake: Lake) -> Iterator[ReleasePlan]:
    """The newest plan of every INSERT and process that ever ran on a lake; of each of its generations, but for those
    that are over."""
    for owner in lake.epochs.owners():
        insert = insert_of(owner)
        if insert is None or is_over(lake, insert):
            continue
        row = lake.epochs.last(owner)
        if row is not None and row.role == "insert":
            yield stored_plan(row)


def history_of(lake: Lake, pipeline: Pipeline, insert: Insert) -> list[ReleasedEpoch]:
    """All epochs of an INSERT of a compiled script."""
    return history(lake, insert.id, target_of(lake, pipeline, insert.id))
