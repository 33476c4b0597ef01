"""Expressions: names resolved, types inferred and checked, written as Spark SQL.

Types are inferred bottom up by rules of our own rather than by sqlglot's `annotate_types`, which knows neither a
DECIMAL's digits, nor NOT NULL, nor where in the script an operand is.
"""

from __future__ import annotations

from typing import ClassVar

from sqlglot import exp

from tidegate.pipelines.sql.translate import computed, operands
from tidegate.pipelines.sql.translate.operands import Rules, Walker
from tidegate.pipelines.sql.values import Value, null_value
from tidegate.pipelines.syntax.statements import CastTo, Known, TypedLiteral
from tidegate.pipelines.syntax.types import BOOLEAN, BYTES


class Translator(Walker):
    """Translates expressions of the dialect; a node without a rule is not part of it."""

    rules: ClassVar[Rules] = {
        exp.Literal: operands.literal,
        exp.Null: lambda walker, tree, span: null_value(),
        exp.Boolean: lambda walker, tree, span: Value("TRUE" if tree.this else "FALSE", BOOLEAN),
        exp.HexString: lambda walker, tree, span: Value(f"X'{tree.this}'", BYTES),
        TypedLiteral: operands.moment,
        exp.Interval: operands.interval,
        **dict.fromkeys((exp.Column, exp.Dot), operands.path),
        exp.Bracket: operands.element,
        **dict.fromkeys(computed.COMPARISONS, computed.comparison),
        **dict.fromkeys((exp.And, exp.Or), computed.logic),
        exp.Not: computed.negated,
        exp.Is: computed.is_,
        exp.Between: computed.between,
        exp.In: computed.in_,
        **dict.fromkeys((exp.Like, exp.SimilarTo, exp.Escape), computed.like),
        **dict.fromkeys(computed.SIGNS, computed.calculated),
        exp.Neg: computed.negative,
        exp.Paren: lambda walker, tree, span: walker.of(tree.this, span),  # the operators inside write their own
        exp.DPipe: computed.concatenated,
        exp.Case: computed.case,
        CastTo: computed.cast_to,
        exp.Array: computed.array,
        exp.Anonymous: computed.call,
        Known: lambda walker, tree, span: tree.meta["value"],
    }
