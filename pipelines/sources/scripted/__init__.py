"""The connector `scripted`: a source that emits what a test appends to it, in that order, and nothing else."""

from tidegate.pipelines.sources.scripted.input import ScriptedInput
from tidegate.pipelines.sources.scripted.source import CONNECTOR

__all__ = ["CONNECTOR", "ScriptedInput"]
