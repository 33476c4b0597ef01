"""Quarantined rows of a target, and what became of them: by epoch and reason, from control tables alone; and a few of
the rows themselves, read by Arrow from the table's files. No Spark.

  open         nobody has decided about them
  released     a later epoch has joined them again, and they are where that epoch has put them
  discarded    a person has given them up; they stay stored, and are counted

Rows stay in the quarantine's table as they were written, and are never moved. What one epoch has quarantined for one
reason is one unit (`QuarantinedRows`). A plan takes whole units (`Lot`), each at most once, so no row is taken twice.
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, Self

from tidegate.pipelines.commands import NextCommand
from tidegate.pipelines.errors import BeyondRetention, LakeError, PlanningError
from tidegate.pipelines.lake import Lake, delta_log
from tidegate.pipelines.lake.by_name import TableState
from tidegate.pipelines.location import Location
from tidegate.pipelines.runtime.epochs import Asked, Lot, ReleasePlan, insert_owner
from tidegate.pipelines.runtime.epochs.history import ReleasedEpoch, history_of
from tidegate.pipelines.watermarks import MIN_TIMESTAMP

if TYPE_CHECKING:
    from tidegate.pipelines.sql.compile import Pipeline
    from tidegate.pipelines.sql.model import Insert

DISCARDED = "discarded"
"""The reason of rows whose held epoch was discarded."""
UNMATCHED = "unmatched:"
_VIOLATED = "violated:"
_TIMELESS = "time-null"
_KEYLESS = "key-null@"
_BEYOND = "beyond-retention@"
_ALWAYS = (DISCARDED, _TIMELESS)


State = Literal["open", "released", "discarded"]


@dataclass(frozen=True)
class QuarantinedRows:
    """What one epoch has quarantined for one reason (as `_reason` stores it).

    `at` is the epoch's instant (ms, UTC); `taken` the plan that has released or discarded the rows since. `output`: the
    table of a process's second output, whose quarantine they are in; empty for the first output, and for other INSERTs.
    """

    plan: ReleasePlan
    reason: str
    rows: int
    taken: ReleasePlan | None = None
    output: str = ""

    @property
    def epoch(self) -> int:
        return self.plan.epoch

    @property
    def at(self) -> int:
        return self.plan.instant

    @property
    def state(self) -> State:
        if self.taken is not None:
            return "discarded" if self.taken.discards else "released"
        return "discarded" if self.reason == DISCARDED else "open"

    @property
    def request(self) -> Asked | None:
        """The request of a person by which its rows were taken; None if there was none, or a backfill took them."""
        return self.taken.asked if self.taken is not None and self.taken.out_of_quarantine else None

    @property
    def decider(self) -> ReleasePlan:
        """The plan that has released or discarded its rows, if any."""
        return self.taken or self.plan

    @property
    def short(self) -> str:
        """The reason as `tidegate status` shows it."""
        return short(self.reason)


def short(reason: str) -> str:
    """`unmatched:key-absent@u` as `key-absent@u`."""
    return reason.removeprefix(UNMATCHED)


def may_match(reason: str, insert: Insert) -> bool:
    """Whether rows that were quarantined for this reason could match a version if they are joined again: they have a
    time, which retention has not passed, and a key. A key that is NULL because an earlier build of the chain gave NULL
    may have a value next time."""
    if reason == _TIMELESS or short(reason).startswith(_BEYOND):
        return False
    if not short(reason).startswith(_KEYLESS):
        return True
    from tidegate.pipelines.syntax.types import quoted

    alias = short(reason).removeprefix(_KEYLESS)
    keys = [key.probe for join in insert.joins if join.alias == alias for key in join.keys]
    builds = [f"{quoted(join.alias)}." for join in insert.joins]
    return not keys or any(build in key for key in keys for build in builds)


def quarantined_by(plan: ReleasePlan, counts: Mapping[str, int]) -> dict[str, int]:
    """Reason -> rows that a staged epoch quarantines, by its counts."""

    def out(name: str) -> bool:
        if name.startswith(UNMATCHED):
            return plan.on_unmatched != "publish"
        return name.startswith(_VIOLATED) or name in _ALWAYS

    return {name: number for name, number in counts.items() if number and out(name)}


def quarantined_in(epochs: Iterable[ReleasedEpoch]) -> list[QuarantinedRows]:
    """All that published epochs have quarantined, in their order; without epochs that a backfill has replaced."""
    published = [item for item in epochs if item.published and item.staged is not None]
    found = [
        QuarantinedRows(item.plan, reason, rows)
        for item in published
        for reason, rows in quarantined_by(item.plan, item.staged.counts if item.staged else {}).items()
    ]
    places: dict[str, list[int]] = {}
    for place, quarantined in enumerate(found):
        places.setdefault(quarantined.reason, []).append(place)
    for plan in (item.plan for item in published):
        for lot in plan.lots:
            own = places.get(lot.reason, [])
            first = bisect_left(own, lot.first, key=lambda place: found[place].epoch)
            last = bisect_right(own, lot.last, key=lambda place: found[place].epoch)
            for place in own[first:last]:
                found[place] = replace(found[place], taken=plan)
    return found


def quarantined_by_epoch(lake: Lake, pipeline: Pipeline, insert: Insert) -> list[QuarantinedRows]:
    """All that an INSERT has ever quarantined, of every output, one item an epoch and reason; reads every epoch. For
    sums use `ledger.sums_of`."""
    epochs = history_of(lake, pipeline, insert)
    found = quarantined_in(epochs)
    for output in insert.outputs[1:]:
        found += [
            QuarantinedRows(item.plan, reason, rows, output=output)
            for item in epochs
            if item.published and item.staged is not None
            for reason, rows in quarantined_by(item.plan, item.staged.facts["second"]).items()
        ]
    return sorted(found, key=lambda item: item.epoch)


@dataclass(frozen=True)
class QuarantinedSum:
    """The rows that epochs have quarantined for one reason, and that the same later epoch (or none) has taken. As long
    as none has, also how far back they lie, grouped by the probe's generation and the builds.

    Attributes:
        first, last: The first and the last of the `epochs`, each with its instant (ms, UTC).
        decided: The epoch that has released or discarded the rows, and its instant; (0, 0) if none has.
        by, because: Who requested that, and why; empty if nobody did.
        probe_generation: 0 for rows that were released or discarded, and for a process.
        landed: No row of them landed before this probe epoch.
        needed: By pin (`table generation`): no version before this time (ms, UTC) can be their match, and the epoch
            that this comes from. Under "" the same for generations that they were not pinned to. Empty in processing
            time.
    """

    state: State
    reason: str
    rows: int
    epochs: int
    first: tuple[int, int]
    last: tuple[int, int]
    decided: tuple[int, int] = (0, 0)
    by: str = ""
    because: str = ""
    probe_generation: int = 0
    landed: int = 0
    needed: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    @classmethod
    def of(cls, item: QuarantinedRows, epoch: ReleasedEpoch | None = None) -> Self:
        """From one epoch's rows; how far back they lie is included if the `epoch` is given."""
        plan, at, who = item.plan, (item.epoch, item.at), item.request
        if item.state != "open":
            decided = (item.decider.epoch, item.decider.instant)
            by, because = (who.by, who.because) if who else ("", "")
            return cls(item.state, item.reason, item.rows, 1, at, at, decided, by, because)
        found = cls(item.state, item.reason, item.rows, 1, at, at)
        if epoch is None or plan.state is not None:
            return found
        needed = dict[str, tuple[int, int]]()
        if plan.bounds:
            horizons = {pin: plan.horizon_of(pin.table, pin.generation) for pin in plan.pins}
            needed = {
                f"{pin.table} {pin.generation}": (max(epoch.oldest, horizon), plan.epoch)
                for pin, horizon in horizons.items()
            } | {"": (epoch.oldest, plan.epoch)}
        return replace(found, probe_generation=plan.first.generation, landed=first_landed(epoch), needed=needed)

    def __add__(self, other: Self) -> Self:
        first, last = min(self.first, other.first), max(self.last, other.last)
        needed = {pin: min(pair, other.needed[pin]) for pin, pair in self.needed.items()}
        rows, epochs, landed = self.rows + other.rows, self.epochs + other.epochs, min(self.landed, other.landed)
        return replace(self, rows=rows, epochs=epochs, first=first, last=last, landed=landed, needed=needed)

    @property
    def shown(self) -> Self:
        """As shown to people: without builds, and one item for all discarded epochs."""
        own = self.state == "discarded" and self.reason == DISCARDED
        decided = (0, 0) if own else self.decided
        return replace(self, decided=decided, probe_generation=0, landed=0, needed={})

    def needed_of(self, table: str, generation: int) -> tuple[int, int]:
        """The time before which no version of a build can be their match, and the epoch that this comes from."""
        return self.needed.get(f"{table} {generation}", self.needed.get("", (MIN_TIMESTAMP, 0)))


