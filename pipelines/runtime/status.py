"""The state of a lake right now, read through delta-rs in milliseconds: without Spark or a JVM, and changing
nothing."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from tidegate.pipelines.clock import Clock, system_clock
from tidegate.pipelines.commands import AS_WRITTEN, RUN, Advice, Commands, NextCommand
from tidegate.pipelines.generations import generation_of, insert_of, insert_owner
from tidegate.pipelines.lake import EpochRow, Lake, SplitRow, StuckRow, WatermarkRow
from tidegate.pipelines.lake.leases import read_leases
from tidegate.pipelines.lake.stream import Generation, Stream
from tidegate.pipelines.location import Location
from tidegate.pipelines.records.document import as_json
from tidegate.pipelines.records.kinds import Age, Column, Count, Duration, Hidden, Moment, Note, fact
from tidegate.pipelines.runtime.epochs import Pin, ReleasePlan, stored_step
from tidegate.pipelines.runtime.epochs.generations import all_beside, is_over, on_lake
from tidegate.pipelines.runtime.epochs.history import State, newest_epochs, target_of
from tidegate.pipelines.runtime.landing.alignment import Blocked, GroupPosition, group_position_of
from tidegate.pipelines.runtime.ledger import WhereRowsAre, newest_of, nothing_done
from tidegate.pipelines.runtime.missing_fields import MissingFields
from tidegate.pipelines.runtime.splits import counting, of_a_file, stored_splits
from tidegate.pipelines.text import counted, moment, seconds, why
from tidegate.pipelines.watermarks import MIN_TIMESTAMP

if TYPE_CHECKING:
    from tidegate.pipelines.sql.compile import Pipeline


FAR_MS = 2**62
"""A split that is this far ahead, or more, is ahead of one that has emitted no watermark yet."""


@dataclass(frozen=True)
class Chunks:
    """How much of a snapshot is read: `done` of `total` chunks have their cut."""

    done: Count
    total: Count

    def __str__(self) -> str:
        return f"{self.done:,} of {counted(self.total, 'chunk')}"


@dataclass(frozen=True)
class Flip:
    """The proved end of the bounded phase: the epoch whose landing proved it, and when.

    `cut` is the greatest cut of the snapshot, None where there were no chunks; `position` is how far the reader was.
    """

    epoch: int
    at: Moment | None
    cut: Mapping[str, Any] | None
    position: str


@dataclass(frozen=True)
class SourceStatus:
    """One source table. `generation` is the newest; its INSERTs may still read an older one until it has flipped.

    Attributes:
        epochs: landed epochs of the generation; `planned` is the newest planned one, greater while one is under way.
        rows: landed rows of the generation.
        phase: bounded or unbounded, of the newest plan; None before the first.
        watermark: ms, UTC; None before there is one. `use_processing_time`: FLIP-326's second half of it.
        lag_ms: how far behind the source the newest epoch was when it landed.
        holder: who works on the table now; None when nobody does. `worked_on_at`: when somebody last did, to half a
            minute; None before the first time.
        idle_splits, ended_splits: their names.
        late: late rows of the generation, without those that landed before Tidegate counted them.
        rejected: what the source could not read as rows, stored in the table's quarantine.
        aligned: its position in its alignment group, with the splits that are blocked, by whom and since when.
        missing: columns that no record had a field for; None for none.
        removed: rows that retention has removed. `since`, of a probe: when the first epoch landed whose rows are there;
            None where none was removed, and where nothing has landed after what was.
        now: when the status was read.
    """

    ORDER: ClassVar = ("table", "rows", "epoch", "state", "position", "landed_at", "lag_ms", "worked_on_by")

    table: Annotated[str, Column("source")]
    generation: int
    epochs: int
    planned: int
    rows: Annotated[Count, Column("rows")]
    phase: str | None
    step: str
    chunks: Chunks | None
    flip: Flip | None
    watermark: Moment | None
    use_processing_time: bool
    idle: bool
    lag_ms: Annotated[Duration | None, Column("behind by then")]
    position: Annotated[str, Column("position")]
    landed_at: Annotated[Age | None, Column("landed")]
    holder: str | None
    idle_splits: tuple[str, ...] = ()
    ended_splits: tuple[str, ...] = ()
    late: Count = 0
    rejected: Count = 0
    aligned: GroupPosition | None = None
    worked_on_at: Moment | None = None
    removed: Count = 0
    since: Moment | None = None
    missing: MissingFields | None = None
    now: Annotated[int, Hidden()] = 0

    @property
    def blocked(self) -> tuple[Blocked, ...]:
        return self.aligned.blocked if self.aligned else ()

    @property
    @fact("epoch", said=True)
    def epoch(self) -> str:
        """Its newest landed epoch, with its generation."""
        return f"{self.generation}/{self.epochs}"

    @property
    @fact("state", said=True)
    def state(self) -> str:
        """How far its bounded phase is."""
        if self.flip is not None:
            return f"complete since {moment(self.flip.at)}"
        if self.chunks is not None:
            return f"loading: {self.chunks}"
        return "loading" if self.planned else "not started"

    @property
    @fact("worked on by", said=True)
    def worked_on_by(self) -> str:
        """Who works on it, or for how long nobody has."""
        if self.holder is not None or self.worked_on_at is None:
            return self.holder or ""
        return f"nobody for {seconds(max(self.now - self.worked_on_at, 0))}"

    @property
    def notes(self) -> tuple[Note, ...]:
        return tuple(self._notes())

    def _notes(self) -> Iterator[Note]:
        if self.idle_splits:
            yield Note(f"{self.table}, idle: {', '.join(self.idle_splits)}", apart=True)
        if self.late:
            yield Note(f"{self.table}: {counted(self.late, 'row')} came late", apart=True)
        if self.since is not None:
            gone = f"{counted(self.removed, 'row')} that landed before {'is' if self.removed == 1 else 'are'} gone"
            back = f"{self.table}: rows go back to {moment(self.since)} UTC"
            yield Note(f"{back}; {gone} ('landed.retention')", apart=True)
        if self.rejected:
            text = f"{counted(self.rejected, 'message')} did not fit and went to its quarantine"
            yield Note(f"{self.table}: {text}, tables/{self.table}/_quarantine in the lake", apart=True)
        if self.missing is not None:
            yield Note(self.missing.sentence(self.table), apart=True)
        if self.aligned is not None and self.blocked:
            group, drift = self.aligned.group, seconds(self.aligned.max_drift_ms)
            waits = tuple(f"split {item.split}: {self._waits(item, self.aligned.minimum)}" for item in self.blocked)
            text = f"{self.table} waits for its group {group}, which may drift by {drift}:"
            yield Note(text, details=waits, apart=True)

    def _waits(self, item: Blocked, minimum: int | None) -> str:
        """For how long a split is blocked, and by whom. `minimum`: the group's least watermark."""
        by, waits = " split ".join(part for part in item.by if part), seconds(max(self.now - item.since, 0))
        if item.next_rowtime is not None and minimum is not None:
            return f"at its limit for {waits}, its next row is {seconds(item.next_rowtime - minimum)} ahead of {by}"
        ahead = f"{seconds(item.ahead_ms)} ahead of {by}" if item.ahead_ms < FAR_MS else f"{by} has emitted nothing yet"
        return f"blocked for {waits}, {ahead}"


