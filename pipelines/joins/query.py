"""A SELECT that grows step by step, over frames that hold the columns of several tables at once.

Inside an INSERT expressions name `alias`.`column`. The columns of a table travel flat, as `_of_alias$column`, and are
seen as structs just where an expression is evaluated: Spark folds those structs away. What changes from epoch to epoch
(the instant above all) is a column too: a literal would be new code to compile at every tick.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tidegate.pipelines.connectors.table import RESERVED_PREFIX
from tidegate.pipelines.sql.model import Insert
from tidegate.pipelines.syntax.types import quoted, spark_string


def flat(alias: str, column: str) -> str:
    """The name under which a column of `alias` travels: no column of the target has it, as none begins with `_`."""
    return f"{RESERVED_PREFIX}of_{alias}${column}"


def aliased(columns: Mapping[str, str]) -> str:
    """A select list of name -> expression."""
    return ", ".join(f"{expression} AS {name}" for name, expression in columns.items())


@dataclass
class Query:
    """Named steps (WITH name AS …); `last` is the one that gives the result so far, at first a view.

    `columns` (quoted) are those that it gives, `scope` the tables whose columns are among them.
    """

    last: str
    columns: list[str]
    scope: dict[str, Sequence[str]] = field(default_factory=dict)
    steps: list[tuple[str, str]] = field(default_factory=list)

    def step(self, name: str, items: Mapping[str, str]) -> None:
        """Add a step that gives `items` (quoted name -> expression over the columns so far)."""
        self.steps.append((name, f"SELECT {aliased(items)} FROM {self.last}"))
        self.last, self.columns = name, list(items)

    def select(self, name: str, items: Mapping[str, str], *, keep: Sequence[str] | None = None) -> None:
        """Add a step: the columns `keep` (all, if None) and `items` (quoted name -> expression over the scope)."""
        own = self.columns if keep is None else list(keep)
        structs = [_struct(alias, columns) for alias, columns in self.scope.items() if columns]
        chosen = ", ".join([*own, *(f"{expression} AS {column}" for column, expression in items.items())])
        seen = f"(SELECT {', '.join(['*', *structs])} FROM {self.last})" if structs else self.last
        self.steps.append((name, f"SELECT {chosen} FROM {seen}"))
        self.last, self.columns = name, [*own, *items]

    def text(self) -> str:
        """The whole statement."""
        steps = ",\n".join(f"{name} AS (\n  {text}\n)" for name, text in self.steps)
        return f"{f'WITH {steps}' if steps else ''}\nSELECT {', '.join(self.columns)} FROM {self.last}"


def _struct(alias: str, columns: Sequence[str]) -> str:
    fields = ", ".join(f"{spark_string(column)}, {quoted(flat(alias, column))}" for column in columns)
    return f"named_struct({fields}) AS {quoted(alias)}"


def split_where(insert: Insert) -> tuple[str, str]:
    """Two Spark SQL conditions whose conjunction is the INSERT's WHERE; `true` where there is nothing to say.

    The first names columns of the probe only, so that it can be tested on a row that no build has matched.
    """
    builds = {join.alias for join in insert.joins}
    of_all = [term.expression for term in insert.conditions if term.aliases & builds]
    of_probe = [term.expression for term in insert.conditions if not term.aliases & builds]
    return _conjunction(of_probe), _conjunction(of_all)


def _conjunction(terms: list[str]) -> str:
    return " AND ".join(f"({term})" for term in terms) or "true"