def summed(found: Iterable[QuarantinedSum]) -> tuple[QuarantinedSum, ...]:
    """The items, added up where they differ only in their epochs and in how far back they lie."""
    sums: dict[tuple[Any, ...], QuarantinedSum] = {}
    for item in found:
        key = (item.reason, item.decided, item.state, item.probe_generation, tuple(sorted(item.needed)))
        sums[key] = sums[key] + item if key in sums else item
    return tuple(sums[key] for key in sorted(sums))


def first_landed(epoch: ReleasedEpoch) -> int:
    """A probe epoch before which none of the rows landed that an epoch has quarantined, by the statistics of its staged
    files."""
    files = epoch.staged.of("quarantine") if epoch.staged else []
    least = [json.loads(file.stats).get("minValues", {}).get("_probe_epoch") for file in files if file.rows]
    known = [number for number in least if isinstance(number, int)]
    return min(known) if known and len(known) == len(least) else epoch.plan.reads[0] + 1


def refuse_process(insert: Insert) -> None:
    """Raise PlanningError for a process: what it quarantines are rows that its function gave, not landed rows, so there
    is nothing to join again."""
    from tidegate.pipelines.sql.model import ProcessInsert  # status, which asks nobody, imports nothing of SQL

    if isinstance(insert, ProcessInsert):
        raise PlanningError(
            f"{insert.id} is a process: the rows that it quarantines are its function's own, and cannot be taken again",
            state="nothing was changed; they stay in quarantine",
            next_command=NextCommand("quarantine show", (insert.id,)),
        )


