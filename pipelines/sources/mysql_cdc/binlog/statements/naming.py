"""Which table a statement names, and how the reader stops for one."""

from __future__ import annotations

from tidegate.pipelines.sources.cdc.errors import FRESH
from tidegate.pipelines.sources.mysql_cdc.binlog.model import WantedTable
from tidegate.pipelines.sources.mysql_cdc.binlog.statements.altered import Shapes
from tidegate.pipelines.sources.mysql_cdc.binlog.statements.query import Query, Token, TokenReader
from tidegate.pipelines.sources.mysql_cdc.errors import SchemaChanged, StatementEvent
from tidegate.pipelines.sources.mysql_cdc.names import Lower

_ATTRIBUTES = frozenset(
    {"UNIQUE", "FULLTEXT", "SPATIAL", "VECTOR", "AGGREGATE", "UNDO", "ONLINE", "OFFLINE"}
    | {"EXTERNAL", "JSON", "RELATIONAL", "DUALITY", "MATERIALIZED"}
)
"""Words that may stand before the kind."""


class Naming:
    """A statement, and the wanted table as it may name it. The arguments are those of `ddl.judge`."""

    def __init__(
        self, query: Query, table: WantedTable, temporary: set[int], shapes: Shapes, lower: Lower, where: object
    ) -> None:
        self.query, self.table, self.where = query, table, where
        self.temporary, self.shapes = temporary, shapes
        self.lower = lower

    def fold(self, name: str) -> str:
        """The name of a table or database as the server compares it."""
        return name.translate(self.lower)

    def temporary_dropped(self, reader: TokenReader) -> None:
        """Past DROP TEMPORARY: the connection's own table of the name is gone."""
        if not reader.accept("TABLE", "TABLES"):
            return
        reader.past_if()
        while True:
            if self.names_it(reader):
                self.temporary.discard(self.query.thread)
            if not reader.accept(","):
                return

    def changes_it(self, reader: TokenReader) -> bool:
        """Whether the table that is named next, which the statement changes, is the wanted one, and not a TEMPORARY
        table of its name. Raises SchemaChanged where that cannot be known."""
        if not self.names_it(reader):
            return False
        if not self.query.thread_specific:
            return True
        if self.query.thread in self.temporary:
            return False
        raise self.stop(
            "a statement changed it, or a TEMPORARY table of its name that the connection made earlier; the binlog does"
            " not show which"
        )

    def names_it(self, reader: TokenReader) -> bool:
        """Whether the table that is named next is the wanted one."""
        return self.is_it(*reader.table())

    def is_ascii(self) -> bool:
        """Whether the table's names, and its columns', are ASCII."""
        columns = (column.name for column in self.table.columns)
        return all(name.isascii() for name in (self.table.database, self.table.name, *columns))

    def is_it(self, database: str | None, name: str) -> bool:
        """Whether this is the wanted table's name; without a database that of the statement's default one."""
        return self.table.is_named(database or self.query.database, name, self.lower)

    def not_understood(self, first: Token | str) -> SchemaChanged:
        """The error for a statement whose targets are not wholly understood, of which `first` is the first word."""
        text = first if isinstance(first, str) else first.text.upper()
        return self.stop(f"a statement that is not understood: {text} …")

    def logged_as_text(self, first: str, changed: tuple[str, str] | None = None) -> StatementEvent:
        """The error for a statement that changes rows, of the table `changed` where that is known; `first` is its first
        word."""
        of, why = "", f", and whether it changed {self.table} is not known"
        if changed is not None:
            of = f" of {'.'.join(changed)}"
            unknown = f", so what triggers or functions did to {self.table} with it is not known"
            why = "" if self.is_it(*changed) else unknown
        return StatementEvent(
            f"rows{of} were changed by a statement ({first.upper()} …) that was logged as text, not as rows{why};"
            " on the server: SET GLOBAL binlog_format = 'ROW', and no session that sets another",
            where=self.where,
            next_command=FRESH,
        )

    def stop(self, what: str) -> SchemaChanged:
        """The error for a change of the table that is not followed."""
        return SchemaChanged(f"{self.table} cannot be followed further: {what}", where=self.where, next_command=FRESH)


def past_attributes(reader: TokenReader) -> None:
    """Skip what may be between CREATE or ALTER and the kind of object: DEFINER = …, ALGORITHM = …, UNIQUE, …"""
    while True:
        if reader.accept("DEFINER"):
            reader.expect("=")
            reader.take()
            if reader.accept("("):
                reader.expect(")")
            if reader.accept("@"):
                reader.take()
                while reader.accept(".", "-"):
                    reader.take()
        elif reader.accept("ALGORITHM"):
            reader.expect("=")
            reader.take()
        elif reader.accept("SQL"):
            reader.expect("SECURITY")
            reader.take()
        elif not reader.accept(*_ATTRIBUTES):
            return
