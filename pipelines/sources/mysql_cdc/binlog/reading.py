"""Ranges of the binlog: as batches, wherever that is, and as a frame of Spark, whose tasks read one range each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from tidegate.pipelines.frames import by_number
from tidegate.pipelines.sources.mysql_cdc.binlog.decoder import Decoder
from tidegate.pipelines.sources.mysql_cdc.binlog.events import CHUNK_BYTES, Chunk
from tidegate.pipelines.sources.mysql_cdc.binlog.model import BinlogRange, WantedTable
from tidegate.pipelines.sources.mysql_cdc.binlog.rows.table_reader import spark_schema_of
from tidegate.pipelines.sources.mysql_cdc.binlog.spool import Spool
from tidegate.pipelines.sources.mysql_cdc.binlog.transport import connect, dump, facts
from tidegate.pipelines.sources.mysql_cdc.connection import ServerOptions
from tidegate.pipelines.sources.mysql_cdc.errors import BinlogEnded, BinlogError, SpoolDamaged


def read_binlog(
    spark: SparkSession,
    server: ServerOptions,
    ranges: Sequence[BinlogRange],
    table: WantedTable,
    spool: Spool | None = None,
) -> DataFrame:
    """The changes of `table` in `ranges`: its canonical columns and SOURCE_COLUMNS. One Spark task a range.

    Reading happens when the rows are written. An error of the binlog then comes as Spark's, with its whole text inside;
    `errors.find` gets the typed one back.
    """
    ids = server.server_ids

    def rows(number: int) -> Iterator[pa.RecordBatch]:
        server_id = ids[number] if number < len(ids) else 0
        return read_range(server, ranges[number], table, server_id=server_id, spool=spool)

    return by_number(spark, rows, len(ranges), spark_schema_of(table), len(ranges))


def read_range(
    server: ServerOptions,
    span: BinlogRange,
    table: WantedTable,
    *,
    server_id: int = 0,
    chunk_bytes: int = CHUNK_BYTES,
    spool: Spool | None = None,
) -> Iterator[pa.RecordBatch]:
    """The changes of `table` in the transactions that begin in `span`, in binlog order; see `table_reader.schema_of`.

    Memory holds one chunk and its batch, however long a transaction is. With a `spool` the server is asked for the
    range only if no other table has read it before. Raises what `errors` lists; each error names file and position.
    """
    if span.start == span.end:
        return
    connection = connect(server)
    known = facts(connection)
    decoder = Decoder(table, known.collations, start=span.start, end=span.end, lower=known.lower)
    with ExitStack() as stack:
        stored, recording = spool.stored(span) if spool else None, None
        if stored is not None:
            connection.close()
            chunks: Iterator[Chunk] = stack.enter_context(closing(stored))
        else:
            read = dump(server, span.start, server_id=server_id, chunk_bytes=chunk_bytes, connection=connection)
            chunks = stack.enter_context(closing(read))
            if spool is not None:
                recording = stack.enter_context(spool.recording(span))
                chunks = recording.through(chunks)
        try:
            for chunk in chunks:
                yield from decoder.feed(chunk)
                if decoder.done:
                    if recording is not None:
                        recording.finish()
                    return
        except BinlogError as error:
            where = error.where or str(decoder.place)
            raise error.at(where if str(table) in where else f"{where}, {table}") from error
    if spool is not None and stored is not None:
        spool.forget(span)
        raise SpoolDamaged(f"what another table left of the binlog ends before {span}", where=_where(decoder, table))
    raise BinlogEnded(
        f"the server's binlog ends at {decoder.place}, before the end of the range {span}", where=_where(decoder, table)
    )


def _where(decoder: Decoder, table: WantedTable) -> str:
    return f"{decoder.place}, {table}"