def asked_for(item: QuarantinedRows, reasons: Sequence[str], epochs: Sequence[int]) -> bool:
    """Whether a selection includes it. A reason is given in full, or as `key-absent@u`, or as `key-absent`."""
    named = {item.reason, item.short, item.short.partition("@")[0]}
    return (not reasons or bool(named & set(reasons))) and (not epochs or item.epoch in epochs)


def chosen(insert: str, quarantined: Sequence[QuarantinedRows], request: Asked) -> list[QuarantinedRows]:
    """What a request takes: all that it selects, but for what was taken before. Rows of a discarded epoch, and rows
    without a time (which would be quarantined again), are released only if their reason is named.

    Raises PlanningError if it names a reason or an epoch for which no row was ever quarantined.
    """
    _refuse_unknown(
        insert, "for the reason", request.reasons, lambda one: any(asked_for(k, (one,), ()) for k in quarantined)
    )
    _refuse_unknown(insert, "in epoch", request.epochs, lambda one: any(k.epoch == one for k in quarantined))
    named = [item for item in quarantined if item.taken is None and asked_for(item, request.reasons, request.epochs)]
    if request.upto is not None:
        named = [item for item in named if item.epoch <= request.upto]
    if request.discards:
        return [item for item in named if item.state == "open"]
    return [item for item in named if item.reason not in (DISCARDED, _TIMELESS) or item.reason in request.reasons]


def as_shown(request: Asked, wanted: Iterable[QuarantinedRows]) -> Asked:
    """The request limited to what a person has seen as `wanted`, without rows quarantined later. It is still made if
    that is nothing: an aborted command may have left an unfinished epoch that answers it."""
    return replace(request, upto=max((item.epoch for item in wanted), default=0))


def _refuse_unknown(insert: str, how: str, names: Sequence[str] | Sequence[int], known: Callable[..., bool]) -> None:
    for name in names:
        if not known(name):
            raise PlanningError(
                f"no row of {insert} was ever quarantined {how} {name}",
                state="nothing was changed",
                next_command=NextCommand("quarantine list", (insert,), "lists reasons and epochs"),
            )


def lots_of(wanted: Iterable[QuarantinedRows], quarantined: Iterable[QuarantinedRows]) -> tuple[Lot, ...]:
    """`wanted` as lots. Neighbours in `quarantined` with the same reason become one lot, so that a plan stays small
    however many epochs it takes from."""
    chosen = {(item.epoch, item.reason) for item in wanted}
    found: list[Lot] = []
    goes_on: dict[str, int] = {}
    for item in quarantined:
        if (item.epoch, item.reason) not in chosen:
            goes_on.pop(item.reason, None)
            continue
        after, upto = item.plan.reads
        place = goes_on.get(item.reason)
        if place is None:
            goes_on[item.reason] = len(found)
            found.append(Lot(item.reason, item.epoch, item.epoch, item.rows, after, upto))
        else:
            lot = found[place]
            rows, least, greatest = lot.rows + item.rows, min(lot.after, after), max(lot.upto, upto)
            found[place] = Lot(lot.reason, lot.first, item.epoch, rows, least, greatest)
    return tuple(found)


