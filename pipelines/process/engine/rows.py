"""A task's rows as keys and records: Arrow batches in, sorted by bucket, key and order; one key after another out."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from operator import ne
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.pipelines.process.engine.epoch import KeyedRecord
from tidegate.pipelines.process.errors import WrongValue
from tidegate.pipelines.process.generator import event_time
from tidegate.pipelines.process.values import record_type

_UTC = ZoneInfo("UTC")
_PLAIN = (pa.types.is_integer, pa.types.is_floating)
_TIMES = (-62_135_596_800_000_000, 253_402_300_799_999_999)
_PYTHONS = {
    pa.timestamp("us"): ("TIMESTAMP", *_TIMES),
    pa.timestamp("us", _UTC.key): ("TIMESTAMP_LTZ", *_TIMES),
    pa.date32(): ("DATE", -719_162, 2_932_896),
}
"""The types whose values Python's datetime has for the years 1 to 9999 alone: their names, and those years' first and
last value as Arrow counts them."""


def python_values(array: pa.Array | pa.ChunkedArray) -> list[Any]:
    """The values of `array`; None for null. A ROW is a dict at every depth, and so is a MAP (one with nested keys is a
    list of pairs, as no dict can hold them). TIMESTAMP is a naive datetime, TIMESTAMP_LTZ one in UTC. Raises WrongValue
    for a time that Python has not."""
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks() if array.num_chunks != 1 else array.chunk(0)
    kind = array.type
    if array.null_count == 0 and any(check(kind) for check in _PLAIN):
        return array.to_numpy(zero_copy_only=False).tolist()
    if kind in _PYTHONS and (out := _out_of_range(array, _PYTHONS[kind])):
        raise WrongValue(f"a {out} lies outside of the years 1 to 9999, and Python has no other")
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


def _out_of_range(array: pa.Array, bounds: tuple[str, int, int]) -> str:
    """The name of the type, if a value of `array` lies outside of its `bounds`."""
    name, least, greatest = bounds
    values = array.view(pa.int32() if pa.types.is_date32(array.type) else pa.int64())
    found = pc.min_max(values).as_py()  # type: ignore[attr-defined]
    return name if found["min"] is not None and (found["min"] < least or found["max"] > greatest) else ""


def list_values(array: pa.ListArray, row: int) -> list[Any]:
    """The elements of one list; none where it is null."""
    values = array[row].values
    return [] if values is None else python_values(values)


def _nested(array: pa.Array) -> list[Any]:
    """Nested values; what lies under a null of `array` is ignored."""
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
    """`array` as `kind`, which may have more fields than the array's own type: they are null.

    Raises pa.ArrowInvalid if a field has changed its type.
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


BUCKET, STEP, TIME = "_bucket", "_step", "_time"


def key_column(place: int) -> str:
    """The name of a part of the key in a task's batches."""
    return f"_key{place}"


def record_column(input: int, place: int) -> str:
    """The name of an input's column in a task's batches."""
    return f"_in{input}_{place}"


@dataclass(frozen=True)
class InputShape:
    """The columns that a record of an input has, by their names in the table. `time`: a pickled function that extracts
    a record's event time; None if that is `_time`."""

    columns: tuple[str, ...]
    time: bytes | None = None


