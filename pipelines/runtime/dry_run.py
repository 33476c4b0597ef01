"""What a run would do next, as of now: the next step of every source and the next epoch of every INSERT.

Nothing is stored, no lease is taken, no row is moved: sources are asked for their ends and their plan, and what they
would store beside a plan (bounds of chunks, files that are taken up) is dropped. Another runner may work meanwhile.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from tidegate.pipelines.errors import PlanningError
from tidegate.pipelines.runtime.differences import Difference
from tidegate.pipelines.runtime.epochs import ReleasePlan, insert_owner
from tidegate.pipelines.runtime.epochs.position import Waiting
from tidegate.pipelines.runtime.landing.advances import SourceDraft
from tidegate.pipelines.runtime.releasing.insert_runner import InsertRunner
from tidegate.pipelines.runtime.runner import Runner


@dataclass(frozen=True)
class InsertDraft:
    """The next epoch of an INSERT, by what has landed.

    Attributes:
        state: `next` (it would be planned), `unfinished` (planned before, and finished first), `held` (the gate holds
            it), or `waiting` (there is no next epoch).
        rows: How many it would release, or how many wait.
        reason: Why the INSERT waits or is held.
    """

    insert: str
    state: Literal["next", "unfinished", "held", "waiting"]
    plan: ReleasePlan | None
    rows: int
    reason: str = ""


@dataclass(frozen=True)
class DryRun:
    """What a run would do first. `changes`: the changes of the script that it would take up. Sources land before
    INSERTs release, so INSERTs may get more rows than shown here."""

    sources: tuple[SourceDraft, ...]
    inserts: tuple[InsertDraft, ...]
    changes: tuple[Difference, ...] = ()


def dry_run(runner: Runner, resnapshot: Collection[str] = ()) -> DryRun:
    """Plan everything and store nothing; tables in `resnapshot` as if they began a new generation.

    Raises what a run would: SourceError where a source cannot be asked or does not fit, PlanningError,
    DefinitionChanged.
    """
    pipeline = runner.pipeline
    known = [table.name for table in pipeline.sources]
    strange = next((name for name in resnapshot if name not in known), None)
    if strange is not None:
        raise PlanningError(
            f"{strange} is no source of this script",
            where="resnapshot",
            state="nothing was planned",
            next_command=f"name some of {', '.join(known)}",
        )
    runner.definitions.require(resnapshot)
    changes = tuple(runner.definitions.differences(resnapshot))
    sources = [runner.landing(table.name).draft(resnapshot=table.name in resnapshot) for table in pipeline.sources]
    inserts = tuple(_drafted(runner.releasing(insert.id)) for insert in pipeline.inserts)
    return DryRun(tuple(sources), inserts, changes)


def needed(runner: Runner, tables: Collection[str], inserts: Collection[str]) -> str:
    """Why a run of these source tables and INSERTs has something to do; empty if it would find nothing: no source has
    more than has landed, every epoch is finished, nothing can be released, and no split becomes idle. Stores nothing.
    Raises what a run would, and what `runner.spark` raises if only Spark can read the source."""
    runner.definitions.require()
    owners = {*tables, *(insert_owner(runner.pipeline.insert(name).id) for name in inserts)}
    changed = next((item.owner for item in runner.definitions.differences() if item.owner in owners), None)
    if changed is not None:
        return f"the script defines {changed} differently than the lake"
    for table in tables:
        landing = runner.landing(table)
        found = landing.draft()
        if found.step is not None:
            return f"{table}: {'an open epoch' if found.unfinished else 'new'}: {found.step.summary}"
        aligned = landing.planner.now(found.generation)
        if aligned is not None and aligned.blocked:
            return f"{table}: alignment holds {', '.join(item.split for item in aligned.blocked)} back"
    for insert in inserts:
        drafted = _drafted(runner.releasing(insert))
        if drafted.state != "waiting":
            return f"{insert}: an epoch is {'to be released' if drafted.state == 'next' else drafted.state}"
    return ""


def _drafted(releasing: InsertRunner) -> InsertDraft:
    releasing.refuse_lost()
    insert, position = releasing.insert.id, releasing.position()
    if held := position.held:
        waiting = releasing.waiting(position)
        return InsertDraft(insert, "held", held.plan, waiting, "; ".join(held.verdict.reasons))
    if position.unfinished is not None:
        return InsertDraft(insert, "unfinished", position.unfinished, position.unfinished.rows)
    found = releasing.planner.next(position.plan)
    if isinstance(found, Waiting):
        return InsertDraft(insert, "waiting", None, found.rows, found.reason)
    return InsertDraft(insert, "next", found, found.rows)
