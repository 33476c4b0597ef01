"""Turns a compiled pipeline into Dagster assets.

    build_pipeline_definitions(compile_script(text), lake="lake")     the factory
    type: tidegate.TidegateComponent                                  the component, for YAML

Per source table one asset. Per INSERT three nodes: the staged asset, the gate's checks on it, and the published asset,
which reads the stored verdict again. Each can be materialised alone; none does another's work.
"""

from tidegate.assets.factories import build_pipeline_definitions
from tidegate.assets.presentation import Presentation
from tidegate.assets.resources import TidegateResource

__all__ = ["Presentation", "TidegateResource", "build_pipeline_definitions"]

if __name__ == "assets":  # in a checkout, by its folder's name
    from tidegate.names import replace

    replace(__name__, f"tidegate.{__name__}")
