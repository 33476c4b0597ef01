"""A task's rows as keys and records: Arrow batches in, sorted by bucket, key and order; one key after another out."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from operator import ne
from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.pipelines.process.engine.arrow_values import python_values
from tidegate.pipelines.process.engine.epoch import KeyedRecord
from tidegate.pipelines.process.generator import event_time
from tidegate.pipelines.process.values import record_type

BUCKET, STEP, TIME = "_bucket", "_step", "_time"


def key_column(place: int) -> str:
    """What a part of the key is called in a task's batches."""
    return f"_key{place}"


def record_column(input: int, place: int) -> str:
    """What a column of an input is called in a task's batches."""
    return f"_in{input}_{place}"


@dataclass(frozen=True)
class InputShape:
    """The columns that a record of an input has, by their names in the table. `time`: what takes a record's event time
    out of it, pickled; None where that is `_time`."""

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
        """The next key."""
        return self._keys[self._low]

    def records(self) -> Iterator[KeyedRecord]:
        """The records of the next key, as they are in the batches. Must be read to its end before going on."""
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
        """Decode the next batch that has rows; at the end of them `_ends` stays empty."""
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
