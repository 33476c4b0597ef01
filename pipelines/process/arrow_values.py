"""Python values out of Arrow arrays, column by column: a call for each value would cost more than most functions do."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

_PLAIN = (pa.types.is_integer, pa.types.is_floating)


def python_values(array: pa.Array | pa.ChunkedArray) -> list[Any]:
    """The values of `array`; None for null. TIMESTAMP is a naive datetime, TIMESTAMP_LTZ one in UTC."""
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks() if array.num_chunks != 1 else array.chunk(0)
    kind = array.type
    if array.null_count == 0 and any(check(kind) for check in _PLAIN):
        return array.to_numpy(zero_copy_only=False).tolist()
    if pa.types.is_timestamp(kind) and kind.tz is None and kind.unit == "us":
        return array.to_numpy(zero_copy_only=False).astype("M8[us]").tolist()
    if pa.types.is_map(kind) or pa.types.is_nested(kind):
        return [_nested(value) for value in array]
    return array.to_pylist()


def list_values(array: pa.ListArray, row: int) -> list[Any]:
    """The elements of one list; none where it is null."""
    values = array[row].values
    return [] if values is None else python_values(values)


def _nested(value: pa.Scalar) -> Any:
    """A nested value: a row is a dict, a map one too."""
    found = value.as_py()
    return dict(found) if found is not None and pa.types.is_map(value.type) else found


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