class Rows:
    """Reads a task's batches key by key. `late` and `seen` count the records of each input as they pass.

    Args:
        batches: With `_bucket`, the key's columns, `_step`, `_time` (us, UTC) and the records' columns.
        inputs: What a record of each input has.
        of_step: Which input each step is of.
        at: The time (ms, UTC) at each step: a record whose rowtime is before it is late.
        keys: How many columns make the key.
    """

    def __init__(
        self,
        batches: Iterator[pa.RecordBatch],
        inputs: Sequence[InputShape],
        of_step: Sequence[int],
        at: Sequence[int],
        keys: int,
    ) -> None:
        self._batches = batches
        # As `_make` does, without a call of Python's for each record.
        self._types = [partial(tuple.__new__, record_type(shape.columns)) for shape in inputs]
        self._widths = [len(shape.columns) for shape in inputs]
        self._of_step = np.array(of_step, dtype=np.int64)
        # A bound in us; what is beyond its range stays at the ends of time.
        bounds = [max(min(time * 1000, 2**63 - 1), -(2**63)) for time in at]
        self._bounds = np.array(bounds, dtype=np.int64)
        self._at = at
        self._extractors = [None if shape.time is None else pickle.loads(shape.time) for shape in inputs]
        self._key_columns = [key_column(place) for place in range(keys)]
        self.late = [0] * len(inputs)
        self.seen = [0] * len(inputs)
        self._low = 0
        self._ends: list[int] = []
        self._load()

    @property
    def bucket(self) -> int | None:
        """The bucket of the next key; None at the end."""
        return self._buckets[self._low] if self._ends else None

    @property
    def key(self) -> Any:
        return self._keys[self._low]

    def records(self) -> Iterator[KeyedRecord]:
        """The records of the next key, as they are in the batches. Must be read to the end before the next call."""
        key, bucket = self.key, self.bucket
        while True:
            high = self._ends.pop()
            yield from zip(self._steps[self._low : high], self._records[self._low : high], strict=True)
            self._low = high
            if self._ends:
                return
            self._load()
            if not self._ends or self.bucket != bucket or self.key != key:
                return

    def _load(self) -> None:
        """Decode the next batch that has rows; after the last one `_ends` stays empty."""
        for batch in self._batches:
            if batch.num_rows:
                self._decode(batch)
                return

    def _decode(self, batch: pa.RecordBatch) -> None:
        steps = batch.column(STEP).to_numpy(zero_copy_only=False)
        self._steps: list[int] = steps.tolist()
        self._buckets: list[int] = python_values(batch.column(BUCKET))
        parts = [python_values(batch.column(name)) for name in self._key_columns]
        self._keys: list[Any] = parts[0] if len(parts) == 1 else list(zip(*parts, strict=True))
        self._records = self._decoded(batch, steps)
        keys = self._keys
        changed = [place + 1 for place, other in enumerate(map(ne, keys, keys[1:])) if other]
        self._low, self._ends = 0, [*changed, len(keys)][::-1]
        self._count(steps, batch.column(TIME))

    def _decoded(self, batch: pa.RecordBatch, steps: np.ndarray) -> list[Any]:
        if len(self._types) == 1:
            return self._of_input(batch, 0)
        which = self._of_step[steps]
        found: list[Any] = [None] * batch.num_rows
        for place in range(len(self._types)):
            rows = np.flatnonzero(which == place)
            if len(rows):
                part = batch if len(rows) == batch.num_rows else batch.take(pa.array(rows))
                for row, record in zip(rows.tolist(), self._of_input(part, place), strict=True):
                    found[row] = record
        return found

    def _of_input(self, batch: pa.RecordBatch, place: int) -> list[Any]:
        columns = [python_values(batch.column(record_column(place, number))) for number in range(self._widths[place])]
        return list(map(self._types[place], zip(*columns, strict=True)))

    def _count(self, steps: np.ndarray, times: pa.Array) -> None:
        known = times.is_valid().to_numpy(zero_copy_only=False)
        late = known & (times.fill_null(0).to_numpy(zero_copy_only=False) < self._bounds[steps])
        which = self._of_step[steps]
        for place, extractor in enumerate(self._extractors):
            if extractor is not None:
                for row in np.flatnonzero(which == place).tolist():
                    time = event_time(extractor, self._records[row])
                    late[row] = time is not None and time < self._at[self._steps[row]]
        for place in range(len(self._types)):
            mine = which == place
            self.seen[place] += int(mine.sum())
            self.late[place] += int((late & mine).sum())
