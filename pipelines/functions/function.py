"""A user function as a pipeline holds it: where it is and what it takes, not the function itself."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

PREFIX = "tidegate_function_"
"""Names under which Spark knows user functions begin with it."""


@dataclass(frozen=True)
class Parameter:
    """`type` in Flink's spelling. `takes_null`: annotated Optional, so the function is given None for a NULL.
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
        """What the function is called in Spark SQL: the same in every process, another name for another function.

        Pipelines that share a session do not take each other's.
        """
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


class FunctionProblem(ValueError):
    """A function that cannot be had, or that has no signature in SQL. The compiler adds line and column.

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
