"""What a connector is: one object that says what it takes, and one that reads a table step by step.

A *step* is a bounded piece of a source table, planned before it is read and never changed after: its `ranges` alone
decide its rows. The runtime stores the step in the `epochs` table, reads it with `Source.read`, appends the rows in one
commit and then calls `Source.landed`. After a crash anywhere the stored step is run again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from tidegate.pipelines.clock import Clock
from tidegate.pipelines.connectors.spec import ConnectorSpec
from tidegate.pipelines.connectors.table import Table
from tidegate.pipelines.progress import Progress, SilentProgress

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tidegate.pipelines.errors import SourceError
    from tidegate.pipelines.watermarks import Watermark

Json = Mapping[str, Any]
Phase = Literal["bounded", "unbounded"]


@dataclass(frozen=True)
class Step:
    """The next bounded piece of a table.

    Attributes:
        ranges: JSON; all that `read` needs. No secrets.
        phase: bounded (snapshot) or unbounded.
        flips: once this step has landed, the bounded phase is proved to be over. True for one step of a generation
            at most; the runtime keeps the first.
        summary: a few words for people ("chunks 41-60 of 124", "binlog.000003:4711 -> binlog.000004:120").
        quiet: the runtime's own: nothing is read, only the time goes on (a split has fallen idle). `ranges` are those
            of the step before.
        blocked: the runtime's own: the splits that alignment held back when it was planned, `Planned.held` too.
        next_rowtimes: the runtime's own: `Planned.held` once it was planned, and what is still known of blocked splits.
    """

    ranges: Json
    phase: Phase = "unbounded"
    flips: bool = False
    summary: str = ""
    quiet: bool = False
    blocked: tuple[str, ...] = ()
    next_rowtimes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class StoredStep:
    """A step as the `epochs` table holds it. `planned_at` in ms, UTC."""

    step: Step
    generation: int
    epoch: int
    planned_at: int

    @property
    def place(self) -> str:
        """Which step it is, for error messages."""
        return f"generation {self.generation}, epoch {self.epoch}: {self.step.summary}"


class SplitStore(Protocol):
    """Rows of the `splits` table of one table and generation: what would make a plan too long (chunk bounds, cuts)."""

    @property
    def prefix(self) -> str:
        """Prefix of these splits' names in the table's rows: the part's name for a part of a hybrid table, else
        empty."""
        ...

    def rows(self) -> list[dict[str, Any]]:
        """All splits in order of `ordinal`: dicts with split, ordinal, detail (JSON object), cut (same, or None)."""
        ...

    def add(self, splits: Sequence[Json]) -> None:
        """Store split, ordinal and detail of every split, once: a second call with the same splits changes nothing."""
        ...

    def cut(self, cuts: Mapping[str, Json]) -> None:
        """Store the cut of each named split; repeating it is harmless."""
        ...


@dataclass(frozen=True)
class SourceContext:
    """What a source may use; it does not change while the source is open. `peers` are all source tables of the
    pipeline, this one among them. `environment` is where `${VAR}` is looked up.

    `options` are resolved, passwords included, so no repr shows them. `earlier_rows` returns the committed rows of all
    earlier steps of a step's generation; `latest_rows`, of the rows whose keys it is given, the primary key and the
    `_split` and `_seq` of the last earlier row of that key, a delete too, where there is one. It reads no more of a
    large table than of a small one.

    `answer_within` (s): the longest time that the caller waits for any one answer of the server; None: no limit.
    """

    table: Table
    options: Mapping[str, str] = field(repr=False)
    generation: int
    splits: SplitStore
    scratch: str
    clock: Clock
    lake: str = ""
    peers: Sequence[Table] = ()
    environment: Mapping[str, str] | None = field(default=None, repr=False)
    progress: Progress = field(default_factory=SilentProgress)
    spark: Callable[[], SparkSession] | None = None
    earlier_rows: Callable[[StoredStep], DataFrame] | None = None
    latest_rows: Callable[[StoredStep, DataFrame], DataFrame] | None = None
    answer_within: float | None = None


@dataclass(frozen=True, kw_only=True)
class SourcePosition:
    """How far a generation of a table has come: its last and its first stored step (None before the first is planned),
    and whether it has flipped."""

    previous: StoredStep | None = None
    first: StoredStep | None = None
    flipped: bool = False


@dataclass(frozen=True, kw_only=True)
class PlanRequest(SourcePosition):
    """What `Source.plan` plans: the step after `previous`.

    Attributes:
        ends: as `Source.ends` returned them at the run's start; the step goes no further.
        instant: the plan's clock reading (ms, UTC).
        max_rows: about how many rows the step may have ('scan.max-rows-per-epoch'); None: as the source likes.
        blocked: splits that get no range: watermark alignment (FLIP-182) holds them back. A source all of whose splits
            are blocked is not asked.
        limit: where the source can tell times, no row whose rowtime is past it (ms, UTC) should be in the step. None:
            any may.
        ahead: splits that nobody in their group waits for: they get nothing past the limit. Any other gets something
            at least, for the group may wait for that one.
        start_at: for the first step of a connector that has `ConnectorSpec.start_options`: begin at the first row of
            this time (ms, UTC), by the source's own clock, whatever the options say.
    """

    ends: Json
    instant: int
    max_rows: int | None = None
    blocked: frozenset[str] = frozenset()
    limit: int | None = None
    ahead: frozenset[str] = frozenset()
    start_at: int | None = None


@dataclass(frozen=True)
class Planned:
    """What `Source.plan` returns.

    Attributes:
        step: the next step; None when there is nothing left to do.
        held: the rowtime (ms, UTC) of the row that comes next in a split, by split, where that is past the limit of
            the request and the split stops for it.
    """

    step: Step | None = None
    held: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class RetainedUntil:
    """What comes after a step surely stays in the source until `until` (ms, UTC); the source keeps anything for
    `for_ms`."""

    until: int
    for_ms: int


@dataclass(frozen=True)
class Landed:
    """What `Source.landed` found in a committed step. `lag_ms`: how far the step's end was behind the source then.

    `position` is for people. `watermarks`: what the source itself emitted, by split, in order, for a table that asks
    for it (SYSTEM_WATERMARK()); one that goes back is ignored, and one that no source may emit is an error (see
    `WatermarkToDataOutput`). None leaves it to the table's strategy. `splits` are all that it reads, also those without
    rows so far: each holds the table's watermark until it has emitted one, and goes on after the bounded phase.
    `sole_split`: the one that it goes on with after a bounded phase without a row, so that an empty table may be idle.
    `ended` are those of which no further row will come. `kept`: how long the source has what it did not read yet, where
    it can only be asked while it is read; others are `KeepsALog`."""

    lag_ms: int | None = None
    position: str = ""
    watermarks: Sequence[tuple[str, Watermark]] | None = None
    idle: Mapping[str, bool] = field(default_factory=dict)
    splits: frozenset[str] = frozenset()
    sole_split: str | None = None
    ended: frozenset[str] = frozenset()
    kept: RetainedUntil | None = None


@runtime_checkable
class Source(Protocol):
    """One table of one connector. Made new for every run by `Connector.source`; keeps no state that matters.

    A class that names it as its base has the last two methods: the runtime emits the watermark, and nothing is open.
    """

    def preflight(self, position: SourcePosition) -> None:
        """Check that the source can be read exactly. Raises SourceError whose text names the fix."""
        ...

    def ends(self, position: SourcePosition) -> Json:
        """The ends of all splits now. A run takes them once, at its start, and stops there."""
        ...

    def plan(self, request: PlanRequest) -> Planned:
        """The next step, by the request alone. Must not depend on anything that a restart would lose."""
        ...

    def read(self, spark: SparkSession, step: StoredStep) -> DataFrame:
        """The step's rows: the table's physical columns in their Spark types, and SOURCE_COLUMNS."""
        ...

    def landed(self, step: StoredStep, rows: DataFrame | None) -> Landed:
        """Called after the step's rows are committed (again after a crash). `rows` are the committed rows of this
        step, None when none were written, or the source has `asks_rows = False`. Records what only committed rows can
        tell (cuts)."""
        ...

    def delegate_watermark_periodic_emit(self, on_watermark_emit: Callable[[], None]) -> bool:
        """FLIP-326, SourceReader: return True to own the periodic emit, and call `on_watermark_emit` from `landed`
        when the watermark should be emitted (at the flip). False leaves the emit to the runtime."""
        return False

    def close(self) -> None:
        """Let go of connections."""


def asks_rows(source: Source) -> bool:
    """Whether `landed` reads the committed rows: opening them takes Spark longer than counting them."""
    return getattr(source, "asks_rows", True)


@runtime_checkable
class WritesFiles(Protocol):
    """A source that can also write a step's rows as files of the lake, faster than Spark writes a frame of them."""

    def write(self, spark: SparkSession, step: StoredStep, folder: str) -> Sequence[str] | None:
        """Write the rows of `step` into `folder`, which exists, and return the names of the Parquet files.

        They hold exactly what the lake stores of `read`'s rows: `_generation`, `_epoch`, SOURCE_COLUMNS and the table's
        physical columns in their Spark types; no rejected row and no truncate. Returns None, and writes nothing, if the
        rows of this step have to be read as a frame.
        """
        ...


