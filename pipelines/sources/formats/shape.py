"""What a parser gives becomes rows of values: the same nested shape, with other scalars.

A *wire* value is what a parser gives: STRUCTs, ARRAYs and MAPs as declared, and where the type is a scalar STRING, or
what a format that is no text has in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tidegate.pipelines.connectors.table import Column
from tidegate.pipelines.sources.formats import text
from tidegate.pipelines.syntax.dialect import parse_type
from tidegate.pipelines.syntax.types import (
    BINARIES,
    MAX_FRACTION,
    NESTED,
    TIMESTAMPS,
    FlinkType,
    Kind,
    quoted,
    spark_string,
)

Leaf = Callable[[str, FlinkType], str]
"""SQL of a wire scalar, and its type, to SQL of the value; NULL where it does not fit."""

Scalar = Callable[[FlinkType], str]
"""A scalar type to Spark's DDL of its wire value."""

Show = Callable[[str, FlinkType], str]
"""SQL of a wire value, and its type, to SQL of what people see of it."""

SHOWN = 60
"""Characters of a value that an error shows."""


def text_scalar(of: FlinkType) -> str:
    """The wire type of a scalar in a format of text."""
    return "STRING"


def wire_type(of: FlinkType, scalar: Scalar = text_scalar) -> str:
    """Spark's DDL of the wire value of a type."""
    if of.kind is Kind.ARRAY:
        return f"ARRAY<{wire_type(of.element, scalar)}>"
    if of.kind is Kind.MAP:
        return f"MAP<STRING, {wire_type(of.element, scalar)}>"
    if of.kind is Kind.ROW:
        return f"STRUCT<{', '.join(f'{quoted(field.name)}: {wire_type(field.type, scalar)}' for field in of.fields)}>"
    return scalar(of)


def wire_row(columns: Sequence[Column], scalar: Scalar = text_scalar) -> str:
    """Spark's DDL of the wire row of a table."""
    fields = (f"{quoted(column.name)}: {wire_type(parse_type(column.type), scalar)}" for column in columns)
    return f"STRUCT<{', '.join(fields)}>"


def nested(columns: Sequence[Column]) -> list[Column]:
    """The columns that are no scalars."""
    return [column for column in columns if parse_type(column.type).kind in NESTED]


def as_it_is(wire: str, of: FlinkType) -> str:
    """What is fit for people already."""
    return wire


def value(wire: str, of: FlinkType, leaf: Leaf, depth: int = 0) -> str:
    """SQL of the value that the wire value `wire` (SQL) stands for."""
    item, key = f"x{depth}", f"k{depth}"
    if of.kind is Kind.ARRAY:
        return f"transform({wire}, {item} -> {value(item, of.element, leaf, depth + 1)})"
    if of.kind is Kind.MAP:
        return f"transform_values({wire}, ({key}, {item}) -> {value(item, of.element, leaf, depth + 1)})"
    if of.kind is Kind.ROW:
        fields = [
            f"{spark_string(field.name)}, {value(f'{wire}.{quoted(field.name)}', field.type, leaf, depth)}"
            for field in of.fields
        ]
        return f"IF({wire} IS NULL, NULL, named_struct({', '.join(fields)}))"
    return leaf(wire, of)


def misfit(wire: str, found: str, of: FlinkType, depth: int = 0, *, inside: bool = False) -> str:
    """SQL of whether some scalar of `wire` became no value, or a NULL stands `inside` where the type has none; `found`
    is SQL of the value."""
    item, other = f"w{depth}", f"v{depth}"
    if of.kind in (Kind.ARRAY, Kind.MAP):
        values = (wire, found) if of.kind is Kind.ARRAY else (f"map_values({wire})", f"map_values({found})")
        wrong = misfit(item, other, of.element, depth + 1, inside=True)
        each = f"zip_with({values[0]}, {values[1]}, ({item}, {other}) -> {wrong})"
        misfits = f"coalesce(exists({each}, {item} -> {item}), false)"
    elif of.kind is Kind.ROW:
        fields = [
            misfit(f"{wire}.{quoted(field.name)}", f"{found}.{quoted(field.name)}", field.type, depth, inside=True)
            for field in of.fields
        ]
        misfits = f"({wire} IS NOT NULL AND ({' OR '.join(fields)}))"
    else:
        misfits = f"({wire} IS NOT NULL AND {found} IS NULL)"
    return f"({misfits} OR {wire} IS NULL)" if inside and not of.nullable else misfits


