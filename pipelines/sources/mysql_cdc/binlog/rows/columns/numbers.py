"""Whole numbers, FLOAT and DOUBLE, YEAR."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tidegate.pipelines.sources.mysql_cdc.binlog.rows.columns.values import FixedValues, array_of
from tidegate.pipelines.sources.mysql_cdc.binlog.wire.gather import little_endian

_FIRST_YEAR = 1900


def decode_integer(values: FixedValues, kind: pa.DataType, *, unsigned: bool) -> pa.Array:
    """TINYINT to BIGINT as `kind`. BIGINT UNSIGNED is a DECIMAL(20,0): 128 bits, low half first."""
    numbers = little_endian(values.rows, signed=not unsigned)
    if pa.types.is_decimal(kind):
        wide = np.zeros((len(numbers), 2), np.uint64)
        wide[:, 0] = numbers
        return array_of(kind, wide, values.nulls)
    return array_of(kind, numbers.astype(kind.to_pandas_dtype()), values.nulls)


def decode_float(values: FixedValues, kind: pa.DataType) -> pa.Array:
    """FLOAT and DOUBLE are IEEE 754, little-endian: bit for bit."""
    return array_of(kind, values.rows.view(f"<f{values.rows.shape[1]}")[:, 0], values.nulls)


def decode_year(values: FixedValues, kind: pa.DataType) -> pa.Array:
    """YEAR is one byte from 1900 on; 0 is the year 0000."""
    years = values.rows[:, 0].astype(np.int32)
    return array_of(kind, np.where(years != 0, years + np.int32(_FIRST_YEAR), np.int32(0)), values.nulls)
