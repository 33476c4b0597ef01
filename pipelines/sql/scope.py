"""Which column a name means, and which names tables, constraints and columns may have: they become folders, assets and
columns of Delta tables."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tidegate.pipelines.connectors.options import field_option
from tidegate.pipelines.connectors.table import RESERVED_PREFIX, Column, Table
from tidegate.pipelines.sql.functions.function import Function
from tidegate.pipelines.sql.functions.times import INSTANT_SQL
from tidegate.pipelines.sql.functions.user import UserFunctions
from tidegate.pipelines.sql.values import Value
from tidegate.pipelines.syntax.dialect import parse_type
from tidegate.pipelines.syntax.errors import SqlError, did_you_mean, suggest
from tidegate.pipelines.syntax.source import Source, Span
from tidegate.pipelines.syntax.statements import Name
from tidegate.pipelines.syntax.types import FlinkType, quoted, quoted_string


class Scope:
    """Finds the columns of an expression, and functions that are not built in: `functions` are the script's so far."""

    source: Source
    functions: UserFunctions

    def resolve(self, path: Sequence[Name]) -> Value:
        """The value of `a.b.c`. Raises SqlError: unknown, ambiguous."""
        raise NotImplementedError

    def function(self, name: str, span: Span) -> Function | None:
        """The user function of that name; None when there is none. Raises SqlError where it cannot be called."""
        return self.functions.find(name, span)


CALLED_NOW = ("", "PROCTIME()")
"""The column of a value that is a call of PROCTIME() in a SELECT: a time attribute that no table has."""


@dataclass(frozen=True)
class Relation:
    """A table, a view or a query in a FROM or JOIN, by its name or alias there.

    `table`: whose rows it gives, called `base` in SQL; `name`: what stands in FROM; `defined`: the place of a view, and
    `places` those of its columns.
    """

    alias: str
    columns: Mapping[str, Value]
    table: Table
    name: str
    base: str
    defined: Span | None = None
    places: Mapping[str, Span] = field(default_factory=dict)

    @classmethod
    def of(cls, alias: str, table: Table) -> Relation:
        """A table by itself."""
        columns = {column.name: value_of(column, alias) for column in table.columns}
        return cls(alias, columns, table, table.name, alias)


def type_of(column: Column) -> FlinkType:
    found = parse_type(column.type)
    return found if column.nullable else found.not_null()


def value_of(column: Column, alias: str | None) -> Value:
    """A column as a value: `` `alias`.`column` ``; a PROCTIME() column is the plan's instant, which no table stores."""
    aliases = frozenset({alias}) if alias else frozenset()
    if column.proctime:
        return Value(INSTANT_SQL, type_of(column), column=(alias or "", column.name), aliases=aliases)
    sql = f"{quoted(alias)}.{quoted(column.name)}" if alias else quoted(column.name)
    return Value(sql, type_of(column), column=(alias or "", column.name), aliases=aliases)


def fields(value: Value, path: Sequence[Name], source: Source) -> Value:
    """`value.a.b`: fields of a ROW. Raises SqlError."""
    for name in path:
        found = value.type.field(name.text)
        if found is None:
            if not value.type.fields:
                raise source.error(name.span, f"`{name.text}` is no field: {value.type} is no ROW")
            names = [field.name for field in value.type.fields]
            raise source.error(name.span, f"unknown field `{name.text}`", suggest(name.text, names, "its fields"))
        value = Value(f"{value.sql}.{quoted(found.name)}", found.type, aliases=value.aliases)
    return value


def unknown_column(source: Source, name: Name, of: str, known: Iterable[str], also: Span | None = None) -> SqlError:
    """The error for a name that is none of the `known` columns of a table."""
    what = f"unknown column `{name.text}` in {of}"
    return source.error(name.span, what, suggest(name.text, known, "its columns"), also)


@dataclass(frozen=True)
class TableScope(Scope):
    """The columns of one table, inside its own CREATE TABLE. `hidden` ones exist but must not be used, with why."""

    source: Source
    name: str
    columns: Sequence[Column]
    functions: UserFunctions
    hidden: Sequence[tuple[str, str, str]] = ()

    def resolve(self, path: Sequence[Name]) -> Value:
        """The value of a column or of a field of it."""
        first = path[0]
        for column in self.columns:
            if column.name == first.text:
                return fields(value_of(column, None), path[1:], self.source)
        for name, why, hint in self.hidden:
            if name == first.text:
                raise self.source.error(first.span, why, hint)
        raise unknown_column(self.source, first, self.name, [column.name for column in self.columns])


