"""Tables that are made of other tables ('hybrid.sources'): the parts are looked up, and must have the same columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tidegate.pipelines.connectors.spec import ConnectorSpec, never_signalling
from tidegate.pipelines.connectors.table import Role, Table
from tidegate.pipelines.syntax.errors import SqlError, suggest
from tidegate.pipelines.syntax.secrets import needs_variables
from tidegate.pipelines.syntax.source import Source, Span
from tidegate.pipelines.syntax.statements import CreateTable, Option

Known = Mapping[str, tuple[Table, ConnectorSpec]]
"""The tables that are declared so far."""


class PartsCompiler:
    """Finds the parts of one table. `known` are the tables that are declared before it."""

    def __init__(self, source: Source, statement: CreateTable, spec: ConnectorSpec, known: Known) -> None:
        self.source, self.statement, self.spec, self.known = source, statement, spec, known
        self.name = statement.name.text
        values = {option.key.text: option.value.text for option in statement.options}
        needed = all(option.name in values for option in spec.options if option.required)
        self.names: Sequence[str] = spec.parts(values) if needed else ()

    def compile(self) -> tuple[ConnectorSpec, tuple[Table, ...]]:
        """What the connector is with these parts, and the parts. Raises SqlError."""
        if not self.names:
            return self.spec, ()
        found = [self._part(name, place) for place, name in enumerate(self.names)]
        if len(found) < 2:
            raise self._error(0, f"{self.name} has one part only", "name the tables in order: 'history, live'")
        spec = replace(
            self.spec,
            append_only=all(spec.only_grows(table.options) for table, spec in found),
            system_time=all(spec.system_time for _, spec in found),
            system_watermark=all(spec.system_watermark for _, spec in found),
        )
        return spec, tuple(table for table, _ in found)

    def check(self, table: Table) -> None:
        """Raise SqlError unless every part has the columns of `table`, in the same types."""
        wanted = {column.name: column.type for column in table.physical_columns}
        for place, part in enumerate(table.parts):
            there = {column.name: column.type for column in part.physical_columns}
            line = part.location.line
            for name, of in wanted.items():
                if name not in there:
                    what = f"{part.name} (line {line}) delivers no column `{name}`, which {self.name} has"
                    raise self._error(place, what, suggest(name, there, "its columns"))
                if there[name] != of:
                    what = f"type clash: `{name}` is {there[name]} in {part.name} (line {line}), {of} in {self.name}"
                    raise self._error(place, what, "declare the column alike in all of them")
            more = [name for name in there if name not in wanted]
            if more:
                names = ", ".join(f"`{name}`" for name in more)
                what = f"{self.name} lacks {names}, which {part.name} (line {line}) delivers"
                raise self._error(place, what, "the tables have the same columns, apart from computed ones")

    def _part(self, name: str, place: int) -> tuple[Table, ConnectorSpec]:
        if needs_variables(name):
            raise self._error(place, "the parts cannot come from the environment", "write the tables' names")
        if name == self.name:
            raise self._error(place, f"{name} cannot be a part of itself", "name two other tables")
        if name not in self.known:
            hint = suggest(name, self.known, "the tables declared above")
            raise self._error(place, f"unknown table `{name}` in {self.name}", hint)
        if name in self.names[:place]:
            raise self._error(place, f"{name} is a part of {self.name} twice", "name every table once")
        table, spec = self.known[name]
        if table.parts:
            raise self._error(place, f"{name} is a hybrid table itself", "name its parts instead")
        if not spec.source:
            raise self._error(place, f"{spec.name} can only be written, so {name} cannot be a part", "name a source")
        if never_signalling(spec, table.options):
            what = f"{name} has a bounded phase and never says when it is over, so {self.name} would never switch"
            raise self._error(place, what, "choose options with which it says so")
        return table, spec

    def _error(self, place: int, what: str, hint: str | None) -> SqlError:
        option = next(option for option in self.statement.options if self.names[place] in option.value.text)
        return self.source.error(self._span(option, place), what, hint)

    def _span(self, option: Option, place: int) -> Span:
        """Where the name of a part is in the option's value."""
        span = option.value.span
        start = span.start
        for name in self.names[: place + 1]:
            found = self.source.text.find(name, start, span.end)
            if not name or found < 0:
                return span
            start = found + len(name)
        return Span(start - len(self.names[place]), start)


def with_role(table: Table, role: Role) -> Table:
    """`table` in a role, its parts in the same, with its key, its watermark and its SYSTEM_ROWTIME() in place of
    theirs: by these a part knows whether its own time is the rowtime, as alignment wants to know it."""
    times = tuple(column for column in table.columns if column.source_time)
    names = {column.name for column in times}
    parts = (
        replace(
            part,
            role=role,
            primary_key=table.primary_key,
            watermark=table.watermark,
            columns=(*(column for column in part.columns if column.name not in names), *times),
        )
        for part in table.parts
    )
    return replace(table, role=role, parts=tuple(parts))
