"""Connectors are found by entry points (group `tidegate.connectors`), so that anyone can bring their own."""

from __future__ import annotations

from functools import cache
from importlib.metadata import entry_points

from pipelines.sources.protocol import Connector

GROUP = "tidegate.connectors"


@cache
def connectors() -> dict[str, Connector]:
    """All installed connectors by name."""
    return {point.name: point.load() for point in entry_points(group=GROUP)}


def connector(name: str) -> Connector:
    """The connector called `name`. Raises KeyError."""
    return connectors()[name]
