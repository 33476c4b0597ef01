"""PRIMARY KEY and WATERMARK FOR of one CREATE TABLE."""

from __future__ import annotations

from collections.abc import Sequence

from pipelines.sources.protocol import ConnectorSpec
from pipelines.sql.errors import SqlError, suggest
from pipelines.sql.model import Column, WatermarkSpec
from pipelines.sql.scope import TableScope
from pipelines.sql.source import Source, Span
from pipelines.sql.syntax import CreateTable
from pipelines.sql.translate import Translator
from pipelines.sql.types import TIMESTAMPS, Kind, parse_type


class KeyCompiler:
    """Finds the key and the watermark among the table's `columns`."""

    def __init__(self, source: Source, statement: CreateTable, columns: Sequence[Column]) -> None:
        self.source = source
        self.statement = statement
        self.columns = columns
        self.name = statement.name.text

    def _error(self, span: Span, what: str, hint: str | None = None) -> SqlError:
        return self.source.error(span, what, hint)

    def primary_key(self, spec: ConnectorSpec) -> tuple[str, ...]:
        """The key's columns in order; none without a key. Raises SqlError."""
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
        by_name = {column.name: column for column in self.columns}
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

    def watermark(self) -> WatermarkSpec | None:
        """WATERMARK FOR, with its expression translated. Raises SqlError."""
        watermarks = self.statement.watermarks
        if not watermarks:
            return None
        watermark, *others = watermarks
        if others:
            raise self._error(others[0].span, f"{self.name} has two watermarks", "a table has one WATERMARK FOR")
        scope = TableScope(self.source, self.name, self.columns)
        rowtime = scope.resolve(watermark.path)
        place = watermark.path[0].span.to(watermark.path[-1].span)
        first = next(column for column in self.columns if column.name == watermark.path[0].text)
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
