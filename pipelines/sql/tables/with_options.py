"""The WITH options of one CREATE TABLE, checked against its connector; and tables that are made of other tables
('hybrid.sources'): the parts are looked up, and must have the same columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tidegate.pipelines.connectors.options import (
    CONNECTOR,
    FIELD_NAME,
    SINK_OPTIONS,
    SOURCE_OPTIONS,
    WATERMARK_PREFIX,
    common_options,
    field_option,
    find_option,
    not_done,
    path_of,
    shown_value,
    spelled,
    wrong_value,
)
from tidegate.pipelines.connectors.spec import ConnectorSpec, OptionSpec, never_signalling
from tidegate.pipelines.connectors.suites import OPTION as QUALITY_SUITE
from tidegate.pipelines.connectors.suites import read_suite
from tidegate.pipelines.connectors.table import Column, Options, Role, Suite, Table
from tidegate.pipelines.errors import PlanningError
from tidegate.pipelines.sql.scope import check_table_name
from tidegate.pipelines.sql.tables import TablePart
from tidegate.pipelines.syntax.errors import SqlError, suggest
from tidegate.pipelines.syntax.secrets import needs_variables
from tidegate.pipelines.syntax.settings import SETTINGS
from tidegate.pipelines.syntax.source import Source, Span
from tidegate.pipelines.syntax.statements import CreateTable, Name, Option


class OptionCompiler(TablePart):
    """Finds the connector of a table and checks its options."""

    def __init__(self, source: Source, statement: CreateTable) -> None:
        super().__init__(source, statement)
        self.columns = [column.name.text for column in statement.columns if column.computed is None]

    def connector(self, connectors: Mapping[str, ConnectorSpec]) -> ConnectorSpec:
        """What 'connector' names. Raises SqlError."""
        option = next((option for option in self.statement.options if option.key.text == CONNECTOR.name), None)
        if option is None:
            hint = suggest("", connectors, "the connectors")
            raise self._error(self.statement.name.span, f"{self.name} has no 'connector' option", hint)
        name = option.value.text
        if needs_variables(name):
            raise self._error(option.value.span, "'connector' cannot come from the environment", "write its name")
        if name not in connectors:
            hint = suggest(name, connectors, "the connectors")
            raise self._error(option.value.span, f"unknown connector '{name}'", hint)
        problem = None
        try:
            return connectors[name]
        except PlanningError as error:
            problem = error.what
        raise self._error(option.value.span, problem, "reinstall the package that brings the connector")

    def options(self, spec: ConnectorSpec) -> Options:
        """The options as written. Raises SqlError: unknown, missing, given twice, or with a wrong value."""
        known = (*spec.options, *common_options(spec))
        seen: dict[str, Option] = {}
        for option in self.statement.options:
            self._option(option, spec, known)
            if option.key.text in seen:
                raise self._error(option.key.span, f"option '{option.key.text}' is given twice")
            seen[option.key.text] = option
        for wanted in known:
            if wanted.required and wanted.name not in seen:
                what = f"{self.name} lacks the option '{wanted.name}', which {spec.name} needs"
                raise self._error(self.statement.name.span, what, wanted.doc or None)
        self._go_together(seen)
        return Options({key: option.value.text for key, option in seen.items()})

    def suite(self, columns: Sequence[Column]) -> Suite | None:
        """The suite that 'quality.suite' names, by a path relative to the script; None without. Raises SqlError."""
        value = next((option.value for option in self.statement.options if option.key.text == QUALITY_SUITE), None)
        if value is None:
            return None
        if needs_variables(value.text):
            what = f"'{QUALITY_SUITE}' cannot come from the environment: it is read when compiling"
            raise self._error(value.span, what)
        path = Path(self.source.path or ".").parent / value.text
        found = read_suite(value.text, path, self.name, [column.name for column in columns if column.physical])
        if not isinstance(found, Suite):
            raise self._error(value.span, *found)
        return found

    def with_fields(self, columns: Sequence[Column], options: Options) -> tuple[Column, ...]:
        """`columns` with the names of their fields, as `options` have them."""
        given = {column.name: options.get(field_option(column.name)) for column in columns if column.physical}
        return tuple(
            column if given.get(column.name) in (None, column.name) else replace(column, field_name=given[column.name])
            for column in columns
        )

    def _field(self, option: Option, column: str, spec: ConnectorSpec) -> None:
        """Check that `option` may name the field of `column`. Raises SqlError."""
        key, metadata = option.key, {each.name.text for each in self.statement.columns if each.metadata is not None}
        if not spec.by_name:
            what = f"'{key.text}' has no meaning: {spec.name} finds no column by its name"
            hint = "write it in the tables that are read" if spec.name == "hybrid" else None
            raise self._error(key.span, what, hint)
        if column in metadata:
            raise self._error(key.span, f"'{key.text}': `{column}` is METADATA, and no field", "leave it out")
        if needs_variables(option.value.text):
            raise self._error(option.value.span, f"'{key.text}' cannot come from the environment", "write the name")

    def _option(self, option: Option, spec: ConnectorSpec, known: Sequence[OptionSpec]) -> None:
        key, value = option.key.text, option.value.text
        found = find_option(key, known)
        if found is None:
            for others, word in ((SINK_OPTIONS, "read"), (SOURCE_OPTIONS, "written")):
                if find_option(key, others) is not None:
                    raise self._error(option.key.span, f"'{key}' has no meaning here: {spec.name} can only be {word}")
            if key in SETTINGS:
                hint = f"put SET '{key}' = '{value}' at the top of the script"
                raise self._error(option.key.span, f"'{key}' is no option of a table, it holds for the script", hint)
            names = spelled(known, self.columns)
            what = f"unknown option '{key}' of {spec.name}"
            raise self._error(option.key.span, what, suggest(key, names, "its options"))
        if not_done(found, value):
            shown = f"'{key}' = '{shown_value(key, value)}'" if found.spares else f"'{key}'"
            raise self._error(option.key.span, f"{shown} asks for what is not done here", found.doc)
        path = path_of(key, found)
        if path is not None and (path if found.name == FIELD_NAME else path.split(".")[0]) not in self.columns:
            what = f"unknown column `{path}` of {self.name} in '{key}'"
            raise self._error(option.key.span, what, suggest(path, self.columns, "its columns"))
        if found.name == FIELD_NAME and path is not None:
            self._field(option, path, spec)
        wrong = None if needs_variables(value) else wrong_value(found, value)
        if wrong is not None:
            raise self._error(option.value.span, f"'{key}' = '{shown_value(key, value)}' {wrong[0]}", wrong[1])

    def _go_together(self, seen: Mapping[str, Option]) -> None:
        for key, option in seen.items():
            if key.startswith(WATERMARK_PREFIX) and not self.statement.watermarks:
                what = f"'{key}' has no meaning without a watermark"
                raise self._error(option.key.span, what, "declare WATERMARK FOR column AS …")
        group, drift = f"{WATERMARK_PREFIX}alignment.group", f"{WATERMARK_PREFIX}alignment.max-drift"
        for one, other in ((group, drift), (drift, group), (f"{WATERMARK_PREFIX}alignment.update-interval", group)):
            if one in seen and other not in seen:
                raise self._error(seen[one].key.span, f"'{one}' needs '{other}' beside it")
        emit, gap = seen.get(f"{WATERMARK_PREFIX}emit.strategy"), seen.get(f"{WATERMARK_PREFIX}emit.on-event.gap")
        # Where the environment says when to emit, the gap is for the case that it says on-event.
        if gap is not None and (emit is None or emit.value.text == "on-periodic"):
            what = f"'{gap.key.text}' needs '{WATERMARK_PREFIX}emit.strategy' = 'on-event' beside it"
            raise self._error(gap.key.span, what)
        ratio = "gate.unmatched-ratio."
        least = seen.get(f"{ratio}min-rows")
        if least is not None and not {f"{ratio}max", f"{ratio}window"} & seen.keys():
            raise self._error(least.key.span, f"'{least.key.text}' needs '{ratio}max' or '{ratio}window' beside it")
        insert_id = seen.get("insert.id")
        if insert_id is not None:
            if needs_variables(insert_id.value.text):
                raise self._error(insert_id.value.span, "'insert.id' cannot come from the environment: it is for ever")
            check_table_name(self.source, Name(insert_id.value.text or " ", insert_id.value.span))


def check_connector(
    source: Source, statement: CreateTable, spec: ConnectorSpec, table: Table, hint: str | None = None
) -> None:
    """The connector's own checks of a table. Raises SqlError at the option that a complaint names in quotes, else at
    the table's name."""
    for problem in spec.check(table):
        named = [option for option in statement.options if f"'{option.key.text}'" in problem]
        place = named[0].key.span.to(named[0].value.span) if named else statement.name.span
        raise source.error(place, f"{spec.name}: {problem}", hint)


