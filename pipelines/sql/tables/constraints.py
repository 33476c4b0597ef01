"""CONSTRAINT … EXPECT of one CREATE TABLE."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import reduce

from tidegate.pipelines.connectors.spec import ConnectorSpec
from tidegate.pipelines.connectors.table import Column, Constraint, OnViolation, Table
from tidegate.pipelines.sql.functions.function import Function
from tidegate.pipelines.sql.functions.refused import RECOMPUTE
from tidegate.pipelines.sql.functions.user import UserFunctions
from tidegate.pipelines.sql.names import check_constraint_name, unused
from tidegate.pipelines.sql.scope import TableScope
from tidegate.pipelines.sql.translate import Translator
from tidegate.pipelines.syntax.source import Source, Span
from tidegate.pipelines.syntax.statements import CreateTable, Expect
from tidegate.pipelines.syntax.types import quoted

MOST = 60
"""Which constraints a row violates is kept in one BIGINT while the row is staged."""

_ACTIONS: dict[str | None, OnViolation] = {"FAIL": "fail", "QUARANTINE": "quarantine", "WARN": "warn", None: "warn"}
"""Without ON VIOLATION a row is kept and counted, as on Databricks."""


@dataclass(frozen=True)
class _WrittenColumns(TableScope):
    """The columns of a target that an INSERT writes."""

    def function(self, name: str, span: Span) -> Function | None:
        """Raises SqlError for every user function: what became of a row is recomputed."""
        if self.functions is not None and self.functions.find(name, span) is not None:
            hint = f"declare a computed column in the source table, select it, and look at that: AS {name}(…)"
            raise self.source.error(span, f"function {name} cannot stand in a constraint: {RECOMPUTE}", hint)
        return None


class ConstraintCompiler:
    """Compiles the constraints of a table that has `columns`."""

    def __init__(
        self,
        source: Source,
        statement: CreateTable,
        columns: Sequence[Column],
        functions: UserFunctions | None = None,
    ) -> None:
        self.source = source
        self.statement = statement
        name = statement.name.text
        written = [column for column in columns if column.physical]
        hidden = [
            (column.name, f"`{column.name}` is computed, and an INSERT does not write it", "write its expression out")
            for column in columns
            if not column.physical
        ]
        self.scope = _WrittenColumns(source, name, written, hidden, functions)

    def compile(self, spec: ConnectorSpec) -> tuple[Constraint, ...]:
        """The constraints as written. Raises SqlError: a table that cannot be a target, a name given twice, unknown
        columns, a condition that is not BOOLEAN, functions whose value a recomputation would not find again."""
        found: dict[str, Constraint] = {}
        for expect in self.statement.constraints:
            if not spec.sink:
                raise self.source.error(expect.span, *refused(expect, f"{spec.name} can only be read"))
            check_constraint_name(self.source, expect.name)
            other = found.get(expect.name.text.casefold())
            if other is not None:
                what = f"{self.statement.name.text} has two constraints `{expect.name.text}`"
                raise self.source.error(expect.name.span, what, f"the other is in line {other.location.line}")
            if len(found) == MOST:
                what = f"{self.statement.name.text} has more than {MOST} constraints"
                raise self.source.error(expect.span, what, "put several conditions into one, with AND")
            found[expect.name.text.casefold()] = self._constraint(expect)
        return tuple(found.values())

    def _constraint(self, expect: Expect) -> Constraint:
        value = Translator(self.source, self.scope).truth(expect.condition.tree, expect.condition.span)
        return Constraint(
            name=expect.name.text,
            condition=value.sql,
            action=_ACTIONS[expect.action],
            sql=expect.condition.written,
            location=self.source.location(expect.name.span.start),
        )


def not_null(columns: Sequence[Column], action: OnViolation, taken: Iterable[str]) -> Constraint:
    """That none of these columns of a target is NULL. `taken`: the names of its other constraints."""
    written = " AND ".join(f"{quoted(column.name)} IS NOT NULL" for column in columns)
    condition = reduce("({} AND {})".format, (f"(NOT ({quoted(column.name)} IS NULL))" for column in columns))
    plain = re.sub(r"[^\w-]", "_", columns[0].name) if len(columns) == 1 else "others"
    name = unused(f"not-null-{plain}", [name.casefold() for name in taken])
    return Constraint(name, condition, action, written)


def quarantining_nulls(table: Table) -> Table:
    """A target that keeps rows out which have NULL in a NOT NULL column, by a constraint for each column, and one for
    all that are too many to have one of their own."""
    columns = [column for column in table.physical_columns if not column.nullable]
    room = max(MOST - len(table.constraints), 0)
    found = list(table.constraints)
    for several in [*([column] for column in columns[:room]), columns[room:]]:
        made = not_null(several, "quarantine", (each.name for each in found)) if several else None
        if made is not None and (made.sql, made.action) not in {(each.sql, each.action) for each in table.constraints}:
            found.append(made)
    return replace(table, constraints=tuple(found))


def refused(expect: Expect, why: str) -> tuple[str, str]:
    """What is wrong with a constraint on a table that is no target, and what to do."""
    what = f"constraint `{expect.name.text}` has no meaning here: {why}"
    return what, "a constraint belongs in the CREATE TABLE that an INSERT writes to"
