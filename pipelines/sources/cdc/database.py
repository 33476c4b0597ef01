"""What one kind of database adds to change capture, as protocols: positions, columns, keys, cuts, a reader of chunks.

The rest that differs (the first and the next piece of the log, its rows) is abstract in `source.CdcSource`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import pyarrow as pa

from tidegate.pipelines.sources.cdc.chunks import Chunk, SnapshotKey
from tidegate.pipelines.sources.cdc.types import CanonicalType


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
        """A cursor of PEP 249, connected when it is first needed; what goes wrong with it is raised as SourceError."""
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
        """The type that snapshot and log both give. Raises PlanningError where neither can read it."""
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
    """How one kind of database tells where a read view stands in its log.

    `exact`: every row carries the position of its own read view. Otherwise rows carry a position that the view surely
    has reached, and the chunk's cut is one that it surely has not passed: reading the log between the two again changes
    nothing, since a later change of a key wins.
    """

    exact: bool

    def start(self, cursor: Any) -> P_co:
        """A position that every read view opened from now on has reached."""
        ...

    def after(self, cursor: Any) -> P_co:
        """A position that no read view which was opened before has passed."""
        ...


class ChunkReader(Protocol):
    """Reads chunks without Spark, each in a read view of its own. Pickled to the executors, with what connects it."""

    @property
    def chunks(self) -> Sequence[Chunk]: ...

    @property
    def columns(self) -> Sequence[Column]: ...

    def read(self, number: int) -> Iterator[pa.RecordBatch]:
        """The rows of one of the chunks: SOURCE_COLUMNS, then `columns` in their canonical types; each row with the
        cut of its own read view. Raises SnapshotError that names the table and the chunk."""
        ...
