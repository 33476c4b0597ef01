"""The quarantine of INSERTs: what is in it, its rows, and what a release or a discard did."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from tidegate.pipelines.commands import NextCommand
from tidegate.pipelines.errors import PlanningError
from tidegate.pipelines.lake import Lake
from tidegate.pipelines.records.kinds import Column, Count, Hidden, Moment, Note, Values
from tidegate.pipelines.runtime import quarantine as kept
from tidegate.pipelines.runtime.epochs import Asked, Pin
from tidegate.pipelines.runtime.epochs.generations import at_current
from tidegate.pipelines.runtime.ledger import sums_of
from tidegate.pipelines.runtime.quarantine import QuarantinedRows, QuarantinedSum, short, summed
from tidegate.pipelines.text import counted, key, moment, why

if TYPE_CHECKING:
    from tidegate.pipelines.connectors.options import OnUnmatched
    from tidegate.pipelines.runtime.releasing.insert_runner import Published
    from tidegate.pipelines.runtime.runner import Runner
    from tidegate.pipelines.sql.compile import MissedKey, Pipeline
    from tidegate.pipelines.sql.model import Insert

State = Literal["open", "released", "discarded", "all"]
_STATES = {"open": "in quarantine", "released": "released since", "discarded": "discarded"}


# --- what is in it ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Decision:
    """The epoch that has released or discarded rows; `by` and `because` where a person asked for it."""

    OPTIONAL: ClassVar = ("by", "because")

    epoch: int
    at: Moment
    kind: str
    by: str | None = None
    because: str | None = None


@dataclass(frozen=True, kw_only=True)
class QuarantinedLot:
    """What one epoch has quarantined for one reason. `output`: the second output of a process in whose quarantine the
    rows are."""

    OPTIONAL: ClassVar = ("output",)

    epoch: int
    reason: str
    rows: Count
    at: Moment
    state: str
    pins: tuple[Pin, ...]
    taken: Decision | None
    output: str | None = None

    @classmethod
    def of(cls, item: QuarantinedRows, **more: Any) -> Any:
        """`more`: what a kind of lot has beside the epoch's rows."""
        who, taken = item.request, None
        if item.taken is not None:
            by = (who.by, who.because) if who else ()
            taken = Decision(item.taken.epoch, item.taken.instant, item.taken.kind, *by)
        return cls(
            epoch=item.epoch, reason=item.reason, rows=item.rows, at=item.at, state=item.state, pins=item.plan.pins,
            taken=taken, output=item.output or None, **more,
        )  # fmt: skip


@dataclass(frozen=True)
class QuarantinedInsert:
    """All that an INSERT has quarantined, by epoch and reason; rows by what became of them."""

    insert: str
    open: Count
    released: Count
    discarded: Count
    kept: tuple[QuarantinedLot, ...]


@dataclass(frozen=True)
class Quarantine:
    """The same of several INSERTs."""

    inserts: tuple[QuarantinedInsert, ...]


def quarantine(lake: Lake, pipeline: Pipeline, inserts: Sequence[Insert]) -> Quarantine:
    """All that INSERTs have ever quarantined, by epoch and reason; reads every epoch."""
    found = []
    for pipeline, insert in (at_current(lake, pipeline, item) for item in inserts):
        lots = tuple(QuarantinedLot.of(item) for item in kept.quarantined_by_epoch(lake, pipeline, insert))
        found.append(QuarantinedInsert(insert.id, **_totals(lots), kept=lots))
    return Quarantine(tuple(found))


def _totals(found: Sequence[QuarantinedLot] | Sequence[QuarantinedSum]) -> dict[str, int]:
    return {state: sum(item.rows for item in found if item.state == state) for state in _STATES}


@dataclass(frozen=True)
class ReasonSum:
    """The rows that epochs have quarantined for one reason, and what one later epoch has made of them."""

    ORDER: ClassVar = ("state", "reason", "rows", "epoch", "first", "last", "then", "because")

    state: Annotated[str, Column("rows that are")]
    reason: Annotated[str, Column("because")]
    rows: Annotated[Count, Column("rows")]
    epoch: Annotated[str, Column("epoch")]
    first: Annotated[str, Column("first (UTC)")]
    last: Annotated[str, Column("last")]
    then: Annotated[str, Column("then")]

    @classmethod
    def of(cls, item: QuarantinedSum) -> ReasonSum:
        (first, at), (last, until) = item.first, item.last
        one = item.epochs == 1
        epochs = str(first) if one else f"{first} to {last} ({item.epochs})"
        shown = _STATES[item.state]
        return cls(shown, short(item.reason), item.rows, epochs, moment(at), "" if one else moment(until), _then(item))