@runtime_checkable
class ReadsAlone(Protocol):
    """A source that has steps which must be read and committed before another table is planned."""

    def reads_alone(self, step: StoredStep) -> bool:
        """Whether `step` is one of them. All other steps of a tick are read by one Spark job, together with those of
        other tables."""
        ...


@runtime_checkable
class ExplainsFailures(Protocol):
    """A source that can explain a failed read of one of its steps."""

    def explain(self, error: BaseException, step: StoredStep) -> SourceError | None:
        """The typed error for what Spark raised while `step` was read or landed; None if the source knows no better
        than Spark's own message."""
        ...


@dataclass(frozen=True)
class LogRetention:
    """How long the source still keeps what comes after the last landed step.

    Attributes:
        left_s: seconds until it may be gone; 0 when it is. None where nothing of it goes by age.
        kept_s: seconds that the source keeps anything; None where the source does not say.
        position: the cursor, for people.
    """

    left_s: float | None
    kept_s: float | None
    position: str


@runtime_checkable
class KeepsALog(Protocol):
    """A source whose log expires, so that a table which is not read for too long cannot go on."""

    def retention(self, position: SourcePosition) -> LogRetention | None:
        """As of now, after the last step; None before the first. Raises SourceError."""
        ...


@dataclass(frozen=True)
class Unread:
    """What a source has that has not landed.

    Attributes:
        number: how much; 0 for nothing.
        unit: what is counted, in the singular ("version").
        since: the time of the oldest of it (ms, UTC); None where only reading it would tell.
        of: what it is counted in, where the unit does not say so ("the server's binlog").
    """

    number: int = 0
    unit: str = ""
    since: int | None = None
    of: str = ""

    @property
    def rest(self) -> str:
        """How much, for people ("2 versions"); empty for nothing."""
        plural, of = "" if self.number == 1 else "s", f" of {self.of}" if self.of else ""
        return f"{self.number:,} {self.unit}{plural}{of}" if self.number else ""


