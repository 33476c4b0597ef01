"""What the logs of owners hold, as frozen records. Each names its owner (a source table, or an INSERT's id), its
generation and its epoch; times are ms, UTC."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from types import NoneType, UnionType
from typing import Any, ClassVar, Self, TypeVar, Union, get_args, get_origin, get_type_hints

import pyarrow as pa

from tidegate.pipelines.commands import Advice
from tidegate.pipelines.errors import LakeError
from tidegate.pipelines.watermarks import Watermark


def canonical(value: Any) -> str:
    """JSON with one spelling (sorted keys, no spaces), of which digests are taken."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


T = TypeVar("T")


class NewerRecord(LakeError):
    """A record of the lake has `unknown` fields: a newer Tidegate wrote it, and they must not be ignored."""

    def __init__(self, kind: str, unknown: tuple[str, ...], where: str = "") -> None:
        self.kind, self.unknown = kind, unknown
        super().__init__(
            f"a newer Tidegate wrote this {kind}: this one does not know its {', '.join(unknown)}",
            where=where,
            state="nothing was changed",
            next_command="install the Tidegate that wrote it, or a newer one, then run the same command again",
        )


def restored(kind: type[T], values: Mapping[str, Any], where: str = "") -> T:
    """A dataclass that the lake stores, read back with those inside of it; a list where it has a tuple. Raises
    NewerRecord where it has a field that `kind` has not."""
    readers = _readers(kind)
    if unknown := values.keys() - readers.keys():
        raise NewerRecord(kind.__name__, tuple(sorted(unknown)), where)
    try:
        read = {name: reader(values[name]) for name, reader in readers.items() if reader and name in values}
    except NewerRecord as error:  # of a dataclass inside, which does not know where it is stored
        raise NewerRecord(error.kind, error.unknown, error.where or where) from error
    return kind(**{**values, **read})


@cache
def _readers(kind: type[Any]) -> dict[str, Callable[[Any], Any] | None]:
    """By field, the function that makes its value from JSON's; None where it is JSON's."""
    hints = get_type_hints(kind)
    return {item.name: _reader(hints[item.name]) for item in dataclasses.fields(kind)}


def _reader(hint: Any) -> Callable[[Any], Any] | None:
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return partial(restored, hint)
    origin = get_origin(hint)
    if origin in (Union, UnionType):  # X | None
        own = next((_reader(each) for each in get_args(hint) if each is not NoneType), None)
        return None if own is None else lambda value: None if value is None else own(value)
    inner = _reader(get_args(hint)[-1 if origin is Mapping else 0]) if origin in (tuple, Mapping) else None
    if origin is tuple:
        return tuple if inner is None else lambda values: tuple(map(inner, values))
    return None if inner is None else lambda values: {name: inner(value) for name, value in values.items()}


def stored(item: Any) -> dict[str, Any]:
    """A dataclass as the lake stores it, with those inside of it, and without what equals its default: a field that
    comes later does not change what was stored before, nor its digest."""
    values = ((each, getattr(item, each.name)) for each in dataclasses.fields(item))
    return {each.name: _stored(value) for each, value in values if value != _default(each)}


def _stored(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_stored, value))
    return stored(value) if dataclasses.is_dataclass(value) else value


def _default(item: dataclasses.Field[Any]) -> Any:
    """What a field is where nothing is stored; MISSING where it always is."""
    return item.default if item.default_factory is dataclasses.MISSING else item.default_factory()


@dataclass(frozen=True)
class Record:
    """A record of an owner's log, stored as JSON."""

    table: ClassVar[str]
    """The name of its kind."""

    owner: str
    generation: int
    epoch: int

    def to_row(self) -> dict[str, Any]:
        """As the log stores it, but for the owner, whose log it is."""
        content = {name: value for name, value in stored(self).items() if name not in _KEY}
        return {"generation": self.generation, "epoch": self.epoch, "record": canonical(content)}

    @classmethod
    def from_row(cls, owner: str, row: Mapping[str, Any]) -> Self:
        """A stored row, read back. Raises NewerRecord for a field that this Tidegate does not know."""
        key = {"owner": owner, "generation": row["generation"], "epoch": row["epoch"]}
        return restored(cls, {**json.loads(row["record"]), **key}, _place(cls, key))

    @property
    def place(self) -> str:
        """Which row it is, for error messages."""
        return _place(type(self), {name: getattr(self, name) for name in _KEY})


def _place(kind: type[Record], row: Mapping[str, Any]) -> str:
    return f"{row['owner']}, generation {row['generation']}, epoch {row['epoch']} of the lake's {kind.table}"


_KEY = ("owner", "generation", "epoch")