def _then(item: QuarantinedSum) -> str:
    epoch, at = item.decided
    if item.state == "open":
        return ""
    if not epoch:
        return "its held epoch was discarded"
    if item.state == "released":
        return f"epoch {epoch}, {moment(at)}"
    return ": ".join(filter(None, (", ".join(filter(None, (item.by, moment(at)))), item.because)))


@dataclass(frozen=True)
class ReasonSums:
    """The quarantine of an INSERT, or of a second output, by reason: what is in it first, then what became of the
    rest."""

    insert: str
    output: str
    sums: tuple[ReasonSum, ...]
    totals: Mapping[str, int]

    @classmethod
    def of(cls, insert: str, output: str, found: Sequence[QuarantinedSum]) -> ReasonSums:
        places = list(_STATES)
        ordered = sorted(found, key=lambda item: (places.index(item.state), item.reason, item.decided, item.first))
        return cls(insert, output, tuple(map(ReasonSum.of, ordered)), _totals(found))

    @property
    def head(self) -> tuple[Note, ...]:
        text = ", ".join(f"{counted(rows, 'row')} {_STATES[state]}" for state, rows in self.totals.items() if rows)
        name = f"{self.insert}, second output {self.output}" if self.output else self.insert
        return (Note(f"{name}: {text or 'no row was ever quarantined'}"),)

    @property
    def notes(self) -> tuple[Note, ...]:
        return (Note("", next=NextCommand("quarantine show", (self.insert,))),) if self.totals["open"] else ()


def by_reason(
    lake: Lake, pipeline: Pipeline, inserts: Sequence[Insert], *, by_epoch: bool = False
) -> tuple[ReasonSums, ...]:
    """The quarantine of INSERTs in sums; `by_epoch`: one for each epoch."""
    return tuple(
        ReasonSums.of(insert.id, output, sums_of(lake, pipeline, insert, by_epoch=by_epoch, output=output))
        for pipeline, insert in (at_current(lake, pipeline, item) for item in inserts)
        for output in ("", *insert.outputs[1:])
    )


# --- rows -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class QuarantinedRow(QuarantinedLot):
    """One row. `place` says which landed row it is; `probe`: that row's own columns; `key` and `nearest`: what it was
    joined by, and the version that comes nearest."""

    op: str
    place: Mapping[str, Any]
    values: Mapping[str, Any]
    probe: Mapping[str, Any] | None
    key: Mapping[str, Any] | None
    nearest: str | None

    @property
    def heading(self) -> str:
        """Of the rows of its epoch with its reason."""
        pins = f", joined to {', '.join(map(str, self.pins))}" if self.pins else ""
        output = f", second output {self.output}" if self.output else ""
        return f"epoch {self.epoch}, {moment(self.at)} UTC{pins}{output}: {why(short(self.reason))}"


@dataclass(frozen=True)
class ShownRow:
    """A row as a person sees it. `came_as`: the probe's columns."""

    values: Annotated[Values, Column("")]
    came_as: Annotated[Values, Column("came as")]


@dataclass(frozen=True)
class ShownMiss(ShownRow):
    """One without a match."""

    joined: Annotated[str, Column("joined by")]
    nearest: Annotated[str, Column("nearest version")]


@dataclass(frozen=True)
class ShownGroup:
    """Rows of one epoch and reason; `left` more rows follow."""

    MOST_ROWS: ClassVar = 10_000

    heading: str
    rows: tuple[ShownRow, ...]
    left: int = 0

    @classmethod
    def of(cls, heading: str, rows: Sequence[QuarantinedRow], left: int) -> ShownGroup:
        probes = [row.probe or {} for row in rows]
        # What the target's rows show under the same name is not shown twice.
        other = {
            name
            for row, probe in zip(rows, probes, strict=True)
            for name in probe
            if name not in row.values or row.values[name] != probe[name]
        }
        shown = []
        for row, probe in zip(rows, probes, strict=True):
            came_as = {name: each for name, each in probe.items() if name in other}
            if all(each.key is None for each in rows):
                shown.append(ShownRow(row.values, came_as))
            else:
                joined = "" if row.key is None else key(row.key) or "an expression"
                shown.append(ShownMiss(row.values, came_as, joined, row.nearest or ""))
        return cls(heading, tuple(shown), left)

    @property
    def head(self) -> tuple[Note, ...]:
        return (Note(self.heading),)

    @property
    def notes(self) -> tuple[Note, ...]:
        return (Note(f"… and {self.left:,} more: --limit, or --json"),) if self.left else ()


