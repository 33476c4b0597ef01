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

from tidegate.pipelines.sources.mysql_cdc.binlog.model import WantedTable
from tidegate.pipelines.sources.mysql_cdc.binlog.statements.alter import Alteration, read_alteration, read_options
from tidegate.pipelines.sources.mysql_cdc.binlog.statements.altered import Shapes, index_dropped, news, obstacle
from tidegate.pipelines.sources.mysql_cdc.binlog.statements.naming import Naming, past_attributes
from tidegate.pipelines.sources.mysql_cdc.binlog.statements.query import (
    Kind,
    Query,
    Token,
    TokenReader,
    Unparsed,
    tokens,
)
from tidegate.pipelines.sources.mysql_cdc.binlog.statements.rows import changed_table, changes_nothing_else
from tidegate.pipelines.sources.mysql_cdc.names import CASE_MATTERS, Lower


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


def judge(
    query: Query,
    table: WantedTable,
    *,
    temporary: set[int] | None = None,
    shapes: Shapes | None = None,
    lower: Lower = CASE_MATTERS,
    where: object = "",
) -> Judgement:
    """What `query` means for `table`. `lower`: how the server's table names know no upper case.

    `temporary`: the connections that have a TEMPORARY table of the table's name, kept up to date from statement to
    statement. What such a connection does to that name is done to its own table. A server marks each statement that
    opens a TEMPORARY table, but also others; so a marked one of another connection stops the reader. `shapes`: of the
    columns that were altered, kept up to date likewise.

    Raises StatementEvent for a statement that changes rows, SchemaChanged for a change that cannot be followed.
    """
    theirs, altered = set() if temporary is None else temporary, {} if shapes is None else shapes
    judged = _Judge(query, table, theirs, altered, lower, where)
    found = [*tokens(query.text, query.sql_mode)]
    on_mysql = [*tokens(query.text, query.sql_mode, on_mysql=True)]
    meaning = judged.statement(found)
    # Which server it is, is not known here. A statement of which nothing is left was run, for it was logged.
    if on_mysql and on_mysql != found and judged.statement(on_mysql) != meaning:
        raise judged.not_understood(found[0])
    return meaning