STORED = pa.schema(
    [
        pa.field("kind", pa.string(), False),
        pa.field("generation", pa.int32(), False),
        pa.field("epoch", pa.int64(), False),
        pa.field("record", pa.string()),
    ]
)
"""The columns of an owner's log, which is partitioned by kind."""


@dataclass(frozen=True)
class OwnerRow(Record):
    """In the lake's own log: an owner (`name`) that has a log of its own. `epoch` counts owners."""

    table: ClassVar[str] = "owners"

    name: str


@dataclass(frozen=True)
class EpochRow(Record):
    """The plan of an epoch: written first, never changed. `role` is source or insert; `digest` is of `plan`."""

    table: ClassVar[str] = "epochs"

    role: str
    planned_at: int
    plan: Mapping[str, Any]
    digest: str = ""


@dataclass(frozen=True)
class Sums:
    """Of a generation's first epochs: how many `epochs` they are, their `rows`, the `late` ones, those that were
    `rejected`."""

    epochs: int = 0
    rows: int = 0
    late: int = 0
    rejected: int = 0

    def with_epoch(self, row: WatermarkRow) -> Sums:
        """These, and what one more epoch adds."""
        rejected = self.rejected + (row.rejected or 0)
        return Sums(self.epochs + 1, self.rows + row.rows, self.late + (row.late or 0), rejected)


class _Emitted:
    """A row that holds the last watermark of a table, or of a split."""

    timestamp: int
    use_processing_time: bool
    idle: bool

    @property
    def watermark(self) -> Watermark:
        return Watermark(self.timestamp, self.use_processing_time)

    @property
    def status(self) -> tuple[Watermark, bool]:
        """The watermark, and whether it is idle: the input of a valve or a combined status (FLIP-326)."""
        return self.watermark, self.idle


@dataclass(frozen=True)
class SplitWatermark(_Emitted):
    """The state of one split: its watermark, whether it is idle, and its generator's state.

    Attributes:
        last_row: when its last row landed (ms, UTC: that epoch's planning), or when it was first seen; measures
            idleness.
        late: late rows of this epoch.
        ended: the source has said that no row of it will come.
        bounded: it was read in the bounded phase and not since, and the source does not name it as one that goes on.
        rowtime: the greatest rowtime of its rows (ms, UTC); None before the first.
    """

    split: str
    timestamp: int
    use_processing_time: bool
    idle: bool = False
    state: Any = None
    last_row: int | None = None
    late: int = 0
    ended: bool = False
    bounded: bool = False
    rowtime: int | None = None


@dataclass(frozen=True)
class WatermarkRow(Record, _Emitted):
    """An epoch of a source table that has landed. Only such an epoch can be pinned.

    Attributes:
        flip_epoch: the epoch whose landing proved the end of the bounded phase; None before.
        timestamp, use_processing_time: the table's watermark (FLIP-326's valve over `splits`).
        position: for people.
        lag_ms: how far behind the source the epoch's end was when it landed.
        truncated: there was a truncate, in this epoch or before.
        late: rows whose rowtime is at or below the watermark of the epoch before; None of a target, where they are not
            counted.
        alignment: the position of the table's group once the epoch had landed (`runtime/landing/alignment.py`); None
            outside of a group.
        rejected: how much the source could not read as rows; None for nothing.
        kept: until when the source surely has what comes after the epoch, and for how long it keeps anything (`until`,
            `for_ms`); None where it does not say so, or can be asked at any time.
        told: of a process's output, the last value of every watermark that functions declare; None where there is none.
        sums: of this epoch and all before it, of the generation; filled in by `Generation.log_epoch`.
        missing: columns that no record had a field for (`runtime/missing_fields.py`); None for none.
    """

    table: ClassVar[str] = "watermarks"

    landed_at: int
    rows: int
    timestamp: int
    use_processing_time: bool
    idle: bool = False
    flip_epoch: int | None = None
    flipped_at: int | None = None
    lag_ms: int | None = None
    position: str = ""
    truncated: bool = False
    splits: list[dict[str, Any]] = field(default_factory=list)
    late: int | None = None
    alignment: Mapping[str, Any] | None = None
    rejected: int | None = None
    kept: Mapping[str, int] | None = None
    told: Mapping[str, int | bool] | None = None
    sums: Sums = Sums()
    missing: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class SplitRow(Record):
    """A snapshot chunk (or another unit that is too long for a plan): its bounds, then its cut.

    The bounds are stored with epoch 0, the cut with the epoch that read the chunk.
    """

    table: ClassVar[str] = "splits"

    split: str
    ordinal: int
    detail: Mapping[str, Any] | None
    cut: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class StagedFile:
    """A Parquet file that an epoch staged. `path` is relative to the table that may adopt it."""

    path: str
    disposition: str
    size: int
    rows: int
    stats: str