# --- what retention has removed ---------------------------------------------------------------------------------------


def removal(lake: Lake, insert: Insert) -> str:
    """The transaction of a quarantine's log whose version is the last epoch up to which 'quarantine.retention' has
    removed rows."""
    return lake.application(insert_owner(insert.id), "retention-epoch", insert.generation)


def decided(quarantined: Sequence[QuarantinedRows]) -> list[QuarantinedRows]:
    """The rows that somebody has released or discarded; none of a process."""
    return [item for item in quarantined if item.state != "open" and item.plan.state is None]


def removed_upto(lake: Lake, insert: Insert, quarantine: Location) -> int:
    """The last epoch up to which retention has removed the rows that epochs have released or discarded; 0 for none."""
    return max(delta_log.committed(quarantine, removal(lake, insert)), 0)


def removed(quarantined: Sequence[QuarantinedRows], upto: int) -> list[QuarantinedRows]:
    """The rows that retention has removed, once it has reached `upto`."""
    return [item for item in decided(quarantined) if item.decider.epoch <= upto] if upto else []


def refuse_removed(insert: str, found: Sequence[QuarantinedRows], wanted: Sequence[QuarantinedRows]) -> None:
    """Raise BeyondRetention if rows that are `wanted` are among those that retention has removed, `found`."""
    gone = {(item.epoch, item.reason) for item in found} & {(item.epoch, item.reason) for item in wanted}
    if gone:
        from tidegate.pipelines.connectors.options import QUARANTINE_RETENTION

        epoch, reason = max(gone)
        raise BeyondRetention(
            f"rows that {insert} has quarantined in epoch {epoch} ({reason}) and in {len(gone) - 1} more are gone "
            f"('{QUARANTINE_RETENTION}'), and would have to be joined again",
            where=f"the quarantine of INSERT {insert}",
            state="nothing was released; what is published stays",
            next_command=NextCommand("quarantine list", (insert, "--by-epoch"), "says what became of them"),
            table=insert,
            upto=epoch,
        )


PROBE = "_probe"
"""The column that holds the probe's own columns of a quarantined row, as a STRUCT."""

PROBE_PLACE = ("_probe_epoch", "_split", "_offset")


@dataclass(frozen=True)
class QuarantinedRow:
    """One quarantined row of a `group`.

    Attributes:
        values: By the target's columns.
        place: Which probe row it is, by PROBE_PLACE.
        probe: That row's own columns; None for a process, and for rows that were quarantined before these were stored.
    """

    group: QuarantinedRows
    op: str
    place: Mapping[str, Any]
    values: Mapping[str, Any]
    probe: Mapping[str, Any] | None = None


def _opened(quarantine: Location) -> TableState | None:
    """A quarantine's table; None if there is none. Raises LakeError if its files cannot be read by Arrow."""
    table = delta_log.opened(quarantine)
    if table is not None and not table.plain:
        raise LakeError(
            "the quarantine's files are not plain Parquet any more (deletion vectors or column mapping)",
            where=str(quarantine),
            state="nothing was changed",
            next_command="read it with Spark",
        )
    return table


def rows_of(
    lake: Lake, pipeline: Pipeline, insert: Insert, wanted: Sequence[QuarantinedRows], most: int
) -> list[QuarantinedRow]:
    """Up to `most` of the wanted rows, in the order of `wanted`. Raises LakeError if the files do not give the rows."""
    import pyarrow.compute as pc  # a status needs none of it

    from tidegate.pipelines.parquet import python_rows

    found: list[QuarantinedRow] = []
    for group in wanted:
        if len(found) >= most:
            break
        target = pipeline.table(group.output or insert.target)
        table = _opened(lake.quarantine_path(target, insert))
        if table is None:
            continue
        names = [column.name for column in target.stored_columns]
        files = delta_log.data_files(table, group.plan.generation, group.epoch - 1, group.epoch).files
        own = (
            (pc.field("_generation") == group.plan.generation)
            & (pc.field("_epoch") == group.epoch)
            & (pc.field("_reason") == group.reason)
        )
        for rows in (table.rows([file]) for file in files):
            there = [name for name in (*names, "_op", *PROBE_PLACE, PROBE) if name in rows.schema.names]
            for row in python_rows(rows.head(most - len(found), columns=there, filter=own)):
                place, values = ({name: row.get(name) for name in of} for of in (PROBE_PLACE, names))
                probe = row.get(PROBE)
                found.append(
                    QuarantinedRow(group, row["_op"], place, values, probe if isinstance(probe, dict) else None)
                )
    return found
