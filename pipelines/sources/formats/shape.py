"""Parsed messages become rows of values: the same nested shape, with other scalars.

A *wire* value is what a parser returns: STRUCTs, ARRAYs and MAPs as declared, and for a scalar type STRING, or the
equivalent of a format that is no text. Text becomes values of one type exactly: what does not fit gives NULL, and no
digit is ever rounded away. Functions take SQL and return SQL.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tidegate.pipelines.connectors.table import Column
from tidegate.pipelines.syntax.dialect import parse_type
from tidegate.pipelines.syntax.types import (
    APPROXIMATE,
    BINARIES,
    INTEGERS,
    MAX_FRACTION,
    NESTED,
    STRINGS,
    TIMESTAMPS,
    FlinkType,
    Kind,
    quoted,
    spark_string,
)

STANDARDS = ("SQL", "ISO-8601")
"""How timestamps may be written; the first is the default."""

_DAY = r"\d{4}-\d{2}-\d{2}"
_NUMBER = r"^\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*$"
_PARTS = r"^\s*[+-]?(\d*)\.?(\d*)[eE]([+-]?\d+)\s*$"
_WORDS = "('NaN', 'Infinity', '-Infinity')"


def scalar(sql: str, of: FlinkType, standard: str = STANDARDS[0]) -> str:
    """A scalar of type `of`. `standard`: one of STANDARDS."""
    kind = of.kind
    if kind in STRINGS:
        return within(sql, of)
    if kind in INTEGERS:
        return f"try_cast({sql} AS {of.spark})"
    if kind is Kind.DECIMAL:
        return decimal(sql, of)
    if kind in APPROXIMATE:
        return approximate(sql, of)
    if kind is Kind.BOOLEAN:
        return f"CASE lower(trim({sql})) WHEN 'true' THEN true WHEN 'false' THEN false END"
    if kind in BINARIES:
        return within(f"try_to_binary({sql}, 'base64')", of)
    if kind is Kind.DATE:
        return matched(sql, f"^{_DAY}$", f"try_cast({sql} AS DATE)")
    return timestamp(sql, of, standard)


def within(sql: str, of: FlinkType) -> str:
    """SQL of text or bytes that has its type already; NULL where it is longer than the type."""
    longer = too_long(sql, of)
    return f"IF({longer}, NULL, {sql})" if longer else sql


def too_long(sql: str, of: FlinkType) -> str:
    """SQL of whether text or bytes are longer than their type; empty where the type has no length."""
    if of.precision is None or of.kind not in (*STRINGS, *BINARIES):
        return ""
    return f"({'char_length' if of.kind in STRINGS else 'octet_length'}({sql}) > {of.precision})"


def decimal(sql: str, of: FlinkType) -> str:
    """A DECIMAL, in plain or scientific notation; NULL where it has more digits than the type."""
    scale = of.scale or 0
    number = f"try_cast({sql} AS {of.spark})"
    plain = matched(sql, rf"^\s*[+-]?\d*\.?\d{{0,{scale}}}0*\s*$", number)
    # How many digits after the point remain once the exponent has moved it and zeros at the end are left out.
    whole, fraction, exponent = (f"regexp_extract({sql}, {spark_string(_PARTS)}, {group})" for group in (1, 2, 3))
    digits = f"concat({whole}, {fraction})"
    significant = f"length(trim(TRAILING '0' FROM {digits}))"
    rest = f"length({fraction}) - (length({digits}) - {significant}) - try_cast({exponent} AS BIGINT)"
    zero = f"WHEN {digits} = '' THEN NULL WHEN {significant} = 0 THEN CAST(0 AS {of.spark})"
    exact = f"CASE {zero} WHEN {rest} <= {scale} THEN {number} END"
    return f"coalesce({plain}, {matched(sql, _PARTS, exact)})"


def approximate(sql: str, of: FlinkType) -> str:
    """A FLOAT or DOUBLE; NULL where the number is too great for it."""
    number = f"try_cast({sql} AS {of.spark})"
    finite = f"IF(abs({number}) < CAST('Infinity' AS {of.spark}), {number}, NULL)"
    return f"CASE WHEN trim({sql}) IN {_WORDS} THEN {number} WHEN {matches(sql, _NUMBER)} THEN {finite} END"


def timestamp(sql: str, of: FlinkType, standard: str) -> str:
    """A timestamp; one with local time zone has an offset (Z, +01:00) at its end. NULL where it is finer than its
    type."""
    iso = standard == "ISO-8601"
    separator, seconds = ("T", r"(:\d{2}") if iso else (" ", r":\d{2}")
    fraction = rf"(\.(?=\d)\d{{0,{precision(of)}}}0*)?"
    zone = r"(Z|[+-]\d{2}:\d{2})" if of.kind is Kind.TIMESTAMP_LTZ else ""
    closing = ")?" if iso else ""
    pattern = rf"^{_DAY}{separator}\d{{2}}:\d{{2}}{seconds}{fraction}{closing}{zone}$"
    return matched(sql, pattern, f"try_cast({sql} AS {of.spark})")


def since_epoch(sql: str, of: FlinkType, digits: int) -> str:
    """A timestamp of a whole number since 1970, of seconds with `digits` more digits: 3 (ms), 6 (us) or 9 (ns). NULL
    where it is finer than its type."""
    number = f"try_cast({sql} AS BIGINT)"
    moment = {3: f"timestamp_millis({number})", 6: f"timestamp_micros({number})"}.get(
        digits, f"timestamp_micros({number} DIV 1000L)"
    )
    finer = 10 ** max(digits - precision(of), 0)
    fits = f"IF({number} % {finer}L = 0, CAST({moment} AS {of.spark}), NULL)"
    # More digits of ms would be more us than a BIGINT holds.
    return matched(sql, rf"^-?\d{{1,{15 if digits == 3 else 18 if digits == 6 else 19}}}$", fits)


def precision(of: FlinkType) -> int:
    """Digits after the second."""
    return MAX_FRACTION if of.precision is None else of.precision


def matches(sql: str, pattern: str) -> str:
    """Whether the text matches a regular expression."""
    return f"{sql} RLIKE {spark_string(pattern)}"


def matched(sql: str, pattern: str, then: str) -> str:
    """`then` where the text matches, else NULL."""
    return f"CASE WHEN {matches(sql, pattern)} THEN {then} END"


Leaf = Callable[[str, FlinkType], str]
"""SQL of a wire scalar, and its type, to SQL of the value; NULL where it does not fit."""

Scalar = Callable[[FlinkType], str]
"""A scalar type to Spark's DDL of its wire value."""

