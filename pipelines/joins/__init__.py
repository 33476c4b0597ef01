"""The temporal join: released probe rows, each with the one version of every build that its plan's pins allow.

Names are loaded when they are used: who only asks for outcomes needs no Spark.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidegate.pipelines.joins.outcome import Disposition, outcomes
    from tidegate.pipelines.joins.release import Build, Joining, Probe
    from tidegate.pipelines.joins.task import dealt, row_groups
    from tidegate.pipelines.joins.writer import Release, Staged

__all__ = ["Build", "Disposition", "Joining", "Probe", "Release", "Staged", "dealt", "outcomes", "row_groups"]

_IN = {"Disposition": "outcome", "outcomes": "outcome", "dealt": "task", "row_groups": "task"}
_IN |= {"Release": "writer", "Staged": "writer"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_IN.get(name, 'release')}"), name)
