"""What one kind of database adds to change capture: positions, columns, cuts, readers of chunks, steps, its log."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

import pyarrow as pa

from tidegate.pipelines.connectors.protocol import Json, Landed, PlanRequest, SourceContext, SourcePosition, StoredStep
from tidegate.pipelines.sources.cdc.changelog import CanonicalType
from tidegate.pipelines.sources.cdc.chunks import Chunk, SnapshotKey, plan_bounds

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class Settings:
    """What every database's connector takes.

    Attributes:
        where: the server and the table, for people.
        place: the names of the database and of the table.
        mode: 'scan.startup.mode': initial (snapshot, then the log), snapshot (that alone), or a mode without one.
        chunk_rows: about how many rows a chunk has.
        time_zone: where an instant becomes a local time, or the reverse.
    """

    where: str
    place: tuple[str, str]
    mode: str
    chunk_rows: int
    time_zone: str = "UTC"

    @property
    def phases(self) -> bool:
        """Whether a snapshot comes first."""
        return self.mode in ("initial", "snapshot")


class Session(Protocol):
    """The driver's own connection: for planning, positions and checks, never for rows."""

    def cursor(self) -> AbstractContextManager[Any]:
        """A cursor of PEP 249, connected when it is first needed; its errors are raised as SourceError."""
        ...

    def close(self) -> None:
        """Let go of the connection."""
        ...


class Position(Protocol):
    """A place in the database's log."""

    @property
    def order(self) -> tuple[int, int]:
        """Sorts positions of one log; `_seq.file` and `_seq.position` of a changelog's rows."""
        ...

    def to_json(self) -> dict[str, Any]: ...


P = TypeVar("P", bound=Position)
P_co = TypeVar("P_co", bound=Position, covariant=True)


class Column(Protocol):
    """A column as the database describes it, under the script's name."""

    @property
    def name(self) -> str: ...

    @property
    def canonical(self) -> CanonicalType:
        """The type that snapshot and log both give. Raises PlanningError if they cannot read it."""
        ...

    def to_json(self) -> dict[str, Any]: ...


class SourceTable(Protocol):
    """A table as the database describes it."""

    @property
    def rows(self) -> int:
        """How many, by the database's estimate."""
        ...

    @property
    def snapshot_key(self) -> SnapshotKey: ...

    def column(self, name: str) -> Any:
        """The column that the script calls `name`; None where there is none."""
        ...


class CutRule(Protocol[P_co]):
    """How the position of a read view in the log is found, for one kind of database.

    `exact`: every row carries the position of its own read view. Otherwise rows carry a position that the view surely
    includes, and the chunk's cut is one that it surely does not go beyond: reading the log between the two again
    changes nothing, since a later change of a key wins.
    """

    exact: bool

    def start(self, cursor: Any) -> P_co:
        """A position that every read view opened from now on includes."""
        ...

    def after(self, cursor: Any) -> P_co:
        """A position that no read view opened so far goes beyond."""
        ...


class ChunkReader(Protocol):
    """Reads chunks without Spark, each in a read view of its own. Pickled to the executors, with its connection
    settings."""

    @property
    def chunks(self) -> Sequence[Chunk]: ...

    @property
    def columns(self) -> Sequence[Column]: ...

    def read(self, number: int) -> Iterator[pa.RecordBatch]:
        """The rows of one of the chunks: SOURCE_COLUMNS, then `columns` in their canonical types; each row with the
        cut of its own read view. Raises SnapshotError that names the table and the chunk."""
        ...


@dataclass(frozen=True)
class SnapshotStep:
    """Chunks [first, last) of `total`. `start`, a `Position` taken before any chunk was read, is where the log will be
    read from.

    `columns` are the declared ones as the server described them when the generation began. `server`: the server's own
    id, if it has one.
    """

    first: int
    last: int
    total: int
    start: Any
    key: SnapshotKey
    columns: tuple[Column, ...]
    server: str = ""

    @property
    def done(self) -> bool:
        """Whether it holds the last chunk."""
        return self.last >= self.total

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": "snapshot",
            "first": self.first,
            "last": self.last,
            "total": self.total,
            "start": self.start.to_json(),
            "key": self.key.to_json(),
            "columns": [column.to_json() for column in self.columns],
            "server": self.server,
        }

    def __str__(self) -> str:
        return f"chunks {self.first + 1}-{self.last} of {self.total}"


S = TypeVar("S", bound=SnapshotStep)


