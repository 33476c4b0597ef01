"""Several names for one module: the short ones, and in a checkout the names of its folders.

Each name leads to the same module object, so that no class exists twice.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import CodeType, ModuleType
from typing import Any

ROOMS = ("pipelines", "assets", "orchestration", "quality_checks")
SHORT = {f"tidegate.{name}": f"tidegate.pipelines.{name}" for name in ("process", "sql", "testing", "watermarks")}


class _Other:
    """Finds what lies below other names of packages."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}

    def own(self, name: str) -> str | None:
        """The module's own name, where `name` is another one of it."""
        for other, own in self.names.items():
            if name.startswith(f"{other}.") and sys.modules.get(other) is sys.modules.get(own):
                return own + name[len(other) :]
        return None

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        own = self.own(fullname)
        spec = find_spec(own) if own is not None else None
        if spec is None:
            return None
        package = spec.submodule_search_locations is not None
        loader: Any = self  # importlib.abc, whose classes say what a loader is, takes a third of a bare start to import
        return ModuleSpec(fullname, loader, origin=spec.origin, is_package=package)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """None: an ordinary module."""

    def exec_module(self, module: ModuleType) -> None:
        name = module.__name__
        sys.modules[name] = import_module(self.own(name) or name)

    def get_code(self, fullname: str) -> CodeType | None:
        """For `python -m`."""
        own = self.own(fullname)
        spec = find_spec(own) if own is not None else None
        get_code = getattr(spec.loader, "get_code", None) if spec is not None else None
        return get_code(own) if get_code is not None else None


_OTHER = _Other()


def lead(names: Mapping[str, str]) -> None:
    """Lets the modules below `names` (other name -> own name) be found under both."""
    _OTHER.names.update(names)
    if _OTHER not in sys.meta_path:
        sys.meta_path.insert(0, _OTHER)


def new_spelling(error: BaseException) -> str:
    """What to write instead, if `error` is that a module of Tidegate was not found by its folder's name; else empty."""
    name = getattr(error, "name", None) if isinstance(error, ModuleNotFoundError) else None
    if name is None or name.partition(".")[0] not in ROOMS:
        return ""
    try:
        there = find_spec(f"tidegate.{name}") is not None
    except ModuleNotFoundError:
        return ""
    return f"if Tidegate's is meant, write tidegate.{name} in the place of {name}" if there else ""


def replace(other: str, own: str) -> None:
    """Puts the module `own` in the place of `other`, which is being imported."""
    lead({other: own})
    sys.modules[other] = import_module(own)
