"""A SELECT that grows step by step, over frames that hold the columns of several tables at once.

Inside an INSERT expressions name `alias`.`column`. The columns of a table travel flat, as `alias$column`, and are seen
as structs just where an expression is evaluated: Spark folds those structs away, so nothing is shuffled as one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pipelines.lake.rows import quoted


def flat(alias: str, column: str) -> str:
    """The quoted name under which a column of `alias` travels."""
    return quoted(f"{alias}${column}")


def aliased(columns: Mapping[str, str]) -> str:
    """A select list of name -> expression."""
    return ", ".join(f"{expression} AS {name}" for name, expression in columns.items())


def literal(text: str) -> str:
    """A Spark SQL string literal."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


@dataclass
class Query:
    """Named steps (WITH name AS …); `last` is the one that gives the result so far.

    `columns` are those that it gives, `scope` the tables whose columns are among them; `instant` (ms, UTC)
    is what `_instant` stands for in expressions.
    """

    instant: int
    steps: list[tuple[str, str]] = field(default_factory=list)
    columns: list[str] = field(default_factory=list)
    last: str = ""
    scope: dict[str, Sequence[str]] = field(default_factory=dict)

    def step(self, name: str, text: str, columns: Sequence[str] | None = None) -> None:
        """Add a step that gives `columns` (the same as before, if None)."""
        self.steps.append((name, text))
        self.last = name
        if columns is not None:
            self.columns = list(columns)

    def aside(self, name: str, text: str) -> None:
        """Add a step that later ones may name, without leaving the one that is the newest now."""
        self.steps.append((name, text))

    def select(self, name: str, items: Mapping[str, str], *, keep: Sequence[str] | None = None) -> None:
        """Add a step: the columns `keep` (all, if None) and `items` (quoted name -> expression over the scope)."""
        kept = self.columns if keep is None else list(keep)
        seen = ", ".join(scoped(self.scope, self.instant))
        chosen = ", ".join([*kept, *(f"{expression} AS {column}" for column, expression in items.items())])
        self.step(name, f"SELECT {chosen} FROM (SELECT {seen} FROM {self.last})", [*kept, *items])

    def text(self) -> str:
        """The whole statement."""
        steps = ",\n".join(f"{name} AS (\n  {text}\n)" for name, text in self.steps)
        return f"WITH {steps}\nSELECT * FROM {self.last}"


def scoped(scope: Mapping[str, Sequence[str]], instant: int) -> list[str]:
    """What a SELECT must give for expressions over `scope` to be evaluated on it, besides what is there."""
    structs = [_struct(alias, columns) for alias, columns in scope.items() if columns]
    return ["*", f"timestamp_millis({instant}) AS _instant", *structs]


def _struct(alias: str, columns: Sequence[str]) -> str:
    fields = ", ".join(f"{literal(column)}, {flat(alias, column)}" for column in columns)
    return f"named_struct({fields}) AS {quoted(alias)}"