@dataclass(frozen=True)
class ShownRows:
    """Rows of an INSERT's quarantine: the first ones `of` so many; `removed` more are gone by retention. `none`: that
    no row fits, and which there are."""

    insert: str
    rows: tuple[QuarantinedRow, ...]
    of: Count
    removed: Count
    none: Annotated[str, Hidden()] = ""

    @property
    def head(self) -> tuple[Note, ...]:
        return tuple(self._notes())

    def _notes(self) -> Iterator[Note]:
        if self.none:
            yield Note(self.none)
        if self.removed:
            fit = "that fits is" if self.removed == 1 else "that fit are"
            yield Note(f"{counted(self.removed, 'row')} {fit} gone ('quarantine.retention').")

    @property
    def groups(self) -> tuple[ShownGroup, ...]:
        """Its rows for a person: a table for each epoch and reason."""
        grouped: dict[str, list[QuarantinedRow]] = {}
        for row in self.rows:
            grouped.setdefault(row.heading, []).append(row)
        last = next(reversed(grouped), None)
        left = self.of - len(self.rows)
        return tuple(ShownGroup.of(name, own, left if name == last else 0) for name, own in grouped.items())


def rows(
    lake: Lake,
    pipeline: Pipeline,
    insert: Insert,
    reasons: Sequence[str] = (),
    epochs: Sequence[int] = (),
    state: State = "open",
    limit: int = 20,
) -> ShownRows:
    """Quarantined rows, the oldest first; those of one epoch and reason stand together."""
    from tidegate.pipelines.runtime.nearest import nearest_of_rows

    pipeline, insert = at_current(lake, pipeline, insert)
    every = kept.quarantined_by_epoch(lake, pipeline, insert)
    fitting = [item for item in every if kept.asked_for(item, reasons, epochs)]
    wanted = [item for item in fitting if state in ("all", item.state)]
    upto = kept.removed_upto(lake, insert, lake.quarantine_path(pipeline.table(insert.target), insert))
    gone = kept.removed(wanted, upto)
    there = [item for item in wanted if item not in gone]
    found = kept.rows_of(lake, pipeline, insert, there, limit)
    nearest = list(nearest_of_rows(lake, pipeline, insert, found))
    return ShownRows(
        insert.id,
        tuple(map(_row, found, nearest)),
        sum(item.rows for item in there),
        sum(item.rows for item in gone),
        "" if wanted else _none(every, fitting),
    )


@dataclass(frozen=True)
class ShownQuarantine:
    """The quarantines of INSERTs: all that is in them in sums, and the rows that fit, some of them as they are."""

    rows_found: Count
    by_reason: tuple[ReasonSums, ...]
    inserts: tuple[ShownRows, ...]

    @property
    def head(self) -> tuple[Note, ...]:
        fit = "fits" if self.rows_found == 1 else "fit"
        parts = [note for item in (*self.by_reason, *self.inserts) for note in item.head]
        return (Note(f"{counted(self.rows_found, 'row')} {fit} what was asked for"), *parts)

    @property
    def groups(self) -> tuple[ShownGroup, ...]:
        """The rows for a person: a table for each INSERT, epoch and reason."""
        return tuple(
            replace(group, heading=f"{item.insert}, {group.heading}") for item in self.inserts for group in item.groups
        )


def shown(
    lake: Lake,
    pipeline: Pipeline,
    inserts: Sequence[Insert],
    reasons: Sequence[str] = (),
    epochs: Sequence[int] = (),
    state: State = "open",
    limit: int = 20,
) -> ShownQuarantine:
    """The quarantines of INSERTs, and at most `limit` of the rows of each that fit; 0 shows no value of a row."""
    found = tuple(rows(lake, pipeline, insert, reasons, epochs, state, limit) for insert in inserts)
    return ShownQuarantine(sum(item.of for item in found), by_reason(lake, pipeline, inserts), found)


def _row(row: kept.QuarantinedRow, missed: MissedKey | None) -> QuarantinedRow:
    place = {name.removeprefix("_"): value for name, value in row.place.items()}
    found, nearest = (dict(missed.key), missed.nearest) if missed else (None, None)
    return QuarantinedRow.of(
        row.group, op=row.op, place=place, values=row.values, probe=row.probe, key=found, nearest=nearest
    )


def _none(every: Sequence[QuarantinedRows], fitting: Sequence[QuarantinedRows]) -> str:
    """That no row fits. `fitting`: rows of `every` that are in another state."""
    if fitting:
        states = ", ".join(sorted({item.state for item in fitting}))
        number = sum(item.rows for item in fitting)
        fit = "that fits is" if number == 1 else "that fit are"
        return f"There is no such row; {counted(number, 'row')} {fit} {states}: --state all"
    if every:
        reasons = ", ".join(dict.fromkeys(item.short for item in every))
        first, last = min(item.epoch for item in every), max(item.epoch for item in every)
        return f"There is no such row; epochs {first} to {last} have quarantined rows for: {reasons}"
    return "There is no such row: nothing was ever quarantined."


