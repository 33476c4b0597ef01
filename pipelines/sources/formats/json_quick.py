r"""The short way for JSON messages that are plain: Spark's parser reads the declared types itself.

Spark's own reading is not exact everywhere: it rounds decimals, leaves commas out of them, wraps a TINYINT, makes 1.1
of 1.10 in a STRING. So only a message of which all that is ruled out takes this way; every other goes the long way
(json_text.py), which is exact, and says what does not fit. Both ways give the same rows.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from pipelines.sources.formats import json_text, literals, shape
from pipelines.sources.formats.format import Wanted
from pipelines.sources.formats.json_text import QUICK, Quick
from pipelines.sql.dialect import parse_type
from pipelines.sql.model import Column
from pipelines.sql.types import INTEGERS, NESTED, STRINGS, FlinkType, Kind, quoted

_SPARE = 6
"""Digits after the point that a DECIMAL is read with beyond its own; so a digit too many is seen."""

_FIRST_OF_OTHERS = (45, 91, 123)
"""- [ {: what a number, an array or an object begins with that a STRING column holds as text; and digits."""


def quick(wanted: Wanted, leaf: shape.Leaf) -> Quick | None:
    """The short way of a table; None where some column's type has none. `leaf` reads what is text in both ways."""
    columns = wanted.columns
    types = [_type(parse_type(column.type)) for column in columns]
    if any(of is None for of in types):
        return None
    names = [quoted(column.name) for column in columns]
    row = f"STRUCT<{', '.join(f'{name}: {of}' for name, of in zip(names, types, strict=True))}>"
    found = f"get({QUICK}.v, 0)"
    values = [
        _value(f"{found}.{name}", parse_type(column.type), leaf) for name, column in zip(names, columns, strict=True)
    ]
    fits = [
        f"{QUICK}._bad IS NULL",
        f"size({QUICK}.v) = 1",
        f"{found} IS NOT NULL",
        *_fitting(columns, found, values),
        *_delicate(columns),
    ]
    told = ", ".join(
        f"{literals.text(column.name)}, CAST({value} AS {column.spark_type})"
        for column, value in zip(columns, values, strict=True)
    )
    return Quick(json_text.parse(row), f"IF({' AND '.join(fits)}, named_struct({told}), NULL)")


def _type(of: FlinkType) -> str | None:
    """What Spark's parser is asked for."""
    if of.kind in INTEGERS:
        return "BIGINT"
    if of.kind is Kind.DECIMAL:
        precision, scale, spare = of.precision or 0, of.scale or 0, _spare(of)
        return f"DECIMAL({precision + spare}, {scale + spare})" if spare else None
    if of.kind in (Kind.BOOLEAN, Kind.DOUBLE):
        return of.spark
    if of.kind in NESTED or of.kind is Kind.FLOAT:
        return None
    return "STRING"


def _spare(of: FlinkType) -> int:
    return min(_SPARE, 38 - (of.precision or 0))


def _value(sql: str, of: FlinkType, leaf: shape.Leaf) -> str:
    if of.kind in (Kind.BOOLEAN, Kind.DOUBLE, Kind.BIGINT) or of.kind in STRINGS:
        return sql
    if of.kind in INTEGERS or of.kind is Kind.DECIMAL:
        return f"try_cast({sql} AS {of.spark})"
    return leaf(sql, of)


def _fitting(columns: Sequence[Column], found: str, values: Sequence[str]) -> list[str]:
    """What must hold of every column: SQL that is never NULL."""
    conditions: list[str] = []
    for column, value in zip(columns, values, strict=True):
        of, raw = parse_type(column.type), f"{found}.{quoted(column.name)}"
        if not column.nullable:
            conditions.append(f"{raw} IS NOT NULL")
        if of.kind is Kind.DECIMAL:
            conditions.append(f"({raw} IS NULL OR coalesce({value} = {raw}, false))")
        elif of.kind is Kind.DOUBLE:
            conditions.append(f"({raw} IS NULL OR abs({raw}) < CAST('Infinity' AS DOUBLE))")
        elif of.kind in STRINGS:
            first = f"ascii({raw}) BETWEEN 48 AND 57 OR ascii({raw}) IN {_FIRST_OF_OTHERS}"
            exact = f"NOT {json_text.TEXT} RLIKE {literals.text(json_text.HAS_FLOAT)}"
            conditions.append(f"({raw} IS NULL OR NOT ({first}) OR {exact})")
        elif value != raw:
            conditions.append(f"({raw} IS NULL OR {value} IS NOT NULL)")
    return conditions


def _delicate(columns: Sequence[Column]) -> list[str]:
    """What must hold of the text where a DECIMAL is read from it: each is a plain number whose digits are all kept.

    One look at the text, which begins with the columns' names, so that it is quick; a name may hide behind an escape.
    """
    decimals = [
        (column.name, parse_type(column.type)) for column in columns if parse_type(column.type).kind is Kind.DECIMAL
    ]
    if not decimals:
        return []
    names = "|".join(re.escape(name) for name, _ in decimals)
    kept = min((of.scale or 0) + _spare(of) for _, of in decimals)
    plain = rf"null|-?[0-9]+(?:\.[0-9]{{1,{kept}}})?\s*[,}}]"
    pattern = rf'"(?:{names})"\s*+:\s*+(?!{plain})'
    escaped = f"contains({json_text.TEXT}, {literals.text(chr(92) + 'u')})"
    return [f"NOT {escaped}", f"NOT {json_text.TEXT} RLIKE {literals.text(pattern)}"]
