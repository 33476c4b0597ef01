"""From a script to a Pipeline.

compile_script(text) -> Pipeline                    raises SqlError (.line, .column, .hint)
show_create_table(table), show_create_function(function), describe(table)
show_statements(pipeline), explain(pipeline)
to_properties(spec), from_properties(properties, columns)       a watermark as FLIP-66's properties
"""

from tidegate.pipelines.connectors.table import Column, Constraint, Options, Table, WatermarkSpec
from tidegate.pipelines.sql.compile import Pipeline, compile_script
from tidegate.pipelines.sql.explanation import (
    describe,
    explain,
    show_create_function,
    show_create_table,
    show_statements,
)
from tidegate.pipelines.sql.model import Condition, Insert, Join, Key, Projection
from tidegate.pipelines.sql.tables.watermark import from_properties, to_properties
from tidegate.pipelines.syntax.errors import Location, SqlError

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
