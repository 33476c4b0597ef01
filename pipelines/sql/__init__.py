"""From a script to a Pipeline.

    compile_script(text) -> Pipeline                    raises SqlError (.line, .column, .hint)
    show_create_table(table), show_create_function(function), describe(table)
    show_statements(pipeline), explain(pipeline)
    to_properties(spec), from_properties(properties, columns)       a watermark as FLIP-66's properties

The model is plain records; the compiler, and sqlglot with it, is loaded when it is first used, so that a Spark worker
which needs a Table does not pay for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidegate.pipelines.connectors.table import Column, Constraint, Options, Table, WatermarkSpec
from tidegate.pipelines.sql.compile import Pipeline
from tidegate.pipelines.sql.model import Condition, Insert, Join, Key, Projection
from tidegate.pipelines.syntax.errors import Location, SqlError

if TYPE_CHECKING:
    from tidegate.pipelines.sql.compile import compile_script
    from tidegate.pipelines.sql.explanation import (
        describe,
        explain,
        show_create_function,
        show_create_table,
        show_statements,
    )
    from tidegate.pipelines.sql.tables.watermark import from_properties, to_properties

_LAZY = {
    "compile_script": "tidegate.pipelines.sql.compile",
    "describe": "tidegate.pipelines.sql.explanation",
    "explain": "tidegate.pipelines.sql.explanation",
    "from_properties": "tidegate.pipelines.sql.tables.watermark",
    "show_create_function": "tidegate.pipelines.sql.explanation",
    "show_create_table": "tidegate.pipelines.sql.explanation",
    "show_statements": "tidegate.pipelines.sql.explanation",
    "to_properties": "tidegate.pipelines.sql.tables.watermark",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        from importlib import import_module

        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "Column",
    "Condition",
    "Constraint",
    "Insert",
    "Join",
    "Key",
    "Location",
    "Options",
    "Pipeline",
    "Projection",
    "SqlError",
    "Table",
    "WatermarkSpec",
    "compile_script",
    "describe",
    "explain",
    "from_properties",
    "show_create_function",
    "show_create_table",
    "show_statements",
    "to_properties",
]
