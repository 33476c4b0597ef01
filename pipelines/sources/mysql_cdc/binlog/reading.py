"""Reads one range of a server's binlog into Arrow batches: what an executor does, without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing

import pyarrow as pa

from tidegate.pipelines.sources.mysql_cdc.binlog.decoder import Decoder, OnChange
from tidegate.pipelines.sources.mysql_cdc.binlog.model import BinlogRange, ServerOptions, WantedTable
from tidegate.pipelines.sources.mysql_cdc.binlog.spool import Spool
from tidegate.pipelines.sources.mysql_cdc.binlog.transport import connect, dump, facts
from tidegate.pipelines.sources.mysql_cdc.binlog.wire.framing import CHUNK_BYTES, Chunk
from tidegate.pipelines.sources.mysql_cdc.errors import BinlogEnded, BinlogError, SpoolDamaged


def read_range(
    server: ServerOptions,
    span: BinlogRange,
    table: WantedTable,
    *,
    server_id: int = 0,
    chunk_bytes: int = CHUNK_BYTES,
    on_change: OnChange | None = None,
    spool: Spool | None = None,
) -> Iterator[pa.RecordBatch]:
    """The changes of `table` in the transactions that begin in `span`, in binlog order; see `output.schema_of`.

    Memory holds one chunk and its batch, however long a transaction is. With a `spool` the server is asked for the
    range only if no other table has read it before. Raises what `errors` lists; each error names file and position.
    """
    if span.start == span.end:
        return
    connection = connect(server)
    known = facts(connection)
    decoder = Decoder(
        [table],
        known.collations,
        log=span.log,
        start=span.start,
        end=span.end,
        fold_case=known.fold_case,
        on_change=on_change,
    )
    with ExitStack() as stack:
        kept, recording = spool.kept(span) if spool else None, None
        if kept is not None:
            connection.close()
            chunks: Iterator[Chunk] = stack.enter_context(closing(kept))
        else:
            read = dump(server, span.start, server_id=server_id, chunk_bytes=chunk_bytes, connection=connection)
            chunks = stack.enter_context(closing(read))
            if spool is not None:
                recording = stack.enter_context(spool.recording(span))
                chunks = recording.through(chunks)
        try:
            for chunk in chunks:
                for _, batch in decoder.feed(chunk):
                    yield batch
                if decoder.done:
                    if recording is not None:
                        recording.finish()
                    return
        except BinlogError as error:
            raise _located(error, decoder, table) from error
    if spool is not None and kept is not None:
        spool.forget(span)
        raise SpoolDamaged(f"what another table left of the binlog ends before {span}", where=_where(decoder, table))
    raise BinlogEnded(
        f"the server's binlog ends at {decoder.place}, before the end of the range {span}", where=_where(decoder, table)
    )


def _where(decoder: Decoder, table: WantedTable) -> str:
    return f"{decoder.place}, {table}"


def _located(error: BinlogError, decoder: Decoder, table: WantedTable) -> BinlogError:
    """The same error, with the place where it is missing and the table that was read."""
    where = error.where or str(decoder.place)
    if str(table) not in where:
        where = f"{where}, {table}"
    return type(error)(error.what, where=where, state=error.state, next_command=error.advice)
