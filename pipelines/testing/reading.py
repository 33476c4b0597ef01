"""Rows of a target without a Spark job, which takes a quarter of a second for a few rows."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.pipelines.lake.by_name import TableState


def by_arrow(table: TableState, names: Collection[str], after: int) -> Sequence[Mapping[str, Any]] | None:
    """The columns `names` of rows after an epoch. None where Arrow may not read the table, or has other values in
    Python than Spark (bytes, TIMESTAMP_LTZ, what is nested). Raises ValueError or OverflowError for a time that Python
    cannot hold."""
    schema = pa.schema(table.schema.to_arrow())
    alike = all(name in schema.names and _is_alike(schema.field(name).type) for name in names)
    if not alike or not table.plain or table.metadata.partition_columns:
        return None
    if not table.files:
        return []
    return table.rows().to_table(columns=list(names), filter=pc.field("_epoch") > after).to_pylist()


def _is_alike(of: pa.DataType) -> bool:
    """Whether Arrow and Spark have the same Python values for a type."""
    kinds = pa.types
    plain = (kinds.is_integer, kinds.is_boolean, kinds.is_floating, kinds.is_decimal, kinds.is_string, kinds.is_date)
    return of.tz is None if kinds.is_timestamp(of) else any(test(of) for test in plain)
