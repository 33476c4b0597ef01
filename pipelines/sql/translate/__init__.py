"""Expressions: names resolved, types inferred and checked, written as Spark SQL.

Types are inferred bottom up by rules of our own rather than by sqlglot's `annotate_types`, which knows neither a
DECIMAL's digits, nor NOT NULL, nor where in the script an operand is.
"""

from __future__ import annotations

from typing import ClassVar

from sqlglot import exp

from tidegate.pipelines.sql.translate import computed, operands
from tidegate.pipelines.sql.translate.operands import Rules, Walker
from tidegate.pipelines.syntax.statements import CastTo, Known, TypedLiteral


class Translator(Walker):
    """Translates expressions of the dialect; a node without a rule is not part of it."""

    rules: ClassVar[Rules] = {
        exp.Literal: operands.literal,
        exp.Null: operands.null,
        exp.Boolean: operands.boolean,
        exp.HexString: operands.octets,
        TypedLiteral: operands.moment,
        exp.Interval: operands.interval,
        exp.Column: operands.path,
        exp.Dot: operands.path,
        exp.Bracket: operands.element,
        **dict.fromkeys((exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE), computed.comparison),
        exp.NullSafeEQ: computed.distinct,
        exp.NullSafeNEQ: computed.distinct,
        exp.And: computed.logic,
        exp.Or: computed.logic,
        exp.Not: computed.negated,
        exp.Is: computed.is_,
        exp.Between: computed.between,
        exp.In: computed.in_,
        exp.Like: computed.like,
        exp.SimilarTo: computed.like,
        exp.Escape: computed.like,
        **dict.fromkeys((exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod), computed.calculated),
        exp.Neg: computed.negative,
        exp.Paren: computed.paren,
        exp.DPipe: computed.concatenated,
        exp.Case: computed.case,
        CastTo: computed.cast_to,
        exp.Array: computed.array,
        exp.Anonymous: computed.call,
        Known: lambda walker, tree, span: tree.meta["value"],
    }
