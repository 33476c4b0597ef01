"""The connector `hybrid`: several tables of the script one after another, as one table (FLIP-326)."""

from tidegate.pipelines.sources.hybrid.source import CONNECTOR

__all__ = ["CONNECTOR"]
