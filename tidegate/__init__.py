"""Tidegate joins streams to tables that are still loading, and never lets a row through early.

    tidegate.compile_script(text) -> Pipeline       tidegate.sql has the rest
    tidegate.Harness(script, spark, directory)      tidegate.testing
    tidegate.TidegateComponent, .TidegateAlerts, .TidegateResource     for Dagster
    tidegate.process, tidegate.watermarks           functions of your own

Nothing is loaded before it is used.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidegate.names import SHORT, lead

if TYPE_CHECKING:
    from tidegate.assets.components import TidegateComponent
    from tidegate.assets.resources import TidegateResource
    from tidegate.orchestration.components import TidegateAlerts
    from tidegate.pipelines.sql.compile import compile_script
    from tidegate.pipelines.testing import Harness

_folder = Path(__file__).parent
_rooms = _folder / "pipelines"
if _rooms.is_symlink() or not _rooms.is_dir():
    # A checkout: the rooms lie beside this folder. The links in it are for tools that read the tree and run nothing.
    __path__.insert(0, str(_folder.parent))

lead(SHORT)

_LAZY = {
    "Harness": "tidegate.pipelines.testing",
    "TidegateAlerts": "tidegate.orchestration.components",
    "TidegateComponent": "tidegate.assets.components",
    "TidegateResource": "tidegate.assets.resources",
    "compile_script": "tidegate.pipelines.sql.compile",
}

__all__ = ["Harness", "TidegateAlerts", "TidegateComponent", "TidegateResource", "compile_script"]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    if f"{__name__}.{name}" in SHORT:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Dagster takes its component types from here, and loads each name that it finds: none that brings Spark."""
    return [*globals(), "TidegateAlerts", "TidegateComponent"]
