"""INSERT INTO … SELECT becomes an Insert: a temporal join, or windows."""

from __future__ import annotations

from collections.abc import Mapping

from pipelines.sql.inserts.select import SelectCompiler
from pipelines.sql.inserts.statement import Declared, InsertStatement
from pipelines.sql.model import Insert
from pipelines.sql.source import Source
from pipelines.sql.syntax import InsertInto
from pipelines.sql.user_functions import UserFunctions


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
    from pipelines.sql.inserts.windows import WindowedCompiler

    return WindowedCompiler(insert).compile()
