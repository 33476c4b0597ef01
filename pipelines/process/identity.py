"""What a process function computes, as far as its code shows it: every plan has a digest of it.

It covers the function's class and its base classes, the values of its attributes, and the functions, classes and
constants that any of these name, as long as they are the user's own: each by its meaning (syntax trees instead of
texts, names without modules). What comes with Python or with Tidegate counts by its name only, since it may hold
anything (a logger knows all other loggers), what comes with another installed package by its name and its version.
"""

from __future__ import annotations

import ast
import dataclasses
import dis
import hashlib
import inspect
import os
import re
import sys
import textwrap
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import date, timedelta
from decimal import Decimal
from enum import Enum
from functools import cache, cached_property, partial
from importlib import import_module
from importlib.metadata import packages_distributions, version
from pathlib import Path
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Protocol, runtime_checkable

from tidegate.pipelines.process.engine.binding import unwrapped
from tidegate.pipelines.process.functions import ProcessFunction

_PLAIN = (type(None), bool, int, float, str, bytes, date, timedelta, Decimal, Enum, re.Pattern)
_FOREIGN = {*sys.stdlib_module_names, __name__.partition(".")[0]} - {"__main__"}
_INSTALLED = {"site-packages", "dist-packages"}
_CONSTANT = (*_PLAIN, Mapping, list, tuple, set, frozenset)
_CACHED = (type(cache(id)),)


def definition_of(value: Any) -> str:
    """What a function computes, however it is written: the same for code that differs in comments, docstrings, layout,
    place or Python version. If it or its class has a `version`, only that counts.

    Tidegate's own classes count by their names, installed packages by their names and versions.
    """
    inner = unwrapped(value)
    kind = inner if isinstance(inner, type | FunctionType | MethodType | partial) else type(inner)
    name = getattr(kind, "__qualname__", "")
    if isinstance(given := getattr(inner, "version", None), str | int):
        return f"version {given}"
    lines = repr(_Walk(_root(kind)).placeless(inner))
    return f"{name} {hashlib.sha256(lines.encode()).hexdigest()[:16]}".strip()


@runtime_checkable
class Buffered(Protocol):
    """Values of one kind in a row, as numpy has them."""

    dtype: Any
    shape: Any

    def tobytes(self) -> bytes: ...


