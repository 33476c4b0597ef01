"""The connector `datagen`: rows that nobody had to store, since row i is a function of the seed, the field and i."""

from tidegate.pipelines.sources.datagen.source import CONNECTOR

__all__ = ["CONNECTOR"]