@dataclass(frozen=True)
class InsertScope(Scope):
    """The columns of an INSERT's tables, probe first. A first part that names a table means that table, otherwise a
    column."""

    source: Source
    relations: Sequence[Relation]
    functions: UserFunctions
    later: Sequence[str] = ()

    def relation(self, name: Name) -> Relation:
        """The table called `name` here. Raises SqlError."""
        for relation in self.relations:
            if relation.alias == name.text:
                return relation
        raise self.source.error(name.span, f"unknown table `{name.text}`", self._hint_for_table(name.text))

    def resolve(self, path: Sequence[Name]) -> Value:
        """The value of `column`, `table.column`, and of fields of either."""
        owner, names = self.owner(path)
        return fields(owner.columns[names[0].text], names[1:], self.source)

    def owner(self, path: Sequence[Name]) -> tuple[Relation, Sequence[Name]]:
        """Which table a path is of, and the path without that table's name. Raises SqlError: unknown, ambiguous."""
        first = path[0]
        relation = next((relation for relation in self.relations if relation.alias == first.text), None)
        if relation is not None and len(path) > 1 and path[1].text in relation.columns:
            return relation, path[1:]
        owners = [each for each in self.relations if first.text in each.columns]
        if not owners:
            raise self._unknown(path, relation)
        if len(owners) > 1:
            choices = " or ".join(f"`{owner.alias}.{first.text}`" for owner in owners)
            raise self.source.error(first.span, f"column `{first.text}` is ambiguous", f"write {choices}")
        return owners[0], path

    def _unknown(self, path: Sequence[Name], relation: Relation | None) -> SqlError:
        first = path[0]
        if relation is not None and len(path) > 1:
            return unknown_column(self.source, path[1], relation.alias, relation.columns, relation.defined)
        if relation is not None:
            what = f"`{first.text}` is a table, not a column"
            return self.source.error(first.span, what, f"write `{first.text}`.column")
        if len(path) > 1:
            return self.source.error(first.span, f"unknown table `{first.text}`", self._hint_for_table(first.text))
        everything = {name for found in self.relations for name in found.columns}
        hint = suggest(first.text, everything, "the columns here")
        defined = next((each.defined for each in self.relations if each.defined), None)
        return self.source.error(first.span, f"unknown column `{first.text}`", hint, defined)

    def _hint_for_table(self, name: str) -> str | None:
        for relation in self.relations:
            if relation.name == name:
                return f"{name} is called `{relation.alias}` in this INSERT"
        if name in self.later:
            return f"{name} is joined further on: use it from its own ON on"
        aliases = [relation.alias for relation in self.relations]
        return did_you_mean(name, aliases) or suggest(name, aliases, "the tables here")


FORBIDDEN = " ,;{}()\n\t=.`\r"
"""Characters that Delta Lake refuses in a column's name, and those that would make a path of names ambiguous."""


def check_table_name(source: Source, name: Name) -> None:
    """A table's name is also a folder's and an asset's. Raises SqlError."""
    if name.text.startswith(RESERVED_PREFIX):
        raise source.error(name.span, f"`{name.text}` begins with `_`", "names that begin with `_` are the lake's own")
    check_plain_name(source, name, "table")


def check_plain_name(source: Source, name: Name, of: str) -> None:
    """The names of tables and constraints (`of`) become parts of paths, reasons and metadata. Raises SqlError."""
    if not all(character.isalnum() or character in "_-" for character in name.text):
        raise source.error(name.span, f"`{name.text}` is no name for a {of}", "use letters, digits, `_` and `-`")


def check_column_name(
    source: Source, name: Name, *, taken: Collection[str] = (), by_name: bool = False, sink: bool = False
) -> None:
    """Raises SqlError for a name that the lake cannot have. `taken`: the names of the table's other columns,
    casefolded. `by_name`: whether a connector finds the column by its name, so that another name would be another
    field's; `sink`: whether the table may be a target, too."""
    reserved = name.text.startswith(RESERVED_PREFIX)
    wrong = [character for character in name.text if character in FORBIDDEN]
    if not reserved and not wrong:
        return
    other = unused(storable(name.text), taken)
    why = "names that begin with `_` are the lake's own" if reserved else "Delta Lake does not take it in a name"
    write = f"call it `{other}`"
    if by_name:
        option = f"{quoted_string(field_option(other))} = {quoted_string(name.text)}"
        write += f", and name its field in WITH: {option}"
        if sink:
            write += " (a target needs the first alone)"
    what = "begins with `_`" if reserved else f"holds {wrong[0]!r}"
    raise source.error(name.span, f"column `{name.text}` {what}", f"{why}: {write}")


def storable(name: str) -> str:
    """The name that is most like `name` and that the lake can have."""
    found = re.sub("_+", "_", "".join("_" if character in FORBIDDEN else character for character in name))
    return found.strip("_") or "value"


def unused(name: str, taken: Collection[str]) -> str:
    """`name`, or the first of `name_2`, `name_3`, … that is none of `taken` (casefolded), whatever its case."""
    found, number = name, 1
    while found.casefold() in taken:
        number += 1
        found = f"{name}_{number}"
    return found
