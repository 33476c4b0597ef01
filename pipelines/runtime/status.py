"""The state of a lake right now, read through delta-rs in milliseconds: without Spark or a JVM, and changing
nothing."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from tidegate.pipelines.clock import Clock, system_clock
from tidegate.pipelines.commands import AS_WRITTEN, Commands
from tidegate.pipelines.lake import EpochRow, Lake, SplitRow, StuckRow, WatermarkRow
from tidegate.pipelines.lake.leases import read_leases
from tidegate.pipelines.lake.stream import Generation, Stream
from tidegate.pipelines.runtime.epochs import Pin, insert_of, insert_owner
from tidegate.pipelines.runtime.epochs.history import State, target_of
from tidegate.pipelines.runtime.landing.alignment import Blocked, GroupPosition, group_position_of
from tidegate.pipelines.runtime.ledger import WhereRowsAre, newest_of, where_rows_are
from tidegate.pipelines.runtime.missing_fields import MissingFields
from tidegate.pipelines.runtime.splits import counting, of_a_file, stored_splits
from tidegate.pipelines.watermarks import MIN_TIMESTAMP

if TYPE_CHECKING:
    from tidegate.pipelines.sql.compile import Pipeline


@dataclass(frozen=True)
class Chunks:
    """How much of a snapshot is read: `done` of `total` chunks have their cut."""

    done: int
    total: int


@dataclass(frozen=True)
class Flip:
    """The proved end of the bounded phase: the epoch whose landing proved it, and when (ms, UTC).

    `cut` is the greatest cut of the snapshot, None where there were no chunks; `position` is how far the reader was.
    """

    epoch: int
    at: int | None
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
        holder: who works on the table now; None when nobody does. `worked_on_at` (ms, UTC): when somebody last did, to
            half a minute; None before the first time.
        idle_splits, ended_splits: their names.
        late: late rows of the generation, without those that landed before Tidegate counted them.
        rejected: what the source could not read as rows, stored in the table's quarantine.
        aligned: its position in its alignment group, with the splits that are blocked, by whom and since when.
        missing: columns that no record had a field for; None for none.
        removed: rows that retention has removed. `since` (ms, UTC), of a probe: when the first epoch landed whose rows
            are there; None where none was removed, and where nothing has landed after what was.
    """

    table: str
    generation: int
    epochs: int
    planned: int
    rows: int
    phase: str | None
    step: str
    chunks: Chunks | None
    flip: Flip | None
    watermark: int | None
    use_processing_time: bool
    idle: bool
    lag_ms: int | None
    position: str
    landed_at: int | None
    holder: str | None
    idle_splits: tuple[str, ...] = ()
    ended_splits: tuple[str, ...] = ()
    late: int = 0
    rejected: int = 0
    aligned: GroupPosition | None = None
    worked_on_at: int | None = None
    removed: int = 0
    since: int | None = None
    missing: MissingFields | None = None

    @property
    def blocked(self) -> tuple[Blocked, ...]:
        return self.aligned.blocked if self.aligned else ()


@dataclass(frozen=True)
class InsertStatus:
    """One INSERT: its newest epoch, and where the rows of its probe are over all history.

    `kind`, `state`, `pins` and `reasons` are those of the newest epoch: `reasons` say why the gate holds it, `given_up`
    what discarding it would do. `process`: its rows come from a Python function.
    """

    insert: str
    target: str | None
    probe: str | None
    generation: int
    epoch: int
    kind: str | None
    state: State | None
    planned_at: int | None
    pins: tuple[Pin, ...]
    reasons: tuple[str, ...]
    waits_for: tuple[str, ...]
    rows: WhereRowsAre | None
    holder: str | None
    given_up: str
    process: bool

    @property
    def held(self) -> bool:
        return self.state == "held"


@dataclass(frozen=True)
class Totals:
    """Sums over all sources and all INSERTs. In the last four, a probe that two INSERTs read counts once for each."""

    landed: int = 0
    published: int = 0
    quarantined: int = 0
    dropped: int = 0
    waiting: int = 0


