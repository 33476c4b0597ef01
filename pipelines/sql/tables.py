"""CREATE TABLE becomes a Table: names, keys, computed columns, watermark, options, all looked up and checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sqlglot import exp

from pipelines.sources.protocol import ConnectorSpec
from pipelines.sql.errors import SqlError, suggest
from pipelines.sql.functions.times import INSTANT_SQL
from pipelines.sql.model import Column, Table, WatermarkSpec
from pipelines.sql.names import FORBIDDEN, check_column_name, check_table_name
from pipelines.sql.scope import TableScope
from pipelines.sql.source import Source, Span
from pipelines.sql.syntax import ColumnDefinition, CreateTable, Scalar, place
from pipelines.sql.table_options import OptionCompiler
from pipelines.sql.translate import Translator
from pipelines.sql.types import INSTANT, TIMESTAMPS, FlinkType, Kind, parse_type

ROWTIME_SQL = "_rowtime"


class TableCompiler:
    """Compiles one CREATE TABLE."""

    def __init__(self, source: Source, statement: CreateTable, connectors: Mapping[str, ConnectorSpec]) -> None:
        self.source = source
        self.statement = statement
        self.connectors = connectors
        self.name = statement.name.text

    def compile(self) -> tuple[Table, ConnectorSpec]:
        """The table and its connector. Raises SqlError."""
        check_table_name(self.source, self.statement.name)
        self._column_names()
        options = OptionCompiler(self.source, self.statement)
        spec = options.connector(self.connectors)
        columns = self._columns(spec)
        key = self._primary_key(columns, spec)
        columns = [replace(column, nullable=False) if column.name in key else column for column in columns]
        table = Table(
            name=self.name,
            columns=tuple(columns),
            options=options.options(spec),
            primary_key=key,
            watermark=self._watermark(columns),
            comment=self.statement.comment,
            location=self.source.location(self.statement.name.span.start),
        )
        for problem in spec.check(table):
            raise self._error(self._place_of(problem), f"{spec.name}: {problem}")
        return table, spec

    def _error(self, span: Span, what: str, hint: str | None = None) -> SqlError:
        return self.source.error(span, what, hint)

    def _place_of(self, problem: str) -> Span:
        """The option that a connector's complaint names in quotes, else the table's name."""
        for option in self.statement.options:
            if f"'{option.key.text}'" in problem:
                return option.key.span.to(option.value.span)
        return self.statement.name.span

    # Columns

    def _column_names(self) -> None:
        seen: dict[str, str] = {}
        for column in self.statement.columns:
            check_column_name(self.source, column.name)
            known = seen.get(column.name.text.casefold())
            seen[column.name.text.casefold()] = column.name.text
            if known is not None:
                hint = (
                    None if known == column.name.text else f"`{known}` differs in case only: Spark takes them for one"
                )
                raise self._error(column.name.span, f"{self.name} has two columns `{column.name.text}`", hint)
        if all(column.computed is not None for column in self.statement.columns):
            raise self._error(self.statement.name.span, f"{self.name} has no column that a connector could deliver")

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
        scope = TableScope(self.source, self.name, list(plain.values()), hidden)
        found = {**plain, **{column.name.text: self._computed(column, scope, spec) for column in computed}}
        return [found[column.name.text] for column in self.statement.columns]

    def _plain(self, column: ColumnDefinition, spec: ConnectorSpec) -> Column:
        assert column.type is not None
        self._field_names(column.type, column.type_span)
        if column.null_written is not None and not column.type.nullable:
            raise self._error(column.null_written, f"column `{column.name.text}` is NULL and NOT NULL")
        metadata = None
        if column.metadata is not None:
            metadata = column.metadata.text
            delivered = spec.metadata.get(metadata)
            if delivered is None:
                hint = suggest(metadata, spec.metadata, "its metadata") or f"{spec.name} has no metadata"
                raise self._error(column.metadata.span, f"unknown metadata `{metadata}` of {spec.name}", hint)
            if parse_type(delivered).spark != column.type.spark:
                raise self._error(
                    column.type_span,
                    f"type clash: metadata `{metadata}` of {spec.name} is {delivered}, not {column.type}",
                    f"declare {column.name.text} {delivered} METADATA",
                )
        return Column(
            name=column.name.text,
            type=str(column.type.null()),
            spark_type=column.type.spark,
            nullable=column.type.nullable,
            metadata=metadata,
            comment=column.comment,
            location=self.source.location(column.name.span.start),
        )

    def _field_names(self, of: FlinkType, span: Span) -> None:
        for field in of.fields:
            wrong = next((character for character in field.name if character in FORBIDDEN), None)
            if wrong is not None or not field.name:
                raise self._error(
                    span, f"field `{field.name}` holds {wrong!r}", "Delta Lake does not take it in a name"
                )
            self._field_names(field.type, span)
        for argument in of.arguments:
            self._field_names(argument, span)

    def _computed(self, column: ColumnDefinition, scope: TableScope, spec: ConnectorSpec) -> Column:
        assert column.computed is not None
        proctime, system = _calls(column.computed, "PROCTIME"), _calls(column.computed, "SYSTEM_ROWTIME")
        if proctime:
            sql, of = INSTANT_SQL, INSTANT
        elif system:
            if not spec.system_time:
                raise self._error(
                    column.computed.span, f"{spec.name} has no time of its own for SYSTEM_ROWTIME()", "use a column"
                )
            sql, of = ROWTIME_SQL, INSTANT
        else:
            self._no_proctime_inside(column.computed)
            value = Translator(self.source, scope).value(column.computed)
            sql, of = value.sql, value.type
            if of.kind in (Kind.NULL, Kind.DAY_INTERVAL, Kind.MONTH_INTERVAL):
                raise self._error(column.computed.span, f"type clash: a column can not be {of}", "CAST it to a type")
        return Column(
            name=column.name.text,
            type=str(of.null()),
            spark_type=of.spark,
            nullable=of.nullable and not proctime,
            expression=sql,
            proctime=proctime,
            comment=column.comment,
            location=self.source.location(column.name.span.start),
            sql=column.computed.written,
        )

    def _no_proctime_inside(self, computed: Scalar) -> None:
        for call in computed.tree.find_all(exp.Anonymous):
            if call.name.upper() == "PROCTIME":
                raise self._error(
                    place(call) or computed.span,
                    "PROCTIME() stands alone in a computed column: it is the instant of the release, not of the row",
                    "declare proctime AS PROCTIME(), and compute with it in the SELECT",
                )

    # Keys and watermarks

    def _primary_key(self, columns: Sequence[Column], spec: ConnectorSpec) -> tuple[str, ...]:
        keys = self.statement.primary_keys
        if len(keys) > 1:
            raise self._error(
                keys[1].span, f"{self.name} has two primary keys", "write PRIMARY KEY (a, b) NOT ENFORCED"
            )
        if not keys:
            if spec.needs_primary_key:
                raise self._error(
                    self.statement.name.span, f"a {spec.name} table needs a primary key", "PRIMARY KEY (…) NOT ENFORCED"
                )
            return ()
        by_name = {column.name: column for column in columns}
        written = {column.name.text: column for column in self.statement.columns}
        for position, name in enumerate(keys[0].columns):
            column = by_name.get(name.text)
            if column is None:
                raise self._error(
                    name.span,
                    f"unknown column `{name.text}` in {self.name}",
                    suggest(name.text, by_name, "its columns"),
                )
            if name.text in [earlier.text for earlier in keys[0].columns[:position]]:
                raise self._error(name.span, f"`{name.text}` is twice in the primary key")
            if not column.physical or column.metadata is not None:
                raise self._error(name.span, f"`{name.text}` is not delivered as a column, so it can not be in the key")
            if written[name.text].null_written is not None:
                raise self._error(
                    written[name.text].null_written or name.span,
                    f"`{name.text}` is in the primary key, so it can not be NULL",
                    "leave NULL out: columns of the key are NOT NULL",
                )
            if parse_type(column.type).kind in (Kind.ARRAY, Kind.MAP, Kind.ROW):
                raise self._error(name.span, f"type clash: a key can not be {column.type}", "use its fields")
        return tuple(name.text for name in keys[0].columns)

    def _watermark(self, columns: Sequence[Column]) -> WatermarkSpec | None:
        watermarks = self.statement.watermarks
        if not watermarks:
            return None
        watermark, *others = watermarks
        if others:
            raise self._error(others[0].span, f"{self.name} has two watermarks", "a table has one WATERMARK FOR")
        scope = TableScope(self.source, self.name, columns)
        rowtime = scope.resolve(watermark.path)
        place = watermark.path[0].span.to(watermark.path[-1].span)
        first = next(column for column in columns if column.name == watermark.path[0].text)
        if first.proctime:
            raise self._error(
                place, "PROCTIME() needs no watermark", "leave WATERMARK FOR out, or name a rowtime column"
            )
        if rowtime.type.kind not in TIMESTAMPS:
            hint = "compute one: rowtime AS TO_TIMESTAMP_LTZ(millis, 3), or rowtime AS TO_TIMESTAMP(text)"
            raise self._error(place, f"type clash: a rowtime is TIMESTAMP or TIMESTAMP_LTZ, not {rowtime.type}", hint)
        value = Translator(self.source, scope).value(watermark.expression)
        if value.type.kind not in (*TIMESTAMPS, Kind.BIGINT):
            raise self._error(
                watermark.expression.span,
                f"type clash: a watermark is TIMESTAMP, TIMESTAMP_LTZ or BIGINT (ms), not {value.type}",
                "for example ts - INTERVAL '5' SECOND",
            )
        return WatermarkSpec(
            column=".".join(name.text for name in watermark.path),
            expression=value.sql,
            type=str(value.type.null()),
            location=self.source.location(watermark.span.start),
            sql=watermark.expression.written,
        )


def _calls(scalar: Scalar, name: str) -> bool:
    """Whether an expression is nothing but a call of `name`."""
    return isinstance(scalar.tree, exp.Anonymous) and scalar.tree.name.upper() == name and not scalar.tree.expressions
