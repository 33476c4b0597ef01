"""The connector `filesystem`: the files of a folder that grows, each read once."""

from tidegate.pipelines.sources.filesystem.source import CONNECTOR

__all__ = ["CONNECTOR"]
