"""Strategies whose watermark is a column of the row, less a constant: the greatest of one is that of the other."""

from __future__ import annotations

from dataclasses import dataclass

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from pipelines.sql.intervals import length
from pipelines.watermarks import BoundedOutOfOrderness, ExpressionWatermarks


@dataclass(frozen=True)
class Lag:
    """A row's value in ms: the time in `column` (a dotted path; µs) less `micros`, parts of a ms left out, less
    `millis`."""

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
    text, unit = interval.this, interval.args.get("unit")
    fixed = isinstance(text, exp.Literal) and text.is_string and isinstance(unit, exp.Var | exp.IntervalSpan)
    return length(interval) if fixed else None
