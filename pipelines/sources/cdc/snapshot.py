"""The bounded phase: all chunks are planned at once and read in batches as Spark frames, one task a chunk; it ends at
the greatest of their cuts. A comparison with the current table reads the same way."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Generic

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidegate.pipelines.commands import NextCommand, then
from tidegate.pipelines.connectors.protocol import Json, LogPlace, SourceContext, StoredStep
from tidegate.pipelines.connectors.spec import SOURCE_COLUMNS
from tidegate.pipelines.connectors.table import Column as DeclaredColumn
from tidegate.pipelines.connectors.table import Table
from tidegate.pipelines.errors import SourceError
from tidegate.pipelines.frames import by_number
from tidegate.pipelines.sources.cdc.changelog import cast_to_declared
from tidegate.pipelines.sources.cdc.chunks import WHOLE, Bound, Chunk, SnapshotKey, chunk_name, chunks_between
from tidegate.pipelines.sources.cdc.database import (
    ChunkReader,
    Column,
    Database,
    P,
    Position,
    S,
    Settings,
    SourceTable,
)
from tidegate.pipelines.sources.cdc.errors import explain, resnapshot
from tidegate.pipelines.syntax.types import quoted


def read_chunks(spark: SparkSession, reader: ChunkReader) -> DataFrame:
    """The rows of the chunks: SOURCE_COLUMNS, and the columns in their canonical types.

    Reading happens when the rows are written; the read view of a chunk is opened by its own task. An error then comes
    as Spark's, with its whole text inside; `errors.find` gets the typed one back.
    """
    columns = {**SOURCE_COLUMNS, **{quoted(column.name): column.canonical.spark for column in reader.columns}}
    schema = ", ".join(f"{name} {kind}" for name, kind in columns.items())
    count = len(reader.chunks)
    return by_number(spark, reader.read, count, schema, count)


def declared_rows(rows: DataFrame, table: Table, columns: Sequence[Column], settings: Settings) -> DataFrame:
    """`rows` with the declared columns of `table` under their declared names, in their types and order. `columns`
    describe what `rows` has, under the names of the source."""
    source = {column.name: column for column in columns}
    values = [_value(column, source, settings) for column in table.physical_columns]
    return rows.select(*SOURCE_COLUMNS, *values)


def _value(column: DeclaredColumn, source: dict[str, Column], settings: Settings) -> SparkColumn:
    if column.metadata in ("database_name", "table_name"):
        database, name = settings.place
        value = F.when(F.col("_op") != "t", F.lit(database if column.metadata == "database_name" else name))
    elif column.metadata == "op_ts":
        value = F.when(F.col("_op") != "r", F.col("_rowtime"))
    else:
        name = column.source_name
        have = source[name].canonical
        value = F.expr(cast_to_declared(quoted(name), have, column.spark_type, settings.time_zone, name))
    return value.cast(column.spark_type).alias(column.name)


STEP_ROWS = 1_000_000
"""Rows of chunks in one step, about: 1M rows took 2.8 s in one step, 3.0 s in two, 3.6 s in four."""
STEP_CHUNKS = 64
"""Chunks in one step at most: each has a connection and a row of the `splits` table, and a crash costs a step."""


def declared_columns(found: SourceTable, table: Table) -> tuple[Any, ...]:
    """The columns of `table` (`Table.as_in_source`) as the server describes them, under the names of the table."""
    described = [(column.name, found.column(column.name)) for column in table.message_columns]
    return tuple(replace(column, name=name) for name, column in described if column is not None)


def new_splits(key: SnapshotKey, bounds: Sequence[Bound]) -> list[Json]:
    """The rows of the `splits` table for chunks with these lower bounds, and a first one without."""
    # The first chunk has no lower bound; it holds the key whose values the other bounds are.
    first = {"split": chunk_name(0), "ordinal": 0, "detail": {"lower": None, "key": key.to_json()}}
    return [
        first,
        *(
            {"split": chunk_name(ordinal), "ordinal": ordinal, "detail": {"lower": list(bound)}}
            for ordinal, bound in enumerate(bounds, 1)
        ),
    ]


def chunks_of(splits: Sequence[Json]) -> list[Chunk]:
    """The chunks that the `splits` table holds, in order."""
    return chunks_between(row["detail"]["lower"] for row in splits)


def next_batch(before: S, chunk_rows: int) -> S:
    """The batch of chunks, of about `chunk_rows` each, after `before`."""
    batch = max(1, min(STEP_CHUNKS, STEP_ROWS // chunk_rows))
    return replace(before, first=before.last, last=min(before.total, before.last + batch))


def cuts_of(context: SourceContext, where: str) -> list[Json]:
    """The cuts of all chunks. Raises SourceError if one is missing, which no run leaves behind."""
    rows = context.splits.rows()
    for row in rows:
        if row["cut"] is None:
            raise SourceError(
                f"{context.table.name}: the cut of {row['split']} is not known",
                where=f"splits table, generation {context.generation}; {where}",
                state="the snapshot's rows are kept, and cannot be trusted to be whole",
                next_command=resnapshot(context.table.name),
            )
    return [row["cut"] for row in rows]


class TableComparison(Generic[P]):
    """See `tidegate.pipelines.connectors.protocol.Comparison`. `found` is the table as the server has it.

    Raises SourceError if the changelog is no image of the table.
    """

    def __init__(self, source: Database[P, Any, Any], found: SourceTable) -> None:
        self._source, self._found = source, found
        self._settings, self._table, self._declared_table = source.settings, source.context.table, source.declared
        if self._settings.mode != "initial":
            raise SourceError(
                f"the changelog of {self._table.name} is no image of the table: 'scan.startup.mode' is "
                f"{self._settings.mode}, so it holds only what changed, or what was there, at some time",
                where=self._settings.where,
                state="nothing was read",
                next_command="reconcile tables of 'scan.startup.mode' = 'initial' (the default)",
            )
        self._rule = source.cut_rule()
        self.exact = self._rule.exact
        self._described: Sequence[Column] = declared_columns(found, self._table)
        self.columns = [column.name for column in self._declared_table.message_columns]
        there = {column.name for column in self._described}
        gone = sorted(column.name for column in self._table.message_columns if column.name not in there)
        if gone:
            raise SourceError(
                f"the table has no column {', '.join(gone)} any more, and the changelog says what was in it",
                where=self._settings.where,
                state="nothing was read",
                next_command=then(
                    "take the column out of the script and of what reads it",
                    NextCommand("run", ("--lake", "DIR"), "in another lake: this one stays as it is"),
                ),
            )

    def low(self) -> LogPlace:
        with self._source.session.cursor() as cursor:
            return _place(self._rule.start(cursor))

    def high(self) -> LogPlace:
        with self._source.session.cursor() as cursor:
            return _place(self._rule.after(cursor))

    def after(self, step: StoredStep) -> LogPlace:
        return _place(self._source.position_after(step))

    def batches(self, spark: SparkSession) -> Iterator[tuple[DataFrame, int, int]]:
        with self._source.session.cursor() as cursor:
            chunks = chunks_between([None, *self._source.bounds(cursor, self._found)])
        for first in range(0, len(chunks), STEP_CHUNKS):
            batch = chunks[first : first + STEP_CHUNKS]
            yield self._declared(read_chunks(spark, self.reader(batch))), first + len(batch), len(chunks)

    def at_once(self, spark: SparkSession, keys: Sequence[Mapping[str, Any]] | None) -> DataFrame:
        condition = "TRUE" if keys is None else self.condition(keys)
        return self._declared(read_chunks(spark, self.reader([WHOLE], condition)))

    def explain(self, error: BaseException) -> SourceError | None:
        return explain(error, self._table.name, "reading the table again", self._settings.where)

    def reader(self, chunks: Sequence[Chunk], condition: str | None = None) -> ChunkReader:
        """Reads these chunks as they are now; with a `condition` (the server's SQL) the rows that it holds for."""
        return self._source.chunk_reader(self._described, self._found.snapshot_key, chunks, condition=condition)

    def _declared(self, rows: DataFrame) -> DataFrame:
        declared = declared_rows(rows, self._declared_table, self._described, self._settings)
        return declared.select("_seq", *[quoted(name) for name in self.columns])

    def condition(self, keys: Sequence[Mapping[str, Any]]) -> str:
        """The server's SQL that holds for the rows with these keys; for all rows where keys cannot be written."""
        names, quote = list(self._table.primary_key), self._source.quote
        declared = dict(zip(names, self._declared_table.primary_key, strict=True))
        literals = [
            {name: self._source.literal(self._found, name, key[declared[name]]) for name in names} for key in keys
        ]
        if any(literal is None for key in literals for literal in key.values()):
            return "TRUE"
        if len(names) == 1:
            listed = ", ".join(str(key[names[0]]) for key in literals)
            return f"{quote(names[0])} IN ({listed})" if literals else "FALSE"
        terms = [" AND ".join(f"{quote(name)} = {key[name]}" for name in names) for key in literals]
        return " OR ".join(f"({term})" for term in terms) or "FALSE"


def _place(position: Position) -> LogPlace:
    file, place = position.order
    return LogPlace(file, place, str(position))
