"""Reads a chunk into Arrow batches: what an executor does, without Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pymysql

from tidegate.pipelines.connectors.spec import SOURCE_COLUMNS
from tidegate.pipelines.sources.mysql_cdc.binlog.rows.columns.values import array_of
from tidegate.pipelines.sources.mysql_cdc.binlog.rows.output import ARROW, SEQ
from tidegate.pipelines.sources.mysql_cdc.chunks import Chunk
from tidegate.pipelines.sources.mysql_cdc.errors import MEND_DATES, RETRY, no_such_date
from tidegate.pipelines.sources.mysql_cdc.snapshot.canonical import canonical_array
from tidegate.pipelines.sources.mysql_cdc.snapshot.errors import SnapshotError, UnreadableKey, typed
from tidegate.pipelines.sources.mysql_cdc.snapshot.query import SnapshotQuery
from tidegate.pipelines.sources.mysql_cdc.snapshot.results import select, values_of
from tidegate.pipelines.sources.mysql_cdc.snapshot.view import Reader, ReadView, read_view
from tidegate.pipelines.sources.mysql_cdc.types import canonical

SNAPSHOT_PHASE = 0
_MICROSECONDS = 1_000_000


@dataclass(frozen=True)
class Work:
    """What chunks are read by; pickled to the executors, the password with it, and shown nowhere.

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


def schema_of(query: SnapshotQuery) -> pa.Schema:
    """Of the batches: SOURCE_COLUMNS, then the table's columns in their canonical types."""
    columns = [pa.field(column.name, canonical(column).arrow) for column in query.columns]
    return pa.schema([*(pa.field(name, ARROW[name]) for name in SOURCE_COLUMNS), *columns])


def read_chunk(work: Work, number: int) -> Iterator[pa.RecordBatch]:
    """The rows of one of the chunks in batches of about `packets.PIECE_BYTES`, each with the cut of its own read view.

    Raises what `errors` lists; each error names the table and the chunk.
    """
    query, chunk, schema, first = work.query, work.chunks[number], schema_of(work.query), 0
    try:
        with read_view(work.reader, query.cut_columns) as view:
            found, pieces = select(view.connection, work.selects[number])
            for piece in pieces:
                values = zip(values_of(piece, found), found, query.columns, strict=True)
                columns = [canonical_array(*each) for each in values]
                _require_keys(query, columns)
                count = len(piece.starts)
                yield pa.RecordBatch.from_arrays(
                    [*_source_columns(query.log, chunk, view, first, count), *columns], schema=schema
                )
                first += count
    except SnapshotError as error:
        raise type(error)(
            error.what, where=f"{chunk.name} of {query}", state=error.state, next_command=error.next_command
        ) from error
    except (pymysql.err.MySQLError, OSError) as error:
        raise typed(error, f"{chunk.name} of {query}") from error


def _require_keys(query: SnapshotQuery, columns: Sequence[pa.Array]) -> None:
    """A column of the key is never NULL on the server: here it is where its date does not exist."""
    for column, values in zip(query.columns, columns, strict=True):
        if column.name in query.exact and values.null_count:
            raise UnreadableKey(no_such_date(column.name), next_command=MEND_DATES + RETRY)


def _source_columns(log: int, chunk: Chunk, view: ReadView, first: int, count: int) -> list[pa.Array]:
    """The source's own columns of `count` rows of a chunk, `first` of which came before.

    `_rowtime` is the second in which the chunk's connection was made, just before its read view was opened: the row was
    like this at that time, nobody knows since when. `_seq` holds the cut. `_offset` numbers a chunk's rows.
    """
    parts = {"phase": SNAPSHOT_PHASE, "log": log, "file": view.file, "position": view.position, "row": 0}
    seq = [pa.repeat(pa.scalar(parts[part.name], part.type), count) for part in SEQ]
    began = pa.scalar(view.began_s * _MICROSECONDS, pa.int64()).cast(ARROW["_rowtime"])
    columns = {
        "_op": pa.repeat("r", count),
        "_seq": pa.StructArray.from_arrays(seq, fields=list(SEQ)),
        "_rowtime": pa.repeat(began, count),
        "_split": pa.repeat(chunk.name, count),
        "_offset": array_of(pa.int64(), np.arange(first, first + count), None),
    }
    return [columns[name] for name in SOURCE_COLUMNS]
