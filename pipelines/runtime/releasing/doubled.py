"""Keys that come more than once within an epoch. PRIMARY KEY of a target is Flink's NOT ENFORCED, so such rows are all
published; they are counted in the staged files, whose key columns are read for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.pipelines.location import Location

KEY_TWICE = "rows@key-twice"
"""The fact of an epoch: how many of its new rows (+I) have a key that another one has, but for one row of each key."""


def doubled(files: Iterable[Location], key: Sequence[str]) -> dict[str, int]:
    """The count by its name; nothing where no key is declared, or where Arrow has no groups by its types."""
    if not key:
        return {}
    parts = []
    for path in files:
        with path.parquet() as file:
            if any(pa.types.is_nested(file.schema_arrow.field(name).type) for name in key):
                return {}
            rows = file.read(columns=list(dict.fromkeys([*key, "_op"])))
            parts.append(rows.filter(pc.equal(rows.column("_op"), "+I")).select(list(key)))  # type: ignore[attr-defined]
    return {KEY_TWICE: _again(pa.concat_tables(parts)) if parts else 0}


def doubled_by_output(facts: Mapping[str, Any]) -> tuple[int | None, ...]:
    """The counts of both outputs of a staged epoch, in the outputs' order; None where none is declared, or no such
    output."""
    return facts.get(KEY_TWICE), (facts.get("second") or {}).get(KEY_TWICE)


def doubled_rows(facts: Mapping[str, Any]) -> int | None:
    """The count of all outputs of a staged epoch; None where no target declares a key."""
    found = [number for number in doubled_by_output(facts) if number is not None]
    return sum(found) if found else None


def _again(keys: pa.Table) -> int:
    """The rows whose values a row before them has. Whole numbers are sorted, which takes a tenth of grouping them; for
    groups, threads take twice the processor's time."""
    values = keys.column(0)
    if keys.num_columns == 1 and pa.types.is_integer(values.type) and not values.null_count:
        ordered = np.sort(values.to_numpy())
        return int(np.count_nonzero(ordered[1:] == ordered[:-1]))
    return keys.num_rows - keys.group_by(keys.column_names, use_threads=False).aggregate([]).num_rows
