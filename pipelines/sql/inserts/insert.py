"""INSERT INTO … SELECT becomes an Insert: a temporal join, or windows."""

from __future__ import annotations

from collections.abc import Mapping

from tidegate.pipelines.sql.inserts.select import SelectCompiler
from tidegate.pipelines.sql.inserts.statement import Declared, InsertStatement
from tidegate.pipelines.sql.model import Insert
from tidegate.pipelines.sql.user_functions import UserFunctions
from tidegate.pipelines.syntax.source import Source
from tidegate.pipelines.syntax.statements import InsertInto


def compile_insert(
    source: Source,
    statement: InsertInto,
    declared: Mapping[str, Declared],
    functions: UserFunctions | None = None,
) -> Insert:
    """The INSERT that `statement` says, over tables and functions that stand before it. Raises SqlError."""
    insert = InsertStatement(source, statement, declared, functions)
    if statement.window is None:
        return SelectCompiler(insert).compile()
    # Process functions load pyarrow; a script without windows does not wait for that.
    from tidegate.pipelines.sql.inserts.windows import WindowedCompiler

    return WindowedCompiler(insert).compile()