@dataclass(frozen=True)
class StagedRow(Record):
    """What an INSERT's epoch staged: its files, and what was counted while they were written.

    `counts` has a number for every outcome (see tidegate.pipelines.joins.outcome), `facts` what the gate needs to
    know of the matches (greatest and least build epoch, by build). `beside`: the last epoch that each table had got by
    then to which an epoch commits before it is published; one that comes back from an older backup shows by it.
    """

    table: ClassVar[str] = "staged"

    plan_digest: str
    staged_at: int
    folder: str
    files: list[dict[str, Any]]
    counts: Mapping[str, int]
    facts: Mapping[str, Any]
    beside: list[int] = field(default_factory=list)

    @property
    def late(self) -> int | None:
        """Probe rows that came late, of an event-time release; None of another."""
        counted = [int(number) for name, number in self.facts.items() if name.startswith("late@")]
        return sum(counted) if counted else None

    @property
    def further(self) -> int:
        """Rows that UNNEST gave beyond one for each row that the epoch took from what landed."""
        return sum(int(number) for name, number in self.facts.items() if name.startswith("further@"))

    def of(self, disposition: str) -> list[StagedFile]:
        """The staged files of one disposition."""
        return [restored(StagedFile, file, self.place) for file in self.files if file["disposition"] == disposition]


@dataclass(frozen=True)
class VerdictRow(Record):
    """The gate's verdict on one staged epoch; the first one is final. `passed` False: the epoch is held.

    `checks`: a list of {name, passed, observed, expected, detail}. `reasons`: sentences for people.
    """

    table: ClassVar[str] = "verdicts"

    plan_digest: str
    decided_at: int
    passed: bool
    reasons: list[str]
    checks: list[dict[str, Any]]


@dataclass(frozen=True)
class LedgerRow(Record):
    """A checkpoint of an INSERT: what its epochs up to this one have done with rows (`runtime/ledger.py`).

    Written by upkeep. It saves reading them, and nothing else: without it, or with an older one, sums are the same.

    `plan_digest`: of the plan of its last epoch; another one there, and the row is of another history.
    """

    table: ClassVar[str] = "ledger"

    made_at: int
    plan_digest: str
    sums: Mapping[str, Any]


@dataclass(frozen=True)
class StuckRow(Record):
    """A table or an INSERT whose step failed; or, with `over`, that the step has worked since. `epoch` counts the
    owner's rows. For people: nothing is decided by it.

    `at`, and `since` when it is stuck: ms, UTC. `kind` and what follows: the error, see `TidegateError`.
    `next` is an `Advice`, as it stores itself. `refused`: the step did not begin. `by`: the label of the runner.
    """

    table: ClassVar[str] = "stuck"

    at: int
    since: int
    over: bool = False
    kind: str = ""
    what: str = ""
    where: str = ""
    next: str = ""
    refused: bool = False
    by: str = ""

    @property
    def advice(self) -> Advice:
        """The error's advice on what to do next."""
        return Advice.of_stored(self.next)


OF_STATEMENT = 0
"""In the place of a generation's number: what belongs to the statement, and not to one of them."""


@dataclass(frozen=True)
class GenerationRow(Record):
    """A decision on one generation `of` a statement, the owner; `epoch` counts these decisions. Which one is current is
    never concluded from which is the newest.

    Attributes:
        decided: "begun": it publishes beside the current one. "swapping": it is about to take its place; it has done so
            once the target's log has its mark. "current": it has. "over": it was given up.
        decided_at: ms, UTC.
    """

    table: ClassVar[str] = "generations"

    of: int
    decided: str
    decided_at: int


@dataclass(frozen=True)
class DefinitionRow(Record):
    """The definition of an owner from one of its epochs on. `epoch` counts its definitions, from 1; plans name it.

    Attributes:
        generation, since: The generation and the epoch of the owner from which it holds.
        form: The definition itself (`tidegate.pipelines.sql.canonical`); `digest` identifies it.
        script: The statements by which epochs that were made under it can be recomputed; nothing secret is in it.
        source: The source's own id, where it has one.
        pipeline: The name of the script's pipeline that recorded it.
        left_out: That script does not name the owner any more.
        home: The script's folder as seen from the lake, where relative paths of `script` begin; "" for a script of no
            file.
    """

    table: ClassVar[str] = "definitions"

    since: int
    defined_at: int
    digest: str
    form: Mapping[str, Any]
    script: str = ""
    source: Mapping[str, Any] | None = None
    pipeline: str = ""
    left_out: bool = False
    home: str = ""
