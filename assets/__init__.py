"""Turns a compiled pipeline into Dagster assets.

    build_pipeline_definitions(compile_script(text), lake="lake")     the factory
    type: assets.components.TidegateComponent                          the component, for YAML

Per source table one asset; per INSERT three nodes: the staged asset, the gate's checks on it, and the published asset,
which re-reads the stored verdict. Each can be materialised alone, none does another's work.
"""

from assets.factories import build_pipeline_definitions
from assets.presentation import Presentation
from assets.resources import TidegateResource

__all__ = ["Presentation", "TidegateResource", "build_pipeline_definitions"]
