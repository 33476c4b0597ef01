"""The table as it is now, read as a snapshot is, to be compared with the changelog."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Generic

from pyspark.sql import DataFrame, SparkSession

from tidegate.pipelines.connectors.protocol import LogPlace, StoredStep
from tidegate.pipelines.errors import SourceError
from tidegate.pipelines.sources.cdc.chunks import WHOLE, Chunk, chunks_between
from tidegate.pipelines.sources.cdc.database import (
    ChunkReader,
    Column,
    Database,
    P,
    Position,
    SourceTable,
)
from tidegate.pipelines.sources.cdc.errors import explain, resnapshot
from tidegate.pipelines.sources.cdc.rows import declared_rows, read_chunks
from tidegate.pipelines.sources.cdc.snapshot import STEP_CHUNKS, declared_columns
from tidegate.pipelines.syntax.types import quoted


class TableComparison(Generic[P]):
    """`tidegate.pipelines.connectors.protocol.Comparison`. `found` is the table as the server has it.

    Raises SourceError where the changelog is no image of the table.
    """

    def __init__(self, source: Database[P, Any, Any], found: SourceTable) -> None:
        self._source, self._found = source, found
        self._settings, self._table = source.settings, source.context.table
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
        self.columns = [column.name for column in self._table.physical_columns if column.metadata is None]
        gone = sorted({*self.columns} - {column.name for column in self._described})
        if gone:
            raise SourceError(
                f"the table has no column {', '.join(gone)} any more, and the changelog says what was in it",
                where=self._settings.where,
                state="nothing was read",
                next_command=resnapshot(self._table.name) + ", after the column is taken out of the script",
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
        place, zone = self._settings.place, self._settings.time_zone
        declared = declared_rows(rows, self._table, self._described, place, zone)
        return declared.select("_seq", *[quoted(name) for name in self.columns])

    def condition(self, keys: Sequence[Mapping[str, Any]]) -> str:
        """The server's SQL that holds for the rows with these keys; for all rows where keys cannot be written."""
        names, quote = list(self._table.primary_key), self._source.quote
        literals = [{name: self._source.literal(self._found, name, key[name]) for name in names} for key in keys]
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
