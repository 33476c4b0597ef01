"""PRIMARY KEY and PARTITIONED BY of one CREATE TABLE."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tidegate.pipelines.connectors.spec import ConnectorSpec
from tidegate.pipelines.connectors.table import Column
from tidegate.pipelines.syntax.dialect import parse_type
from tidegate.pipelines.syntax.errors import SqlError, suggest
from tidegate.pipelines.syntax.grammar.create import LAKE_LAYS_OUT
from tidegate.pipelines.syntax.source import Source, Span
from tidegate.pipelines.syntax.statements import CreateTable, Name
from tidegate.pipelines.syntax.types import INTEGERS, STRINGS, Kind

PARTITION_KINDS = frozenset({*STRINGS, *INTEGERS, Kind.DECIMAL, Kind.BOOLEAN, Kind.DATE, Kind.TIMESTAMP})
"""What a partition column can be: types with one spelling of a value that needs no option to be read."""


class KeyCompiler:
    """Finds the columns of the key and of the partitions among the table's `columns`."""

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
                    self.statement.name.span,
                    f"a table of {spec.name} needs a primary key",
                    "PRIMARY KEY (…) NOT ENFORCED",
                )
            return ()
        written = {column.name.text: column for column in self.statement.columns}
        for column, name in self._delivered(keys[0].columns, "the primary key", "in the key"):
            if written[name.text].null_written is not None:
                raise self._error(
                    written[name.text].null_written or name.span,
                    f"`{name.text}` is in the primary key, so it cannot be NULL",
                    "leave NULL out: columns of the key are NOT NULL",
                )
            if parse_type(column.type).kind in (Kind.ARRAY, Kind.MAP, Kind.ROW):
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
                raise self._error(
                    name.span,
                    f"unknown column `{name.text}` in {self.name}",
                    suggest(name.text, by_name, "its columns"),
                )
            if name.text in [earlier.text for earlier in names[:position]]:
                raise self._error(name.span, f"`{name.text}` is twice in {among}")
            if not column.physical or column.metadata is not None:
                raise self._error(name.span, f"`{name.text}` is not delivered as a column, so it cannot be {be}")
            yield column, name
