"""The binlog as a Spark Python Data Source: each range is a partition, read on an executor, handed over as Arrow.

The ranges and the table travel as options, which plans and logs show. The server does not: a class of its own is made
for it and registered once per session, so its password is part of what Spark ships to the executors and of nothing
that is printed.
"""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from typing import Any
from weakref import WeakKeyDictionary

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from tidegate.pipelines.sources.mysql_cdc.binlog.decoder import Decoder, OnChange
from tidegate.pipelines.sources.mysql_cdc.binlog.model import BinlogRange, WantedTable
from tidegate.pipelines.sources.mysql_cdc.binlog.rows.table_reader import spark_schema_of
from tidegate.pipelines.sources.mysql_cdc.binlog.spool import Spool
from tidegate.pipelines.sources.mysql_cdc.binlog.transport import connect, dump, facts
from tidegate.pipelines.sources.mysql_cdc.binlog.wire.framing import CHUNK_BYTES, Chunk
from tidegate.pipelines.sources.mysql_cdc.connection import ServerOptions
from tidegate.pipelines.sources.mysql_cdc.errors import BinlogEnded, BinlogError, SpoolDamaged

NAME = "tidegate_binlog"

_registered: WeakKeyDictionary[SparkSession, dict[ServerOptions, str]] = WeakKeyDictionary()
_numbers = itertools.count(1)
_lock = threading.Lock()


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
    source = spark.read.format(_source_of(spark, server))
    source = source.option("ranges", json.dumps([span.to_json() for span in ranges]))
    if spool is not None:
        source = source.option("spool", json.dumps(spool.to_json()))
    return source.option("table", json.dumps(table.to_json())).load()


def _source_of(spark: SparkSession, server: ServerOptions) -> str:
    """The name by which this session knows the data source of `server`."""
    with _lock:
        names = _registered.setdefault(spark, {})
        if server not in names:
            name = f"{NAME}_{next(_numbers)}"
            spark.dataSource.register(_bound(server, name))
            names[server] = name
        return names[server]


def _bound(server: ServerOptions, name: str) -> type[DataSource]:
    """A data source that knows its server. Made in a function, so that it is pickled whole, the server with it."""

    class BoundBinlogSource(BinlogSource):
        @property
        def server(self) -> ServerOptions:
            return server

        @classmethod
        def name(cls) -> str:
            return name

    return BoundBinlogSource


class BinlogSource(DataSource):
    """What Spark asks. Options: `ranges` and `table`, JSON of the dataclasses of `model`; `spool`, JSON of a Spool."""

    @property
    def server(self) -> ServerOptions:
        """Which server; said by the class that is registered."""
        raise TypeError(f"{NAME} is registered for one server at a time: use read_binlog")

    @classmethod
    def name(cls) -> str:
        return NAME

    @property
    def table(self) -> WantedTable:
        return WantedTable.from_json(json.loads(self.options["table"]))

    def schema(self) -> str:
        return spark_schema_of(self.table)

    def reader(self, schema: StructType) -> DataSourceReader:
        ranges = [BinlogRange.from_json(span) for span in json.loads(self.options["ranges"])]
        spool = Spool.from_json(json.loads(self.options["spool"])) if "spool" in self.options else None
        return BinlogReader(self.server, ranges, self.table, spool)


class BinlogReader(DataSourceReader):
    """Reads ranges. Pickled to the executors."""

    def __init__(
        self, server: ServerOptions, ranges: Sequence[BinlogRange], table: WantedTable, spool: Spool | None = None
    ) -> None:
        self._server, self._ranges, self._table, self._spool = server, ranges, table, spool

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(ordinal) for ordinal in range(len(self._ranges))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        ordinal: Any = partition.value
        if ordinal is None:  # Spark makes such a partition where there are no ranges
            return iter(())
        ids = self._server.server_ids
        server_id = ids[ordinal] if ordinal < len(ids) else 0
        return read_range(self._server, self._ranges[ordinal], self._table, server_id=server_id, spool=self._spool)


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
                for _, batch in decoder.feed(chunk):
                    yield batch
                if decoder.done:
                    if recording is not None:
                        recording.finish()
                    return
        except BinlogError as error:
            raise _located(error, decoder, table) from error
    if spool is not None and stored is not None:
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
