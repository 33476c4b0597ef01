"""A table of every type, and the ways in which people read it, each filter of each column held against plain Python."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import DeltaTable, QueryBuilder

Row = Mapping[str, Any]
Filter = tuple[str, str, Sequence[Any]]
"""A column, an operator, and its values."""

LONG = "a text that is longer than thirty-two characters"
FAR = "ÿ" * 31 + "\U0010ffff" * 3
AT, EARLY = dt.datetime(2026, 1, 2, 3, 4, 5, 678901), dt.datetime(1969, 1, 2, 3, 4, 5, 678901)

TYPES: dict[str, tuple[str, pa.DataType, list[Any]]] = {
    "flag": ("BOOLEAN", pa.bool_(), [True, False]),
    "tiny": ("TINYINT", pa.int8(), [-128, 5, 127]),
    "small": ("SMALLINT", pa.int16(), [-300, 0, 300]),
    "whole": ("INT", pa.int32(), [-7, 0, 2**31 - 1]),
    "big": ("BIGINT", pa.int64(), [-(2**60) - 1, 1, 2**60 + 1]),
    "single": ("FLOAT", pa.float32(), [1.5, math.nan, math.inf, -2.5]),
    "double": ("DOUBLE", pa.float64(), [1.5, -math.inf, 2.5, math.nan]),
    "money": ("DECIMAL(10,2)", pa.decimal128(10, 2), [Decimal("5.00"), Decimal("2000.01"), Decimal("-0.01")]),
    "exact": (
        "DECIMAL(38,9)",
        pa.decimal128(38, 9),
        [Decimal(f"{10**28}.123456789"), Decimal(0), Decimal(1 - 10**29)],
    ),
    "word": ("STRING", pa.string(), ["short", LONG, "", FAR]),
    "essay": ("STRING", pa.string(), ["x" * 5000, "y", "x" * 4999]),
    "raw": ("BINARY", pa.binary(), [b"a", b"\xff" * 40]),
    "day": ("DATE", pa.date32(), [dt.date(1999, 12, 31), dt.date(2026, 1, 2)]),
    "local": ("TIMESTAMP_NTZ", pa.timestamp("us"), [AT, EARLY]),
    "instant": (
        "TIMESTAMP",
        pa.timestamp("us", "UTC"),
        [at.replace(tzinfo=dt.UTC) for at in (AT, EARLY)],
    ),
}
"""Name -> Spark's type, Arrow's type, values."""

LATER = {"later": ("INT", pa.int32(), [7]), "text": ("STRING", pa.string(), [LONG])}
"""Columns that are added later."""

_ALL = TYPES | LATER


def rows(number: int, *, nulls: bool, names: Sequence[str] = tuple(TYPES)) -> list[dict[str, Any]]:
    """Some rows of a file, of which each has other values; with `nulls` every third is NULL, and some columns are NULL
    as a whole."""

    def value(name: str, row: int) -> Any:
        values = _ALL[name][2]
        absent = nulls and (row % 3 == 2 or (len(name) + number) % 3 == 0)
        return None if absent else values[(row + number) % len(values)]

    return [{name: value(name, row) for name in names} for row in range(6)]


def schema(names: Sequence[str] = tuple(TYPES)) -> pa.Schema:
    return pa.schema([(name, _ALL[name][1]) for name in names])


def filters(names: Sequence[str] = tuple(TYPES)) -> Iterator[Filter]:
    """=, <, >, IN, LIKE, IS NULL, IS NOT NULL on each column."""
    for name in names:
        # NaN is equal to itself, and greater than all, in some engines alone.
        values = [value for value in _ALL[name][2] if not (isinstance(value, float) and not math.isfinite(value))]
        yield from ((name, "=", [value]) for value in values)
        yield name, "<", values[-1:]
        if _ALL[name][1] not in (pa.float32(), pa.float64()):
            yield name, ">", values[:1]
        yield name, "IN", values[:2]
        if _ALL[name][0] == "STRING":
            yield name, "LIKE", ["x%" if name == "essay" else "a text%"]
        yield name, "IS NULL", []
        yield name, "IS NOT NULL", []


def right(given: Sequence[Row], wanted: Filter) -> int:
    """How many rows it takes."""
    name, operator, values = wanted
    found: dict[str, Callable[[Any], bool]] = {
        "=": lambda value: value == values[0],
        "<": lambda value: value < values[0],
        ">": lambda value: value > values[0],
        "IN": lambda value: value in values,
        "LIKE": lambda value: value.startswith(values[0][:-1]),
        "IS NOT NULL": lambda value: True,
    }
    column = [row.get(name) for row in given]
    if operator == "IS NULL":
        return column.count(None)
    return sum(value is not None and found[operator](value) for value in column)


def sql(wanted: Filter, literal: Callable[[str, Any], str]) -> str:
    """The filter in SQL; `literal` has a value of a type in the engine's own words."""
    name, operator, values = wanted
    given = [literal(_ALL[name][0], value) for value in values]
    if operator == "IN":
        return f"{name} IN ({', '.join(given)})"
    return " ".join([name, operator, *given])


