"""BIT, ENUM and SET: numbers that stand for bits or names."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from tidegate.pipelines.sources.mysql_cdc.binlog.rows.columns.values import FixedValues, binary_rows
from tidegate.pipelines.sources.mysql_cdc.binlog.wire.gather import unsigned_at
from tidegate.pipelines.sources.mysql_cdc.errors import MalformedEvent


def decode_boolean(values: FixedValues) -> pa.Array:
    """BIT(1)."""
    return pa.array(values.rows[:, 0] & 1 == 1, mask=values.nulls)


def decode_bits(values: FixedValues) -> pa.Array:
    """BIT(n) as its bytes, the most significant first."""
    return binary_rows(values)


def decode_enum(values: FixedValues, members: Sequence[str], column: str) -> pa.Array:
    """ENUM: 1 names the first member; 0 is the empty string that the server keeps in place of an invalid value."""
    ordinals = _numbers(values)
    if len(ordinals) and ordinals.max() > len(members):
        raise MalformedEvent(f"column {column} holds member {ordinals.max()} of an ENUM of {len(members)}")
    return pa.array(["", *members], pa.string()).take(pa.array(ordinals, mask=values.nulls))


def decode_set(values: FixedValues, members: Sequence[str], column: str) -> pa.Array:
    """SET: a bit per member, the first member lowest; written as the names, comma between."""
    distinct, places = np.unique(_numbers(values).view(np.uint64), return_inverse=True)
    if len(distinct) and int(distinct[-1]) >> len(members):
        raise MalformedEvent(f"column {column} holds a bit that none of the SET's {len(members)} members has")
    texts = [
        ",".join(member for bit, member in enumerate(members) if number >> bit & 1) for number in distinct.tolist()
    ]
    return pa.array(texts, pa.string()).take(pa.array(places, mask=values.nulls))


def _numbers(values: FixedValues) -> np.ndarray:
    count, width = values.rows.shape
    numbers = unsigned_at(np.ascontiguousarray(values.rows).tobytes(), np.arange(count) * width, width)
    if values.nulls is not None:
        numbers[values.nulls] = 0  # the bytes of a NULL mean nothing
    return numbers
