"""Rows that grow step by step, over frames that hold the columns of several tables at once.

Inside an INSERT expressions name `alias`.`column`. The columns of a table travel flat, as `_of_alias$column`, and are
seen as structs just where an expression is evaluated: Spark folds those structs away. What changes from epoch to epoch
(the instant above all) is a column too: a literal would be new code to compile at every tick.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tidegate.pipelines.connectors.table import RESERVED_PREFIX
from tidegate.pipelines.sql.model import Insert
from tidegate.pipelines.syntax.types import quoted, spark_string

if TYPE_CHECKING:  # a task has no use for it
    from pyspark.sql import DataFrame


def flat(alias: str, column: str) -> str:
    """The name under which a column of `alias` travels: no column of the target has it, as none begins with `_`."""
    return f"{RESERVED_PREFIX}of_{alias}${column}"


@dataclass
class Query:
    """`rows` that grow by steps, each a projection: SQL text takes Spark twice as long, and a view.

    `columns` (quoted) are those that they have, `scope` the tables whose columns are among them; `seen` says whether
    those are there as structs, too.
    """

    rows: DataFrame
    columns: list[str]
    scope: dict[str, Sequence[str]] = field(default_factory=dict)
    seen: bool = False

    def step(self, items: Mapping[str, str]) -> None:
        """Add a step that gives `items` (quoted name -> expression over the columns so far)."""
        self.rows, self.columns, self.seen = self.rows.selectExpr(*_aliased(items)), list(items), False

    def select(self, items: Mapping[str, str], *, keep: Sequence[str] | None = None) -> None:
        """Add a step: the columns `keep` (all, if None) and `items` (quoted name -> expression over the scope)."""
        structs = [_struct(alias, columns) for alias, columns in self.scope.items() if columns]
        seen = self.rows if self.seen or not structs else self.rows.selectExpr("*", *structs)
        self.rows = seen.selectExpr(*(["*"] if keep is None else keep), *_aliased(items))
        self.columns, self.seen = [*(self.columns if keep is None else keep), *items], keep is None


def _aliased(columns: Mapping[str, str]) -> list[str]:
    return [f"{expression} AS {name}" for name, expression in columns.items()]


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