Known = Mapping[str, tuple[Table, ConnectorSpec]]
"""The tables that are declared so far."""


class PartsCompiler(TablePart):
    """Finds the parts of one table. `known` are the tables that are declared before it."""

    def __init__(self, source: Source, statement: CreateTable, spec: ConnectorSpec, known: Known) -> None:
        super().__init__(source, statement)
        self.spec, self.known = spec, known
        values = {option.key.text: option.value.text for option in statement.options}
        needed = all(option.name in values for option in spec.options if option.required)
        self.names: Sequence[str] = spec.parts(values) if needed else ()

    def compile(self) -> tuple[ConnectorSpec, tuple[Table, ...]]:
        """What the connector is with these parts, and the parts. Raises SqlError."""
        if not self.names:
            return self.spec, ()
        found = [self._part(name, place) for place, name in enumerate(self.names)]
        if len(found) < 2:
            raise self._at(0, f"{self.name} has one part only", "name the tables in order: 'history, live'")
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
                    raise self._at(place, what, suggest(name, there, "its columns"))
                if there[name] != of:
                    what = f"type clash: `{name}` is {there[name]} in {part.name} (line {line}), {of} in {self.name}"
                    raise self._at(place, what, "declare the column alike in all of them")
            more = [name for name in there if name not in wanted]
            if more:
                names = ", ".join(f"`{name}`" for name in more)
                what = f"{self.name} lacks {names}, which {part.name} (line {line}) delivers"
                raise self._at(place, what, "the tables have the same columns, apart from computed ones")

    def _part(self, name: str, place: int) -> tuple[Table, ConnectorSpec]:
        if needs_variables(name):
            raise self._at(place, "the parts cannot come from the environment", "write the tables' names")
        if name == self.name:
            raise self._at(place, f"{name} cannot be a part of itself", "name two other tables")
        if name not in self.known:
            hint = suggest(name, self.known, "the tables declared above")
            raise self._at(place, f"unknown table `{name}` in {self.name}", hint)
        if name in self.names[:place]:
            raise self._at(place, f"{name} is a part of {self.name} twice", "name every table once")
        table, spec = self.known[name]
        if table.parts:
            raise self._at(place, f"{name} is a hybrid table itself", "name its parts instead")
        if not spec.source:
            raise self._at(place, f"{spec.name} can only be written, so {name} cannot be a part", "name a source")
        if never_signalling(spec, table.options):
            what = f"{name} has a bounded phase and never says when it is over, so {self.name} would never switch"
            raise self._at(place, what, "choose options with which it says so")
        return table, spec

    def _at(self, place: int, what: str, hint: str | None) -> SqlError:
        """An error at the name of a part."""
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


def with_role(table: Table, role: Role, *, also_probe: bool = False) -> Table:
    """`table` in a role (`also_probe`: see Table); its parts in the same role, with its key, its watermark and its
    SYSTEM_ROWTIME() in place of theirs: from these a part knows whether its own time is the rowtime, as alignment
    needs."""
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
    return replace(table, role=role, also_probe=also_probe, parts=tuple(parts))
