"""Reads a chunk into Arrow batches: what an executor does, without Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pymysql

from tidegate.pipelines.commands import then
from tidegate.pipelines.sources.cdc.changelog import SOURCE_FIELDS, snapshot_columns
from tidegate.pipelines.sources.cdc.chunks import Chunk
from tidegate.pipelines.sources.cdc.errors import RETRY, SnapshotError, UnreadableKey
from tidegate.pipelines.sources.mysql_cdc.errors import MEND_DATES, no_such_date, typed
from tidegate.pipelines.sources.mysql_cdc.snapshot.canonical import canonical_array
from tidegate.pipelines.sources.mysql_cdc.snapshot.query import SnapshotQuery
from tidegate.pipelines.sources.mysql_cdc.snapshot.results import select, values_of
from tidegate.pipelines.sources.mysql_cdc.snapshot.view import Reader, read_view
from tidegate.pipelines.sources.mysql_cdc.types import SourceColumn


@dataclass(frozen=True)
class Work:
    """`cdc.database.ChunkReader`. Pickled to the executors, the password with it, and shown nowhere.

    `selects` are the SQL of the chunks' rows, one each.
    """

    reader: Reader
    query: SnapshotQuery
    chunks: tuple[Chunk, ...]
    selects: tuple[str, ...]

    @classmethod
    def of(cls, reader: Reader, query: SnapshotQuery, chunks: Sequence[Chunk], condition: str | None = None) -> Work:
        """`condition`: the server's SQL that holds for the wanted rows; None for all."""
        return cls(reader, query, tuple(chunks), tuple(query.rows(chunk, condition) for chunk in chunks))

    def __str__(self) -> str:
        return str(self.query)

    @property
    def columns(self) -> Sequence[SourceColumn]:
        return self.query.columns

    def read(self, number: int) -> Iterator[pa.RecordBatch]:
        """The rows of one of the chunks in batches of about `packets.PIECE_BYTES`, each with the cut of its own read
        view. Raises SnapshotError that names the table and the chunk."""
        query, chunk, first = self.query, self.chunks[number], 0
        schema = pa.schema([*SOURCE_FIELDS, *(pa.field(each.name, each.canonical.arrow) for each in query.columns)])
        try:
            with read_view(self.reader, query.cut_columns) as view:
                found, pieces = select(view.connection, self.selects[number])
                for piece in pieces:
                    values = zip(values_of(piece, found), found, query.columns, strict=True)
                    columns = [canonical_array(*each) for each in values]
                    _require_keys(query, columns)
                    count = len(piece.starts)
                    source = snapshot_columns(chunk.name, (view.file, view.position), view.began_s, first, count)
                    yield pa.RecordBatch.from_arrays([*source, *columns], schema=schema)
                    first += count
        except SnapshotError as error:
            raise type(error)(
                error.what, where=f"{chunk.name} of {query}", state=error.state, next_command=error.advice
            ) from error
        except (pymysql.err.MySQLError, OSError) as error:
            raise typed(error, f"{chunk.name} of {query}") from error


def _require_keys(query: SnapshotQuery, columns: Sequence[pa.Array]) -> None:
    """A column of the key is never NULL on the server: here it is where its date does not exist."""
    for column, values in zip(query.columns, columns, strict=True):
        if column.name in query.exact and values.null_count:
            raise UnreadableKey(no_such_date(column.name), next_command=then(MEND_DATES, RETRY))
