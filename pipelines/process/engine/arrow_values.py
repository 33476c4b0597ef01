"""Python values out of Arrow arrays, column by column: a call for each value would cost more than most functions do."""

from __future__ import annotations

from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc

_UTC = ZoneInfo("UTC")
_PLAIN = (pa.types.is_integer, pa.types.is_floating)


def python_values(array: pa.Array | pa.ChunkedArray) -> list[Any]:
    """The values of `array`; None for null. A ROW is a dict, a MAP one too, wherever in a value it is (one with nested
    keys is a list of pairs: no dict can have them). TIMESTAMP is a naive datetime, TIMESTAMP_LTZ one in UTC."""
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks() if array.num_chunks != 1 else array.chunk(0)
    kind = array.type
    if array.null_count == 0 and any(check(kind) for check in _PLAIN):
        return array.to_numpy(zero_copy_only=False).tolist()
    if pa.types.is_timestamp(kind) and kind.unit == "us" and kind.tz in (None, _UTC.key):
        values = array.to_numpy(zero_copy_only=False).astype("M8[us]").tolist()
        return values if kind.tz is None else [value and value.replace(tzinfo=_UTC) for value in values]
    if pa.types.is_date32(kind):
        return array.to_numpy(zero_copy_only=False).astype("M8[D]").tolist()
    if pa.types.is_decimal128(kind):
        return array.to_numpy(zero_copy_only=False).tolist()
    if not pa.types.is_nested(kind):
        return array.to_pylist()
    return _without_nulls(array, _nested(array))


def list_values(array: pa.ListArray, row: int) -> list[Any]:
    """The elements of one list; none where it is null."""
    values = array[row].values
    return [] if values is None else python_values(values)


def _nested(array: pa.Array) -> list[Any]:
    """Nested values; what is stored where `array` is null means nothing."""
    kind = array.type
    if pa.types.is_struct(kind):
        names = [field.name for field in kind]
        if not names:
            return [{} for _ in range(len(array))]
        fields = [python_values(array.field(place)) for place in range(len(names))]
        return [dict(zip(names, values, strict=True)) for values in zip(*fields, strict=True)]
    if not (pa.types.is_map(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        return array.to_pylist()
    ends = array.offsets.to_pylist()
    low, high = ends[0], ends[-1]
    if pa.types.is_map(kind):
        keys, items = (python_values(part.slice(low, high - low)) for part in (array.keys, array.items))
        pairs, made = list(zip(keys, items, strict=True)), list if pa.types.is_nested(kind.key_type) else dict
        return [made(pairs[start - low : end - low]) for start, end in pairwise(ends)]
    values = python_values(array.values.slice(low, high - low))
    return [values[start - low : end - low] for start, end in pairwise(ends)]


def _without_nulls(array: pa.Array, values: list[Any]) -> list[Any]:
    if not array.null_count:
        return values
    return [value if there else None for value, there in zip(values, array.is_valid().to_pylist(), strict=True)]


def conformed(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """`array` as `kind`, where that has fields that the array's own type has not: they are null.

    Raises pa.ArrowInvalid where a field has changed its type.
    """
    if array.type == kind:
        return array
    if pa.types.is_struct(kind) and pa.types.is_struct(array.type):
        there = {field.name: place for place, field in enumerate(array.type)}
        fields = [
            conformed(array.field(there[field.name]), field.type)
            if field.name in there
            else pa.nulls(len(array), field.type)
            for field in kind
        ]
        return pa.StructArray.from_arrays(fields, fields=list(kind), mask=array.is_null())
    if pa.types.is_map(kind) and pa.types.is_map(array.type):
        plain = pa.concat_arrays([array])  # what a slice hides is no part of it
        items = conformed(plain.items, kind.item_type)
        return pa.MapArray.from_arrays(_offsets(plain), conformed(plain.keys, kind.key_type), items).cast(kind)
    if pa.types.is_list(kind) and pa.types.is_list(array.type):
        plain = pa.concat_arrays([array])
        return pa.ListArray.from_arrays(_offsets(plain), conformed(plain.values, kind.value_type)).cast(kind)
    return array.cast(kind)


def _offsets(array: pa.ListArray | pa.MapArray) -> pa.Array:
    """The offsets of a list array, null where the list is."""
    if not array.null_count:
        return array.offsets
    ends = array.offsets.slice(1)
    starts = array.offsets.slice(0, len(array))
    last = pa.array([ends[-1].as_py() if len(ends) else 0], pa.int32())
    shown = pc.if_else(array.is_valid(), starts, pa.scalar(None, pa.int32()))  # type: ignore[attr-defined]
    return pa.concat_arrays([shown, last])