@dataclass(frozen=True)
class InsertStatus:
    """One INSERT: its newest epoch, and where the rows of its probe are over all history.

    `kind`, `state`, `pins` and `reasons` are those of the newest epoch: `reasons` say why the gate holds it, `given_up`
    what discarding it would do. `process`: its rows come from a Python function.

    `waits_for` are the builds that have not flipped. `reads` are the statements whose targets it reads, and
    `waits_for_inserts` those of them that hold an epoch, or have published none yet. `depth`: how many stand above it
    in its chain.
    """

    ORDER: ClassVar = (
        "in_chain", "newest", "goes", "landed", "published", "quarantined", "dropped", "waiting", "holder",
    )  # fmt: skip

    insert: str
    target: str | None
    probe: str | None
    generation: int
    epoch: int
    kind: str | None
    state: State | None
    planned_at: Moment | None
    pins: tuple[Pin, ...]
    reasons: tuple[str, ...]
    waits_for: tuple[str, ...]
    rows: WhereRowsAre | None
    holder: Annotated[str | None, Column("worked on by")]
    given_up: str
    process: bool
    reads: tuple[str, ...] = ()
    waits_for_inserts: tuple[str, ...] = ()
    depth: Annotated[int, Hidden()] = 0

    @property
    @fact("INSERT", said=True)
    def in_chain(self) -> str:
        """Its name, below those of the statements that it reads."""
        return f"{'  ' * (self.depth - 1)}└ {self.insert}" if self.depth else self.insert

    @property
    def held(self) -> bool:
        return self.state == "held"

    @property
    @fact("epoch", said=True)
    def newest(self) -> str:
        """Its newest epoch, with its generation."""
        return f"{self.generation}/{self.epoch}" if self.epoch else ""

    @property
    @fact("state", said=True)
    def goes(self) -> str:
        """The state of its newest epoch."""
        return self.state or ("waits" if self.waits_for or self.waits_for_inserts else "")

    @property
    @fact("landed", said=True)
    def landed(self) -> Count | None:
        return self.rows.landed if self.rows else None

    @property
    @fact("published", said=True)
    def published(self) -> Count | None:
        return self.rows.published if self.rows else None

    @property
    @fact("quarantined", said=True)
    def quarantined(self) -> Count | None:
        return self.rows.rows_quarantined if self.rows else None

    @property
    @fact("dropped", said=True)
    def dropped(self) -> Count | None:
        return sum(self.rows.dropped.values()) if self.rows else None

    @property
    @fact("waiting", said=True)
    def waiting(self) -> Count | None:
        return self.rows.waiting if self.rows else None

    def waits_above(self, held: Container[str]) -> str:
        """For which statements of its chain it waits, in a sentence. `held`: those that the gate holds."""
        why = {True: "whose newest epoch the gate holds", False: "which has published nothing yet"}
        above = (f"{name}, {why[name in held]}" for name in self.waits_for_inserts)
        return f"{self.insert} waits for {' and for '.join(above)}."

    @property
    def imbalanced(self) -> bool:
        """Whether its landed rows are not each in exactly one place, though nobody works on it."""
        return self.rows is not None and not self.rows.balanced and self.holder is None

    @property
    def alarm(self) -> bool:
        """Whether its state is to be seen at once."""
        return self.held

    @property
    def notes(self) -> tuple[Note, ...]:
        return tuple(self._notes())

    def _notes(self) -> Iterator[Note]:
        if self.rows is not None and self.rows.quarantined:
            reasons = ", ".join(f"{count:,} {why(name)}" for name, count in self.rows.quarantined.items())
            look = NextCommand("quarantine list", (self.insert,))
            yield Note(f"{self.insert}, quarantined: {reasons}", next=look, apart=True)
        if self.rows is not None and self.rows.further:
            text = f"UNNEST gave {counted(self.rows.further, 'row')} beyond one for each that it took"
            yield Note(f"{self.insert}: {text}", apart=True)
        for number, each in enumerate(self.rows.branches if self.rows else (), 1):
            text = f"{self.insert}, branch {number}: {counted(each.landed, 'row')} of {each.table} landed"
            yield Note(f"{text}, {each.waiting:,} wait", apart=True)