class _Walk:
    """Walks through what a function is made of, everything once. `home`: the package of its class."""

    def __init__(self, home: str | None) -> None:
        self._home = home
        self._seen: dict[int, Any] = {}
        self._folders: set[str] = set()
        self._modules: set[int] = set()

    def placeless(self, value: Any) -> list[str]:
        """The lines of `value`, the same wherever the user's modules lie: in texts that begin with their folder, such
        as one made of `__file__`, that folder is left out."""
        lines = list(self.lines(value))
        for folder in sorted(self._folders - {os.sep}, key=len, reverse=True):
            begins = re.compile(rf"(?<=['\"]){re.escape(folder)}(?=['\"/])")
            lines = [begins.sub("<folder>", line) for line in lines]
        return lines

    def lines(self, value: Any) -> Iterator[str]:
        """Lines that change when `value` computes something else; they do not depend on memory addresses."""
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
                yield from (*self.lines(key), ":", *self.lines(item))
        elif isinstance(value, set | frozenset):
            yield from sorted(" ".join(self.lines(item)) for item in value)
        elif isinstance(value, list | tuple):
            if all(isinstance(item, _PLAIN) for item in value):  # a long table of constants
                yield repr(list(value))
                return
            for item in value:
                yield from (*self.lines(item), ",")
        elif isinstance(value, partial):
            yield from self.lines([value.func, value.args, value.keywords])
        elif isinstance(value, _CACHED):
            yield from self.lines(value.__wrapped__)
        elif isinstance(value, cached_property):
            yield from self.lines(value.func)
        else:
            yield from self._instance(value)

    def _instance(self, value: Any) -> Iterator[str]:
        kind = type(value)
        yield from self.lines(kind)
        if dataclasses.is_dataclass(value):
            yield from self.lines({field.name: getattr(value, field.name) for field in dataclasses.fields(value)})
        elif self._own(kind) or issubclass(kind, ProcessFunction):
            yield from self.lines(getattr(value, "__dict__", {}))
        if self._own(kind):
            slots = [name for one in kind.__mro__ for name in _several(vars(one).get("__slots__", ()))]
            values = {name: getattr(value, name, None) for name in slots if not name.startswith("__")}
            if values:
                yield from self.lines(values)
        elif isinstance(value, complex):
            yield repr(value)
        elif isinstance(value, deque):
            yield from self.lines(list(value))
        elif isinstance(value, Buffered):  # an array
            yield f"{value.dtype} {value.shape} {hashlib.sha256(value.tobytes()).hexdigest()}"

    def _class(self, kind: type) -> Iterator[str]:
        for one in kind.__mro__:
            yield self._name(one)
            if not self._own(one):
                continue
            for name, item in self._members(one):
                found = item.__func__ if isinstance(item, staticmethod | classmethod) else item
                if isinstance(found, FunctionType):
                    yield from self.lines(found)
                elif not name.startswith("__"):
                    yield from self._attribute(name, found)

    def _function(self, function: FunctionType) -> Iterator[str]:
        yield self._name(function)
        if self._own(function):
            yield _tree(function) or _code(function.__code__)
        yield from self.lines([function.__defaults__, function.__kwdefaults__])
        yield from self._named(function)

    def _named(self, function: FunctionType) -> Iterator[str]:
        """What the code of a function names: in its closure, and in its module."""
        own = self._own(function)
        if own:
            self._folders.update(_folders(function))
        for cell in function.__closure__ or ():
            try:
                yield from self.lines(cell.cell_contents)
            except ValueError:  # a name that is not bound yet
                continue
        if not own:
            return
        names = _names(function.__code__)
        there = [function.__globals__.get(name) for name in names]
        for name, found in zip(names, there, strict=True):
            yield from self._of_name(name, found)
        for module in [*there, *_imported(function.__code__)]:
            if isinstance(module, ModuleType):
                yield from self._of_module(module, names)

    def _of_name(self, name: str, found: Any) -> Iterator[str]:
        """What a module's `name` adds, which is `found`; None where there is no such name."""
        if name == "__file__":
            yield name
        elif isinstance(found, _CONSTANT) or self._own(found):
            yield name
            yield from self.lines(found)
        elif found is not None:
            yield from self._foreign(name, found)

    def _own(self, value: Any) -> bool:
        """Whether a function or a class (or an object's class) is the user's own."""
        root = _root(value)
        if root is None or root in _FOREIGN:
            return False
        file = getattr(sys.modules.get(value.__module__), "__file__", None) or ""
        return root == self._home or not _INSTALLED & set(Path(file).parts)

    def _name(self, value: Any) -> str:
        root = _root(value)
        if root is not None and root not in _FOREIGN and not self._own(value):
            return f"{_package(root)} {value.__qualname__}"
        return value.__qualname__

    def _members(self, kind: type) -> Iterable[tuple[str, Any]]:
        """Sorted, and without what a decorator has generated, as its source is in no file."""
        found = sorted(vars(kind).items())
        return [(name, item) for name, item in found if not (name.startswith("__") and _generated(item))]

    def _attribute(self, name: str, value: Any) -> Iterator[str]:
        if isinstance(value, property):
            yield from (name, *self.lines([part for part in (value.fget, value.fset) if part]))
        elif isinstance(value, _CONSTANT) or self._own(value):
            yield from (name, *self.lines(value))
        else:
            yield from self._foreign(name, value)

    def _of_module(self, module: ModuleType, names: Iterable[str]) -> Iterator[str]:
        """What code reads from one of the user's own modules by `module.name`: those of `names` that it has."""
        if not self._own_module(module) or id(module) in self._modules:
            return
        self._modules.add(id(module))
        for name in names:
            found = vars(module).get(name)
            if isinstance(found, ModuleType):
                yield from self._of_module(found, names)
            else:
                yield from self._of_name(name, found)
        self._modules.discard(id(module))

    def _own_module(self, module: ModuleType) -> bool:
        root = module.__name__.partition(".")[0]
        installed = _INSTALLED & set(Path(getattr(module, "__file__", None) or "").parts)
        return root == self._home or (root not in _FOREIGN and not installed)

    def _foreign(self, name: str, value: Any) -> Iterator[str]:
        if isinstance(value, (complex, deque, Buffered, cached_property, *_CACHED)):
            yield name
            yield from self.lines(value)
        module = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
        root = module.partition(".")[0] if isinstance(module, str) else None
        if root is not None and root not in _FOREIGN and (package := _package(root)):
            yield f"{name}: {package}"


