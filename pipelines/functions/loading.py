"""From 'module.function' to the function: on the driver when a script compiles, on a worker when rows are computed."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from difflib import get_close_matches
from types import ModuleType
from typing import Any

from tidegate.names import new_spelling
from tidegate.pipelines.functions.function import FunctionProblem

ON_THE_PATH = "install the package that has it, or put its folder on PYTHONPATH"


def load(reference: str, path: Sequence[str] = ()) -> Callable[..., Any]:
    """The function that `reference` names. `path` is searched behind sys.path: where the driver found its modules.

    Raises FunctionProblem: no such module or function, a module that fails to import, something that is no function.
    """
    name, dot, attribute = reference.rpartition(".")
    if not dot or not all(part.isidentifier() for part in reference.split(".")):
        raise FunctionProblem(f"'{reference}' does not name a function", "write 'module.function'")
    sys.path.extend(entry for entry in path if entry not in sys.path)
    module = _module(name)
    found = getattr(module, attribute, None)
    if found is None:
        known = [word for word, value in vars(module).items() if inspect.isfunction(value) and not word.startswith("_")]
        close = get_close_matches(attribute, known, 1)
        hint = f"did you mean `{name}.{close[0]}`?" if close else f"define `{attribute}` at the top level of {name}"
        raise FunctionProblem(f"module `{name}` has no function `{attribute}`", hint)
    if not callable(found):
        raise FunctionProblem(f"`{reference}` is no function, it is {_article(found)}", "name a function")
    if inspect.isclass(found):
        raise FunctionProblem(
            f"`{reference}` is a class, not a function", "name a function at the top level of a module"
        )
    if inspect.iscoroutinefunction(found) or inspect.isgeneratorfunction(found) or inspect.isasyncgenfunction(found):
        raise FunctionProblem(f"`{reference}` gives no value when it is called", "write a plain function with return")
    return found


def _module(name: str) -> ModuleType:
    importlib.invalidate_caches()
    try:
        with redirect_stdout(sys.stderr):  # stdout belongs to the command's result
            return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise FunctionProblem(f"there is no module `{error.name}`", ON_THE_PATH) from error
        hint = new_spelling(error) or ON_THE_PATH
        raise FunctionProblem(f"module `{name}` cannot be imported: {error}", hint) from error
    except (Exception, SystemExit) as error:  # a module of the user's own may raise anything while it is imported
        message = (str(error).splitlines() or [""])[0]
        what = f"module `{name}` cannot be imported: {type(error).__name__}{f': {message}' if message else ''}"
        raise FunctionProblem(what, f'python -c "import {name}" shows where') from error


def _article(found: object) -> str:
    kind = type(found).__name__
    return f"{'an' if kind[:1].lower() in 'aeiou' else 'a'} {kind}"
