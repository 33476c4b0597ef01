"""Whether a record in Avro's binary encoding has a number that is longer than its type: a long of more than 64 bits, or
the place in a union of more than 32. Avro's own reader drops the bits that are too many."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import Column

_SIZES = {"float": 4, "double": 8}


class _TooLong(Exception):
    pass


@dataclass
class _Record:
    """Walks over the bytes of a record, which has been read already, so its shape is right."""

    data: bytes
    at: int = 0

    def number(self, bits: int = 64) -> int:
        found = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            found |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        if found >> bits:
            raise _TooLong
        return (found >> 1) ^ -(found & 1)

    def skip(self, size: int) -> None:
        self.at += size

    def value(self, of: Any) -> None:
        """Pass over a value of the schema `of`."""
        if isinstance(of, list):
            return self.value(of[self.number(32)])
        kind = of["type"] if isinstance(of, dict) else of
        if kind == "record":
            for field in of["fields"]:
                self.value(field["type"])
        elif kind in ("array", "map"):
            self._blocks(of, keys=kind == "map")
        elif kind in ("string", "bytes"):
            self.skip(self.number())
        elif kind == "fixed":
            self.skip(of["size"])
        elif kind == "long":
            self.number()
        else:
            self.skip(_SIZES.get(kind, 0))
        return None

    def _blocks(self, of: Any, *, keys: bool) -> None:
        while count := self.number():
            if count < 0:  # the size of the block follows
                self.number()
            for _ in range(abs(count)):
                if keys:
                    self.value("string")
                self.value(of["values" if keys else "items"])


@dataclass(frozen=True)
class TooLong:
    """For records (binary) of the schema `written`, as JSON: whether they have a number that is too long; null for
    null."""

    written: str

    @cached_property
    def _schema(self) -> Any:
        return json.loads(self.written)

    def __call__(self, records: pa.Array) -> pa.Array:
        if records.null_count == len(records):
            return pa.nulls(len(records), pa.bool_())
        return pa.array([None if data is None else self._found(data) for data in records.to_pylist()], pa.bool_())

    def _found(self, data: bytes) -> bool:
        try:
            _Record(data).value(self._schema)
        except (_TooLong, IndexError):
            return True
        return False


def has_too_long(written: str, records: str) -> Callable[[], Column]:
    """Makes the column of `TooLong` over the column `records`, in a session of Spark."""
    found = TooLong(written)

    def walk(batch):  # without annotations: Spark would read them
        return found(batch)

    def column() -> Column:
        from tidegate.pipelines.spark_versions import over_arrays

        return over_arrays(walk, [pa.binary()], "BOOLEAN")(records)

    return column