def excluded(value: str, of: FlinkType, depth: int = 0, *, inside: bool = False) -> str:
    """SQL of whether `value`, which has its Spark type already, is none of the declared type: too long, too fine, or a
    NULL `inside` where the type has none. Empty where every value is one."""
    item, found = f"v{depth}", []
    if of.kind in (Kind.ARRAY, Kind.MAP):
        parts = [(value, of.element)]
        if of.kind is Kind.MAP:
            parts = [(f"map_keys({value})", of.arguments[0]), (f"map_values({value})", of.element)]
        for items, each in parts:
            if wrong := excluded(item, each, depth + 1, inside=True):
                found.append(f"exists({items}, {item} -> {wrong})")
    elif of.kind is Kind.ROW:
        fields = [excluded(f"{value}.{quoted(field.name)}", field.type, depth, inside=True) for field in of.fields]
        if fields := [field for field in fields if field]:
            found.append(f"({value} IS NOT NULL AND ({' OR '.join(fields)}))")
    elif of.kind in TIMESTAMPS and text.precision(of) < MAX_FRACTION:
        found.append(f"(extract(SECOND FROM {value}) * 1000000) % {10 ** (MAX_FRACTION - text.precision(of))} <> 0")
    elif longer := text.too_long(value, of):
        found.append(longer)
    checks = [f"coalesce({part}, false)" for part in found]
    if inside and not of.nullable:
        checks.append(f"{value} IS NULL")
    return f"({' OR '.join(checks)})" if checks else ""


def excluded_error(columns: Sequence[Column], row: str, ends: str | None = None, key: Sequence[str] = ()) -> str:
    """SQL of the sentence that says which column of `row`, a STRUCT of values in their Spark types, its declaration
    excludes, or NULL. `ends`: SQL of whether the row says only that its `key` is gone: then no other column counts."""
    cases: list[str] = []
    for column in columns:
        of, value = parse_type(column.type), f"{row}.{quoted(column.name)}"
        counts = "" if ends is None or column.name in key else f"NOT ({ends}) AND "
        if wrong := excluded(value, of):
            text_of = f"to_json({value})" if of.kind in NESTED else _show(value, of)
            start, end = spark_string(f"column {column.name}: '"), spark_string(f"' does not fit {column.type}")
            cases.append(f"WHEN {counts}{wrong} THEN concat({start}, substring({text_of}, 1, {SHOWN}), {end})")
        if not column.nullable:
            missing = spark_string(f"column {column.name} is NOT NULL, and the row has no value for it")
            cases.append(f"WHEN {counts}{value} IS NULL THEN {missing}")
    return f"CASE {' '.join(cases)} END" if cases else "CAST(NULL AS STRING)"


def _show(value: str, of: FlinkType) -> str:
    return f"hex({value})" if of.kind in BINARIES else f"CAST({value} AS STRING)"


@dataclass(frozen=True)
class Row:
    """SQL that turns the wire row of a table into its values.

    `leaf` makes the reader of one column's scalars; `show` makes a wire value fit for people.
    """

    columns: tuple[Column, ...]
    leaf: Callable[[Column], Leaf]
    show: Show = as_it_is

    def fields(self, wire: str) -> str:
        """The STRUCT of all physical columns; `wire` must not be null."""
        values = [
            f"{spark_string(column.name)}, CAST("
            f"{value(f'{wire}.{quoted(column.name)}', parse_type(column.type), self.leaf(column))}"
            f" AS {column.spark_type})"
            for column in self.columns
        ]
        return f"named_struct({', '.join(values)})"

    def error(self, wire: str, fields: str, needed: Sequence[str] | None = None) -> str:
        """The sentence that says which column does not fit, or NULL. `needed`: the columns that must have a value; by
        default those that are NOT NULL."""
        cases: list[str] = []
        for column in self.columns:
            of = parse_type(column.type)
            value, found = f"{wire}.{quoted(column.name)}", f"{fields}.{quoted(column.name)}"
            shown = f"to_json({value})" if of.kind in NESTED else value
            start_of_value = f"substring({self.show(shown, of)}, 1, {SHOWN})"
            start, end = spark_string(f"column {column.name}: '"), spark_string(f"' does not fit {column.type}")
            cases.append(f"WHEN {misfit(value, found, of)} THEN concat({start}, {start_of_value}, {end})")
            if (not column.nullable) if needed is None else (column.name in needed):
                missing = spark_string(f"column {column.name} is NOT NULL, and the message has no value for it")
                cases.append(f"WHEN {found} IS NULL THEN {missing}")
        return f"CASE {' '.join(cases)} END"


def map_literal(given: dict[str, str]) -> str:
    """The MAP literal that from_json and from_csv take as options."""
    return f"map({', '.join(spark_string(word) for pair in given.items() for word in pair)})"
