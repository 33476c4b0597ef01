"""CREATE TABLE becomes a Table: names, keys, computed columns, watermark, options, all looked up and checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sqlglot import exp

from tidegate.pipelines.connectors.spec import ConnectorSpec
from tidegate.pipelines.connectors.table import SOURCE_TIME, Column, Table, WatermarkSpec
from tidegate.pipelines.sql.coercion import cast
from tidegate.pipelines.sql.functions.times import INSTANT_SQL
from tidegate.pipelines.sql.functions.user import UserFunctions
from tidegate.pipelines.sql.scope import FORBIDDEN, TableScope, check_column_name, check_table_name
from tidegate.pipelines.sql.tables import TablePart
from tidegate.pipelines.sql.tables.constraints import ConstraintCompiler, KeyCompiler
from tidegate.pipelines.sql.tables.source_columns import declarable, is_call
from tidegate.pipelines.sql.tables.watermark import WatermarkCompiler
from tidegate.pipelines.sql.tables.with_options import (
    Known,
    OptionCompiler,
    PartsCompiler,
    check_connector,
)
from tidegate.pipelines.sql.translate import Translator
from tidegate.pipelines.syntax.dialect import parse_type
from tidegate.pipelines.syntax.errors import suggest
from tidegate.pipelines.syntax.source import Source, Span
from tidegate.pipelines.syntax.statements import ColumnDefinition, CreateTable, Name, Scalar, place
from tidegate.pipelines.syntax.types import INSTANT, INTERVALS, FlinkType, Kind, folded, quoted

PROCTIMES = ("PROCTIME", "SYSTEM_PROCTIME")
"""Flink's name, and FLIP-66's."""


class TableCompiler(TablePart):
    """Compiles one CREATE TABLE."""

    def __init__(
        self,
        source: Source,
        statement: CreateTable,
        connectors: Mapping[str, ConnectorSpec],
        functions: UserFunctions,
        known: Known | None = None,
    ) -> None:
        super().__init__(source, statement)
        self.connectors = connectors
        self.functions = functions
        self.known = known or {}

    def compile(self) -> tuple[Table, ConnectorSpec]:
        """The table and its connector. Raises SqlError."""
        check_table_name(self.source, self.statement.name)
        options = OptionCompiler(self.source, self.statement)
        parts = PartsCompiler(self.source, self.statement, self._column_names(options), self.known)
        spec, found = parts.compile()
        columns = self._columns(spec)
        keys = KeyCompiler(self.source, self.statement, columns)
        key = keys.primary_key(spec)
        columns = [replace(column, nullable=False) if column.name in key else column for column in columns]
        given = options.options(spec)
        table = Table(
            name=self.name,
            columns=options.with_fields(columns, given),
            options=given,
            primary_key=key,
            watermark=self._watermark(columns, spec),
            comment=self.statement.comment,
            location=self.source.location(self.statement.name.span.start),
            parts=found,
            partition_columns=keys.partition_columns(spec),
            constraints=ConstraintCompiler(self.source, self.statement, columns, self.functions).compile(spec),
            suite=options.suite(columns),
        )
        parts.check(table)
        check_connector(self.source, self.statement, spec, table)
        return table, spec

    # Columns

    def _column_names(self, options: OptionCompiler) -> ConnectorSpec:
        """Checks the names of the columns; returns what the connector is. Raises SqlError."""
        spec, seen = options.connector(self.connectors), dict[str, Name]()
        taken = [column.name.text.casefold() for column in self.statement.columns]
        for column in self.statement.columns:
            name, plain = column.name, column.computed is None and column.metadata is None
            check_column_name(self.source, name, taken=taken, by_name=spec.by_name and plain, sink=spec.sink)
            known = seen.setdefault(folded(name.text), name)
            if known is not name:
                hint = f"`{known.text}` differs in case only: Spark takes them for one"
                hint = None if known.text == name.text else hint
                raise self._error(name.span, f"{self.name} has two columns `{name.text}`", hint)
        if all(column.computed is not None for column in self.statement.columns):
            raise self._error(self.statement.name.span, f"{self.name} has no column that a connector could deliver")
        return spec

    def _columns(self, spec: ConnectorSpec) -> list[Column]:
        plain = {
            column.name.text: self._plain(column, spec) for column in self.statement.columns if column.computed is None
        }
        computed = [column for column in self.statement.columns if column.computed is not None]
        hidden = [
            (
                column.name.text,
                f"`{column.name.text}` is computed itself: a computed column looks at columns that are delivered",
                "write its expression out",
            )
            for column in computed
        ]
        scope = TableScope(self.source, self.name, list(plain.values()), self.functions, hidden)
        found = {**plain, **{column.name.text: self._computed(column, scope, spec) for column in computed}}
        return [found[column.name.text] for column in self.statement.columns]

    def _plain(self, column: ColumnDefinition, spec: ConnectorSpec) -> Column:
        assert column.type is not None
        self._field_names(column.type, column.type_span, spec)
        if column.null_written is not None and not column.type.nullable:
            raise self._error(column.null_written, f"column `{column.name.text}` is NULL and NOT NULL")
        metadata = given = conversion = None
        if column.metadata is not None:
            metadata = column.metadata.text
            known = spec.metadata_of({option.key.text: option.value.text for option in self.statement.options})
            delivered = known.get(metadata)
            if delivered is None:
                hint = suggest(metadata, known, "its metadata") or f"{spec.name} has no metadata"
                raise self._error(column.metadata.span, f"unknown metadata `{metadata}` of {spec.name}", hint)
            if not declarable(parse_type(delivered), column.type):
                what = f"type clash: metadata `{metadata}` of {spec.name} is {delivered}, not {column.type}"
                raise self._error(column.type_span, what, f"declare {column.name.text} {delivered} METADATA")
            if parse_type(delivered) != column.type.null():
                given = delivered
                conversion = cast(quoted(column.name.text), parse_type(delivered), column.type.null())
        return self._column(column, column.type, metadata=metadata, delivered=given, conversion=conversion)

    def _column(self, column: ColumnDefinition, of: FlinkType, **more: Any) -> Column:
        location = self.source.location(column.name.span.start)
        known: dict[str, Any] = {"nullable": of.nullable, "comment": column.comment, "location": location}
        return Column(column.name.text, str(of.null()), of.spark, **known | more)

    def _field_names(self, of: FlinkType, span: Span, spec: ConnectorSpec) -> None:
        for field in of.fields:
            wrong = next((character for character in field.name if character in FORBIDDEN), None)
            if wrong is not None or not field.name:
                hint = "Delta Lake does not take it in a name: leave the field out"
                if spec.by_name:
                    hint += ", as another name would be another field; from JSON, declare the column STRING instead"
                raise self._error(span, f"field `{field.name}` holds {wrong!r}", hint)
            self._field_names(field.type, span, spec)
        for argument in of.arguments:
            self._field_names(argument, span, spec)

    def _computed(self, column: ColumnDefinition, scope: TableScope, spec: ConnectorSpec) -> Column:
        assert column.computed is not None
        proctime, system = is_call(column.computed, *PROCTIMES), is_call(column.computed, "SYSTEM_ROWTIME")
        if proctime:
            sql, of = INSTANT_SQL, INSTANT
        elif system:
            if not (spec.system_time and spec.system_watermark):
                what = f"{spec.name} has no watermark of its own, without which there is no SYSTEM_ROWTIME()"
                what = what if spec.system_time else f"{spec.name} has no time of its own for SYSTEM_ROWTIME()"
                raise self._error(column.computed.span, what, "use a column")
            sql, of = SOURCE_TIME, INSTANT
        else:
            self._no_proctime_inside(column.computed)
            value = Translator(self.source, scope).value(column.computed)
            sql, of = value.sql, value.type
            if of.kind in INTERVALS | {Kind.NULL}:
                hint = "CAST it to a type" if of.kind is Kind.NULL else "add it to a column that is a time"
                raise self._error(column.computed.span, f"type clash: a column cannot be {of}", hint)
        of = of.not_null() if proctime else of
        return self._column(column, of, expression=sql, proctime=proctime, sql=column.computed.written)

    def _no_proctime_inside(self, computed: Scalar) -> None:
        for call in computed.tree.find_all(exp.Anonymous):
            if call.name.upper() in PROCTIMES:
                name = call.name.upper()
                what = f"{name}() must be alone in a computed column: it is the instant of the release, not of the row"
                hint = "declare proctime AS PROCTIME(), and compute with it in the SELECT"
                raise self._error(place(call) or computed.span, what, hint)

    # Watermark

    def _watermark(self, columns: list[Column], spec: ConnectorSpec) -> WatermarkSpec | None:
        watermarks = self.statement.watermarks
        if len(watermarks) > 1:
            raise self._error(watermarks[1].span, f"{self.name} has two watermarks", "a table has one WATERMARK FOR")
        found = None
        if watermarks:
            found = WatermarkCompiler(self.source, self.name, columns, self.functions).compile(watermarks[0], spec)
        self._source_times_are_used(columns, found)
        return found

    def _source_times_are_used(self, columns: list[Column], watermark: WatermarkSpec | None) -> None:
        """SYSTEM_ROWTIME() is the rowtime of SYSTEM_WATERMARK(), so there is one such column."""
        for column, written in zip(columns, self.statement.columns, strict=True):
            if not column.source_time or written.computed is None:
                continue
            if watermark is None:
                what = f"SYSTEM_ROWTIME() is a rowtime, and {self.name} declares no watermark"
                hint = f"add WATERMARK FOR {quoted(column.name)} AS SYSTEM_WATERMARK()"
                raise self._error(written.computed.span, what, hint)
            if column.name != watermark.path[0]:
                what = f"SYSTEM_ROWTIME() is a rowtime, and {self.name} has one: `{watermark.column}`"
                raise self._error(written.computed.span, what, "leave the column out")
