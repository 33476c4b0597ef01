"""Connectors are found by entry points (group `tidegate.connectors`), so that anyone can bring their own.

Each is loaded when it is asked for: one that cannot be imported stands in nobody else's way.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib.metadata import EntryPoint, entry_points

from tidegate.names import new_spelling
from tidegate.pipelines.errors import PlanningError
from tidegate.pipelines.sources.protocol import Connector
from tidegate.pipelines.sql.model import Table

GROUP = "tidegate.connectors"


@cache
def _points() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=GROUP)}


def names() -> tuple[str, ...]:
    """The names of all installed connectors; none is loaded."""
    return tuple(sorted(_points()))


@cache
def connector(name: str) -> Connector:
    """The connector called `name`. Raises KeyError, and PlanningError when it is installed but cannot be loaded."""
    point = _points()[name]
    try:
        return point.load()
    except Exception as error:
        raise PlanningError(
            f"the connector '{name}' cannot be loaded: {type(error).__name__}: {error}",
            where=f"entry point {point.value}",
            state="nothing was run",
            next_command=new_spelling(error) or "reinstall the package that brings the connector",
        ) from error


def connectors() -> dict[str, Connector]:
    """All installed connectors by name. Raises PlanningError when one cannot be loaded."""
    return {name: connector(name) for name in names()}


def comparable(tables: Iterable[Table]) -> list[Table]:
    """Those that are build tables and can be read again beside their log."""
    return [
        table for table in tables if table.role == "build" and connector(table.connector).spec.comparable(table.options)
    ]
