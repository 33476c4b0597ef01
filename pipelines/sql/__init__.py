"""From a script to a Pipeline.

    compile_script(text) -> Pipeline                    raises SqlError (.line, .column, .hint)
    show_create_table(table), describe(table), explain(pipeline)

The model is plain records; the compiler, and sqlglot with it, is loaded when it is first used, so that a Spark worker
which needs a Table does not pay for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pipelines.sql.errors import SqlError
from pipelines.sql.model import (
    Column,
    Condition,
    Insert,
    Join,
    Key,
    Location,
    Options,
    Pipeline,
    Projection,
    Table,
    WatermarkSpec,
)

if TYPE_CHECKING:
    from pipelines.sql.compile import compile_script
    from pipelines.sql.show import describe, explain, show_create_table

_LAZY = {
    "compile_script": "pipelines.sql.compile",
    "describe": "pipelines.sql.show",
    "explain": "pipelines.sql.show",
    "show_create_table": "pipelines.sql.show",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        from importlib import import_module

        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "Column",
    "Condition",
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
    "show_create_table",
]