@dataclass(frozen=True)
class Stuck:
    """A table or an INSERT whose last step failed, or was refused."""

    owner: str
    generation: int
    epoch: int
    at: Moment
    since: Moment
    kind: str
    what: str
    where: str
    next: Advice

    @classmethod
    def of(cls, row: StuckRow) -> Stuck:
        return cls(
            row.owner, row.generation, row.epoch, row.at, row.since, row.kind, row.what, row.where, row.advice
        )  # fmt: skip


@dataclass(frozen=True)
class Totals:
    """Sums over all sources and all INSERTs. In the last four, a probe that two INSERTs read counts once for each."""

    landed: Count = 0
    published: Count = 0
    quarantined: Count = 0
    dropped: Count = 0
    waiting: Count = 0


@dataclass(frozen=True)
class LakeStatus:
    """A lake as of `at`. `holding_back`: the INSERTs that were left out of their script, each with the builds whose
    retention still spares what it may join."""

    lake: str
    at: Moment
    sources: tuple[SourceStatus, ...] = ()
    inserts: tuple[InsertStatus, ...] = ()
    totals: Totals = field(default_factory=Totals)
    stuck: tuple[Stuck, ...] = ()
    """The tables and INSERTs whose last step failed, or was refused."""
    holding_back: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    @fact()
    def held(self) -> tuple[str, ...]:
        """The INSERTs whose newest epoch the gate holds."""
        return tuple(insert.insert for insert in self.inserts if insert.held)

    @property
    @fact()
    def imbalanced(self) -> tuple[str, ...]:
        """The INSERTs whose landed rows are not each in exactly one place, though nobody works on them."""
        return tuple(insert.insert for insert in self.inserts if insert.imbalanced)

    @property
    def awaited(self) -> dict[str, str | None]:
        """The builds that an INSERT waits for -> who loads them."""
        holders = {source.table: source.holder for source in self.sources}
        return {build: holders.get(build) for item in self.inserts for build in item.waits_for}

    @property
    def head(self) -> tuple[Note, ...]:
        began = Note(f"{self.lake}   {moment(self.at)} UTC", details=("",))
        if self.sources or self.inserts:
            return (began,)
        return (began, Note("Nothing has run here yet.", next=RUN))

    @property
    def notes(self) -> tuple[Note, ...]:
        return tuple(self._notes())

    def _notes(self) -> Iterator[Note]:
        for name, builds in self.holding_back.items():
            spares = f"retention of {' and '.join(builds)} spares what it may still join"
            yield Note(f"{name} is left out of its script: {spares}", apart=True)
        awaited = self.awaited
        for insert in (item for item in self.inserts if item.waits_for):
            text = f"{insert.insert} waits until {' and '.join(insert.waits_for)} is complete."
            idle = [build for build in insert.waits_for if not awaited[build]]
            nobody = f" Nobody works on {' and '.join(idle)}." if idle else ""
            go_on = NextCommand("run", does="goes on where it stopped") if idle else ""
            yield Note(text + nobody, next=go_on, apart=True)
        if any(insert.epoch for insert in self.inserts):
            yield from (
                Note(insert.waits_above(self.held), apart=True) for insert in self.inserts if insert.waits_for_inserts
            )

    def to_json(self, commands: Commands = AS_WRITTEN) -> dict[str, Any]:
        """The same as JSON values; next commands are written as `commands` shows them."""
        return as_json(self, commands)


