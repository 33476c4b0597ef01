"""Connectors are found by entry points (group `tidegate.connectors`), so that anyone can bring their own.

Each is imported when it is first used: one that cannot be imported does not affect the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib.metadata import EntryPoint, entry_points

from tidegate.names import new_spelling
from tidegate.pipelines.connectors.protocol import Connector
from tidegate.pipelines.connectors.spec import ConnectorSpec
from tidegate.pipelines.connectors.table import Table
from tidegate.pipelines.errors import PlanningError

GROUP = "tidegate.connectors"

_given: dict[str, Connector] = {}


@cache
def _points() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=GROUP)}


def names() -> tuple[str, ...]:
    """The names of all installed connectors; none is loaded."""
    return tuple(sorted({*_points(), *_given}))


def connector(name: str) -> Connector:
    """The connector called `name`. Raises KeyError, and PlanningError when it is installed but cannot be loaded."""
    return _given[name] if name in _given else _installed(name)


@contextmanager
def given(made: Connector) -> Iterator[None]:
    """Inside the block, the connector of this name is `made`, whether one is installed or not."""
    before = _given.get(made.spec.name)
    _given[made.spec.name] = made
    try:
        yield
    finally:
        del _given[made.spec.name]
        if before is not None:
            _given[made.spec.name] = before


@cache
def _installed(name: str) -> Connector:
    point = _points()[name]
    try:
        return point.load()
    except Exception as error:
        raise PlanningError(
            f"the connector '{name}' cannot be loaded: {type(error).__name__}: {error}",
            where=f"entry point {point.value}",
            state="nothing was run",
            next_command=new_spelling(error) or _remedy(error),
        ) from error


def _remedy(error: Exception) -> str:
    package = "the package that brings the connector"
    if isinstance(error, ImportError) and (error.name or "").partition(".")[0] == "tidegate":
        return (
            f"install a version of {package} made for this Tidegate; its author finds the names in docs/connectors.md"
        )
    return f"reinstall {package}"


def comparable(tables: Iterable[Table]) -> list[Table]:
    """The tables that are builds and can be read again beside their log."""
    return [
        table for table in tables if table.role == "build" and connector(table.connector).spec.comparable(table.options)
    ]


def only_grows(table: Table) -> bool:
    """Whether a table, or each of its parts, has inserts only."""
    return all(connector(each.connector).spec.only_grows(each.options) for each in table.parts or (table,))


def ordered_by_split(table: Table) -> bool:
    """Whether the order of its versions, or of those of one of its parts, is known within a split alone."""
    return any(connector(each.connector).spec.ordered_by_split(each.options) for each in table.parts or (table,))


class InstalledConnectors(Mapping[str, ConnectorSpec]):
    """Every installed connector by name; its package is imported when it is first used.

    `[name]` raises KeyError, and PlanningError when the connector is installed but cannot be loaded.
    """

    def __getitem__(self, name: str) -> ConnectorSpec:
        return connector(name).spec

    def __iter__(self) -> Iterator[str]:
        return iter(names())

    def __len__(self) -> int:
        return len(names())

    def __contains__(self, name: object) -> bool:
        return name in names()