@runtime_checkable
class KnowsItsEnd(Protocol):
    """A source that can say whether everything it has has landed, without reading a row and without Spark."""

    def unread(self, position: SourcePosition) -> Unread | None:
        """What there is after the last step, now; None before the first step, and if it cannot be known. Raises
        SourceError."""
        ...


@dataclass(frozen=True, order=True)
class LogPlace:
    """A place in a source's log: a row of the changelog is before it when its (`_seq.file`, `_seq.position`) is. `text`
    is for people."""

    file: int
    position: int
    text: str = field(default="", compare=False)


class Comparison(Protocol):
    """The rows of a source table as they are now, to be compared with the changelog. Nothing of it is landed.

    Attributes:
        columns: names of the declared columns that are compared, the primary key among them.
        exact: a row's `_seq` is the place that its own read view equals.
    """

    columns: Sequence[str]
    exact: bool

    def low(self) -> LogPlace:
        """A position that every read view opened from now on includes."""
        ...

    def high(self) -> LogPlace:
        """A position that no read view opened so far goes beyond."""
        ...

    def after(self, step: StoredStep) -> LogPlace:
        """The position up to which the log has landed once `step` has."""
        ...

    def batches(self, spark: SparkSession) -> Iterator[tuple[DataFrame, int, int]]:
        """All rows, read in parallel in many read views, some chunks at a time: tuples of (`columns` and `_seq`; chunks
        done once these are read; chunks in all)."""
        ...

    def at_once(self, spark: SparkSession, keys: Sequence[Mapping[str, Any]] | None) -> DataFrame:
        """The rows with these keys, and possibly more, read in one read view: `columns` and `_seq`. None reads all
        rows."""
        ...

    def explain(self, error: BaseException) -> SourceError | None:
        """The typed error for what Spark raised while it read."""
        ...


@runtime_checkable
class Comparable(Protocol):
    """A source whose table can be read again beside its log."""

    def comparison(self, position: SourcePosition) -> Comparison:
        """Raises SourceError where the changelog is no image of the table."""
        ...


class Connector(Protocol):
    """What an entry point of the group `tidegate.connectors` names."""

    @property
    def spec(self) -> ConnectorSpec: ...

    def source(self, context: SourceContext) -> Source:
        """A reader of one table. Opens no connection yet."""
        ...
