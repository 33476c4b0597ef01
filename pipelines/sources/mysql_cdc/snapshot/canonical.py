"""From the values of a result set to the canonical type of a column, the same that the binlog's decoder gives.

`snapshot_expression` (types.py) is what the server was asked for: dates and times come as whole numbers.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidegate.pipelines.sources.cdc.errors import FRESH, MalformedRows, TableChanged
from tidegate.pipelines.sources.cdc.types import BINARY, BOOLEAN, DATE, INSTANT, LOCAL_TIME, STRING
from tidegate.pipelines.sources.mysql_cdc.binlog.rows.columns.numbers import decode_float
from tidegate.pipelines.sources.mysql_cdc.binlog.rows.columns.values import FixedValues, array_of, merged
from tidegate.pipelines.sources.mysql_cdc.binlog.wire.gather import little_endian
from tidegate.pipelines.sources.mysql_cdc.field_types import Type
from tidegate.pipelines.sources.mysql_cdc.snapshot.results import INTEGERS, ResultColumn, Values
from tidegate.pipelines.sources.mysql_cdc.types import SourceColumn, canonical

_FIRST_DAY = -719_162
_FIRST_MICROSECOND = _FIRST_DAY * 86_400_000_000
"""0001-01-01. The servers count year 0 as 365 days, the calendar as 366, so year 0 (outside their documented range)
is read as NULL, like a zero date."""


def canonical_array(values: Values, found: ResultColumn, column: SourceColumn) -> pa.Array:
    """`values`, which the server calls `found`, in the canonical type of `column`.

    Raises TableChanged where they cannot be of that column, MalformedRows for bytes that are no value of its type.
    """
    kind = canonical(column)
    if isinstance(values, FixedValues) and found.type in INTEGERS:
        return _whole_numbers(values, found, column)
    if isinstance(values, FixedValues):
        if kind.arrow == {Type.FLOAT: pa.float32(), Type.DOUBLE: pa.float64()}.get(Type(found.type)):
            return decode_float(values, kind.arrow)
    elif kind is BINARY or kind is STRING or pa.types.is_decimal(kind.arrow):
        try:
            return values.binary() if kind is BINARY else _of_text(values.binary().cast(pa.string()), kind.arrow)
        except pa.ArrowInvalid as error:
            raise MalformedRows(f"column {column.name} holds a value that is no {column.column_type}") from error
    raise _changed(found, column)


def _of_text(text: pa.Array, kind: pa.DataType) -> pa.Array:
    return text if kind == pa.string() else text.cast(kind)


def _whole_numbers(values: FixedValues, found: ResultColumn, column: SourceColumn) -> pa.Array:
    kind = canonical(column)
    numbers: NDArray[np.integer] = little_endian(values.rows, signed=not found.unsigned)  # type: ignore[assignment]
    if kind is BOOLEAN:
        return pa.array(numbers != 0, mask=values.nulls)
    if kind is DATE:
        nulls = merged(values.nulls, numbers < _FIRST_DAY)
        return array_of(kind.arrow, numbers.astype(np.int32), nulls)
    if kind is LOCAL_TIME:
        return array_of(kind.arrow, numbers.astype(np.int64), merged(values.nulls, numbers < _FIRST_MICROSECOND))
    if kind is INSTANT:  # the zero date is 0
        return array_of(kind.arrow, numbers.astype(np.int64), merged(values.nulls, numbers == 0))
    if pa.types.is_decimal(kind.arrow) and found.unsigned and numbers.dtype == np.uint64:
        wide = np.zeros((len(numbers), 2), np.uint64)
        wide[:, 0] = numbers
        return array_of(kind.arrow, wide, values.nulls)
    if not pa.types.is_integer(kind.arrow):
        raise _changed(found, column)
    wanted = np.dtype(kind.arrow.to_pandas_dtype())
    if not np.can_cast(numbers.dtype, wanted) and _outside(numbers, values.nulls, wanted):
        raise _changed(found, column)
    return array_of(kind.arrow, numbers.astype(wanted), values.nulls)


def _outside(numbers: NDArray[np.generic], nulls: NDArray[np.bool_] | None, kind: np.dtype) -> bool:
    """Whether a number that is not NULL does not fit into `kind`."""
    shown = numbers if nulls is None else numbers[~nulls]
    limits = np.iinfo(kind)
    return len(shown) > 0 and (int(shown.min()) < limits.min or int(shown.max()) > limits.max)


def _changed(found: ResultColumn, column: SourceColumn) -> TableChanged:
    return TableChanged(
        f"the table is not what it was when this snapshot began: column {column.name} was {column.column_type}, and its"
        f" values come as {Type(found.type).name if found.type in set(Type) else f'type {found.type}'} now",
        next_command=FRESH,
    )
