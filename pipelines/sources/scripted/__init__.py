"""The connector `scripted`: a source that says what a test tells it, in that order, and nothing else."""

from tidegate.pipelines.sources.scripted.input import ScriptedInput
from tidegate.pipelines.sources.scripted.playing import played
from tidegate.pipelines.sources.scripted.source import CONNECTOR

__all__ = ["CONNECTOR", "ScriptedInput", "played"]
