"""Walks a tree and hands every node to the rule for its kind. `Translator` lists the rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar, NoReturn

from sqlglot import exp

from tidegate.pipelines.sql.scope import Scope
from tidegate.pipelines.sql.values import Value
from tidegate.pipelines.syntax.source import Source, Span
from tidegate.pipelines.syntax.statements import Scalar, place
from tidegate.pipelines.syntax.types import BOOLEAN, Kind


class Walker:
    """Translates the expressions of one scope, by `rules`: one for each kind of node.

    `another_way`: how else a function may be had that the dialect does not have, as a hint.
    """

    rules: ClassVar[Rules]

    def __init__(self, source: Source, scope: Scope, another_way: str | None = None) -> None:
        self.source = source
        self.scope = scope
        self.another_way = another_way

    def value(self, scalar: Scalar) -> Value:
        """The value of an expression. Raises SqlError."""
        return self.of(scalar.tree, scalar.span)

    def conjuncts(self, scalar: Scalar) -> list[tuple[exp.Expr, Value]]:
        """The terms that AND joins, each with its tree. Raises SqlError, for a term that is no condition too."""
        found: list[tuple[exp.Expr, Value]] = []
        waiting = [scalar.tree]
        while waiting:
            tree = waiting.pop()
            if isinstance(tree, exp.And):
                waiting += [tree.expression, tree.this]
            elif isinstance(tree, exp.Paren) and isinstance(tree.this, exp.And):
                waiting.append(tree.this)
            else:
                found.append((tree, self.truth(tree, scalar.span)))
        return found

    def of(self, tree: exp.Expr, around: Span) -> Value:
        """The value of a node; `around` is its place if it does not know itself."""
        span = place(tree) or around
        rule = self.rules.get(type(tree))
        if rule is None:
            self.refuse(span, f"{self.source.shown(span)} is not supported")
        return rule(self, tree, span)

    def truth(self, tree: exp.Expr, around: Span) -> Value:
        """The value of a node that must be BOOLEAN."""
        value = self.of(tree, around)
        if value.type.kind not in (Kind.BOOLEAN, Kind.NULL):
            self.refuse(place(tree) or around, f"type clash: a condition is BOOLEAN, not {value.type}")
        if value.type.kind is Kind.NULL:  # Spark does not take a bare NULL for a condition
            return Value("CAST(NULL AS BOOLEAN)", BOOLEAN, aliases=value.aliases)
        return value

    def refuse(self, span: Span, what: str, hint: str | None = None) -> NoReturn:
        """Raise SqlError."""
        raise self.source.error(span, what, hint)


Rules = Mapping[type[exp.Expr], Callable[[Walker, exp.Expr, Span], Value]]
"""The rule for each kind of node."""