@dataclass(frozen=True)
class LakeStatus:
    """A lake as of `at` (ms, UTC). `holding_back`: the INSERTs that were left out of their script, each with the builds
    whose retention still spares what it may join."""

    lake: str
    at: int
    sources: tuple[SourceStatus, ...] = ()
    inserts: tuple[InsertStatus, ...] = ()
    totals: Totals = field(default_factory=Totals)
    stuck: tuple[StuckRow, ...] = ()
    """The tables and INSERTs whose step failed in the continuous mode, and has not worked since."""
    holding_back: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def held(self) -> tuple[str, ...]:
        """The INSERTs whose newest epoch the gate holds."""
        return tuple(insert.insert for insert in self.inserts if insert.held)

    @property
    def imbalanced(self) -> tuple[InsertStatus, ...]:
        """The INSERTs whose landed rows are not each in exactly one place, though nobody works on them."""
        return tuple(
            insert
            for insert in self.inserts
            if insert.rows is not None and not insert.rows.balanced and insert.holder is None
        )

    @property
    def unfinished(self) -> dict[str, int]:
        """Table or INSERT -> its epoch that is planned and neither done nor held, and on which nobody works: its run
        failed, or was stopped. Not those that the continuous mode tries again (`stuck`), and no build that an INSERT
        waits for."""
        passed_over = {row.owner for row in self.stuck} | {build for item in self.inserts for build in item.waits_for}
        sources = {
            source.table: source.planned
            for source in self.sources
            if source.planned > source.epochs and not source.holder and source.table not in passed_over
        }
        # Without its target, a published epoch cannot be distinguished from one that passed.
        inserts = {
            insert.insert: insert.epoch
            for insert in self.inserts
            if (insert.state in ("planned", "staged") or (insert.state == "passed" and insert.target is not None))
            and not insert.holder
            and insert_owner(insert.insert) not in passed_over
        }
        return sources | inserts

    def to_json(self, commands: Commands = AS_WRITTEN) -> dict[str, Any]:
        """The same as JSON values; next commands are written as `commands` shows them."""
        found = asdict(self)
        for given, item in zip(found["stuck"], self.stuck, strict=True):
            given["next"] = commands.shown(item.advice)
        for given, insert in zip(found["inserts"], self.inserts, strict=True):
            if insert.rows is not None:
                given["rows"] |= {"published": insert.rows.published, "balanced": insert.rows.balanced}
            for pin in given["pins"]:
                if pin["horizon"] is None:
                    del pin["horizon"]
        imbalanced = [insert.insert for insert in self.imbalanced]
        return {**found, "held": list(self.held), "imbalanced": imbalanced, "unfinished": self.unfinished}


def settled_status(lake: Lake, pipeline: Pipeline | None = None) -> LakeStatus:
    """The same as `status`; if rows of an INSERT do not add up, it is read again, since an epoch may have been
    published meanwhile."""
    found = status(lake, pipeline)
    return status(lake, pipeline) if found.imbalanced else found


def status(
    lake: Lake, pipeline: Pipeline | None = None, clock: Clock = system_clock, only: Container[str] | None = None
) -> LakeStatus:
    """The state of a lake: of what `pipeline` names, or of everything that ever ran on it; `only`: just these owners.

    Without a pipeline, a target outside of the lake is not found: its newest epoch shows as passed even when
    published.
    """
    now = clock()
    if not lake.exists() and pipeline is None:
        return LakeStatus(str(lake.root), now)
    owners = lake.epochs.owners()
    if pipeline is None:
        tables = [owner for owner in owners if insert_of(owner) is None]
        inserts = [insert for owner in owners if (insert := insert_of(owner)) is not None]
    else:
        tables = [table.name for table in pipeline.sources]
        inserts = [insert.id for insert in pipeline.inserts]
    if only is not None:
        tables = [name for name in tables if name in only]
        inserts = [name for name in inserts if insert_owner(name) in only]
    leases = read_leases(lake.control)
    holders = {lease.owner: lease.describe() for lease in leases if not lease.over(now)}
    worked_on = {lease.owner: lease.held_at for lease in sorted(leases, key=lambda lease: lease.held_at)}
    sources = tuple(_source(lake, table, holders.get(table), worked_on.get(table), now) for table in tables)
    found = tuple(_insert(lake, pipeline, name, holders.get(insert_owner(name))) for name in inserts)
    rows = [lake.stuck.last(owner) for owner in (*tables, *map(insert_owner, inserts))]
    stuck = tuple(row for row in rows if row is not None and not row.over)
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
    generation = plan.generation if plan else 1
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
        phase=plan.plan.get("phase") if plan else None,
        step=plan.plan.get("summary", "") if plan else "",
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
        aligned=group_position_of(lake, last, now) if last else None,
        worked_on_at=worked_on_at,
        removed=removed.rows or 0,
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


def _insert(lake: Lake, pipeline: Pipeline | None, name: str, holder: str | None) -> InsertStatus:
    target = target_of(lake, pipeline, name)
    last, rows = newest_of(lake, name, target)
    spec = pipeline.insert(name) if pipeline is not None else None
    probe = last.plan.probe if last else spec.probe if spec else None
    return InsertStatus(
        insert=name,
        target=None if target is None else str(target),
        probe=probe,
        generation=last.plan.generation if last else 1,
        epoch=last.plan.epoch if last else 0,
        kind=last.plan.kind if last else None,
        state=last.state if last else None,
        planned_at=last.plan.instant if last else None,
        pins=last.plan.pins if last else (),
        reasons=tuple(last.verdict.reasons) if last and last.verdict else (),
        waits_for=tuple(build for build in spec.builds if not any(Stream(lake, build).flipped)) if spec else (),
        rows=rows or (where_rows_are(lake, name, probe, (), others=spec.probes[1:] if spec else ()) if probe else None),
        holder=holder,
        given_up=last.plan.when_discarded if last else "",
        process=last is not None and last.plan.state is not None,
    )


def _totals(sources: tuple[SourceStatus, ...], inserts: tuple[InsertStatus, ...]) -> Totals:
    rows = [insert.rows for insert in inserts if insert.rows is not None]
    return Totals(
        landed=sum(source.rows for source in sources),
        published=sum(row.published for row in rows),
        quarantined=sum(row.rows_quarantined for row in rows),
        dropped=sum(sum(row.dropped.values()) for row in rows),
        waiting=sum(row.waiting for row in rows),
    )
