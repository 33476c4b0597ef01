"""What a connector is: one object that says which options it takes, and one that reads a table step by step.

A *step* is a bounded piece of a source table, planned before it is read and never changed after: its `ranges` alone
decide its rows. The runtime stores the step in the `epochs` table, reads it with `Source.read`, appends the rows in one
commit and then calls `Source.landed`. After a crash at any point the stored step is run again.
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
        flips: once this step has landed, the bounded phase is proved to be over. True for one step of a generation at
            most; the runtime keeps the first.
        summary: a short text for people ("chunks 41-60 of 124", "binlog.000003:4711 -> binlog.000004:120").
        quiet: set by the runtime: nothing is read, only time goes on (a split has become idle). `ranges` are those of
            the step before.
        blocked: set by the runtime: the splits that alignment held back when it was planned, and those of
            `Planned.held`.
        next_rowtimes: set by the runtime: `Planned.held` of this step, and of blocked splits what an earlier one has
            stored.
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

    def restate(self, splits: Sequence[Json]) -> None:
        """Store another ordinal and detail of stored splits, of which no row has landed: from now on these count."""
        ...

    def cut(self, cuts: Mapping[str, Json]) -> None:
        """Store the cut of each named split; repeating it is harmless."""
        ...


@dataclass(frozen=True)
class SourceContext:
    """What a source may use. It does not change while the source is open.

    Attributes:
        environment: where `${VAR}` is looked up.
        options: resolved, passwords included, so no repr shows them.
        peers: all source tables of the pipeline, this one among them.
        earlier_rows: returns the committed rows of all earlier steps of a step's generation.
        latest_rows: returns, for rows with keys, the primary key and the `_split` and `_seq` of the last earlier row of
            each key that has one, a delete too. It reads no more of a large table than of a small one.
        answer_within: s: the longest time that the caller waits for any one answer of the server; None: no limit.
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
        ends: what `Source.ends` returned at the run's start; the step goes no further.
        instant: the plan's clock reading (ms, UTC).
        max_rows: about how many rows the step may have ('scan.max-rows-per-epoch'); None: any number.
        blocked: splits of which nothing may be read: watermark alignment (FLIP-182) holds them back. If all splits are
            blocked, the source is not called.
        limit: if the source knows times before it reads rows: no row whose rowtime is past it (ms, UTC) should be in
            the step. None: any may.
        ahead: splits that hold back nobody in their group: of these nothing past the limit may be read. Of any other
            split at least something is read, since the group may wait for it.
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
        step: the next step; None when there is nothing left to read.
        held: by split, the rowtime (ms, UTC) of its next row, if that is past the request's limit and the split stops
            before it.
    """

    step: Step | None = None
    held: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class RetainedUntil:
    """The source surely has what comes after a step until `until` (ms, UTC); it keeps anything for `for_ms`."""

    until: int
    for_ms: int


@dataclass(frozen=True)
class Landed:
    """What `Source.landed` found in a committed step.

    Attributes:
        lag_ms: how far the step's end was behind the source then.
        position: for people.
        watermarks: what the source itself has emitted, by split, in order, for a table that uses it
            (SYSTEM_WATERMARK()). One that goes back is ignored; one that no source may emit is an error (see
            `WatermarkToDataOutput`). None leaves watermarks to the table's strategy.
        splits: all that it reads, also those without rows so far: each holds the table's watermark until it has emitted
            one, and goes on after the bounded phase.
        sole_split: the one that it goes on with after a bounded phase without a row, so that an empty table may become
            idle.
        ended: those of which no further row will come.
        kept: how long the source keeps what it has not read yet, if it can be asked only while it is read; other
            sources are `KeepsALog`.
    """

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
    """One table of one connector. `Connector.source` makes a new one for every run, so it keeps no state that matters.
    A class that has this as its base inherits the last two methods: the runtime emits the watermark, and nothing has to
    be closed."""

    def preflight(self, position: SourcePosition) -> None:
        """Check that the source can be read exactly. Raises SourceError whose text names the fix."""
        ...

    def ends(self, position: SourcePosition) -> Json:
        """The ends of all splits now. A run takes them once, at its start, and stops there."""
        ...

    def plan(self, request: PlanRequest) -> Planned:
        """The next step, by the request alone: it must not depend on anything that a restart would lose."""
        ...

    def read(self, spark: SparkSession, step: StoredStep) -> DataFrame:
        """The step's rows: the table's physical columns in their Spark types, and SOURCE_COLUMNS."""
        ...

    def landed(self, step: StoredStep, rows: DataFrame | None) -> Landed:
        """Called after the step's rows are committed (again after a crash), to report what only committed rows show
        (cuts). `rows` are the committed rows of this step; None when none were written, or the source has `asks_rows =
        False`."""
        ...

    def delegate_watermark_periodic_emit(self, on_watermark_emit: Callable[[], None]) -> bool:
        """FLIP-326, SourceReader: return True to own the periodic emit, and call `on_watermark_emit` from `landed`
        when the watermark should be emitted (at the flip). False leaves the emit to the runtime."""
        return False

    def close(self) -> None:
        """Close connections."""


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
        """The typed error for what Spark raised while `step` was read or landed; None if Spark's own message says it as
        well."""
        ...


@dataclass(frozen=True)
class FieldsSeen:
    """The fields of records of a step.

    Attributes:
        columns: the declared columns that some of these records has a field for, whatever its value.
        names: of all fields, in the order in which they come.
        records: how many were looked at; 0 where names are those of all.
        asked: column -> the field that was looked for, where it is not the column's `source_name`.
    """

    columns: frozenset[str]
    names: tuple[str, ...] = ()
    records: int = 0
    asked: Mapping[str, str] = field(default_factory=dict)


@runtime_checkable
class ShowsFields(Protocol):
    """A source whose records may lack a column, which is NULL then, and that can show which fields they have."""

    def fields(self, spark: SparkSession, step: StoredStep) -> FieldsSeen:
        """Of the first records of a step that has landed. Called at most once a generation, if a column is NULL in
        every row."""
        ...


@dataclass(frozen=True)
class LogRetention:
    """How long the source still keeps what comes after the last landed step.

    Attributes:
        left_s: seconds until it may be gone; 0 when it is. None where nothing is removed by age.
        kept_s: seconds that the source keeps anything; None where the source does not say.
        position: how far the table has read, for people.
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
        since: the time of the oldest of it (ms, UTC); None where only reading it would show that.
        of: what holds it, where the unit does not say so ("the server's binlog").
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


@runtime_checkable
class KnowsItsPlace(Protocol):
    """A source of a 'path' that can tell whether what lies there is what it has read, by its own id and by what was
    read of it. A script may then write another path to it. Whether the path is the same or not, `ends` and `read`
    refuse another one by name."""

    def is_the_same(self, position: SourcePosition) -> bool:
        """Whether it is, seen by more than the path. Raises SourceError where it cannot be seen."""
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
    """The object that an entry point of the group `tidegate.connectors` names."""

    @property
    def spec(self) -> ConnectorSpec: ...

    def source(self, context: SourceContext) -> Source:
        """A reader of one table. Opens no connection yet."""
        ...
