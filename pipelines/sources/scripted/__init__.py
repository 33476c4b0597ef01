"""The connector `scripted`: a source that says what a test tells it, in that order, and nothing else."""

from pipelines.sources.scripted.input import ScriptedInput
from pipelines.sources.scripted.playing import played
from pipelines.sources.scripted.source import CONNECTOR

__all__ = ["CONNECTOR", "ScriptedInput", "played"]
