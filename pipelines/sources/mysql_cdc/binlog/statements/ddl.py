"""What a statement in the binlog means for the wanted tables: nothing, a truncate, other columns, or a full stop.

ALTERs that leave every row and column as it was are followed, as are added and dropped columns. Any other change of a
wanted table rewrites rows that the binlog does not show, so it stops the reader.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from pipelines.sources.mysql_cdc.binlog.errors import SchemaChanged, StatementEvent, UnsupportedEvent
from pipelines.sources.mysql_cdc.binlog.model import WantedTable
from pipelines.sources.mysql_cdc.binlog.statements.alter import RowsRewritten, altered_columns, past_if
from pipelines.sources.mysql_cdc.binlog.statements.query import Query
from pipelines.sources.mysql_cdc.binlog.statements.sql_tokens import Kind, Token, tokens
from pipelines.sources.mysql_cdc.errors import FRESH


class Effect(Enum):
    """What a statement does to a wanted table."""

    NONE = "none"
    TRUNCATE = "truncate"
    COLUMNS = "columns"
    UNDO = "undo"
    """ROLLBACK: what the transaction logged before it was undone."""


@dataclass(frozen=True)
class Judgement:
    """`table` is the wanted table concerned; `note` says for people what happened to its columns."""

    effect: Effect
    table: WantedTable | None = None
    note: str = ""


_NOTHING = Judgement(Effect.NONE)

_CHANGES_ROWS = frozenset(
    {"INSERT", "UPDATE", "DELETE", "REPLACE", "LOAD", "CALL", "DO", "SELECT", "WITH", "VALUES", "HANDLER", "EXECUTE"}
)
_HARMLESS = frozenset(
    {"BEGIN", "START", "COMMIT", "SAVEPOINT", "RELEASE", "GRANT", "REVOKE", "SET", "FLUSH", "ANALYZE", "OPTIMIZE"}
    | {"REPAIR", "CHECK", "CHECKSUM", "CACHE", "INSTALL", "UNINSTALL", "KILL", "USE", "PURGE", "RESET"}
    | {"CHANGE", "STOP"}
)
_NOT_TABLES = frozenset(
    {"VIEW", "TRIGGER", "PROCEDURE", "FUNCTION", "EVENT", "USER", "ROLE", "SERVER", "SEQUENCE", "PACKAGE", "INDEX"}
    | {"TABLESPACE", "LOGFILE", "SPATIAL", "RESOURCE", "UNDO", "INSTANCE"}
)


def judge(query: Query, wanted: Sequence[WantedTable], *, fold_case: bool = False, where: object = "") -> Judgement:
    """What `query` means. `fold_case` when the server's table names know no upper case (lower_case_table_names).

    Raises StatementEvent for a statement that changes rows, SchemaChanged for a change that can not be followed,
    UnsupportedEvent for XA.
    """
    words = [*tokens(query.text, query.sql_mode)]
    judging = _Judge(query, wanted, fold_case, where)
    try:
        return judging.statement(words)
    except IndexError:  # it ends before what was expected
        return judging.unknown(words)


class _Judge:
    def __init__(self, query: Query, wanted: Sequence[WantedTable], fold_case: bool, where: object) -> None:
        self._query, self._wanted, self._where = query, wanted, where
        self._fold = str.casefold if fold_case else str

    def statement(self, words: list[Token]) -> Judgement:
        if not words:
            return _NOTHING
        first, rest = words[0], words[1:]
        if first.says("SET") and rest and rest[0].says("STATEMENT"):
            at = next((index for index, word in enumerate(words) if word.says("FOR")), len(words) - 1)
            return self.statement(words[at + 1 :])
        if first.says("TRUNCATE"):
            return self._truncate(rest)
        if first.says("ALTER"):
            return self._alter(rest)
        if first.says("DROP"):
            return self._drop(rest)
        if first.says("RENAME"):
            return self._rename(rest)
        if first.says("CREATE"):
            return self._create(rest)
        if first.says("ROLLBACK"):
            return Judgement(Effect.UNDO)
        if first.says("XA"):
            raise UnsupportedEvent(
                "a distributed (XA) transaction: its rows stand in the binlog before anyone knows whether it commits",
                where=self._where,
                next_command=FRESH,
            )
        if first.says(*_CHANGES_ROWS) or first.text == "(":
            raise StatementEvent(
                f"rows were changed by a statement ({first.text.upper()} …) that was logged as text, not as rows;"
                " on the server: SET GLOBAL binlog_format = 'ROW', and no session that sets another",
                where=self._where,
                next_command=FRESH,
            )
        if first.says(*_HARMLESS):
            return _NOTHING
        return self.unknown(words)

    def unknown(self, words: Sequence[Token]) -> Judgement:
        """A statement that is not understood matters only if it names a wanted table."""
        for table in self._wanted:
            if any(self._fold(word.text) == self._fold(table.name) for word in words):
                raise self._stop(table, f"a statement that is not understood: {words[0].text.upper()} …")
        return _NOTHING

    def _truncate(self, rest: list[Token]) -> Judgement:
        at = 1 if rest and rest[0].says("TABLE") and len(rest) > 1 else 0
        table, _ = self._table(rest, at)
        return Judgement(Effect.TRUNCATE, table) if table else _NOTHING

    def _drop(self, rest: list[Token]) -> Judgement:
        if rest and rest[0].says("TEMPORARY"):
            return _NOTHING
        if rest and rest[0].says("DATABASE", "SCHEMA"):
            name = rest[past_if(rest, 1)].text
            for table in self._wanted:
                if self._fold(table.database) == self._fold(name):
                    raise self._stop(table, "its database was dropped")
            return _NOTHING
        if rest and rest[0].says("TABLE", "TABLES"):
            at = past_if(rest, 1)
            while at < len(rest):
                table, at = self._table(rest, at)
                if table:
                    raise self._stop(table, "the table was dropped")
                at += 1  # the comma, or a word after the last name
            return _NOTHING
        return _NOTHING if rest and rest[0].says(*_NOT_TABLES) else self.unknown(rest)

    def _rename(self, rest: list[Token]) -> Judgement:
        if not rest or not rest[0].says("TABLE", "TABLES"):
            return _NOTHING if rest and rest[0].says("USER") else self.unknown(rest)
        at = past_if(rest, 1)
        while at < len(rest):
            table, at = self._table(rest, at)
            if table:
                raise self._stop(table, "the table was renamed, or another was given its name")
            while at < len(rest) and not rest[at].says("TO", ","):
                at += 1  # WAIT n, NOWAIT
            at += 1
        return _NOTHING

    def _create(self, rest: list[Token]) -> Judgement:
        at = 2 if len(rest) > 1 and rest[0].says("OR") and rest[1].says("REPLACE") else 0
        if at and at < len(rest) and rest[at].says("TABLE"):
            table, _ = self._table(rest, past_if(rest, at + 1))
            if table:
                raise self._stop(table, "the table was dropped and created anew")
        return _NOTHING

    def _alter(self, rest: list[Token]) -> Judgement:
        at, ignore = 0, False
        while at < len(rest) and rest[at].says("ONLINE", "OFFLINE", "IGNORE"):
            ignore = ignore or rest[at].says("IGNORE")
            at += 1
        if at >= len(rest) or not rest[at].says("TABLE"):
            return _NOTHING  # ALTER DATABASE, USER, VIEW, EVENT, …: no rows
        table, at = self._table(rest, past_if(rest, at + 1))
        if table is None:
            return _NOTHING
        if ignore:
            raise self._stop(table, "ALTER IGNORE may have deleted rows")
        if at < len(rest) and rest[at].says("WAIT"):
            at += 2
        try:
            added, dropped = altered_columns(rest[at:])
        except RowsRewritten as error:
            raise self._stop(table, str(error)) from error
        declared = {column.name.casefold(): column.name for column in table.columns}
        for name in added:
            if name.casefold() in declared:
                raise self._stop(table, f"the declared column {name} was added; rows from before have its default")
        if not added and not dropped:
            return _NOTHING
        lost = [declared[name.casefold()] for name in dropped if name.casefold() in declared]
        note = "; ".join(
            [f"column {name} was added and is not declared: passed over" for name in added]
            + [f"column {name} was dropped: it reads NULL from here on" for name in lost]
        )
        return Judgement(Effect.COLUMNS, table, note)

    def _table(self, words: Sequence[Token], at: int) -> tuple[WantedTable | None, int]:
        """The wanted table named at `at` (None for any other), and where its name ends."""
        if at >= len(words) or not words[at].names:
            return None, at + 1
        database, name, end = self._query.database, words[at].text, at + 1
        if end + 1 < len(words) and words[end].text == "." and words[end].kind is Kind.SYMBOL:
            database, name, end = name, words[end + 1].text, end + 2
        for table in self._wanted:
            if (self._fold(table.database), self._fold(table.name)) == (self._fold(database), self._fold(name)):
                return table, end
        return None, end

    def _stop(self, table: WantedTable, what: str) -> SchemaChanged:
        return SchemaChanged(f"{table} can not be followed further: {what}", where=self._where, next_command=FRESH)