def _folders(function: FunctionType) -> list[str]:
    """The folder that has a function's module, or that module's outermost package, links followed and not."""
    file = function.__globals__.get("__file__")
    if not isinstance(file, str):
        return []
    module = function.__globals__.get("__name__", "")
    package = Path(file).name == "__init__.py"
    found = []
    for path in (Path(os.path.abspath(file)), Path(os.path.realpath(file))):
        found.append(str(path.parents[min(module.count(".") + package, len(path.parents) - 1)]))
    return found


def _several(names: str | Iterable[str]) -> list[str]:
    return [names] if isinstance(names, str) else list(names)


def _imported(code: CodeType) -> Iterator[ModuleType]:
    """The modules that code imports when it runs, and the functions of it."""
    for item in dis.get_instructions(code):
        if item.opname == "IMPORT_NAME":
            with suppress(Exception):  # it may raise anything, and will when the code runs
                yield import_module(item.argval)
    for item in code.co_consts:
        if isinstance(item, CodeType):
            yield from _imported(item)


def _generated(value: Any) -> bool:
    return isinstance(value, FunctionType) and value.__code__.co_filename == "<string>"


@cache
def _package(root: str) -> str:
    """Name and version of the installed package that a module belongs to; empty if it belongs to none."""
    names = packages_distributions().get(root)
    return f"{names[0]} {version(names[0])}" if names else ""


def _tree(value: Any) -> str:
    """The syntax tree of a class or a function, without docstrings, annotations and places; empty if it has no
    source."""
    try:
        tree: ast.AST = ast.parse(textwrap.dedent(inspect.getsource(value)))
    except (OSError, TypeError, SyntaxError):
        return ""  # of an interactive session, or a lambda in the middle of a call
    if isinstance(value, FunctionType) and value.__name__ == "<lambda>":
        taken = value.__code__.co_varnames[: value.__code__.co_argcount]
        lambdas = [node for node in ast.walk(tree) if isinstance(node, ast.Lambda)]
        return " ".join(
            _dumped(node) for node in lambdas if tuple(argument.arg for argument in node.args.args) == taken
        )
    return _dumped(tree)


def _dumped(node: Any) -> str:
    """A syntax tree as text, the same in every Python version: empty fields are left out."""
    if isinstance(node, list):
        return f"[{', '.join(map(_dumped, node))}]"
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = dict(ast.iter_fields(node))
    body = fields.get("body")
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and body:
        first = body[0]
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
            fields["body"] = body[1:]
    left_out = ("ctx", "kind", "type_comment", "annotation", "returns", "type_params")
    lines = [
        f"{name}={_dumped(item)}"
        for name, item in fields.items()
        if name not in left_out and item is not None and item != []
    ]
    return f"{type(node).__name__}({', '.join(lines)})"


def _names(code: CodeType) -> list[str]:
    """The names that code uses, and the functions in it."""
    inner = [name for item in code.co_consts if isinstance(item, CodeType) for name in _names(item)]
    return sorted({*code.co_names, *inner})


def _code(code: CodeType) -> str:
    """What code does, if there is no source of it."""
    inner = [_code(item) for item in code.co_consts if isinstance(item, CodeType)]
    plain = [item for item in code.co_consts if not isinstance(item, CodeType)]
    constants = [repr(sorted(map(repr, item)) if isinstance(item, frozenset) else item) for item in plain]
    return " ".join([code.co_code.hex(), *constants, *inner, *code.co_names])


def _root(value: Any) -> str | None:
    """The package that a function, a class or an object's class comes from; None if it comes from none."""
    module = getattr(value, "__module__", None)
    return module.partition(".")[0] if isinstance(module, str) else None
