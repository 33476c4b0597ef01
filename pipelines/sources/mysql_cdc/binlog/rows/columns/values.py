"""What a column decoder gets: the bytes of one column's values, found by the lockstep walk, and which are NULL."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidegate.pipelines.sources.mysql_cdc.binlog.events import Bytes2D, Offsets, rows_at

Nulls = NDArray[np.bool_] | None
"""True where the value is NULL; None when no value is."""


@dataclass(frozen=True)
class FixedValues:
    """Values of one width: a row of bytes each. Bytes of a NULL mean nothing."""

    rows: Bytes2D
    nulls: Nulls


@dataclass(frozen=True)
class VariableValues:
    """Values of any length: data[starts[i] : starts[i] + lengths[i]], in the buffer's order. A NULL has length 0."""

    data: bytes
    starts: Offsets
    lengths: Offsets
    nulls: Nulls

    def binary(self, skip: int = 0) -> pa.Array:
        """The values as a binary array of their own, each without its first `skip` bytes.

        One binary array is laid over the whole buffer so that values and the gaps between them take turns; a filter
        then copies the values out.
        """
        count = len(self.starts)
        offsets = np.empty(2 * count + 1, np.int32)
        lengths = self.lengths
        if skip:
            lengths = np.maximum(lengths - skip, 0)
        ends = self.starts + self.lengths
        offsets[0:-1:2] = ends - lengths
        offsets[1::2] = ends
        offsets[-1] = offsets[-2] if count else 0
        keep = np.zeros(2 * count, bool)
        keep[::2] = True
        validity = None
        if self.nulls is not None:
            valid = np.ones(2 * count, bool)
            valid[::2] = ~self.nulls
            validity = pa.array(valid).buffers()[1]
        laid = pa.Array.from_buffers(pa.binary(), 2 * count, [validity, pa.py_buffer(offsets), pa.py_buffer(self.data)])
        return laid.filter(pa.array(keep))

    def padded(self, width: int) -> FixedValues:
        """The values as rows of `width` bytes, filled up with zero bytes on the right, as BINARY(n) is stored."""
        grown = self.data + bytes(width)
        rows = rows_at(grown, self.starts, width)
        rows[np.arange(width) >= self.lengths[:, None]] = 0
        return FixedValues(rows, self.nulls)


def _validity(nulls: Nulls) -> pa.Buffer | None:
    return None if nulls is None else pa.array(~nulls).buffers()[1]


def array_of(kind: pa.DataType, values: NDArray[np.generic], nulls: Nulls) -> pa.Array:
    """An Arrow array of a fixed-width type over `values`, whose bits are already those of `kind`."""
    return pa.Array.from_buffers(kind, len(values), [_validity(nulls), pa.py_buffer(np.ascontiguousarray(values))])


def binary_rows(values: FixedValues) -> pa.Array:
    """Each row of bytes as one binary value."""
    count, width = values.rows.shape
    offsets = np.arange(count + 1, dtype=np.int32) * np.int32(width)
    data = pa.py_buffer(np.ascontiguousarray(values.rows))
    return pa.Array.from_buffers(pa.binary(), count, [_validity(values.nulls), pa.py_buffer(offsets), data])


def text_of(characters: Bytes2D, shown: NDArray[np.bool_], nulls: Nulls) -> pa.Array:
    """A string array of ASCII: of each row of `characters` those that `shown` marks."""
    offsets = np.zeros(len(characters) + 1, np.int32)
    np.cumsum(shown.sum(axis=1), out=offsets[1:])
    data = pa.py_buffer(np.ascontiguousarray(characters[shown]))
    return pa.Array.from_buffers(pa.string(), len(characters), [_validity(nulls), pa.py_buffer(offsets), data])


def merged(nulls: Nulls, also: NDArray[np.bool_]) -> Nulls:
    """NULL where either of both is."""
    if not also.any():
        return nulls
    return also if nulls is None else nulls | also
