"""What a run does: once, or tick by tick; and what becomes of a held epoch."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from tidegate.pipelines.facts.problem import Problem, roots
from tidegate.pipelines.facts.problems import looked
from tidegate.pipelines.lake import Lake, Layout
from tidegate.pipelines.records.failure import Failure
from tidegate.pipelines.records.kinds import Column, Count, Duration, Hidden, Note, fact
from tidegate.pipelines.runtime.continuous import LONGEST_RETRY_S
from tidegate.pipelines.runtime.epochs import Pin, insert_owner
from tidegate.pipelines.runtime.epochs.generations import at_current
from tidegate.pipelines.runtime.epochs.position import InsertOnLake
from tidegate.pipelines.runtime.landing.alignment import Blocked
from tidegate.pipelines.sql.explanation import not_enforced
from tidegate.pipelines.text import counted, seconds

if TYPE_CHECKING:
    from tidegate.pipelines.runtime.continuous import Tick
    from tidegate.pipelines.runtime.landing.advances import Advance
    from tidegate.pipelines.runtime.releasing.insert_runner import Published
    from tidegate.pipelines.runtime.runner import Released, Runner
    from tidegate.pipelines.sql.compile import Pipeline
    from tidegate.pipelines.sql.model import Insert


@dataclass(frozen=True)
class LandedSource:
    """What a run landed of one source; `position` and `lag_ms` are those of its newest epoch."""

    ORDER: ClassVar = ("table", "rows", "landed", "phase", "position", "lag_ms")

    table: Annotated[str, Column("source")]
    generation: int
    rows: Annotated[Count, Column("landed")]
    epochs: tuple[int, ...]
    flipped: bool
    position: Annotated[str | None, Column("position")]
    lag_ms: Annotated[Duration | None, Column("behind")]
    blocked: tuple[Blocked, ...]

    @classmethod
    def of(cls, item: Advance) -> LandedSource:
        last, epochs = item.last, tuple(epoch.epoch for epoch in item.epochs)
        position, lag = (last.position, last.lag_ms) if last else (None, None)
        return cls(item.table, item.generation, item.rows, epochs, item.flipped, position, lag, item.blocked)

    @property
    @fact("epochs", said=True)
    def landed(self) -> Count:
        return len(self.epochs)

    @property
    @fact("phase", said=True)
    def phase(self) -> str:
        blocked = f", {counted(len(self.blocked), 'split')} blocked" if self.blocked else ""
        return f"{'complete' if self.flipped else 'loading'}{blocked}"

    @property
    def line(self) -> str:
        if not self.epochs:
            return f"{self.table} waits for its group" if self.blocked else ""
        behind = f" ({seconds(self.lag_ms)} behind)" if self.lag_ms else ""
        return f"{self.table} +{self.rows:,}{behind}{'' if self.flipped else ' loading'}"


@dataclass(frozen=True)
class PublishedEpoch:
    """One epoch in the target. `again`: rows that a backfill has released again; `from_quarantine`: rows that it took
    out of quarantine; `doubled`: rows whose declared key another row of the epoch has, but for one of each key."""

    OPTIONAL: ClassVar = ("again", "from_quarantine", "doubled")

    insert: str
    generation: int
    epoch: int
    rows: Count
    quarantined: Count
    dropped: Count
    pins: tuple[Pin, ...]
    again: Count | None = None
    from_quarantine: Count | None = None
    doubled: Count | None = None
    published: bool = True

    @classmethod
    def of(cls, done: Published) -> PublishedEpoch:
        plan = done.plan
        again = plan.rows_again if plan.spans else None
        out = plan.rows_claimed if plan.out_of_quarantine else None
        counts = (done.rows, done.quarantined, done.dropped)
        return cls(done.insert, done.generation, done.epoch, *counts, plan.pins, again, out, done.doubled)

    @property
    def rest(self) -> str:
        """Where its other rows went."""
        rest = f", {self.quarantined:,} quarantined" if self.quarantined else ""
        rest += f", {self.dropped:,} dropped" if self.dropped else ""
        return f"{rest}, {self.doubled:,} with a key that came twice" if self.doubled else rest

    @property
    def notes(self) -> tuple[Note, ...]:
        rest = f", {counted(self.quarantined, 'row')} quarantined" if self.quarantined else ""
        rest += f", {counted(self.dropped, 'row')} dropped by WHERE or INNER" if self.dropped else ""
        return (Note(f"Epoch {self.epoch} of {self.insert} is published: {counted(self.rows, 'row')}{rest}."),)


@dataclass(frozen=True)
class NothingPublished:
    published: bool = False
    notes: Annotated[tuple[Note, ...], Hidden()] = (Note("There was nothing to publish."),)


@dataclass(frozen=True)
class WaitingRows:
    """Landed rows that are not released. `unflipped`: the builds that still load."""

    rows: Count
    reason: str
    unflipped: tuple[str, ...]


@dataclass(frozen=True)
class ReleasedInsert:
    """What one INSERT released in a run, or why it waits."""

    ORDER: ClassVar = ("insert", "rows", "quarantined", "dropped", "epochs", "then")

    insert: Annotated[str, Column("INSERT")]
    published: tuple[PublishedEpoch, ...]
    waiting: WaitingRows | None

    @classmethod
    def of(cls, item: Released) -> ReleasedInsert:
        waits = item.waiting
        waiting = None if waits is None else WaitingRows(waits.rows, waits.reason, waits.unflipped)
        return cls(item.insert, tuple(map(PublishedEpoch.of, item.published)), waiting)

    @property
    @fact("published", said=True)
    def rows(self) -> Count:
        return sum(done.rows for done in self.published)

    @property
    @fact("quarantined", said=True)
    def quarantined(self) -> Count:
        return sum(done.quarantined for done in self.published)

    @property
    @fact("dropped", said=True)
    def dropped(self) -> Count:
        return sum(done.dropped for done in self.published)

    @property
    @fact("epochs", said=True)
    def epochs(self) -> Count:
        return len(self.published)

    @property
    @fact("then", said=True)
    def then(self) -> str:
        if self.waiting is None:
            return ""
        wait = f"{counted(self.waiting.rows, 'row')} {'waits' if self.waiting.rows == 1 else 'wait'}"
        return f"{wait}: {self.waiting.reason}" if self.waiting.rows else "nothing waits"

    @property
    def lines(self) -> Iterator[str]:
        for done in self.published:
            yield f"{self.insert} epoch {done.epoch}: {done.rows:,} published{done.rest}"
        if self.waiting and self.waiting.rows:
            yield f"{self.insert}: {self.waiting.rows:,} waiting"


@dataclass(frozen=True)
class Run:
    """One run. `definitions`: the changes of the script that it took up; `imbalanced`: the INSERTs whose landed rows
    are not each in exactly one place; `problems`: what makes the command fail; `moved`: whether anything landed or was
    published."""

    pipeline: str
    moved: bool
    definitions: tuple[str, ...]
    sources: tuple[LandedSource, ...]
    inserts: tuple[ReleasedInsert, ...]
    imbalanced: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()
    notes: Annotated[tuple[Note, ...], Hidden()] = ()


def run_once(
    runner: Runner,
    inserts: Sequence[str] | None = None,
    between: Sequence[tuple[int, int]] = (),
    resnapshot: Collection[str] = (),
    wait_s: float = 0.0,
) -> Run:
    """Run a pipeline up to what its sources have now (`Runner.run`), and look where all rows are. Raises what the run
    does."""
    report = runner.run(inserts=inserts, between=between, resnapshot=resnapshot, wait=wait_s)
    found = looked(runner.lake, runner.pipeline)
    own = {item.table for item in report.advances} | {insert_owner(item.insert) for item in report.releases}
    problems = roots(found.problems)
    wrong = [item for item in problems if item.fails and (item.owner in own or item.kind == "imbalanced")]
    return Run(
        runner.pipeline.name,
        report.moved,
        tuple(report.changes),
        tuple(map(LandedSource.of, report.advances)),
        tuple(map(ReleasedInsert.of, report.releases)),
        found.imbalanced,
        tuple(wrong),
        (
            *_places(runner.pipeline, runner.lake),
            *_keys(runner.pipeline, report.releases),
            *(item.note for item in wrong),
        ),
    )


def _keys(pipeline: Pipeline, releases: Sequence[Released]) -> Iterator[Note]:
    """What PRIMARY KEY of a target means, when it is published to for the first time, and when keys came twice."""
    for released in releases:
        target = pipeline.table(pipeline.insert(released.insert).target)
        twice = sum(done.doubled or 0 for done in released.published)
        if target.primary_key and (twice or any(done.epoch == 1 for done in released.published)):
            rows = f"; {counted(twice, 'row')} of this run came with a key that the epoch had already" if twice else ""
            yield Note(f"{target.name}: {not_enforced(target)}{rows}.")


def _places(pipeline: Pipeline, lake: Layout) -> Iterator[Note]:
    """Where the rows of each INSERT lie."""
    for number, insert in enumerate(pipeline.inserts):
        target = pipeline.table(insert.target)
        kept_out = f"quarantine: {lake.quarantine_path(target, insert).shown()}"
        text = f"{insert.id}: {lake.target_path(target).shown()}"
        yield Note(text, details=(kept_out,), apart=not number)


@dataclass(frozen=True, kw_only=True)
class StuckStep(Failure):
    """A table or an INSERT whose step has failed `attempts` times."""

    owner: str
    attempts: int

    @property
    def note(self) -> Note:
        text = f"{self.owner} is stuck. It is tried again, after {LONGEST_RETRY_S:.0f} s at most. The others go on."
        where = (f"where: {self.where}",) if self.where else ()
        state = (f"state: {self.state}",) if self.state else ()
        return Note(f"{text}\n{self.what}", next=self.next, details=(*where, *state))


@dataclass(frozen=True)
class TickDone:
    """One tick of the continuous mode. `held`: that the gate holds an epoch; `stuck`: what failed, and is tried
    again."""

    tick: int
    seconds: float
    sources: tuple[LandedSource, ...]
    inserts: tuple[ReleasedInsert, ...]
    held: tuple[str, ...]
    stuck: tuple[StuckStep, ...]
    line: Annotated[str, Hidden()] = ""

    @classmethod
    def of(cls, tick: Tick) -> TickDone:
        every = tuple(map(LandedSource.of, tick.advances))
        inserts = tuple(map(ReleasedInsert.of, tick.releases))
        stuck = tuple(StuckStep.of(item.error, owner=item.owner, attempts=item.attempts) for item in tick.stuck)
        parts = [item.line for item in every if item.line] + [line for item in inserts for line in item.lines]
        return cls(
            tick.number,
            round(tick.seconds, 3),
            tuple(item for item in every if item.epochs),
            inserts,
            tuple(error.what for error in tick.held),
            stuck,
            f"{tick.number:>6}  {tick.seconds:5.1f} s  {'   '.join(parts)}",
        )

    def news(self, known: Mapping[str, str]) -> Iterator[Note]:
        """What got stuck at this tick, or is stuck for another reason than before, and what goes on again; `known`:
        what was wrong before, by owner."""
        now = {item.owner: item for item in self.stuck}
        yield from (Note(f"{owner} goes on again.") for owner in known if owner not in now)
        yield from (item.note for owner, item in now.items() if known.get(owner) != item.what)


# --- a held epoch -----------------------------------------------------------------------------------------------------


def given_up(lake: Lake, pipeline: Pipeline, insert: Insert) -> Note | None:
    """What discarding the epoch that the gate holds does; None if it holds none."""
    held = InsertOnLake(lake, *at_current(lake, pipeline, insert)).position().held
    return None if held is None else Note(held.given_up)


def resolve(
    runner: Runner,
    insert: str,
    *,
    discard: bool = False,
    on_unmatched: Literal["quarantine", "block", "publish"] | None = None,
) -> PublishedEpoch | NothingPublished:
    """Take a held epoch through the gate again, or give it up (`Runner.resolve_held`). Raises GateHeld if it is held
    once more."""
    done = runner.resolve_held(insert, discard=discard, on_unmatched=on_unmatched)
    return NothingPublished() if done is None else PublishedEpoch.of(done)
