"""Which constraints the rows of staged files violate: how many rows each, and the first of them. The mask was written
with the rows (tidegate.pipelines.joins.outcome). A row group without violations shows so in its footer, and is not
read."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidegate.pipelines.connectors.table import Constraint, Table
from tidegate.pipelines.joins.outcome import MASK, bits
from tidegate.pipelines.location import Location
from tidegate.pipelines.parquet import python_rows, statistics_of

LONGEST = 300
"""Characters of a sample, at most."""
LOOKED_AT = 100
"""How many violating rows of a row group samples are taken from."""


def fact(constraint: Constraint) -> str:
    """The name under which the rows that violate a constraint are counted."""
    return f"violations@{constraint.name}"


def counted(files: Iterable[Location], constraints: Sequence[Constraint]) -> dict[str, int]:
    """How many staged rows violate each constraint, by `fact`; a row counts for each that it violates."""
    bit, found = bits(constraints), Counter[int]()
    for _, masks in _violating(files, [MASK]) if constraints else ():
        for entry in pc.value_counts(masks.column(MASK)).to_pylist():  # type: ignore[attr-defined]
            found[entry["values"] or 0] += entry["counts"]
    return {fact(each): sum(number for mask, number in found.items() if mask & bit[each.name]) for each in constraints}


def samples(
    files: Iterable[Location], constraints: Sequence[Constraint], wanted: Iterable[Constraint], target: Table, most: int
) -> dict[str, tuple[str, ...]]:
    """Name -> up to `most` keys (as JSON; the whole row where the target declares no key) of rows that violate it, each
    once: many rows of one key are one thing to mend."""
    bit, found = bits(constraints), {each.name: [] for each in wanted}
    key = list(target.primary_key) or [column.name for column in target.physical_columns]
    for _, rows in _violating(files, [*key, MASK]):
        for name, texts in found.items():
            if len(texts) < most:
                hit = pc.not_equal(pc.bit_wise_and(rows.column(MASK), bit[name]), 0)  # type: ignore[attr-defined]
                taken = python_rows(rows.filter(hit).slice(0, LOOKED_AT).select(key))
                shown = dict.fromkeys(map(_shown, taken))
                texts += [text for text in shown if text not in texts][: most - len(texts)]
        if all(len(texts) >= most for texts in found.values()):
            break
    return {name: tuple(texts) for name, texts in found.items()}


def null_samples(files: Iterable[Location], column: str, target: Table, most: int) -> tuple[str, ...]:
    """As `samples`, of rows that have NULL in `column`."""
    key = list(target.primary_key) or [column.name for column in target.physical_columns]
    texts: list[str] = []
    for path in files:
        with path.parquet() as file:
            for group in range(file.metadata.num_row_groups if len(texts) < most else 0):
                rows = file.read_row_group(group, columns=list(dict.fromkeys([*key, column])))
                rows = rows.filter(pc.is_null(rows.column(column))).slice(0, LOOKED_AT).select(key)  # type: ignore[attr-defined]
                texts += [text for text in dict.fromkeys(map(_shown, rows.to_pylist())) if text not in texts]
    return tuple(texts[:most])


def greatest(footer: pq.FileMetaData) -> int | None:
    """The greatest mask of a file by its footer; 0 without rows, None where the footer does not say."""
    found = [_greatest(footer.row_group(group)) for group in range(footer.num_row_groups)]
    known = [mask for mask in found if mask is not None]
    return max(known, default=0) if len(known) == len(found) else None


def _greatest(group: pq.RowGroupMetaData) -> int | None:
    if group.num_rows == 0:
        return 0
    known = statistics_of(group, MASK)
    return None if known is None else int(known.max)


def _violating(files: Iterable[Location], columns: list[str]) -> Iterator[tuple[Location, pa.Table]]:
    """The rows that violate something, row group by row group."""
    for path in files:
        with path.parquet() as file:
            if MASK not in file.schema_arrow.names:
                continue
            for group in range(file.metadata.num_row_groups):
                if _greatest(file.metadata.row_group(group)) != 0:
                    rows = file.read_row_group(group, columns=columns)
                    yield path, rows.filter(pc.not_equal(rows.column(MASK), 0))  # type: ignore[attr-defined]


def _shown(row: Mapping[str, Any]) -> str:
    text = json.dumps(row, default=str, ensure_ascii=False)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