# --- what is taken out of it ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TakenLot:
    epoch: int
    reason: str
    rows: Count


@dataclass(frozen=True)
class Taken:
    """The result of a release or a discard or, with `dry_run`, what it would be. Of the rows `taken`, so many were
    `published`, and `quarantined` again."""

    insert: str
    discards: bool
    dry_run: bool
    taken: Count
    lots: tuple[TakenLot, ...]
    epochs: tuple[int, ...]
    published: Count
    quarantined: Count
    said: Annotated[tuple[Note, ...], Hidden()] = ()

    @property
    def head(self) -> tuple[Note, ...]:
        return self.said


@dataclass(frozen=True)
class Taking:
    """A release or a discard of quarantined rows, before it is done: what a person has seen of it is what it takes."""

    insert: str
    request: Asked
    wanted: tuple[QuarantinedRows, ...]

    @property
    def would(self) -> Taken:
        """What it would take."""
        lots = summed(QuarantinedSum.of(item).shown for item in self.wanted)
        verb, number = ("discard" if self.request.discards else "join again"), sum(item.rows for item in self.wanted)
        text = f"{self.insert}: this would {verb} {counted(number, 'row')}." if self.wanted else self._nothing
        details = tuple(f"{counted(item.rows, 'row')}: {why(short(item.reason))}" for item in lots)
        return self._found((), number, (Note(text, details=details),), dry_run=True)

    def do(self, runner: Runner, on_unmatched: OnUnmatched | None = None) -> Taken:
        """Take them (`Runner.out_of_quarantine`). Raises PlanningError for a discard without a reason."""
        if self.request.discards and not self.request.because:
            raise PlanningError(
                "a discard needs a reason",
                state="nothing was changed",
                next_command="fill in `because`: why they are given up",
            )
        done = runner.out_of_quarantine(self.insert, kept.as_shown(self.request, self.wanted), on_unmatched)
        own = [item for item in done if item.plan.out_of_quarantine]
        said = [] if own else [Note(self._nothing)]
        said += [Note(_told(item)) for item in done]
        return self._found(own, sum(item.plan.rows_claimed for item in own), said)

    @property
    def _nothing(self) -> str:
        verb = "discard" if self.request.discards else "release"
        return f"There is nothing to {verb}: no row of {self.insert} that fits is in quarantine. Nothing was changed."

    def _found(self, own: Sequence[Published], taken: int, said: Sequence[Note], dry_run: bool = False) -> Taken:
        return Taken(
            self.insert,
            self.request.discards,
            dry_run,
            taken,
            tuple(TakenLot(item.epoch, item.reason, item.rows) for item in self.wanted),
            tuple(item.epoch for item in own),
            sum(item.staged.counts["to:publish"] for item in own),
            sum(item.staged.counts["to:quarantine"] for item in own),
            tuple(said),
        )


def taking(
    lake: Lake,
    pipeline: Pipeline,
    insert: Insert,
    *,
    discards: bool,
    reasons: Sequence[str] = (),
    epochs: Sequence[int] = (),
    by: str = "",
    because: str = "",
) -> Taking:
    """What a request takes of an INSERT's quarantine. Raises PlanningError for a process, and for a reason or an epoch
    for which nothing was ever quarantined."""
    kept.refuse_process(insert)
    request = Asked((), tuple(reasons), tuple(epochs), discards=discards, by=by, because=because.strip())
    pipeline, insert = at_current(lake, pipeline, insert)
    wanted = kept.chosen(insert.id, kept.quarantined_by_epoch(lake, pipeline, insert), request)
    return Taking(insert.id, request, tuple(wanted))


def _told(item: Published) -> str:
    if not item.plan.out_of_quarantine:
        return f"Epoch {item.epoch} of {item.insert} was unfinished, and is published first."
    claimed = item.plan.rows_claimed
    if item.plan.discards:
        return f"{counted(claimed, 'row')} of {item.insert} discarded (epoch {item.epoch})."
    went = item.staged.counts  # by what was staged: a run that was killed may have committed a part of it
    rest = went["to:drop"]
    dropped = f", {rest:,} left out by WHERE or INNER" if rest else ""
    return (
        f"Epoch {item.epoch} of {item.insert} has joined {counted(claimed, 'quarantined row')} again: "
        f"{went['to:publish']:,} published, {went['to:quarantine']:,} back in quarantine{dropped}."
    )
