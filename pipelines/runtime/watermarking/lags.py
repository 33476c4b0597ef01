"""Strategies whose watermark is a column of the row, less a constant: the greatest of one is that of the other."""

from __future__ import annotations

import re
from dataclasses import dataclass

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from pipelines.sql.intervals import length
from pipelines.watermarks import BoundedOutOfOrderness, ExpressionWatermarks

_UNITS = ("DAY", "HOUR", "MINUTE", "SECOND")
_AMOUNT = re.compile(r"-?\d[\d :.]*")
_LONGEST = 2**62


@dataclass(frozen=True)
class Lag:
    """A row's value in ms: the time in `column` (a dotted path; µs) less `micros`, parts of a ms left out, less
    `millis`. As SQL has it where the session's time zone is UTC."""

    column: str
    micros: int = 0
    millis: int = 0

    def value(self, time: int) -> int:
        """Of a time in µs. Of an array of them, an array."""
        return (time - self.micros) // 1000 - self.millis


def lag_of(generator: object) -> Lag | None:
    """The lag that a built-in strategy has; None where its value is anything else."""
    if type(generator) is BoundedOutOfOrderness:
        return Lag("_rowtime", millis=generator.behind)
    if type(generator) is ExpressionWatermarks and generator.type != "BIGINT":
        return _read(generator.expression)
    return None


def _read(expression: str) -> Lag | None:
    """`column`, or `column` - INTERVAL of a fixed length."""
    try:
        tree = sqlglot.parse_one(expression, read="spark").unnest()
    except SqlglotError:  # it was written for Spark in Python; Spark says what is wrong with it
        return None
    micros: int | None = 0
    if isinstance(tree, exp.Sub) and isinstance(tree.expression, exp.Interval):
        tree, micros = tree.this.unnest(), _length(tree.expression)
    if not isinstance(tree, exp.Column) or micros is None:
        return None
    names = [part.name for part in tree.parts]
    return None if any("." in name for name in names) else Lag(".".join(names), micros)


def _length(interval: exp.Interval) -> int | None:
    """In µs. None of an interval that is not written as WATERMARK FOR has it, though Spark may know it."""
    text, unit = interval.this, interval.args.get("unit")
    units = [unit.this, unit.expression] if isinstance(unit, exp.IntervalSpan) else [unit]
    if not all(isinstance(each, exp.Var) and each.name in _UNITS for each in units):
        return None
    if not isinstance(text, exp.Literal) or not text.is_string or not _AMOUNT.fullmatch(text.name):
        return None
    found = length(interval)
    return found if found is not None and abs(found) < _LONGEST else None
