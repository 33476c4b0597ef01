"""Functions of a script's own: CREATE FUNCTION name AS 'module.function' LANGUAGE PYTHON (FLIP-66).

The contract is a stateless function of Python values, with annotations: the same arguments give the same result, today
and in a recomputation. Spark hands it Arrow batches (`runtime/called.py`); the values of a batch go through
it one by one.

    read(name, 'module.function') -> UserFunction    its reference and signature; raises FunctionProblem
    failure(error) -> str | None                     what a function's own exception said, out of Spark's
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import re
import sys
import types
from collections.abc import Callable, Iterable, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from difflib import get_close_matches
from functools import cached_property
from types import ModuleType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from tidegate.names import new_spelling

PREFIX = "tidegate_function_"
"""Names under which Spark knows user functions begin with it."""


@dataclass(frozen=True)
class Parameter:
    """`type` in Flink's spelling. `takes_null`: annotated Optional, so the function is called with None for a NULL.
    `optional`: it has a default, so a call may leave it out."""

    name: str
    type: str
    takes_null: bool = False
    optional: bool = False


@dataclass(frozen=True)
class UserFunction:
    """CREATE FUNCTION `name` AS '`reference`' LANGUAGE PYTHON.

    `type` is the result's, in Flink's spelling; `gives_null`: annotated Optional, so the function may return None.
    """

    name: str
    reference: str
    parameters: tuple[Parameter, ...]
    type: str
    gives_null: bool = False
    language: Literal["PYTHON"] = "PYTHON"

    @cached_property
    def spark_name(self) -> str:
        """The function's name in Spark SQL: the same in every process, and different for different functions, so that
        pipelines that share a session do not use each other's."""
        parts = repr((self.name, self.reference, self.parameters, self.type, self.gives_null))
        return f"{PREFIX}{hashlib.sha256(parts.encode()).hexdigest()[:16]}"

    @property
    def signature(self) -> str:
        """How it is called and what it gives, for people: `f(at TIMESTAMP(6), [flag BOOLEAN]) -> BIGINT`."""
        words = [f"{parameter.name} {parameter.type}" for parameter in self.parameters]
        shown = [
            f"[{word}]" if parameter.optional else word for word, parameter in zip(words, self.parameters, strict=True)
        ]
        return f"{self.name}({', '.join(shown)}) -> {self.type}{'' if self.gives_null else ' NOT NULL'}"


def used_in(functions: Iterable[UserFunction], *expressions: str | None) -> tuple[UserFunction, ...]:
    """Those of `functions` that Spark SQL `expressions` call."""
    text = " ".join(expression for expression in expressions if expression is not None)
    return tuple(function for function in functions if function.spark_name in text) if PREFIX in text else ()


_CALL = re.compile(rf"({PREFIX}[0-9a-f]{{16}}\((?:IF\((?:(?!{PREFIX}).)*?, )?)_split(?=, (?:NULL\)|_offset))")
"""A call, which may be one for some rows alone already."""


def called_where(condition: str, expression: str) -> str:
    """Spark SQL `expression`, in which functions are called for rows alone for which `condition` is true. For others
    they give NULL: a function that fails on a row whose value nobody needs fails nothing."""
    if PREFIX not in expression or condition == "true":
        return expression
    return _CALL.sub(lambda found: f"{found[1]}IF({condition}, _split, NULL)", expression)


def as_called(functions: Iterable[UserFunction], expression: str) -> str:
    """Spark SQL in which calls of `functions` look like those of the script."""
    for function in used_in(functions, expression):
        called = rf"{function.spark_name}\((?:IF\((?:(?!{PREFIX}).)*?, )?_split(?:, NULL\))*, _offset(?:, )?"
        expression = re.sub(called, f"{function.name}(", expression)
    return expression


def all_of(terms: Iterable[str], where: str = "") -> str:
    """Spark SQL: whether all `terms` hold. Functions are called for rows alone for which those terms hold that call
    none, and the condition `where`."""
    plain, calling = list[str](), list[str]()
    for term in terms:
        (calling if PREFIX in term else plain).append(f"({term})")
    before = " AND ".join([*([where] if where else []), *plain]) or "true"
    return " AND ".join([*plain, *(called_where(before, term) for term in calling)]) or "true"