def settled_status(lake: Lake, pipeline: Pipeline | None = None) -> LakeStatus:
    """The same as `status`; if rows of an INSERT do not add up, it is read again, since an epoch may have been
    published meanwhile."""
    found = status(lake, pipeline)
    return status(lake, pipeline) if found.imbalanced else found


def status(
    lake: Lake, pipeline: Pipeline | None = None, clock: Clock = system_clock, only: Container[str] | None = None
) -> LakeStatus:
    """The state of a lake: of what `pipeline` names, or of everything that ever ran on it; `only`: just these owners.
    Of a statement, its current generation and those beside it.

    Without a pipeline, a target outside of the lake is not found: its newest epoch shows as passed even when
    published.
    """
    now = clock()
    if not lake.exists() and pipeline is None:
        return LakeStatus(str(lake.root), now)
    owners = lake.epochs.owners()
    apart: dict[str, Pipeline] = {}
    if pipeline is None:
        tables = [owner for owner in owners if insert_of(owner) is None]
        inserts = [insert for owner in owners if (insert := insert_of(owner)) is not None and not is_over(lake, insert)]
    else:
        pipeline = on_lake(lake, pipeline)
        tables = [table.name for table in pipeline.sources]
        apart = all_beside(lake, pipeline)
        inserts = [*(insert.id for insert in pipeline.inserts), *apart]
    if only is not None:
        tables = [name for name in tables if name in only]
        inserts = [name for name in inserts if insert_owner(name) in only]
    leases = read_leases(lake.logs)
    holders = {lease.row.owner: lease.describe() for lease in leases if not lease.over(now)}
    worked_on = {lease.row.owner: lease.held_at for lease in sorted(leases, key=lambda lease: lease.held_at)}
    sources = tuple(_source(lake, table, holders.get(table), worked_on.get(table), now) for table in tables)
    targets = {name: target_of(lake, apart.get(name, pipeline), name) for name in inserts}
    found = in_chains(
        [_insert(lake, apart.get(name, pipeline), name, targets, holders.get(insert_owner(name))) for name in inserts]
    )
    rows = [lake.stuck.last(owner) for owner in (*tables, *map(insert_owner, inserts))]
    stuck = tuple(Stuck.of(row) for row in rows if row is not None and not row.over)
    behind = _left_behind(lake, pipeline)
    return LakeStatus(str(lake.root), now, sources, found, _totals(sources, found), stuck, behind)


