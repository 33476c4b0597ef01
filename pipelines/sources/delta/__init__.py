"""The connector `delta`: a Delta table as a source, commit by commit, and as a target."""

from tidegate.pipelines.sources.delta.source import CONNECTOR

__all__ = ["CONNECTOR"]
