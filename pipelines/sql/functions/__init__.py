"""Flink's built-in functions as Spark SQL: one record each, by what they work on."""

from __future__ import annotations

from tidegate.pipelines.sql.functions import conditions, numbers, text, times
from tidegate.pipelines.sql.functions.function import Call, Function

FUNCTIONS: dict[str, Function] = {
    name: function
    for module in (conditions, numbers, text, times)
    for function in module.FUNCTIONS
    for name in function.names
}
"""All functions by name, upper case."""

__all__ = ["FUNCTIONS", "Call", "Function"]
