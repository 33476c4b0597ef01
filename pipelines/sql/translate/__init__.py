"""Expressions: names resolved, types inferred and checked, written as Spark SQL.

Types are inferred bottom up by rules of our own rather than by sqlglot's `annotate_types`, which knows neither a
DECIMAL's digits, nor NOT NULL, nor where in the script an operand is.
"""

from tidegate.pipelines.sql.translate.computed import Translator

__all__ = ["Translator"]
