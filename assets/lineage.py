"""Which source columns each column of an INSERT is made of."""

from __future__ import annotations

import dagster as dg
import sqlglot
from sqlglot import exp

from tidegate.assets.names import Names
from tidegate.pipelines.process.windows.windowed import WINDOW_END
from tidegate.pipelines.sql.model import Insert


def references(expression: str) -> list[tuple[str, str]]:
    """The (alias, column) pairs that a Spark SQL expression names, in order, each once.

    A field of a nested column (`alias`.`column`.`field`) counts as its column.
    """
    tree = sqlglot.parse_one(expression, dialect="spark")
    found = []
    for column in tree.find_all(exp.Column, bfs=False):
        parts = [part.name for part in column.parts]
        if len(parts) >= 2:
            found.append((parts[0], parts[1]))
    return list(dict.fromkeys(found))


def _parts_of(insert: Insert) -> dict[str, list[tuple[str, str]]]:
    """Of SQL's windows: what the function emits, by the (alias, column) pairs that it is made of."""
    query = insert.windowed
    if query is None:
        return {}
    made = {item.name: references(item.expression) for item in (*query.groups, *query.parts)}
    return {**made, WINDOW_END: [(query.alias, query.time_column.partition(".")[0])]}


def _made_of(insert: Insert, expression: str) -> list[tuple[str, str]]:
    """The (alias, column) pairs that a projection is made of."""
    parts_of = _parts_of(insert)
    if not parts_of:
        return references(expression)
    tree = sqlglot.parse_one(expression, dialect="spark")
    found = [pair for column in tree.find_all(exp.Column, bfs=False) for pair in parts_of.get(column.name, [])]
    return list(dict.fromkeys(found))


def staged_lineage(insert: Insert, names: Names) -> dg.TableColumnLineage:
    """The staged columns, by the columns of the sources."""
    tables = {insert.probe_alias: insert.probe, **{join.alias: join.build for join in insert.joins}}
    return dg.TableColumnLineage(
        deps_by_column={
            projection.name: [
                dg.TableColumnDep(asset_key=names.source(tables[alias]), column_name=column)
                for alias, column in _made_of(insert, projection.expression)
                if alias in tables
            ]
            for projection in insert.projections
        }
    )


def published_lineage(insert: Insert, names: Names) -> dg.TableColumnLineage:
    """The published columns: each is the staged one."""
    return dg.TableColumnLineage(
        deps_by_column={
            projection.name: [dg.TableColumnDep(asset_key=names.staged(insert), column_name=projection.name)]
            for projection in insert.projections
        }
    )
