"""What a backfill has released of an INSERT: spans of time, in one epoch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

from tidegate.pipelines.errors import GateHeld, PlanningError, TidegateError
from tidegate.pipelines.records.kinds import Count, Hidden, Note, fact
from tidegate.pipelines.runtime.epochs import Span, union
from tidegate.pipelines.runtime.epochs.position import Position
from tidegate.pipelines.runtime.gate import GateVerdict
from tidegate.pipelines.runtime.runner import Released
from tidegate.pipelines.text import counted
from tidegate.pipelines.watermarks import MAX_TIMESTAMP
from tidegate.quality_checks import steps
from tidegate.quality_checks.steps import InsertStep

if TYPE_CHECKING:
    from tidegate.pipelines.runtime.releasing.insert_runner import InsertRunner
    from tidegate.pipelines.runtime.runner import Runner


@dataclass(frozen=True)
class Backfill:
    """Attributes:
    step: what the INSERT is after it; None where there was nothing to release, or the gate holds the epoch.
    published: rows.
    reached: up to when (ms, UTC) no landed row of the spans waits.
    verdict: the gate's, on the epoch of this backfill; None where nothing was judged.
    cause: why it has failed: the gate holds the epoch, or rows of the spans wait.
    """

    insert: str
    spans: Annotated[tuple[Span, ...], Hidden()] = ()
    step: Annotated[InsertStep | None, Hidden()] = None
    published: Count = 0
    reached: Annotated[int, Hidden()] = MAX_TIMESTAMP
    verdict: Annotated[GateVerdict | None, Hidden()] = None
    cause: Annotated[TidegateError | None, Hidden()] = None

    @property
    def is_held(self) -> bool:
        return isinstance(self.cause, GateHeld)


@dataclass(frozen=True)
class Backfills:
    """What a backfill has released of several INSERTs. `stopped`: what ended it before all were done."""

    inserts: tuple[Backfill, ...]
    stopped: Annotated[TidegateError | None, Hidden()] = None

    @property
    @fact("rows published")
    def published(self) -> Count:
        return sum(item.published for item in self.inserts)

    @property
    def cause(self) -> TidegateError | None:
        """Why it has failed; a held gate before rows that wait."""
        found = sorted((item for item in self.inserts if item.cause), key=lambda item: not item.is_held)
        return self.stopped or (found[0].cause if found else None)

    @property
    def head(self) -> tuple[Note, ...]:
        notes = [Note(f"{counted(self.published, 'row')} published, of {counted(len(self.inserts), 'INSERT')}")]
        for item in self.inserts:
            if (step := item.step) is not None:
                come = step.rows_may_still_come
                notes.append(
                    Note(f"{item.insert}: {step.summary}", details=(f"rows may still come: {come}",) * bool(come))
                )
        return tuple(notes)


def backfills(runner: Runner, inserts: Sequence[str], spans: Sequence[Span], since: int = 0) -> Backfills:
    """Release spans of time of INSERTs, one after another: one that the gate holds, or whose rows wait, does not keep
    the others. What has been done `since` (ms, UTC; 0: nothing) is not done again."""
    done: list[Backfill] = []
    for insert in inserts:
        try:
            if not since or not all(runner.filled(insert, union(spans), span, since) for span in spans):
                done.append(backfill(runner, insert, spans))
        except TidegateError as error:
            return Backfills(tuple(done), error)
    return Backfills(tuple(done))


def backfill(runner: Runner, insert: str, spans: Sequence[Span], own: Span | None = None, since: int = 0) -> Backfill:
    """Release spans of time of an INSERT (`Runner.backfill`). `own`: the one of them that the caller answers for, where
    one run of several releases them all; what such a run has done `since` (ms, UTC) is not done again."""
    releasing, spans = runner.releasing(insert), union(spans)
    waiting = releasing.unreached([own] if own else spans)  # asked for first: what lands later may not be in the epoch
    before = runner.filled(insert, spans, own, since) if own and len(spans) > 1 else None
    try:
        done = runner.backfill(insert, *spans) if before is None else Released(insert)
    except GateHeld as error:
        return Backfill(insert, spans, verdict=_verdict(releasing, spans), cause=error)
    found, published = _step(releasing, done), sum(item.rows for item in done.published)
    if before is not None:
        text = f"epoch {before.epoch}, with the other partitions of this backfill"
        found = InsertStep(summary=f"released by {text}", at_once=("released_by",), released_by=text)
    made = Backfill(insert, spans, found, published, verdict=_verdict(releasing, spans))
    if waiting is None:
        return made
    if not waiting.rows and not waiting.unflipped:
        return replace(made, step=found and replace(found, rows_may_still_come=waiting.reason))
    cause = PlanningError(
        f"{counted(waiting.rows, 'row')} of this span {'waits' if waiting.rows == 1 else 'wait'}: {waiting.reason}; "
        f"{published:,} were published",
        where=insert,
        state="what was published stays",
        next_command="launch it again once they can be released",
    )
    return replace(made, reached=waiting.reached, cause=cause)


def _step(releasing: InsertRunner, done: Released) -> InsertStep | None:
    if done.waiting is not None:
        return steps.waits(releasing, done.waiting)
    # Whatever was published before: a backfill has published what it did.
    if not done.published:
        return None
    found = steps.published(releasing, Position(None, None, None, 0), done.published[-1:])
    return replace(found, at_once=(*found.at_once, "rows_released_again"))


def _verdict(releasing: InsertRunner, spans: Sequence[Span]) -> GateVerdict | None:
    """The verdict on the epoch of this backfill; of an epoch that an earlier run has left there is none."""
    position = releasing.position()
    plan, row = position.plan, position.verdict
    return GateVerdict.of(row) if plan is not None and row is not None and plan.spans == spans else None
