"""A user function over Arrow batches, on a Spark worker: an array in for every argument, one array out.

Beside its arguments it gets the rows' `_split` and `_offset`, so that a failure names the very row.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

from tidegate.pipelines.functions.reading import FunctionProblem, UserFunction, load

LONGEST = 300
"""Characters of a function's own message that are shown."""


@dataclass(frozen=True)
class Results:
    """What results must be: instances of `python`, but for those of `never`, which are subclasses of it."""

    arrow: pa.DataType
    python: tuple[type, ...]
    never: tuple[type, ...] = ()


RESULTS: dict[str, Results] = {
    "BIGINT": Results(pa.int64(), (int,), (bool,)),
    "DOUBLE": Results(pa.float64(), (float, int), (bool,)),
    "DECIMAL(38, 18)": Results(pa.decimal128(38, 18), (Decimal, int), (bool,)),
    "STRING": Results(pa.string(), (str,)),
    "BOOLEAN": Results(pa.bool_(), (bool,)),
    "BYTES": Results(pa.binary(), (bytes,)),
    "DATE": Results(pa.date32(), (date,), (datetime,)),
    "TIMESTAMP(6)": Results(pa.timestamp("us"), (datetime,)),
}
"""By Flink's name of the declared type. An aware datetime is brought to UTC, a naive one is UTC."""


class FunctionFailed(Exception):
    """A user function that raised, or gave what it does not declare."""


@dataclass(frozen=True)
class ArrowFunction:
    """Calls `function` once a row. `path`: where the driver found its modules, searched behind the worker's own.

    A NULL for a parameter that is not Optional makes the result NULL without a call, as SQL's functions have it.
    """

    function: UserFunction
    path: tuple[str, ...] = ()

    def __call__(self, splits: pa.Array, offsets: pa.Array, *columns: pa.Array) -> pa.Array:
        call = self._loaded()
        wanted = RESULTS[self.function.type]
        strict = [place for place, _ in enumerate(columns) if not self.function.parameters[place].takes_null]
        rows = zip(*[column.to_pylist() for column in columns], strict=True) if columns else ((),) * len(splits)
        values: list[Any] = []
        for row, arguments in enumerate(rows):
            if any(arguments[place] is None for place in strict):
                values.append(None)
                continue
            try:
                value = call(*arguments)
            except (Exception, SystemExit) as error:  # a worker that exits takes the row's place with it
                raise self._failed(splits, offsets, row, _why(error)) from error
            self._check(value, wanted, splits, offsets, row)
            values.append(value)
        return self._array(values, wanted.arrow, splits, offsets)

    def _loaded(self) -> Callable[..., Any]:
        try:
            return load(self.function.reference, self.path)
        except FunctionProblem as problem:
            raise FunctionFailed(
                f"function {self.function.name} is not to be had on a worker: {problem.what}"
            ) from None

    def _check(self, value: Any, wanted: Results, splits: pa.Array, offsets: pa.Array, row: int) -> None:
        if value is None:
            if not self.function.gives_null:
                why = "it returned None, and is not annotated to (`-> … | None`)"
                raise self._failed(splits, offsets, row, why)
        elif not isinstance(value, wanted.python) or isinstance(value, wanted.never):
            why = f"it returned a {type(value).__name__}, and declares {self.function.type}"
            raise self._failed(splits, offsets, row, why)

    def _array(self, values: list[Any], kind: pa.DataType, splits: pa.Array, offsets: pa.Array) -> pa.Array:
        """`values` as one array; where one does not fit (too great a number), its row is looked for."""
        try:
            return pa.array(values, kind)
        except (pa.ArrowException, OverflowError, ValueError):
            for row, value in enumerate(values):
                try:
                    pa.array([value], kind)
                except (pa.ArrowException, OverflowError, ValueError):
                    why = f"its result does not fit {self.function.type}"
                    raise self._failed(splits, offsets, row, why) from None
            raise

    def _failed(self, splits: pa.Array, offsets: pa.Array, row: int, why: str) -> FunctionFailed:
        place = f"split {splits[row].as_py()}, offset {offsets[row].as_py()}"
        return FunctionFailed(f"function {self.function.name} failed at {place}: {why}")


def _why(error: BaseException) -> str:
    """An exception on one line, with the line of the function that it came out of. Files by their last name only."""
    message = " ".join(str(error).split())
    what = f"{type(error).__name__}: {message[:LONGEST]}" if message else type(error).__name__
    frames = traceback.extract_tb(error.__traceback__)[1:]
    return f"{what} ({os.path.basename(frames[0].filename)}:{frames[0].lineno})" if frames else what