class _Judge(Naming):
    def statement(self, found: Sequence[Token]) -> Judgement:
        reader = TokenReader(found)
        if reader.done:
            return _NOTHING
        if reader.follows("SET", "STATEMENT"):
            at = next((index for index, token in enumerate(found) if token.matches("FOR")), len(found))
            return self.statement(found[at + 1 :]) if at < len(found) else self._unknown(found)
        first = reader.take()
        if self.query.illegible and not self.is_ascii():
            raise self.stop(
                f"a statement ({first.text.upper()} …) of a client with the character set {self.query.illegible}, in"
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
            changed = changed_table(found, self.query.database)
            if changed and not self.is_it(*changed) and changes_nothing_else(found, changed):
                return _NOTHING
            raise self.logged_as_text(first.text, changed)
        if first.matches(*_HARMLESS) and not reader.matches("NOT"):  # BEGIN NOT ATOMIC …
            return _NOTHING
        return self._unknown(found)

    def _unknown(self, statement: Sequence[Token]) -> Judgement:
        """A statement that is not understood, and no DDL of tables, matters only if it names the wanted table."""
        if any(self.fold(token.text) == self.fold(self.table.name) for token in statement):
            raise self.not_understood(statement[0])
        return _NOTHING

    # --- statements about tables, by their first word; each raises Unparsed for what it does not know ---------------

    def _truncate(self, reader: TokenReader) -> Judgement:
        reader.accept("TABLE")
        wanted = self.changes_it(reader)
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
            raise self.logged_as_text(f"ANALYZE {reader.take().text}")
        raise Unparsed

    def _drop(self, reader: TokenReader) -> Judgement:
        past_attributes(reader)
        if reader.accept("TEMPORARY"):
            self.temporary_dropped(reader)
            return _NOTHING
        if reader.accept("DATABASE", "SCHEMA"):
            self._drop_database(reader, "its database was dropped")
            reader.end()
        elif reader.accept("TABLE", "TABLES"):
            reader.past_if()
            while True:
                if self.names_it(reader):  # the servers log the end of a TEMPORARY one as DROP TEMPORARY TABLE
                    raise self.stop("the table was dropped")
                if not reader.accept(","):
                    break
            reader.past_wait()
            reader.accept("RESTRICT", "CASCADE")
            reader.end()
        elif reader.accept("INDEX"):
            reader.past_if()
            primary = reader.name().upper() == "PRIMARY"
            reader.expect("ON")
            if self.changes_it(reader):
                if primary:
                    raise self.stop("its primary key was dropped")
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
            old = self.names_it(reader)
            reader.past_wait()
            reader.expect("TO")
            if self.names_it(reader) or old:
                # Of a TEMPORARY one MariaDB logs it without a mark, under a number that a session may choose.
                raise self.stop("the table was renamed, or another was given its name")
            if not reader.accept(","):
                reader.end()
                return _NOTHING

    def _create(self, reader: TokenReader) -> Judgement:
        replaces = reader.accept("OR")
        if replaces:
            reader.expect("REPLACE")
        past_attributes(reader)
        if reader.accept("TEMPORARY"):
            if reader.accept("TABLE"):
                reader.past_if()
                if self.names_it(reader):
                    self.temporary.add(self.query.thread)
            return _NOTHING
        if reader.accept("TABLE") or (replaces and reader.accept("SEQUENCE")):
            reader.past_if()
            if self.names_it(reader) and replaces:
                raise self.stop("the table was dropped and created anew")
            self._attached(reader)
        elif reader.accept("DATABASE", "SCHEMA"):
            if replaces:
                self._drop_database(reader, "its database was dropped and created anew")
        elif reader.accept("INDEX"):
            while not reader.accept("ON"):
                reader.take()
            if replaces and self.changes_it(reader):
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
            raise self.logged_as_text("CREATE TABLE … SELECT")

    def _others(self, done: Alteration, first: str) -> None:
        """Stop where the definition of another table takes part of the wanted one, or may."""
        if any(self.is_it(*named) for named in done.tables):
            raise self.stop(f"{first} of another table took its rows or its name, or gave it others")
        if any(token.names and self.fold(token.text) == self.fold(self.table.name) for token in done.unknown):
            raise self.not_understood(first)

    def _alter(self, reader: TokenReader) -> Judgement:
        ignore = False
        while reader.matches("ONLINE", "OFFLINE", "IGNORE"):
            ignore |= reader.take().matches("IGNORE")
        past_attributes(reader)
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
        wanted = self.changes_it(reader)
        reader.past_wait()
        if any(token.matches("RENAME") for token in reader.rest):  # of columns too: less is known then, and no more
            self.temporary.discard(self.query.thread)
        done = read_alteration(reader)
        if not wanted:
            self._others(done, "ALTER TABLE")
            return _NOTHING
        if ignore:
            raise self.stop("ALTER IGNORE may have deleted rows")
        return self._altered(done)

    def _altered(self, done: Alteration) -> Judgement:
        stops = obstacle(done, self.table, self.shapes, self.query.sql_mode)
        if stops:
            raise self.stop(stops)
        note = news(done, self.table)
        return Judgement(Effect.COLUMNS, note) if done.added or done.dropped else _NOTHING

    _parsers: ClassVar[dict[str, Callable[[_Judge, TokenReader], Judgement]]] = {
        "TRUNCATE": _truncate,
        "ANALYZE": _analyze,
        "DROP": _drop,
        "RENAME": _rename,
        "CREATE": _create,
        "ALTER": _alter,
    }

    def _drop_database(self, reader: TokenReader, what: str) -> None:
        reader.past_if()
        if self.fold(reader.name()) == self.fold(self.table.database):
            raise self.stop(what)

    def _index_dropped(self) -> None:
        if self.table.other_key:
            raise self.stop(index_dropped(self.table))