Show = Callable[[str, FlinkType], str]
"""SQL of a wire value, and its type, to SQL of what people see of it."""

SHOWN = 60
"""Characters of a value that an error shows."""


def wire_type(of: FlinkType, scalar: Scalar = lambda of: "STRING") -> str:
    """Spark's DDL of the wire value of a type; by default of a format of text."""
    if of.kind is Kind.ARRAY:
        return f"ARRAY<{wire_type(of.element, scalar)}>"
    if of.kind is Kind.MAP:
        return f"MAP<STRING, {wire_type(of.element, scalar)}>"
    if of.kind is Kind.ROW:
        return f"STRUCT<{', '.join(f'{quoted(field.name)}: {wire_type(field.type, scalar)}' for field in of.fields)}>"
    return scalar(of)


def wire_row(columns: Sequence[Column], scalar: Scalar = lambda of: "STRING") -> str:
    """Spark's DDL of the wire row of a table, under the names that the source has."""
    fields = (f"{quoted(column.source_name)}: {wire_type(parse_type(column.type), scalar)}" for column in columns)
    return f"STRUCT<{', '.join(fields)}>"


def nested(columns: Sequence[Column]) -> list[Column]:
    """The columns that are no scalars."""
    return [column for column in columns if parse_type(column.type).kind in NESTED]


def value(wire: str, of: FlinkType, leaf: Leaf, depth: int = 0) -> str:
    """SQL of the value of the wire value `wire` (SQL)."""
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
    """SQL of whether some scalar of `wire` became no value, a MAP has a key twice or one that is too long, or a NULL
    stands `inside` where the type has none; `found` is SQL of the value."""
    item, other = f"w{depth}", f"v{depth}"
    if of.kind in (Kind.ARRAY, Kind.MAP):
        values = (wire, found) if of.kind is Kind.ARRAY else (f"map_values({wire})", f"map_values({found})")
        wrong = misfit(item, other, of.element, depth + 1, inside=True)
        each = f"zip_with({values[0]}, {values[1]}, ({item}, {other}) -> {wrong})"
        misfits = f"coalesce(exists({each}, {item} -> {item}), false)"
        if of.kind is Kind.MAP:
            longer = too_long(item, of.arguments[0])
            keys = f" OR coalesce(exists(map_keys({wire}), {item} -> {longer}), false)" if longer else ""
            misfits = f"({misfits} OR {_has_key_twice(wire)}{keys})"
    elif of.kind is Kind.ROW:
        fields = [
            misfit(f"{wire}.{quoted(field.name)}", f"{found}.{quoted(field.name)}", field.type, depth, inside=True)
            for field in of.fields
        ]
        misfits = f"({wire} IS NOT NULL AND ({' OR '.join(fields)}))"
    else:
        misfits = f"({wire} IS NOT NULL AND {found} IS NULL)"
    return f"({misfits} OR {wire} IS NULL)" if inside and not of.nullable else misfits