def _left_behind(lake: Lake, pipeline: Pipeline | None) -> dict[str, tuple[str, ...]]:
    """INSERTs that were left out of their script, see `definitions.left_behind`; imported here only, as it needs an SQL
    parser whose import takes longer than everything else."""
    rows = map(lake.definitions.last, lake.definitions.owners())
    if not any(row is not None and row.left_out for row in rows):
        return {}
    from tidegate.pipelines.runtime.stored_definitions import left_behind

    return left_behind(lake, pipeline)


def _source(lake: Lake, table: str, holder: str | None, worked_on_at: int | None, now: int) -> SourceStatus:
    plan: EpochRow | None = lake.epochs.last(table)
    generation, step = plan.generation if plan else 1, stored_step(plan).step if plan else None
    stream = Stream(lake, table)
    own = stream.generation(generation)
    last, all_of_it, removed = own.last, own.sums(), own.removed
    splits = lake.splits.rows(table, generation=generation)
    shown = last is not None and (last.flip_epoch is not None or last.timestamp > MIN_TIMESTAMP)
    counted = counting(stored_splits(last))
    first = own.epoch(removed.epoch + 1) if removed.epoch else None
    return SourceStatus(
        table=table,
        generation=generation,
        epochs=last.epoch if last else 0,
        planned=plan.epoch if plan else 0,
        rows=all_of_it.rows,
        phase=step.phase if step else None,
        step=step.summary if step else "",
        chunks=_chunks(splits),
        flip=_flip(own, last, splits),
        watermark=last.timestamp if last and shown else None,
        use_processing_time=bool(last and last.use_processing_time),
        idle=bool(last and last.idle),
        lag_ms=last.lag_ms if last else None,
        position=last.position if last else "",
        landed_at=last.landed_at if last else None,
        holder=holder,
        idle_splits=tuple(split.split for split in counted if split.idle and not split.ended),
        ended_splits=tuple(split.split for split in stored_splits(last) if split.ended),
        late=all_of_it.late,
        rejected=all_of_it.rejected,
        missing=MissingFields.of(last),
        now=now,
        aligned=group_position_of(lake, last, now) if last else None,
        worked_on_at=worked_on_at,
        removed=removed.rows,
        since=first.landed_at if first is not None and stream.kind == "probe" else None,
    )


def _chunks(splits: list[SplitRow]) -> Chunks | None:
    planned = {row.split for row in splits if row.epoch == 0 and not of_a_file(row.detail)}
    done = {row.split for row in splits if row.epoch != 0 and row.cut is not None}
    return Chunks(len(done & planned), len(planned)) if planned else None


def _flip(own: Generation, last: WatermarkRow | None, splits: list[SplitRow]) -> Flip | None:
    if last is None or last.flip_epoch is None:
        return None
    epoch = last.flip_epoch
    row = own.epoch(epoch) or last
    cuts = [row.cut for row in splits if row.cut is not None]
    return Flip(epoch, last.flipped_at, max(cuts, key=_place, default=None), row.position)