def literal(binary: str, tz: str) -> Callable[[str, Any], str]:
    """Literals of an engine: `binary` has a place for hexadecimal digits, `tz` is its type of an instant."""

    def of(kind: str, value: Any) -> str:
        if isinstance(value, bytes):
            return binary.format(value.hex())
        value = f"{value:f}" if isinstance(value, Decimal) else value
        without = "TIMESTAMP" if tz != "TIMESTAMP" else "TIMESTAMP_NTZ"
        named = {"TIMESTAMP": tz, "TIMESTAMP_NTZ": without}.get(kind, kind)
        return f"'{value}'" if kind == "STRING" else f"CAST('{value}' AS {named})"

    return of


def _arrow(wanted: Filter) -> ds.Expression:
    name, operator, values = wanted
    field, given = ds.field(name), [pa.scalar(value, _ALL[name][1]) for value in values]
    if operator in ("=", "<", ">"):
        return {"=": field.__eq__, "<": field.__lt__, ">": field.__gt__}[operator](given[0])
    if operator == "IN":
        return field.isin(pa.array(values, _ALL[name][1]))
    if operator == "LIKE":
        return pa.compute.starts_with(field, values[0][:-1])
    return field.is_null() if operator == "IS NULL" else field.is_valid()


def _polars(wanted: Filter) -> pl.Expr:
    name, operator, values = wanted
    kind = pl.Series([], dtype=None).dtype if not values else pl.from_arrow(pa.array(values, _ALL[name][1])).dtype
    column, given = pl.col(name), [pl.lit(value, kind) for value in values]
    if operator in ("=", "<", ">"):
        return {"=": column.__eq__, "<": column.__lt__, ">": column.__gt__}[operator](given[0])
    if operator == "IN":
        return column.is_in(pl.Series(values, dtype=kind))
    if operator == "LIKE":
        return column.str.starts_with(values[0][:-1])
    return column.is_null() if operator == "IS NULL" else column.is_not_null()


def wrong(path: Path, given: Sequence[Row], names: Sequence[str] = tuple(TYPES)) -> list[tuple[str, Filter, int, int]]:
    """The filters for which a reader of the table at `path` takes another number of rows than `given` has: reader,
    filter, its number, the right one."""
    delta = DeltaTable(path)
    dataset = delta.to_pyarrow_dataset()
    table, lazy = pl.from_arrow(delta.to_pyarrow_table()), pl.scan_delta(str(path))
    own = QueryBuilder().register("t", delta)
    of_duckdb, of_own = literal("unhex('{}')", "TIMESTAMPTZ"), literal("X'{}'", "TIMESTAMP WITH TIME ZONE")
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("t", dataset)

        def by_duckdb(wanted: Filter) -> int:
            return connection.execute(f"SELECT count(*) FROM t WHERE {sql(wanted, of_duckdb)}").fetchall()[0][0]

        def by_delta_rs(wanted: Filter) -> int:
            answer = own.execute(f"SELECT count(*) AS n FROM t WHERE {sql(wanted, of_own)}")
            return pa.table(answer.read_all())["n"][0].as_py()

        readers: dict[str, Callable[[Filter], int]] = {
            "delta-rs's dataset": lambda wanted: dataset.count_rows(filter=_arrow(wanted)),
            "pandas": lambda wanted: len(delta.to_pandas(columns=[wanted[0]], filters=_arrow(wanted))),
            "DuckDB": by_duckdb,
            "delta-rs's engine": by_delta_rs,
            "Polars": lambda wanted: table.filter(_polars(wanted)).height,
            "Polars, lazily": lambda wanted: lazy.filter(_polars(wanted)).select(pl.len()).collect().item(),
        }
        found = [
            (name, wanted, read(wanted), right(given, wanted))
            for wanted in filters(names)
            for name, read in readers.items()
        ]
    return [each for each in found if each[2] != each[3]]
