"""The table as it is now, read as a snapshot is, to be compared with the changelog."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from tidegate.pipelines.connectors.protocol import LogPlace, SourceContext, StoredStep
from tidegate.pipelines.errors import SourceError
from tidegate.pipelines.sources.mysql_cdc.binlog.model import BinlogPosition
from tidegate.pipelines.sources.mysql_cdc.catalog import Server, SourceTable
from tidegate.pipelines.sources.mysql_cdc.chunks import Chunk, plan_bounds
from tidegate.pipelines.sources.mysql_cdc.connection import Session
from tidegate.pipelines.sources.mysql_cdc.declared import declared_rows
from tidegate.pipelines.sources.mysql_cdc.failures import explain
from tidegate.pipelines.sources.mysql_cdc.key import KeyColumn
from tidegate.pipelines.sources.mysql_cdc.log import resnapshot
from tidegate.pipelines.sources.mysql_cdc.options import MysqlOptions
from tidegate.pipelines.sources.mysql_cdc.retention import position_after
from tidegate.pipelines.sources.mysql_cdc.snapshot.cut import CutRule
from tidegate.pipelines.sources.mysql_cdc.snapshot.plan import STEP_CHUNKS, declared_columns
from tidegate.pipelines.sources.mysql_cdc.snapshot.query import WHOLE, SnapshotQuery
from tidegate.pipelines.sources.mysql_cdc.snapshot.reading import Work
from tidegate.pipelines.sources.mysql_cdc.snapshot.rows import read_chunks
from tidegate.pipelines.sources.mysql_cdc.snapshot.view import reader
from tidegate.pipelines.sources.mysql_cdc.steps import LOG_EPOCH, step_of
from tidegate.pipelines.sources.mysql_cdc.types import quote


class MysqlComparison:
    """`tidegate.pipelines.connectors.protocol.Comparison`.

    Raises SourceError where the changelog is no image of the table.
    """

    def __init__(
        self,
        session: Session,
        options: MysqlOptions,
        context: SourceContext,
        server: Server,
        found: SourceTable,
        rule: CutRule,
    ) -> None:
        if options.startup.mode != "initial":
            raise SourceError(
                f"the changelog of {context.table.name} is no image of the table: 'scan.startup.mode' is "
                f"{options.startup.mode}, so it holds only what changed, or what was there, at some time",
                where=options.where,
                state="nothing was read",
                next_command="reconcile tables of 'scan.startup.mode' = 'initial' (the default)",
            )
        self._session, self._options, self._context, self._rule, self._found = session, options, context, rule, found
        self.exact = rule.exact
        self._source = declared_columns(found, context.table)
        self.columns = [column.name for column in context.table.physical_columns if column.metadata is None]
        gone = sorted({*self.columns} - {column.name for column in self._source})
        if gone:
            raise SourceError(
                f"the table has no column {', '.join(gone)} any more, and the changelog says what was in it",
                where=options.where,
                state="nothing was read",
                next_command=f"{resnapshot(context.table.name)}, after the column is taken out of the script",
            )
        self._reader = reader(options, server.isolation_variable)

    def low(self) -> LogPlace:
        with self._session.cursor() as cursor:
            return _place(self._rule.start(cursor))

    def high(self) -> LogPlace:
        with self._session.cursor() as cursor:
            return _place(self._rule.after(cursor))

    def after(self, step: StoredStep) -> LogPlace:
        return _place(position_after(step_of(step.step.ranges)))

    def batches(self, spark: SparkSession) -> Iterator[tuple[DataFrame, int, int]]:
        name, key = f"{quote(self._options.database)}.{quote(self._options.table)}", self._found.snapshot_key
        with self._session.cursor() as cursor:
            rows, size = self._found.rows, self._options.chunk_rows
            bounds = [None, *plan_bounds(cursor, name, key, rows, size, self._context.progress)]
        pairs = zip(bounds, [*bounds[1:], None], strict=True)
        chunks = [Chunk(ordinal, lower, upper) for ordinal, (lower, upper) in enumerate(pairs)]
        for first in range(0, len(chunks), STEP_CHUNKS):
            batch = chunks[first : first + STEP_CHUNKS]
            read = read_chunks(spark, Work.of(self._reader, self._query(), batch))
            yield self._declared(read), first + len(batch), len(chunks)

    def at_once(self, spark: SparkSession, keys: Sequence[Mapping[str, Any]] | None) -> DataFrame:
        condition = "TRUE" if keys is None else self._condition(keys)
        return self._declared(read_chunks(spark, Work.of(self._reader, self._query(), [WHOLE], condition)))

    def explain(self, error: BaseException) -> SourceError | None:
        return explain(error, self._context.table.name, "reading the table again", self._options.where)

    def _query(self) -> SnapshotQuery:
        with self._session.cursor() as cursor:
            cut_columns = self._rule.columns(cursor, self._rule.start(cursor))
        return SnapshotQuery(
            database=self._options.database,
            table=self._options.table,
            columns=self._source,
            key=self._found.snapshot_key,
            cut_columns=cut_columns,
            log=LOG_EPOCH,
            exact=frozenset(self._context.table.primary_key),
        )

    def _declared(self, rows: DataFrame) -> DataFrame:
        declared = declared_rows(rows, self._context.table, self._source, self._options)
        return declared.select("_seq", *[quote(name) for name in self.columns])

    def _condition(self, keys: Sequence[Mapping[str, Any]]) -> str:
        """The server's SQL that holds for the rows with these keys; for all rows where keys cannot be written."""
        literals = [self._literals(key) for key in keys]
        if any(literal is None for key in literals for literal in key.values()):
            return "TRUE"
        names = list(self._context.table.primary_key)
        if len(names) == 1:
            listed = ", ".join(str(key[names[0]]) for key in literals)
            return f"{quote(names[0])} IN ({listed})" if literals else "FALSE"
        terms = [" AND ".join(f"{quote(name)} = {key[name]}" for name in names) for key in literals]
        return " OR ".join(f"({term})" for term in terms) or "FALSE"

    def _literals(self, key: Mapping[str, Any]) -> dict[str, str | None]:
        return {name: self._literal(name, key[name]) for name in self._context.table.primary_key}

    def _literal(self, name: str, value: Any) -> str | None:
        """A key's value as the server's SQL. A text is compared by the column's collation: that may find more."""
        described = self._found.column(name)
        column = described and KeyColumn.of(
            name, described.data_type, described.charset, self._found.collations.get(described.name)
        )
        if column is None:
            return None
        if column.kind == "number" and not isinstance(value, bool):
            return column.literal(str(value))
        if column.kind == "text" and isinstance(value, str):
            return f"_utf8mb4 X'{value.encode().hex()}'"
        if column.kind == "bytes" and isinstance(value, bytes | bytearray):
            return f"X'{value.hex()}'"
        return None


def _place(position: BinlogPosition) -> LogPlace:
    return LogPlace(*position.order, str(position))
