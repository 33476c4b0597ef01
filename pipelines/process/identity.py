"""What a process function computes, as far as that can be told from its code: a digest of it stands in every plan.

Looked at are the function's class and those that it is derived from, what its attributes hold, and the functions,
classes and constants that any of it names. All that is the user's own: what comes with Python, with Tidegate or with
another installed package is known by its name, since it may hold anything (a logger knows all loggers that there are).
"""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import re
import sys
from collections.abc import Iterator, Mapping
from datetime import date, timedelta
from decimal import Decimal
from enum import Enum
from functools import partial
from pathlib import Path
from types import CodeType, FunctionType, MethodType
from typing import Any

from pipelines.process.engine.binding import shape_of, unwrapped
from pipelines.process.functions import ProcessFunction
from pipelines.process.state.declared import column_type

_PLAIN = (type(None), bool, int, float, str, bytes, date, timedelta, Decimal, Enum, re.Pattern)
_FOREIGN = {*sys.stdlib_module_names, __name__.partition(".")[0]} - {"__main__"}
_INSTALLED = {"site-packages", "dist-packages"}
_CONSTANT = (*_PLAIN, Mapping, list, tuple, set, frozenset)


def identity_of(function: Any) -> str:
    """The name of a function's class, and a digest of what it computes: the same in every run of the same code."""
    inner = unwrapped(function)
    kind = type(inner)
    states = [(item.name, column_type(item)) for item in shape_of(function).states]
    told = repr((kind.__module__, kind.__qualname__, states, list(_Seen(_root(kind)).told(inner))))
    return f"{kind.__qualname__} {hashlib.sha256(told.encode()).hexdigest()[:16]}"


class _Seen:
    """Walks through what a function is made of, everything once. `home`: the package of its class."""

    def __init__(self, home: str | None) -> None:
        self._home = home
        self._seen: dict[int, Any] = {}

    def told(self, value: Any) -> Iterator[str]:
        """Lines that change where `value` computes something else; nothing of where it lies in memory."""
        if isinstance(value, _PLAIN):
            yield repr(value)
            return
        if id(value) in self._seen:
            return
        self._seen[id(value)] = value  # kept, so that no other object gets its place
        if isinstance(value, type):
            yield from self._class(value)
        elif isinstance(value, FunctionType | MethodType):
            yield from self._function(value.__func__ if isinstance(value, MethodType) else value)
        elif isinstance(value, Mapping):
            for key, item in value.items():
                yield from (*self.told(key), ":", *self.told(item))
        elif isinstance(value, set | frozenset):
            yield from sorted(" ".join(self.told(item)) for item in value)
        elif isinstance(value, list | tuple):
            if all(isinstance(item, _PLAIN) for item in value):  # a long table of constants
                yield repr(list(value))
                return
            for item in value:
                yield from (*self.told(item), ",")
        elif isinstance(value, partial):
            yield from self.told([value.func, value.args, value.keywords])
        else:
            yield from self._instance(value)

    def _instance(self, value: Any) -> Iterator[str]:
        kind = type(value)
        yield from self.told(kind)
        if dataclasses.is_dataclass(value):
            yield from self.told({field.name: getattr(value, field.name) for field in dataclasses.fields(value)})
        elif self._own(kind) or issubclass(kind, ProcessFunction):
            yield from self.told(getattr(value, "__dict__", {}))

    def _class(self, kind: type) -> Iterator[str]:
        for one in kind.__mro__:
            yield f"{one.__module__}.{one.__qualname__}"
            if not self._own(one):
                continue
            yield _source(one)
            for item in vars(one).values():
                found = item.__func__ if isinstance(item, staticmethod | classmethod) else item
                if isinstance(found, FunctionType):
                    yield from self.told(found)

    def _function(self, function: FunctionType) -> Iterator[str]:
        yield f"{function.__module__}.{function.__qualname__}"
        if self._own(function):
            yield _source(function) or _code(function.__code__)
        yield from self.told([function.__defaults__, function.__kwdefaults__])
        yield from self._named(function)

    def _named(self, function: FunctionType) -> Iterator[str]:
        """What the code of a function names: in its closure, and in its module."""
        for cell in function.__closure__ or ():
            try:
                yield from self.told(cell.cell_contents)
            except ValueError:  # a name that is not bound yet
                continue
        for name in _names(function.__code__) if self._own(function) else ():
            found = function.__globals__.get(name)
            if isinstance(found, _CONSTANT) or self._own(found):
                yield name
                yield from self.told(found)

    def _own(self, value: Any) -> bool:
        """Whether a function or a class (or an object's class) is the user's own."""
        root = _root(value)
        if root is None or root in _FOREIGN:
            return False
        file = getattr(sys.modules.get(value.__module__), "__file__", None) or ""
        return root == self._home or not _INSTALLED & set(Path(file).parts)


def _names(code: CodeType) -> list[str]:
    """The names that code uses, and the functions in it."""
    inner = [name for item in code.co_consts if isinstance(item, CodeType) for name in _names(item)]
    return sorted({*code.co_names, *inner})


def _code(code: CodeType) -> str:
    """What code does, where there is no source of it."""
    inner = [_code(item) for item in code.co_consts if isinstance(item, CodeType)]
    plain = [item for item in code.co_consts if not isinstance(item, CodeType)]
    constants = [repr(sorted(map(repr, item)) if isinstance(item, frozenset) else item) for item in plain]
    return " ".join([code.co_code.hex(), *constants, *inner, *code.co_names])


def _root(value: Any) -> str | None:
    """The package that a function or a class comes from, or an object's class; None for what comes from none."""
    module = getattr(value, "__module__", None)
    return module.partition(".")[0] if isinstance(module, str) else None


def _source(value: Any) -> str:
    try:
        return inspect.getsource(value)
    except (OSError, TypeError):
        return ""  # a class of an interactive session has none