class LogStep(Protocol):
    """A piece of the log. `flip_at`: the step that reaches it flips; None when that is done."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def columns(self) -> Sequence[Column]: ...

    @property
    def empty(self) -> bool: ...

    @property
    def flips(self) -> bool: ...

    def to_json(self) -> Json: ...


L = TypeVar("L", bound=LogStep)


class Database(ABC, Generic[P, S, L]):
    """One table of one kind of database. P: a position in its log; S, L: its steps of the snapshot and of the log.

    `context.table` has its columns under the names of the source, in which everything up to the log's rows goes on;
    `declared` is the table as the script declares it. `log_split`: what `_split` holds of the log's rows. Opens its
    connection when it is first needed.
    """

    log_split: ClassVar[str]

    def __init__(self, context: SourceContext, settings: Settings, session: Session) -> None:
        self.declared = context.table
        self.context = replace(context, table=context.table.as_in_source)
        self.settings = settings
        self.session = session

    def bounds(self, cursor: Any, table: SourceTable) -> Iterator[tuple[str, ...]]:
        """The lower bounds of the table's chunks but the first."""
        name = ".".join(self.quote(part) for part in self.settings.place)
        key, rows, size = table.snapshot_key, table.rows, self.settings.chunk_rows
        return plan_bounds(cursor, name, key, rows, size, self.context.progress)

    @abstractmethod
    def preflight(self, position: SourcePosition) -> None:
        """See `protocol.Source.preflight`."""

    @abstractmethod
    def source_table(self, before: S | L | None) -> SourceTable:
        """The table as the server has it, checked to be readable. `before`: a step that was read; the table may have
        dropped some of its columns since. Raises SourceError."""

    @abstractmethod
    def cut_rule(self) -> CutRule[P]:
        """How the position of a read view in the log is found on this server."""

    @property
    @abstractmethod
    def server_id(self) -> str:
        """The server's own id; empty if it has none."""

    @abstractmethod
    def end(self, cursor: Any) -> P:
        """Where the server's log ends now."""

    @abstractmethod
    def position_of(self, stored: Json) -> P:
        """A position as `to_json` wrote it."""

    @abstractmethod
    def cut_of(self, start: P, place: tuple[int, int]) -> P:
        """The position at `place`, a `Position.order`, in the log of `start`."""

    def stored_cuts(self, cuts: Mapping[str, P]) -> Mapping[str, Json]:
        """The cuts of a batch of chunks as they are stored, by chunk: `position_of` reads one back."""
        return {chunk: cut.to_json() for chunk, cut in cuts.items()}

    @abstractmethod
    def step_of(self, ranges: Json) -> S | L:
        """A plan's ranges, read back."""

    @abstractmethod
    def check_log(self, step: S | L) -> None:
        """Raise SourceError unless the server's log is the log of `step`, and still has what comes after it; until the
        flip it must be the log that the chunks were cut from, too. Called before and after each step."""

    @abstractmethod
    def snapshot_start(self, cursor: Any, total: int, key: Json, columns: Sequence[Any]) -> S:
        """A step before the first of `total` chunks: takes the position that the log will be read from."""

    @abstractmethod
    def log_start(self, cursor: Any, end: P, instant: int) -> L:
        """Where a table without a snapshot begins: nothing read yet, the flip at `end`, the server's end as of
        `instant` (ms, UTC)."""

    @abstractmethod
    def log_after(self, snapshot: S, flip_at: P, began_at: int) -> L:
        """Where the log begins after a snapshot: nothing read yet, the flip at the greatest cut. `began_at` (ms, UTC):
        when the snapshot was planned."""

    @abstractmethod
    def next_piece(self, cursor: Any, before: L, end: P, request: PlanRequest) -> tuple[L | None, int | None]:
        """The step after `before`, up to `end` and at least to the flip; None if nothing is left. Also the time (ms,
        UTC) of the table's next transaction, if the step stops before it for the request's limit."""

    @abstractmethod
    def read_log(self, spark: SparkSession, step: L, stored: StoredStep) -> DataFrame | None:
        """The rows of a step that is not empty, in canonical types."""

    @abstractmethod
    def log_landed(self, step: L, rows: DataFrame | None) -> Landed:
        """How far behind the server is, after the step's commit."""

    @abstractmethod
    def position_after(self, stored: StoredStep) -> P:
        """Where the log is read from after a landed step."""

    @abstractmethod
    def chunk_reader(
        self,
        columns: Sequence[Any],
        key: SnapshotKey,
        chunks: Sequence[Chunk],
        start: P | None = None,
        condition: str | None = None,
    ) -> ChunkReader:
        """A reader of `chunks`, as on executors. `start`: a position that every read view includes; None: the server is
        asked for one. `condition`: the server's SQL for the wanted rows; None for all."""

    @abstractmethod
    def quote(self, name: str) -> str:
        """`name` as an identifier of the server's SQL."""

    @abstractmethod
    def literal(self, table: Any, column: str, value: Any) -> str | None:
        """The server's SQL for the value of a key's column; None if it cannot be written. It may select more rows."""