class FunctionProblem(ValueError):
    """A function that cannot be loaded, or that has no signature in SQL. The compiler adds line and column.

    Attributes:
        what: One sentence.
        hint: What to do about it.
    """

    def __init__(self, what: str, hint: str) -> None:
        super().__init__(what)
        self.what = what
        self.hint = hint


_MESSAGE = re.compile(r"^\S*\bFunctionFailed: (?P<message>.+)$", re.MULTILINE)


def failure(error: BaseException) -> str | None:
    """The sentence of a FunctionFailed that was raised on a worker: function, split, offset and reason.

    None for an error that no user function caused.
    """
    found = _MESSAGE.search(str(error))
    return found["message"].strip() if found else None


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


SQL_TYPES: dict[type, str] = {
    int: "BIGINT",
    float: "DOUBLE",
    Decimal: "DECIMAL(38, 18)",
    str: "STRING",
    bool: "BOOLEAN",
    bytes: "BYTES",
    date: "DATE",
    datetime: "TIMESTAMP(6)",
}
"""The SQL type of an annotation. Python's datetime has microseconds, and so has the type: nothing is cut off."""

KNOWN = "int, float, Decimal, str, bool, bytes, date, datetime, and each of them `| None`"


def read(name: str, reference: str) -> UserFunction:
    """Import the function that `reference` names and read its signature. Raises FunctionProblem."""
    function = load(reference)
    signature, hints = _signature(function, reference)
    parameters = tuple(_parameter(found, hints, reference) for found in signature.parameters.values())
    if "return" not in hints:
        raise FunctionProblem(
            f"`{reference}` does not say what it returns", f"annotate it: `-> int`; known are {KNOWN}"
        )
    kind, gives_null = _sql_type(hints["return"], f"what `{reference}` returns")
    return UserFunction(name, reference, parameters, kind, gives_null)


def _signature(function: Callable[..., Any], reference: str) -> tuple[inspect.Signature, dict[str, Any]]:
    try:
        # A decorated function is annotated inside, a callable object where it is called.
        inner = inspect.unwrap(function)
        annotated = inner if inspect.isroutine(inner) else type(inner).__call__
        return inspect.signature(function), get_type_hints(annotated)
    except (ValueError, TypeError) as error:
        raise FunctionProblem(
            f"`{reference}` has no signature: {error}", "wrap it in a function with annotations"
        ) from error
    except (NameError, AttributeError) as error:
        raise FunctionProblem(
            f"an annotation of `{reference}` cannot be resolved: {error}", "import what it names where it is defined"
        ) from error


def _parameter(found: inspect.Parameter, hints: dict[str, Any], reference: str) -> Parameter:
    optional = found.default is not inspect.Parameter.empty
    if found.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
        raise FunctionProblem(f"`{reference}` takes any number of arguments (`{found}`)", "name each parameter")
    if found.kind is inspect.Parameter.KEYWORD_ONLY:
        raise FunctionProblem(
            f"parameter `{found.name}` of `{reference}` can only be given by name", "SQL gives arguments by position"
        )
    if found.name not in hints:
        raise FunctionProblem(
            f"parameter `{found.name}` of `{reference}` has no annotation",
            f"annotate it: `{found.name}: int`; known are {KNOWN}",
        )
    kind, takes_null = _sql_type(hints[found.name], f"parameter `{found.name}` of `{reference}`")
    return Parameter(found.name, kind, takes_null, optional)


def _sql_type(annotation: Any, where: str) -> tuple[str, bool]:
    """The SQL type of an annotation, and whether None belongs to it."""
    members = [annotation]
    if get_origin(annotation) in (Union, types.UnionType):
        members = list(get_args(annotation))
    plain = [member for member in members if member is not type(None)]
    if len(plain) == 1 and isinstance(plain[0], type) and plain[0] in SQL_TYPES:
        return SQL_TYPES[plain[0]], len(plain) < len(members)
    shown = annotation.__name__ if isinstance(annotation, type) else str(annotation).replace("typing.", "")
    raise FunctionProblem(f"{where} is annotated `{shown}`, which has no type in SQL", f"known are {KNOWN}")
