"""The problems of a lake, now: one pure function of what the lake stores. What only a source can report is a
parameter."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from tidegate.pipelines.facts.at import At, no_rows
from tidegate.pipelines.facts.gate_problems import growing, held, imbalanced
from tidegate.pipelines.facts.problem import Bounds, Kind, Problem, Reported, Scope, rooted, roots
from tidegate.pipelines.facts.source_problems import lagging, not_flipped, passing_log
from tidegate.pipelines.facts.step_problems import stuck, unfinished_insert, unfinished_source
from tidegate.pipelines.generations import insert_of
from tidegate.pipelines.lake import Lake
from tidegate.pipelines.records.kinds import Note, fact
from tidegate.pipelines.runtime.epochs import insert_owner
from tidegate.pipelines.runtime.status import LakeStatus, settled_status

if TYPE_CHECKING:
    from tidegate.pipelines.runtime.verifying.verify import VerifyReport
    from tidegate.pipelines.sql.compile import Pipeline

NOTHING: Mapping[str, Reported] = {}
DEFAULTS = Bounds()


def problems(
    lake: Lake,
    now: int,
    scope: Scope | None = None,
    *,
    bounds: Bounds = DEFAULTS,
    reported: Mapping[str, Reported] = NOTHING,
    shows_rows: Callable[[str], bool] = no_rows,
    unread: Callable[[str, Exception], None] | None = None,
    counts_rows: bool = True,
) -> list[Problem]:
    """The problems of a lake at `now` (ms, UTC), each with the one that explains it (`explained_by`).

    Args:
        scope: Whose; of everything that ever ran on the lake, where it is None.
        bounds: Beyond what something is a problem.
        reported: What sources have reported, by table. Without it, a source is behind only by what the lake stores.
        shows_rows: Whether rows are read for the problem of this key, to show some of their keys.
        unread: Gets "kind, lake, table or INSERT" of what cannot be read, with the error; the others are found all the
            same. Without it the error is raised.
        counts_rows: Whether it is looked whether rows add up, which costs more than all else together.
    """
    if not lake.exists():
        return []
    at = At(lake, now, Scope.of(lake) if scope is None else scope, bounds, reported, shows_rows)
    found: list[Problem] = []
    for kind, owner, ask in _questions(at):
        if kind == "imbalanced" and not counts_rows:
            continue
        try:
            problem = ask()
        except Exception as error:
            if unread is None:
                raise
            unread(at.key(kind, owner), error)
        else:
            if problem is not None:
                details = {**problem.details, "lake": str(lake.root)}
                found.append(replace(problem, pipeline=at.scope.pipeline, details=details))
    return rooted(found)


@dataclass(frozen=True)
class LakeState(LakeStatus):
    """A lake and its problems."""

    problems: tuple[Problem, ...] = ()

    @property
    @fact()
    def unfinished(self) -> dict[str, int]:
        """Table or INSERT -> its epoch that is planned and neither done nor held, on which nobody works, and which
        nothing else explains."""
        found = [each for each in self.problems if each.kind == "unfinished" and not each.explained_by]
        return {insert_of(each.owner) or each.owner: each.details["epoch"] for each in found}

    @property
    def notes(self) -> tuple[Note, ...]:
        return (*(problem.note for problem in roots(self.problems)), *super().notes)


def looked(lake: Lake, pipeline: Pipeline | None = None) -> LakeState:
    """The state of a lake and its problems, of what `pipeline` names; without one, of everything."""
    found = settled_status(lake, pipeline)
    listed = problems(lake, found.at, Scope.of(lake, pipeline), counts_rows=bool(found.imbalanced))
    return LakeState(**vars(found), problems=tuple(listed))


def differing(lake: Lake, report: VerifyReport, now: int, pipeline: str = "") -> Problem | None:
    """What recomputing an INSERT has found, as a problem."""
    if report.passed:
        return None
    return Problem(
        key=f"differs {lake.root} {report.insert}",
        kind="differs",
        title=f"{report.insert}: what is published is not what its pins give.",
        subject=f"what differs of {report.insert}",
        pipeline=pipeline,
        owner=insert_owner(report.insert),
        since=now,
        text=report.problems,
        counts={"differing rows": report.differences} if report.differences else {},
        details={"insert": report.insert, "lake": str(lake.root)},
    )


def _questions(at: At) -> Iterator[tuple[Kind, str, Callable[[], Problem | None]]]:
    for insert in at.scope.inserts:
        yield "gate-held", insert.insert, partial(held, at, insert)
    for owner, name in at.owners:
        yield "stuck", name, partial(stuck, at, owner, name)
    for insert in at.scope.inserts:
        yield "imbalanced", insert.insert, partial(imbalanced, at, insert)
        yield "unfinished", insert.insert, partial(unfinished_insert, at, insert)
        yield "quarantine-growing", insert.insert, partial(growing, at, insert)
    for source in at.scope.sources:
        yield "unfinished", source.table, partial(unfinished_source, at, source)
        yield "not-flipped", source.table, partial(not_flipped, at, source)
        yield "lag", source.table, partial(lagging, at, source)
        yield "retention", source.table, partial(passing_log, at, source)
