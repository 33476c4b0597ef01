"""A script's own functions, called on a Spark worker over Arrow batches: an array for every argument, one array as the
result. A function also gets the rows' `_split` and `_offset`, so that a failure names the row; where the split is NULL,
the value is not needed."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidegate.pipelines.functions import FunctionProblem, UserFunction, load
from tidegate.pipelines.spark_versions import over_arrays

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LONGEST = 300
"""Characters of a function's own message that are shown."""


@dataclass(frozen=True)
class Results:
    """The type that a function's results must have: instances of `python`, but of none of its subclasses in `never`."""

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
"""By Flink's name of the declared type. An aware datetime is converted to UTC, a naive one is taken as UTC."""


class FunctionFailed(Exception):
    """A user function that raised, or returned a value of another type than it declares."""


@dataclass(frozen=True)
class ArrowFunction:
    """Calls `function` once a row. `path`: where the driver found its modules; they are searched there after the
    worker's own path. A NULL for a parameter that is not Optional makes the result NULL without a call, as in SQL. So
    does a split that is NULL (see `called_where`)."""

    function: UserFunction
    path: tuple[str, ...] = ()

    def __call__(self, splits: pa.Array, offsets: pa.Array, *columns: pa.Array) -> pa.Array:
        call = self._loaded()
        wanted = RESULTS[self.function.type]
        strict = [place for place, _ in enumerate(columns) if not self.function.parameters[place].takes_null]
        rows = zip(*[column.to_pylist() for column in columns], strict=True) if columns else ((),) * len(splits)
        needed = splits.is_valid().to_pylist() if splits.null_count else (True,) * len(splits)
        values: list[Any] = []
        for row, arguments in enumerate(rows):
            if not needed[row] or any(arguments[place] is None for place in strict):
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
                f"function {self.function.name} cannot be loaded on a worker: {problem.what}"
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
        """`values` as one array; if a value does not fit (a number that is too large), the error names its row."""
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
    """An exception on one line, with the line of the function that raised it; files by their names alone."""
    message = " ".join(str(error).split())
    what = f"{type(error).__name__}: {message[:LONGEST]}" if message else type(error).__name__
    frames = traceback.extract_tb(error.__traceback__)[1:]
    return f"{what} ({os.path.basename(frames[0].filename)}:{frames[0].lineno})" if frames else what


def register(spark: SparkSession, functions: Iterable[UserFunction]) -> None:
    """Register `functions` under their `spark_name`, as vectorised functions over Arrow batches. It may be repeated,
    and has to be in a session that was started anew. Expressions pass `_split` and `_offset` as their first arguments,
    so a frame must have both columns."""
    from tidegate.pipelines.syntax.dialect import parse_type

    for function in functions:
        arguments = [pa.string(), pa.int64(), *(RESULTS[parameter.type].arrow for parameter in function.parameters)]
        of_spark = over_arrays(_batches(function), arguments, parse_type(function.type).spark)
        spark.udf.register(function.spark_name, of_spark)


def _batches(function: UserFunction) -> Callable[..., pa.Array]:
    """A plain function: Spark takes no other callable."""
    over = ArrowFunction(function, tuple(entry or os.getcwd() for entry in sys.path))

    def call(splits, offsets, *columns):  # without annotations: Spark would read them
        return over(splits, offsets, *columns)

    return call
