"""Values of a file's Arrow type as values of a declared one, without loss: what does not fit is named, row by row.

A file's type fits a declared one if its values may: integers without a sign fit a type with one as long as they are in
its range, nanoseconds fit microseconds where they are whole ones, and a column of NULLs fits anything.
"""

# pyright: reportAttributeAccessIssue=false
# (pyarrow makes its compute functions when it is imported)
from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_NO_SECONDS = "a time of INT96 has less than a microsecond"


def plain(of: pa.DataType) -> pa.DataType:
    """A type without what only says how its values are stored."""
    if isinstance(of, pa.DictionaryType):
        return plain(of.value_type)
    return plain(of.storage_type) if isinstance(of, pa.BaseExtensionType) else of


def fits(found: pa.DataType, declared: pa.DataType, finer: pa.DataType | None = None) -> bool:
    """Whether values of a file's type may be values of the declared one. `finer`: the file's type where times of INT96
    are read as nanoseconds; as microseconds they are in `found`."""
    found = plain(found)
    return _fits(found, declared, found if finer is None else plain(finer))


def _fits(found: pa.DataType, declared: pa.DataType, finer: pa.DataType) -> bool:
    if pa.types.is_null(found):
        return True
    if pa.types.is_struct(found) and pa.types.is_struct(declared):
        names = [field.name for field in found]
        return all(
            names.count(field.name) == 1
            and fits(found.field(field.name).type, field.type, finer.field(field.name).type)
            for field in declared
        )
    if pa.types.is_map(found) and pa.types.is_map(declared):
        keys = fits(found.key_type, declared.key_type, finer.key_type)
        return keys and fits(found.item_type, declared.item_type, finer.item_type)
    if is_list(found) and is_list(declared):
        return fits(found.value_type, declared.value_type, finer.value_type)
    if pa.types.is_timestamp(found) and pa.types.is_timestamp(declared):
        return is_int96(found, finer) or (found.tz is None) == (declared.tz is None)
    if pa.types.is_decimal(found) and pa.types.is_decimal(declared):
        return found.scale == declared.scale and found.precision <= declared.precision
    if pa.types.is_signed_integer(found) and pa.types.is_signed_integer(declared):
        return found.bit_width <= declared.bit_width
    if pa.types.is_unsigned_integer(found):
        if pa.types.is_decimal(declared):
            return declared.scale == 0
        return pa.types.is_signed_integer(declared) and found.bit_width <= declared.bit_width
    if pa.types.is_floating(found) and pa.types.is_floating(declared):
        return found.bit_width <= declared.bit_width
    same: list[Callable[[pa.DataType], bool]] = [pa.types.is_boolean, pa.types.is_date, _is_text, _is_binary]
    return any(kind(found) and kind(declared) for kind in same)


def is_list(of: pa.DataType) -> bool:
    """Whether a type is a list of any kind."""
    kinds = ["is_list", "is_large_list", "is_fixed_size_list", "is_list_view", "is_large_list_view"]
    return any(getattr(pa.types, kind)(of) for kind in kinds)


def _is_text(of: pa.DataType) -> bool:
    return pa.types.is_string(of) or pa.types.is_large_string(of) or pa.types.is_string_view(of)


def _is_binary(of: pa.DataType) -> bool:
    whole = pa.types.is_binary(of) or pa.types.is_large_binary(of)
    return whole or pa.types.is_fixed_size_binary(of) or pa.types.is_binary_view(of)


def is_int96(found: pa.DataType, finer: pa.DataType) -> bool:
    """Whether a type of times is one of INT96."""
    return pa.types.is_timestamp(found) and pa.types.is_timestamp(finer) and found.unit != finer.unit


def fitted(values: pa.Array, of: pa.DataType, finer: pa.Array | None = None) -> tuple[pa.Array, list[int]]:
    """`values`, whose type `fits`, as the type `of`, and the places of those that do not fit; these are NULL."""
    return _fitted(values, of, values if finer is None else finer)


def _fitted(values: pa.Array, of: pa.DataType, finer: pa.Array) -> tuple[pa.Array, list[int]]:
    try:
        return _exact(values, of, finer), []
    except pa.ArrowInvalid:
        if len(values) == 1:
            return pa.nulls(1, of), [0]
        half = len(values) // 2
        first, wrong = _fitted(values.slice(0, half), of, finer.slice(0, half))
        second, more = _fitted(values.slice(half), of, finer.slice(half))
        return pa.concat_arrays([first, second]), [*wrong, *(half + place for place in more)]


def _exact(values: pa.Array, of: pa.DataType, finer: pa.Array) -> pa.Array:
    """Raises ArrowInvalid where a value is none of the type."""
    values, finer = _plain_values(values), _plain_values(finer)
    found = values.type
    if pa.types.is_null(found):
        return pa.nulls(len(values), of)
    if pa.types.is_struct(of):
        children = [
            _exact(pc.struct_field(values, [place]), field.type, pc.struct_field(finer, [place]))
            for field in of
            for place in [found.get_field_index(field.name)]
        ]
        return pa.StructArray.from_arrays(children, fields=list(of), mask=values.is_null())
    if pa.types.is_map(of):
        offsets = values.offsets.to_numpy()
        keys, items = (
            _exact(_between(part, offsets), kind, _between(beside, offsets))
            for part, kind, beside in (
                (values.keys, of.key_type, finer.keys),
                (values.items, of.item_type, finer.items),
            )
        )
        return pa.MapArray.from_arrays(_offsets(offsets - offsets[0], values), keys, items, type=of)
    if is_list(of):
        lengths = pc.list_value_length(values).fill_null(0).to_numpy(zero_copy_only=False)
        inner = _exact(pc.list_flatten(values), of.value_type, pc.list_flatten(finer))
        offsets = np.concatenate(([0], np.cumsum(lengths)))
        return pa.ListArray.from_arrays(_offsets(offsets, values), inner, type=of)
    if is_int96(found, finer.type):
        return _of_int96(values, of, finer)
    if pa.types.is_unsigned_integer(found) and pa.types.is_decimal(of):
        return values.cast(pa.decimal128(38, 0)).cast(of)
    return values.cast(of)


def _plain_values(values: pa.Array) -> pa.Array:
    if isinstance(values, pa.DictionaryArray):
        return _plain_values(values.dictionary_decode())
    return _plain_values(values.storage) if isinstance(values, pa.ExtensionArray) else values


def _between(values: pa.Array, offsets: np.ndarray) -> pa.Array:
    return values.slice(offsets[0], offsets[-1] - offsets[0])


def _offsets(offsets: np.ndarray, values: pa.Array) -> pa.Array:
    """Offsets of a list, NULL where the list is."""
    missing = np.append(values.is_null().to_numpy(zero_copy_only=False), False)
    return pa.array(offsets.astype(np.int32), pa.int32(), mask=missing)


def _of_int96(values: pa.Array, of: pa.DataType, finer: pa.Array) -> pa.Array:
    """Times that were read as microseconds. Nanoseconds overflow beyond the years 1677 to 2262; what is left of a
    microsecond is the same all the same."""
    whole = values.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    with np.errstate(over="ignore"):
        rest = finer.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False) - whole * 1000
    if rest.any():
        raise pa.ArrowInvalid(_NO_SECONDS)
    return values.cast(of)


def shown(values: pa.Array, place: int) -> str:
    """A value as people read it."""
    one = values.slice(place, 1)
    try:
        return str(one.cast(pa.string())[0].as_py())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return str(one[0])
