"""What a statement in the binlog means for the wanted table: nothing, a truncate, other columns, or a full stop.

ALTERs that leave every row and column as it was are followed, as are added and dropped columns. Any other change of the
wanted table rewrites rows that the binlog does not show, so it stops the reader. So does DDL whose targets are not
wholly understood, whichever table it seems to be about, and DDL of another table that takes the wanted one's rows or
name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from tidegate.pipelines.sources.cdc.errors import FRESH
from tidegate.pipelines.sources.mysql_cdc.binlog.model import WantedTable
from tidegate.pipelines.sources.mysql_cdc.binlog.statements.alter import (
    Alteration,
    read_alteration,
    read_options,
    shown,
)
from tidegate.pipelines.sources.mysql_cdc.binlog.statements.column import keeps_values
from tidegate.pipelines.sources.mysql_cdc.binlog.statements.query import (
    Kind,
    Query,
    Token,
    TokenReader,
    Unparsed,
    tokens,
)
from tidegate.pipelines.sources.mysql_cdc.binlog.statements.rows import changed_table, changes_nothing_else
from tidegate.pipelines.sources.mysql_cdc.errors import SchemaChanged, StatementEvent
from tidegate.pipelines.sources.mysql_cdc.names import CASE_MATTERS, Lower, lowered


class Effect(Enum):
    """What a statement does to the wanted table."""

    NONE = "none"
    TRUNCATE = "truncate"
    COLUMNS = "columns"
    UNDO = "undo"
    """ROLLBACK: what the transaction logged before it was undone."""
    XA_END = "end of a distributed transaction"
    """The distributed transaction has logged its rows; whether it commits is not known yet."""
    XA_COMMIT = "commit of a distributed transaction"


@dataclass(frozen=True)
class Judgement:
    """`note`: a sentence for people about the table's columns that came or went. `xid`: which distributed
    transaction this is about, as the server writes it."""

    effect: Effect
    note: str = ""
    xid: tuple[str, ...] = ()


_NOTHING = Judgement(Effect.NONE)

_CHANGES_ROWS = frozenset(
    {"INSERT", "UPDATE", "DELETE", "REPLACE", "LOAD", "CALL", "DO", "SELECT", "WITH", "VALUES", "HANDLER", "EXECUTE"}
)
_XA = {"END": Effect.XA_END, "COMMIT": Effect.XA_COMMIT}
_HARMLESS = frozenset(
    {"BEGIN", "START", "COMMIT", "SAVEPOINT", "RELEASE", "GRANT", "REVOKE", "SET", "FLUSH", "OPTIMIZE"}
    | {"CHECK", "CHECKSUM", "CACHE", "INSTALL", "UNINSTALL", "KILL", "USE", "PURGE", "RESET"}
    | {"CHANGE", "STOP"}
)
_NO_TABLES = frozenset(
    {"VIEW", "TRIGGER", "PROCEDURE", "FUNCTION", "EVENT", "USER", "ROLE", "SERVER", "SEQUENCE", "PACKAGE", "LIBRARY"}
    | {"TABLESPACE", "LOGFILE", "REFERENCE", "RESOURCE", "INSTANCE"}
)
"""Kinds of things that CREATE, DROP and ALTER are of, and that hold no rows of a table."""
_ATTRIBUTES = frozenset(
    {"UNIQUE", "FULLTEXT", "SPATIAL", "VECTOR", "AGGREGATE", "UNDO", "ONLINE", "OFFLINE"}
    | {"EXTERNAL", "JSON", "RELATIONAL", "DUALITY", "MATERIALIZED"}
)
"""Words that may stand before the kind."""


def judge(
    query: Query,
    table: WantedTable,
    *,
    temporary: set[int] | None = None,
    lower: Lower = CASE_MATTERS,
    where: object = "",
) -> Judgement:
    """What `query` means for `table`. `lower`: how the server's table names know no upper case.

    `temporary`: the connections that have a TEMPORARY table of the table's name, kept up to date from statement to
    statement. What such a connection does to that name is done to its own table. A server marks each statement that
    opens a TEMPORARY table, but also others; so a marked one of another connection stops the reader.

    Raises StatementEvent for a statement that changes rows, SchemaChanged for a change that cannot be followed.
    """
    judged = _Judge(query, table, set() if temporary is None else temporary, lower, where)
    found = [*tokens(query.text, query.sql_mode)]
    on_mysql = [*tokens(query.text, query.sql_mode, on_mysql=True)]
    meaning = judged.statement(found)
    # Which server it is, is not known here. A statement of which nothing is left was run, for it was logged.
    if on_mysql and on_mysql != found and judged.statement(on_mysql) != meaning:
        raise judged.not_understood(found[0])
    return meaning


class _Judge:
    def __init__(self, query: Query, table: WantedTable, temporary: set[int], lower: Lower, where: object) -> None:
        self._query, self._table, self._where = query, table, where
        self._temporary = temporary
        self._lower = lower

    def _fold(self, name: str) -> str:
        return name.translate(self._lower)

    def statement(self, found: Sequence[Token]) -> Judgement:
        reader = TokenReader(found)
        if reader.done:
            return _NOTHING
        if reader.follows("SET", "STATEMENT"):
            at = next((index for index, token in enumerate(found) if token.matches("FOR")), len(found))
            return self.statement(found[at + 1 :]) if at < len(found) else self._unknown(found)
        first = reader.take()
        if self._query.illegible and not self._is_ascii():
            raise self._stop(
                f"a statement ({first.text.upper()} …) of a client with the character set {self._query.illegible}, in"
                " which names beyond ASCII cannot be read; this table has such names"
            )
        parse = self._parsers.get(first.text.upper()) if first.kind is Kind.WORD else None
        if parse is not None:
            try:
                return parse(self, reader)
            except Unparsed:
                # Such a statement may be about any table, by whatever name: none goes on.
                raise self.not_understood(first) from None
        if first.matches("ROLLBACK"):
            return Judgement(Effect.UNDO)
        if first.matches("XA"):
            effect = _XA.get(reader.take().text.upper(), Effect.NONE) if reader.rest else Effect.NONE
            return Judgement(effect, xid=tuple(token.text for token in reader.rest))
        if first.matches(*_CHANGES_ROWS, "("):
            changed = changed_table(found, self._query.database)
            if changed and not self._is_it(*changed) and changes_nothing_else(found, changed):
                return _NOTHING
            raise self._logged_as_text(first.text, changed)
        if first.matches(*_HARMLESS) and not reader.matches("NOT"):  # BEGIN NOT ATOMIC …
            return _NOTHING
        return self._unknown(found)

    def _unknown(self, statement: Sequence[Token]) -> Judgement:
        """A statement that is not understood, and no DDL of tables, matters only if it names the wanted table."""
        if any(self._fold(token.text) == self._fold(self._table.name) for token in statement):
            raise self.not_understood(statement[0])
        return _NOTHING

    # --- statements about tables, by their first word; each raises Unparsed for what it does not know ---------------

    def _truncate(self, reader: TokenReader) -> Judgement:
        reader.accept("TABLE")
        wanted = self._changes_it(reader)
        reader.past_wait()
        if reader.accept("DROP", "REUSE"):
            reader.expect("STORAGE")
        reader.end()
        return Judgement(Effect.TRUNCATE) if wanted else _NOTHING

    def _analyze(self, reader: TokenReader) -> Judgement:
        """ANALYZE TABLE reads only; MariaDB's ANALYZE UPDATE … runs the UPDATE."""
        reader.accept("NO_WRITE_TO_BINLOG", "LOCAL")
        if reader.matches("TABLE", "TABLES"):
            return _NOTHING
        if reader.accept("FORMAT"):
            reader.expect("=")
            reader.take()
        if reader.matches(*_CHANGES_ROWS, "("):
            raise self._logged_as_text(f"ANALYZE {reader.take().text}")
        raise Unparsed

    def _drop(self, reader: TokenReader) -> Judgement:
        self._past_attributes(reader)
        if reader.accept("TEMPORARY"):
            self._temporary_dropped(reader)
            return _NOTHING
        if reader.accept("DATABASE", "SCHEMA"):
            self._drop_database(reader, "its database was dropped")
            reader.end()
        elif reader.accept("TABLE", "TABLES"):
            reader.past_if()
            while True:
                if self._names_it(reader):
                    marked = self._query.thread_specific  # of MariaDB every DROP TABLE is
                    if not marked or self._query.thread not in self._temporary:
                        or_other = ", or a TEMPORARY table of its name that the connection made earlier"
                        raise self._stop(f"the table was dropped{or_other if marked else ''}")
                    self._temporary.discard(self._query.thread)
                if not reader.accept(","):
                    break
            reader.past_wait()
            reader.accept("RESTRICT", "CASCADE")
            reader.end()
        elif reader.accept("INDEX"):
            reader.past_if()
            primary = reader.name().upper() == "PRIMARY"
            reader.expect("ON")
            if self._changes_it(reader):
                if primary:
                    raise self._stop("its primary key was dropped")
                self._index_dropped()
        elif not reader.matches(*_NO_TABLES):
            raise Unparsed
        return _NOTHING

    def _rename(self, reader: TokenReader) -> Judgement:
        if reader.accept("USER"):
            return _NOTHING
        if not reader.accept("TABLE", "TABLES"):
            raise Unparsed
        reader.past_if()
        while True:
            old = self._names_it(reader)
            if old and self._query.thread in self._temporary:  # its own; RENAME TABLE has no mark
                old = False
                self._temporary.discard(self._query.thread)
            reader.past_wait()
            reader.expect("TO")
            if self._names_it(reader) or old:
                raise self._stop("the table was renamed, or another was given its name")
            if not reader.accept(","):
                reader.end()
                return _NOTHING

    def _create(self, reader: TokenReader) -> Judgement:
        replaces = reader.accept("OR")
        if replaces:
            reader.expect("REPLACE")
        self._past_attributes(reader)
        if reader.accept("TEMPORARY"):
            if reader.accept("TABLE"):
                reader.past_if()
                if self._names_it(reader):
                    self._temporary.add(self._query.thread)
            return _NOTHING
        if reader.accept("TABLE") or (replaces and reader.accept("SEQUENCE")):
            reader.past_if()
            if self._names_it(reader) and replaces:
                raise self._stop("the table was dropped and created anew")
            self._attached(reader)
        elif reader.accept("DATABASE", "SCHEMA"):
            if replaces:
                self._drop_database(reader, "its database was dropped and created anew")
        elif reader.accept("INDEX"):
            while not reader.accept("ON"):
                reader.take()
            if replaces and self._changes_it(reader):
                self._index_dropped()
        elif not reader.matches(*_NO_TABLES):
            raise Unparsed
        return _NOTHING

    def _attached(self, reader: TokenReader) -> None:
        """A new table changes rows of those that it names as parts of a MERGE table. Its columns, keys and partitions
        change nothing of a table that they name. Its query may, by a function that it calls: a log of rows has the
        rows in its place, or, of MySQL, behind START TRANSACTION."""
        columns = reader.group() if reader.matches("(") else ()
        self._others(read_options(reader), "CREATE TABLE")
        reader.accept("IGNORE", "REPLACE")
        reader.accept("AS")
        begins = (*columns[:1], *reader.rest[:1])
        rows_follow = [token.text.upper() for token in reader.rest[-2:]] == ["START", "TRANSACTION"]
        if not rows_follow and any(token.matches("(", "SELECT", "TABLE", "VALUES", "WITH") for token in begins):
            raise self._logged_as_text("CREATE TABLE … SELECT")

    def _others(self, done: Alteration, first: str) -> None:
        """Stop where the definition of another table takes part of the wanted one, or may."""
        if any(self._is_it(*named) for named in done.tables):
            raise self._stop(f"{first} of another table took its rows or its name, or gave it others")
        if any(token.names and self._fold(token.text) == self._fold(self._table.name) for token in done.unknown):
            raise self.not_understood(first)

    def _alter(self, reader: TokenReader) -> Judgement:
        ignore = False
        while reader.matches("ONLINE", "OFFLINE", "IGNORE"):
            ignore |= reader.take().matches("IGNORE")
        self._past_attributes(reader)
        if reader.accept("DATABASE", "SCHEMA"):
            if any(
                token.matches("UPGRADE") for token in reader.rest
            ):  # of a directory's name: it becomes another database
                raise Unparsed
            return _NOTHING
        if not reader.accept("TABLE"):
            if not reader.matches(*_NO_TABLES):
                raise Unparsed
            return _NOTHING
        reader.past_if()
        wanted = self._changes_it(reader)
        reader.past_wait()
        if any(token.matches("RENAME") for token in reader.rest):  # of columns too: less is known then, and no more
            self._temporary.discard(self._query.thread)
        done = read_alteration(reader)
        if not wanted:
            self._others(done, "ALTER TABLE")
            return _NOTHING
        if ignore:
            raise self._stop("ALTER IGNORE may have deleted rows")
        return self._altered(done)

    def _altered(self, done: Alteration) -> Judgement:
        table = self._table
        if done.unknown:
            raise self._stop(f"ALTER TABLE … {' '.join(token.text for token in done.unknown[:3])} …")
        if done.rewrites:
            raise self._stop(done.rewrites)
        if done.adds_cascade and not table.cascades_logged:
            raise self._stop("a foreign key was added whose cascades the binlog does not show")
        if done.drops_index:
            self._index_dropped()
        keys = {lowered(name) for name in table.primary_key}
        known = {lowered(column.name): column for column in table.columns}
        for name, definition, part in done.modified:
            column, key = known.get(lowered(name)), lowered(name) in keys
            if column is None or not keeps_values(definition, column, key=key, sql_mode=self._query.sql_mode):
                raise self._stop(shown(part))
        for old, new, part in done.renamed:
            if lowered(old) in known or lowered(new) in known:
                raise self._stop(shown(part))
        declared = {name: column.name for name, column in known.items()}
        for name in done.added:
            if lowered(name) in declared:
                raise self._stop(f"the declared column {name} was added; rows from before have its default")
        lost = [declared[lowered(name)] for name in done.dropped if lowered(name) in declared]
        for name in lost:
            if lowered(name) in keys:
                raise self._stop(f"the column {name} was dropped, which is declared as its primary key")
        if not done.added and not done.dropped:
            return _NOTHING
        note = "; ".join(
            [f"column {name} was added and is not declared: passed over" for name in done.added]
            + [f"column {name} was dropped: it reads NULL from here on" for name in lost]
        )
        return Judgement(Effect.COLUMNS, note)

    _parsers: ClassVar[dict[str, Callable[[_Judge, TokenReader], Judgement]]] = {
        "TRUNCATE": _truncate,
        "ANALYZE": _analyze,
        "DROP": _drop,
        "RENAME": _rename,
        "CREATE": _create,
        "ALTER": _alter,
    }

    # --- names -------------------------------------------------------------------------------------------------------

    def _past_attributes(self, reader: TokenReader) -> None:
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

    def _drop_database(self, reader: TokenReader, what: str) -> None:
        reader.past_if()
        if self._fold(reader.name()) == self._fold(self._table.database):
            raise self._stop(what)

    def _index_dropped(self) -> None:
        if self._table.other_key:
            raise self._stop(
                f"an index was dropped, and the declared key ({', '.join(self._table.primary_key)}) is not its primary"
                " key: without a unique index over it two rows may have had one key"
            )

    def _temporary_dropped(self, reader: TokenReader) -> None:
        if not reader.accept("TABLE", "TABLES"):
            return
        reader.past_if()
        while True:
            if self._names_it(reader):
                self._temporary.discard(self._query.thread)
            if not reader.accept(","):
                return

    def _changes_it(self, reader: TokenReader) -> bool:
        """Whether the table that is named next, which the statement changes, is the wanted one, and not a TEMPORARY
        table of its name. Raises SchemaChanged where that cannot be known."""
        if not self._names_it(reader):
            return False
        if not self._query.thread_specific:
            return True
        if self._query.thread in self._temporary:
            return False
        raise self._stop(
            "a statement changed it, or a TEMPORARY table of its name that the connection made earlier; the binlog does"
            " not show which"
        )

    def _names_it(self, reader: TokenReader) -> bool:
        """Whether the table that is named next is the wanted one."""
        return self._is_it(*reader.table())

    def _is_ascii(self) -> bool:
        columns = (column.name for column in self._table.columns)
        return all(name.isascii() for name in (self._table.database, self._table.name, *columns))

    def _is_it(self, database: str | None, name: str) -> bool:
        return self._table.is_named(database or self._query.database, name, self._lower)

    def not_understood(self, first: Token | str) -> SchemaChanged:
        text = first if isinstance(first, str) else first.text.upper()
        return self._stop(f"a statement that is not understood: {text} …")

    def _logged_as_text(self, first: str, changed: tuple[str, str] | None = None) -> StatementEvent:
        of, why = "", f", and whether it changed {self._table} is not known"
        if changed is not None:
            of = f" of {'.'.join(changed)}"
            why = (
                ""
                if self._is_it(*changed)
                else f", so what triggers or functions did to {self._table} with it is not known"
            )
        return StatementEvent(
            f"rows{of} were changed by a statement ({first.upper()} …) that was logged as text, not as rows{why};"
            " on the server: SET GLOBAL binlog_format = 'ROW', and no session that sets another",
            where=self._where,
            next_command=FRESH,
        )

    def _stop(self, what: str) -> SchemaChanged:
        return SchemaChanged(f"{self._table} cannot be followed further: {what}", where=self._where, next_command=FRESH)
