"""Columns of a source that no record has had a field for: a name that is spelt otherwise, as a rule.

They are looked for once a generation, in the first epoch that has rows, and only if a column is NULL in all of these.
The epoch's row of the watermark log has what was found; later rows have what of it still holds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from tidegate.pipelines.text import counted

if TYPE_CHECKING:
    import pyarrow.parquet as pq
    from pyspark.sql import SparkSession

    from tidegate.pipelines.connectors.protocol import Source, StoredStep
    from tidegate.pipelines.connectors.table import Table
    from tidegate.pipelines.lake import WatermarkRow

SHOWN = 20
"""So many names of fields are stored."""


@dataclass(frozen=True)
class MissingFields:
    """Columns that are NULL in every row so far, and of which no record had the field.

    Attributes:
        columns: column -> its field's name.
        seen: the fields that records had, the first ones; `more`: how many others.
        records: how many records were looked at; 0 for all.
    """

    columns: Mapping[str, str]
    seen: tuple[str, ...]
    more: int = 0
    records: int = 0

    @classmethod
    def of(cls, row: WatermarkRow | None) -> Self | None:
        """What a row of the watermark log has; None for nothing."""
        stored = row.missing if row is not None else None
        if not stored:
            return None
        return cls(stored["columns"], tuple(stored["seen"]), stored["more"], stored["records"])

    def to_json(self) -> dict[str, Any]:
        return {
            "columns": dict(self.columns), "seen": list(self.seen), "more": self.more, "records": self.records
        }  # fmt: skip

    def sentence(self, table: str) -> str:
        """For people: what is missing in `table`, and what there is instead."""
        of = [name if name == field else f"{field} (column {name})" for name, field in self.columns.items()]
        more = f" and {self.more} more" if self.more else ""
        among = f"the fields of the first {counted(self.records, 'record')}" if self.records else "there are"
        one = len(of) == 1
        return (
            f"no record of {table} had {'a field' if one else 'the fields'} {', '.join(of)}, so "
            f"{'the column is' if one else 'these columns are'} NULL in every row so far; {among}: "
            f"{', '.join(self.seen) or 'none'}{more}"
        )


def all_null(footers: Collection[pq.FileMetaData], names: Iterable[str]) -> set[str]:
    """Those columns that are NULL in every row of the Parquet files, as far as their footers say so; an ARRAY or a MAP
    also where it is empty everywhere."""
    found = set(names)
    for footer in footers:
        for group in map(footer.row_group, range(footer.num_row_groups)):
            for chunk in map(group.column, range(group.num_columns)):
                name = chunk.path_in_schema.partition(".")[0]
                known = chunk.statistics
                if name in found and not (known is not None and known.has_null_count and _is_null(known, chunk)):
                    found.discard(name)
    return found


def _is_null(known: pq.Statistics, chunk: pq.ColumnChunkMetaData) -> bool:
    return known.null_count == chunk.num_values


def missing(
    before: MissingFields | None,
    null: Collection[str],
    table: Table,
    source: Source,
    spark: SparkSession,
    step: StoredStep,
    *,
    first: bool,
) -> MissingFields | None:
    """What is missing once `step` has landed some rows, in which the columns `null` are NULL everywhere. `before`: what
    was missing before; `first`: no row had landed before. Raises what the source raises."""
    from tidegate.pipelines.connectors.protocol import ShowsFields  # a status does without it

    if not first:
        left = {name: field for name, field in before.columns.items() if name in null} if before else {}
        return MissingFields(left, before.seen, before.more, before.records) if before and left else None
    open_ = [column for column in table.message_columns if column.name in null]
    if not open_ or not isinstance(source, ShowsFields):
        return None
    found = source.fields(spark, step)
    lacking = [column for column in open_ if column.name not in found.columns]
    columns = {column.name: found.asked.get(column.name, column.source_name) for column in lacking}
    if not columns:
        return None
    return MissingFields(columns, found.names[:SHOWN], max(len(found.names) - SHOWN, 0), found.records)