def _place(cut: Mapping[str, Any]) -> tuple[tuple[int, str], ...]:
    """The order of cuts, as in the log: by log epoch, file, position. Numbers in file names may grow by a digit."""
    return tuple(
        (value, "") if isinstance(value, int) else (len(str(value)), str(value))
        for value in (cut.get(part, 0) for part in ("log", "file", "position", "offset"))
    )


def _insert(
    lake: Lake, pipeline: Pipeline | None, name: str, targets: Mapping[str, Location | None], holder: str | None
) -> InsertStatus:
    target = targets[name]
    last, rows = newest_of(lake, name, target)
    spec = pipeline.insert(name) if pipeline is not None else None
    probe = last.plan.probe if last else spec.probe if spec else None
    above = _above(lake, pipeline, name, last.plan if last else None, targets)
    return InsertStatus(
        insert=name,
        target=None if target is None else str(target),
        probe=probe,
        generation=generation_of(name),
        epoch=last.plan.epoch if last else 0,
        kind=last.plan.kind if last else None,
        state=last.state if last else None,
        planned_at=last.plan.instant if last else None,
        pins=last.plan.pins if last else (),
        reasons=tuple(last.verdict.reasons) if last and last.verdict else (),
        waits_for=tuple(build for build in spec.builds if not any(Stream(lake, build).flipped)) if spec else (),
        rows=rows or (nothing_done(lake, name, spec.probe, () if spec.branches else spec.probes) if spec else None),
        holder=holder,
        given_up=last.plan.when_discarded if last else "",
        process=last is not None and last.plan.state is not None,
        reads=tuple(above),
        waits_for_inserts=tuple(each for each, waits in above.items() if waits),
    )


def _above(
    lake: Lake, pipeline: Pipeline | None, name: str, plan: ReleasePlan | None, targets: Mapping[str, Location | None]
) -> dict[str, bool]:
    """The statements whose targets an INSERT reads, by its script, else by its newest plan -> whether it waits for
    them: the gate holds their newest epoch, or they have published none."""
    if pipeline is not None:
        tables = [(each, pipeline.writer_of(each)) for each in pipeline.insert(name).inputs]
        written = {table: writer.id for table, writer in tables if writer is not None}
    else:
        read = {*(item.table for item in plan.takes), *(pin.table for pin in plan.pins)} if plan else {}
        written = {target.name: each for each, target in targets.items() if target is not None and target.name in read}
    found = dict[str, bool]()
    for table, writer in written.items():
        newest = newest_epochs(lake, writer, targets.get(writer) or target_of(lake, pipeline, writer))
        held = bool(newest) and newest[-1].state == "held"
        found[writer] = held or Stream(lake, table).newest is None
    return found


def in_chains(inserts: Sequence[InsertStatus]) -> tuple[InsertStatus, ...]:
    """The same, each below the last of those that it reads."""
    found = dict[str, InsertStatus]()
    known = {item.insert for item in inserts}

    def place(item: InsertStatus) -> None:
        above = [found[name].depth for name in item.reads if name in found]
        if item.insert in found or len(above) < len(known.intersection(item.reads)):
            return
        found[item.insert] = replace(item, depth=max(above) + 1 if above else 0)
        for each in inserts:
            if item.insert in each.reads:
                place(each)

    for item in inserts:
        place(item)
    return tuple(found.values())


def insert_status(lake: Lake, pipeline: Pipeline, name: str) -> InsertStatus:
    """One INSERT of a pipeline; who works on it is not looked for."""
    return _insert(lake, pipeline, name, {name: target_of(lake, pipeline, name)}, None)


def source_status(lake: Lake, table: str, now: int) -> SourceStatus:
    """One source table at `now` (ms, UTC); the same."""
    return _source(lake, table, None, None, now)


def _totals(sources: tuple[SourceStatus, ...], inserts: tuple[InsertStatus, ...]) -> Totals:
    rows = [insert.rows for insert in inserts if insert.rows is not None]
    return Totals(
        landed=sum(source.rows for source in sources),
        published=sum(row.published for row in rows),
        quarantined=sum(row.rows_quarantined for row in rows),
        dropped=sum(sum(row.dropped.values()) for row in rows),
        waiting=sum(row.waiting for row in rows),
    )