def _has_key_twice(value: str) -> str:
    """SQL of whether a MAP has a key twice. Parsers and files keep both, and readers differ in which of them counts."""
    return f"coalesce(size(array_distinct(map_keys({value}))) < size({value}), false)"


def excluded(value: str, of: FlinkType, depth: int = 0, *, inside: bool = False) -> str:
    """SQL of whether `value`, which has its Spark type already, is none of the declared type: too long, too fine, a MAP
    that has a key twice, or a NULL `inside` where the type has none. Empty where every value is one."""
    item, found = f"v{depth}", []
    if of.kind in (Kind.ARRAY, Kind.MAP):
        parts = [(value, of.element)]
        if of.kind is Kind.MAP:
            parts = [(f"map_keys({value})", of.arguments[0]), (f"map_values({value})", of.element)]
            found.append(_has_key_twice(value))
        for items, each in parts:
            if wrong := excluded(item, each, depth + 1, inside=True):
                found.append(f"exists({items}, {item} -> {wrong})")
    elif of.kind is Kind.ROW:
        fields = [excluded(f"{value}.{quoted(field.name)}", field.type, depth, inside=True) for field in of.fields]
        if fields := [field for field in fields if field]:
            found.append(f"({value} IS NOT NULL AND ({' OR '.join(fields)}))")
    elif of.kind in TIMESTAMPS and precision(of) < MAX_FRACTION:
        found.append(f"(extract(SECOND FROM {value}) * 1000000) % {10 ** (MAX_FRACTION - precision(of))} <> 0")
    elif longer := too_long(value, of):
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
            cases.append(_case(f"{counts}{wrong}", column, text_of))
        if not column.nullable:
            missing = spark_string(f"column {column.name} is NOT NULL, and the row has no value for it")
            cases.append(f"WHEN {counts}{value} IS NULL THEN {missing}")
    return f"CASE {' '.join(cases)} END" if cases else "CAST(NULL AS STRING)"


def _case(wrong: str, column: Column, text: str) -> str:
    """A WHEN of a CASE of errors: the column's value, shown as `text`, does not fit."""
    start, end = spark_string(f"column {column.name}: '"), spark_string(f"' does not fit {column.type}")
    return f"WHEN {wrong} THEN concat({start}, substring({text}, 1, {SHOWN}), {end})"


def _no_value(column: Column) -> str:
    return spark_string(f"column {column.name} is NOT NULL, and the message has no value for it")


def _show(value: str, of: FlinkType) -> str:
    return f"hex({value})" if of.kind in BINARIES else f"CAST({value} AS STRING)"


@dataclass(frozen=True)
class Row:
    """SQL that turns the wire row of a table into its values.

    `leaf` makes the reader of one column's scalars; `show` makes a wire value fit for people.
    """

    columns: tuple[Column, ...]
    leaf: Callable[[Column], Leaf]
    show: Show = lambda wire, of: wire

    def fields(self, wire: str, *, lenient: bool = False) -> str:
        """The STRUCT of all physical columns; `wire` must not be null. What does not fit is NULL, a scalar inside of a
        column too; where `lenient` also what a column's declaration excludes."""
        values = []
        for column in self.columns:
            of = parse_type(column.type)
            sql = f"CAST({value(f'{wire}.{quoted(column.source_name)}', of, self.leaf(column))} AS {column.spark_type})"
            if lenient and of.kind in NESTED and (wrong := excluded(sql, of)):
                sql = f"IF({wrong}, NULL, {sql})"
            values.append(f"{spark_string(column.name)}, {sql}")
        return f"named_struct({', '.join(values)})"

    def missing(self, fields: str) -> str:
        """The sentence about a NOT NULL column that has no value, or NULL."""
        cases = [
            f"WHEN {fields}.{quoted(column.name)} IS NULL THEN {_no_value(column)}"
            for column in self.columns
            if not column.nullable
        ]
        return f"CASE {' '.join(cases)} END" if cases else "CAST(NULL AS STRING)"

    def error(self, wire: str, fields: str, needed: Sequence[str] | None = None) -> str:
        """The sentence that says which column does not fit, or NULL. `needed`: the columns that must have a value; by
        default those that are NOT NULL."""
        cases: list[str] = []
        for column in self.columns:
            of = parse_type(column.type)
            value, found = f"{wire}.{quoted(column.source_name)}", f"{fields}.{quoted(column.name)}"
            shown = f"to_json({value})" if of.kind in NESTED else value
            cases.append(_case(misfit(value, found, of), column, self.show(shown, of)))
            if (not column.nullable) if needed is None else (column.name in needed):
                cases.append(f"WHEN {found} IS NULL THEN {_no_value(column)}")
        return f"CASE {' '.join(cases)} END"


def map_literal(given: dict[str, str]) -> str:
    """The MAP literal that from_json and from_csv take as options."""
    return f"map({', '.join(spark_string(word) for pair in given.items() for word in pair)})"
