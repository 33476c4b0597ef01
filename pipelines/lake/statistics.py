"""Statistics of a table's data files in Delta's log: for each file, the bounds of all columns that readers skip files
by, or of none.

delta-rs's dataset, through which DuckDB and pandas read, takes a bound that is missing beside others for one that no
value meets, and skips the file at every filter on that column. So a table names the columns that it has bounds of
(`skipping`), and a file in which one of them has no bounds gets its numbers of NULLs alone. A bound that a footer does
not have (Parquet's writers leave long text out) is computed from the file.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidegate.pipelines.lake.by_name import TableState
from tidegate.pipelines.parquet import bounds_of

SKIPPED_BY = "delta.dataSkippingStatsColumns"
"""The property of a table that names the columns which readers skip files by."""

_DOWN, _UP = (Context(prec=15, rounding=rounding) for rounding in (ROUND_FLOOR, ROUND_CEILING))
"""Of a DECIMAL bounds have as many digits as a DOUBLE keeps: delta-rs reads the numbers of statistics as such."""

MAX_TEXT = 32
"""Characters of a bound of text. A longer one is cut, and the upper one rounded up."""

WIDE, MOST = 60, 32
"""A table with so many columns has bounds of so many only: of epochs, and of the first other ones."""

_ORDERED = {"byte", "short", "integer", "long", "date", "timestamp", "timestamp_ntz", "string"}
_FIRST = ("_generation", "_epoch")
_WITHOUT_BOUNDS = {"binary", "void", "variant"}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_GREATEST, _SURROGATES = 0x10FFFF, range(0xD800, 0xE000)


def fields_of(table: TableState) -> list[dict[str, Any]]:
    """The columns of a table, as its log has them."""
    return json.loads(table.metadata.schema)["fields"]


def skipping(fields: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The property of a table with these `fields` (`fields_of`) that names the columns with bounds: whole numbers,
    DECIMAL, dates, times, text. FLOAT and DOUBLE have none, as JSON has neither NaN nor an infinity."""
    names = [field["name"] for field in fields if _ordered(field["type"]) and _NAME.fullmatch(field["name"])]
    names.sort(key=lambda name: name not in _FIRST)
    return {SKIPPED_BY: ",".join(names[: MOST if len(fields) >= WIDE else None])}


def _ordered(kind: object) -> bool:
    return isinstance(kind, str) and (kind in _ORDERED or kind.startswith("decimal"))


def of_footer(footer: pq.FileMetaData) -> str:
    """The statistics that a file's footer has, as JSON: the number of NULLs of each column, and bounds; null where the
    footer does not say."""
    nulls, low, high = {}, {}, {}
    for field, leaves in _by_column(footer):
        nulls[field.name], low[field.name], high[field.name] = _of_column(footer, field.type, leaves)
    return _json({"numRecords": footer.num_rows, "minValues": low, "maxValues": high, "nullCount": nulls})


def with_nulls(stats: str | None, kinds: Mapping[str, Any]) -> str | None:
    """The statistics of a file, as a log has them, that says of columns (their types by name) that all its rows are
    NULL; of those of which it says nothing else."""
    found = json.loads(stats or "{}", parse_float=Decimal)
    if "numRecords" not in found:
        return None
    counts = {name: _all(found["numRecords"], kind) for name, kind in kinds.items()}
    return _json({**found, "nullCount": {**counts, **found.get("nullCount", {})}})


@dataclass(frozen=True)
class Skipping:
    """What readers of a table skip its files by. `kinds`: its columns' types, as in its log; `needed`: those that need
    bounds in every file that has bounds at all."""

    kinds: Mapping[str, Any]
    needed: frozenset[str]

    @classmethod
    def of(cls, table: TableState, later: Sequence[Mapping[str, Any]] = ()) -> Self:
        """As the table's property has it. Without it, readers may look for bounds of any column. `later`: columns that
        the table gets next; readers may look for bounds of these."""
        kinds = {field["name"]: field["type"] for field in [*fields_of(table), *later]}
        listed = table.metadata.configuration.get(SKIPPED_BY)
        named = kinds.keys() & {name.strip(" `") for name in (listed or "").split(",")}
        needed = kinds.keys() if listed is None else named | {field["name"] for field in later}
        return cls(kinds, frozenset(name for name in needed if _has_bounds(kinds[name])))

    def statistics(self, own: str, file: Callable[[], pq.ParquetFile]) -> str:
        """The statistics with which a `file` is added to the table, from `own` (`of_footer`)."""
        found = json.loads(own, parse_float=Decimal)
        rows, low, high = found["numRecords"], found["minValues"], found["maxValues"]
        nulls = {name: found["nullCount"].get(name, _all(rows, kind)) for name, kind in self.kinds.items()}
        unknown = [
            name
            for name in self.kinds
            if name in found["nullCount"] and self._lacks(name, rows, nulls[name], low[name], high[name])
        ]
        for name in unknown:
            nulls[name], low[name], high[name] = _read(file(), name)
        counts = {name: count for name, count in nulls.items() if count is not None}
        if any(low.get(name) is None and nulls[name] != rows for name in self.needed):
            return _json({"numRecords": rows, "nullCount": counts})
        bounds = ({name: each[name] for name in self.kinds if each.get(name) is not None} for each in (low, high))
        structs = {name: {} for name, kind in self.kinds.items() if isinstance(kind, dict) and kind["type"] == "struct"}
        least, greatest = (structs | each for each in bounds)
        return _json({"numRecords": rows, "minValues": least, "maxValues": greatest, "nullCount": counts})

    def _lacks(self, name: str, rows: int, nulls: object, low: object, high: object) -> bool:
        """Whether the file has to be read for a column's bounds."""
        if isinstance(self.kinds[name], dict):
            return False
        return nulls is None or (name in self.needed and nulls != rows and (low is None or high is None))


