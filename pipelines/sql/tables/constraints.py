"""Constraints of one CREATE TABLE: PRIMARY KEY, PARTITIONED BY, CONSTRAINT … EXPECT."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce

from tidegate.pipelines.connectors.spec import ConnectorSpec
from tidegate.pipelines.connectors.table import Column, Constraint, OnViolation, Table
from tidegate.pipelines.sql.functions.function import Function
from tidegate.pipelines.sql.functions.refused import RECOMPUTE
from tidegate.pipelines.sql.functions.user import UserFunctions
from tidegate.pipelines.sql.scope import TableScope, check_plain_name, unknown_column, unused
from tidegate.pipelines.sql.tables import TablePart
from tidegate.pipelines.sql.translate import Translator
from tidegate.pipelines.syntax.dialect import parse_type
from tidegate.pipelines.syntax.grammar.create import LAKE_LAYS_OUT
from tidegate.pipelines.syntax.source import Source, Span
from tidegate.pipelines.syntax.statements import CreateTable, Expect, Name
from tidegate.pipelines.syntax.types import INTEGERS, NESTED, STRINGS, Kind, quoted

MOST = 60
"""The constraints that a row violates are bits of one BIGINT while the row is staged."""

_ACTIONS: dict[str | None, OnViolation] = {"FAIL": "fail", "QUARANTINE": "quarantine", "WARN": "warn", None: "warn"}
"""Without ON VIOLATION a violating row is published and counted, as on Databricks."""


@dataclass(frozen=True)
class _WrittenColumns(TableScope):
    """The columns of a target that an INSERT writes."""

    def function(self, name: str, span: Span) -> Function | None:
        """Raises SqlError for every user function: a constraint's result must be recomputable."""
        if self.functions.find(name, span) is not None:
            hint = f"declare a computed column in the source table, select it, and look at that: AS {name}(…)"
            raise self.source.error(span, f"function {name} cannot stand in a constraint: {RECOMPUTE}", hint)
        return None


class ConstraintCompiler(TablePart):
    """Compiles the constraints of a table that has `columns`."""

    def __init__(
        self, source: Source, statement: CreateTable, columns: Sequence[Column], functions: UserFunctions
    ) -> None:
        super().__init__(source, statement)
        written = [column for column in columns if column.physical]
        hidden = [
            (column.name, f"`{column.name}` is computed, and an INSERT does not write it", "write its expression out")
            for column in columns
            if not column.physical
        ]
        self.scope = _WrittenColumns(source, self.name, written, functions, hidden)

    def compile(self, spec: ConnectorSpec) -> tuple[Constraint, ...]:
        """The constraints as written. Raises SqlError: a table that cannot be a target, a name given twice, unknown
        columns, a condition that is not BOOLEAN, functions whose value a recomputation would not find again."""
        found: dict[str, Constraint] = {}
        for expect in self.statement.constraints:
            if not spec.sink:
                raise self._error(expect.span, *refused(expect, f"{spec.name} can only be read"))
            check_plain_name(self.source, expect.name, "constraint")
            other = found.get(expect.name.text.casefold())
            if other is not None:
                what = f"{self.name} has two constraints `{expect.name.text}`"
                raise self._error(expect.name.span, what, f"the other is in line {other.location.line}")
            if len(found) == MOST:
                what = f"{self.name} has more than {MOST} constraints"
                raise self._error(expect.span, what, "put several conditions into one, with AND")
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
    """The constraint that none of these columns of a target is NULL. `taken`: the names of its other constraints."""
    written = " AND ".join(f"{quoted(column.name)} IS NOT NULL" for column in columns)
    condition = reduce("({} AND {})".format, (f"(NOT ({quoted(column.name)} IS NULL))" for column in columns))
    plain = re.sub(r"[^\w-]", "_", columns[0].name) if len(columns) == 1 else "others"
    name = unused(f"not-null-{plain}", [name.casefold() for name in taken])
    return Constraint(name, condition, action, written)


def quarantining_nulls(table: Table) -> Table:
    """A target that quarantines rows with NULL in a NOT NULL column, by one constraint a column, and one for all
    columns beyond the limit."""
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


PARTITION_KINDS = frozenset({*STRINGS, *INTEGERS, Kind.DECIMAL, Kind.BOOLEAN, Kind.DATE, Kind.TIMESTAMP})
"""What a partition column can be: types with one spelling of a value that needs no option to be read."""


class KeyCompiler(TablePart):
    """Finds the columns of the key and of the partitions among the table's `columns`."""

    def __init__(self, source: Source, statement: CreateTable, columns: Sequence[Column]) -> None:
        super().__init__(source, statement)
        self.columns = columns

    def primary_key(self, spec: ConnectorSpec) -> tuple[str, ...]:
        """The key's columns in order; none without a key. Raises SqlError."""
        keys = self.statement.primary_keys
        if len(keys) > 1:
            what = f"{self.name} has two primary keys"
            raise self._error(keys[1].span, what, "write PRIMARY KEY (a, b) NOT ENFORCED")
        if not keys and spec.needs_primary_key:
            what = f"a table of {spec.name} needs a primary key"
            raise self._error(self.statement.name.span, what, "PRIMARY KEY (…) NOT ENFORCED")
        if not keys:
            return ()
        written = {column.name.text: column for column in self.statement.columns}
        for column, name in self._delivered(keys[0].columns, "the primary key", "in the key"):
            null = written[name.text].null_written
            if null is not None:
                what = f"`{name.text}` is in the primary key, so it cannot be NULL"
                raise self._error(null, what, "leave NULL out: columns of the key are NOT NULL")
            if parse_type(column.type).kind in NESTED:
                raise self._error(name.span, f"type clash: a key cannot be {column.type}", "use its fields")
        return tuple(name.text for name in keys[0].columns)

    def partition_columns(self, spec: ConnectorSpec) -> tuple[str, ...]:
        """The columns of PARTITIONED BY in order; none without it. Raises SqlError."""
        names, span = self.statement.partitions, self.statement.partitioned
        if span is not None and not spec.partitioned:
            words = Span(span.start, span.start + len("PARTITIONED"))
            raise self._error(words, f"PARTITIONED BY is not supported by {spec.name}", LAKE_LAYS_OUT)
        for column, name in self._delivered(names, "PARTITIONED BY", "from a folder's name"):
            if parse_type(column.type).kind not in PARTITION_KINDS:
                hint = "declare a string, an integer, DECIMAL, BOOLEAN, DATE or TIMESTAMP"
                raise self._error(name.span, f"type clash: a folder's name cannot be {column.type}", hint)
        return tuple(name.text for name in names)

    def _delivered(self, names: Sequence[Name], among: str, be: str) -> Iterator[tuple[Column, Name]]:
        """The columns that `names` mean. Raises SqlError: unknown, named twice, or not delivered as a column."""
        by_name = {column.name: column for column in self.columns}
        for position, name in enumerate(names):
            column = by_name.get(name.text)
            if column is None:
                raise unknown_column(self.source, name, self.name, by_name)
            if name.text in [earlier.text for earlier in names[:position]]:
                raise self._error(name.span, f"`{name.text}` is twice in {among}")
            if not column.physical or column.metadata is not None:
                raise self._error(name.span, f"`{name.text}` is not delivered as a column, so it cannot be {be}")
            yield column, name
