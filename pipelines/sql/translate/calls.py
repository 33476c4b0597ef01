"""Calls of functions, and why some cannot be called."""

from __future__ import annotations

from typing import NoReturn

from sqlglot import exp

from tidegate.pipelines.sql.functions import FUNCTIONS, Call
from tidegate.pipelines.sql.functions.refused import (
    ABSENT,
    AGAIN_OTHERWISE,
    AGGREGATES,
    DDL_ONLY,
    RECOMPUTE,
    ROWS_STAY,
    WINDOWS,
    WINDOWS_STAND,
)
from tidegate.pipelines.sql.translate.walker import Walker
from tidegate.pipelines.sql.values import Value
from tidegate.pipelines.syntax.errors import did_you_mean
from tidegate.pipelines.syntax.source import Span
from tidegate.pipelines.syntax.statements import place


def call(walker: Walker, tree: exp.Expr, span: Span) -> Value:
    """A function, by its record."""
    written = tree.name
    name = written.upper()
    units = tuple(argument.name for argument in tree.expressions if isinstance(argument, exp.Var))
    trees = [argument for argument in tree.expressions if not isinstance(argument, exp.Var)]
    function = FUNCTIONS.get(f"{name} TO") if units else None
    if function is None and " " not in name:
        function = FUNCTIONS.get(name)
    if function is None:
        at = Span(span.start, tree.meta.get("name_end", span.start + len(written)))
        function = walker.scope.function(written, at) or _no_function(walker, written, at)
    if tree.meta.get("distinct"):
        walker.refuse(span, f"{name}(DISTINCT …) is not supported", "DISTINCT belongs in aggregates alone")
    arguments = tuple(walker.of(argument, span) for argument in trees)
    spans = tuple(place(argument) or span for argument in trees)
    return function.translate(
        Call(name if name in FUNCTIONS else written, arguments, spans, span, walker.source, units)
    )


def _no_function(walker: Walker, written: str, span: Span) -> NoReturn:
    name = written.upper()
    if name in AGAIN_OTHERWISE:
        walker.refuse(span, f"{name} is not supported: {RECOMPUTE}", AGAIN_OTHERWISE[name])
    if name in AGGREGATES:
        walker.refuse(span, f"the aggregate {name} is not supported", ROWS_STAY)
    if name in WINDOWS:
        walker.refuse(span, f"the window {name} cannot stand here", WINDOWS_STAND)
    if name in DDL_ONLY:
        walker.refuse(span, f"{name}() cannot stand here", DDL_ONLY[name])
    if name in ABSENT:
        what = f"{name} is a function of Flink that Tidegate does not have"
        walker.refuse(span, what, _ways(walker, "docs/sql.md lists the functions"))
    own = walker.scope.functions.close_to(name) if walker.scope.functions is not None else None
    close = own or did_you_mean(name, (known for known in FUNCTIONS if " " not in known))
    hint = "docs/sql.md lists the functions; CREATE FUNCTION … LANGUAGE PYTHON declares your own"
    walker.refuse(span, f"unknown function {written}", close or _ways(walker, hint))


def _ways(walker: Walker, hint: str) -> str:
    return hint if walker.another_way is None else f"{hint}; {walker.another_way}"