def _has_bounds(kind: object) -> bool:
    return isinstance(kind, str) and kind not in _WITHOUT_BOUNDS


def _all(rows: int, kind: Any) -> Any:
    """The NULLs of a column that a file of so many rows does not have."""
    if isinstance(kind, dict) and kind["type"] == "struct":
        return {field["name"]: _all(rows, field["type"]) for field in kind["fields"]}
    return rows


def _by_column(footer: pq.FileMetaData) -> Iterator[tuple[pa.Field, range]]:
    """Each column of a file, with the numbers of its leaves in the footer."""
    first = 0
    for field in footer.schema.to_arrow_schema():
        last = first + _leaves(field.type)
        yield field, range(first, last)
        first = last


def _leaves(kind: pa.DataType) -> int:
    if not pa.types.is_nested(kind):
        return 1
    return sum(_leaves(kind.field(number).type) for number in range(kind.num_fields))


def _of_column(footer: pq.FileMetaData, kind: pa.DataType, leaves: range) -> tuple[Any, Any, Any]:
    """NULLs, least and greatest value of a column, or of each field of a STRUCT; None where the footer does not say."""
    if pa.types.is_struct(kind):
        parts, first = {}, leaves.start
        for number in range(kind.num_fields):
            field = kind.field(number)
            last = first + _leaves(field.type)
            parts[field.name] = _of_column(footer, field.type, range(first, last))
            first = last
        known = ({name: part[of] for name, part in parts.items() if part[of] is not None} for of in range(3))
        nulls, low, high = known
        return nulls, low, high
    if pa.types.is_nested(kind):
        return None, None, None
    groups = [footer.row_group(group).column(leaves.start).statistics for group in range(footer.num_row_groups)]
    if any(each is None or not each.has_null_count for each in groups):
        return None, None, None
    nulls = sum(each.null_count for each in groups)
    bounds = [bounds_of(each) for each in groups if each.num_values]
    if not bounds or None in bounds:
        return nulls, None, None
    return nulls, *_bounds(kind, min(low for low, _ in bounds), max(high for _, high in bounds))  # type: ignore[misc]


def _read(file: pq.ParquetFile, name: str) -> tuple[int, Any, Any]:
    """NULLs, least and greatest value of a column, from its values."""
    nulls, lows, highs, nan = 0, [], [], False
    for group in range(file.num_row_groups):
        values = file.read_row_group(group, columns=[name])[name]
        nulls += values.null_count
        if nan or values.null_count == len(values):
            continue
        nan = pa.types.is_floating(values.type) and pc.any(pc.is_nan(values)).as_py()  # type: ignore[attr-defined]
        if pa.types.is_string_view(values.type):
            values = values.cast(pa.large_string())
        found = pc.min_max(values)  # type: ignore[attr-defined]
        least, greatest = _python(found["min"]), _python(found["max"])
        lows.append(least)
        highs.append(greatest)
    if nan or not lows or None in lows or None in highs:
        return nulls, None, None
    return nulls, *_bounds(file.schema_arrow.field(name).type, min(lows), max(highs))


def _python(value: pa.Scalar) -> Any:
    """A bound; None where Python, or JSON, has no such value: a year after 9999, text that is not UTF-8."""
    try:
        return value.as_py()
    except (OverflowError, ValueError):
        return None


def _bounds(kind: pa.DataType, low: Any, high: Any) -> tuple[Any, Any]:
    """Bounds as JSON has them, both or none."""
    if isinstance(low, Decimal):
        low, high = _DOWN.create_decimal(low), _UP.create_decimal(high)
        fit = all(abs(bound) < 10 ** (kind.precision - kind.scale) for bound in (low, high))
        return (low, high) if fit else (None, None)
    if isinstance(low, bytes) or (isinstance(low, float) and not (math.isfinite(low) and math.isfinite(high))):
        return None, None
    if isinstance(low, str):
        upper = rounded_up(high)
        return (None, None) if upper is None else (low[:MAX_TEXT], upper)
    return _text(low), _text(high)


def rounded_up(text: str) -> str | None:
    """Text of at most MAX_TEXT characters that no text which begins as `text` does is greater than; None if there is
    none."""
    if len(text) <= MAX_TEXT:
        return text
    for last in range(MAX_TEXT - 1, -1, -1):
        if (sign := ord(text[last])) < _GREATEST:
            greater = sign + 1 if sign + 1 not in _SURROGATES else _SURROGATES.stop
            return text[:last] + chr(greater)
    return None


def _text(value: Any) -> Any:
    if isinstance(value, dt.datetime):
        text = value.isoformat(timespec="microseconds")
        return text.replace("+00:00", "Z")
    if isinstance(value, dt.date):
        return value.isoformat()
    return value


def _json(value: Any) -> str:
    """JSON in which a Decimal is a number with its digits."""
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{json.dumps(name)}:{_json(each)}" for name, each in value.items()) + "}"
    return f"{value:f}" if isinstance(value, Decimal) else json.dumps(value)
