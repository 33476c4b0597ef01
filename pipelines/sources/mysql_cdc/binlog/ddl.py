"""What a statement in the binlog means for the wanted tables: nothing, a truncate, other columns, or a full stop.

ALTERs that leave every row and column as it was are followed, as are added and dropped columns. Any other change of a
wanted table rewrites rows that the binlog does not show, so it stops the reader.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from pipelines.sources.mysql_cdc.binlog.errors import FRESH, SchemaChanged, StatementEvent, UnsupportedEvent
from pipelines.sources.mysql_cdc.binlog.model import WantedTable
from pipelines.sources.mysql_cdc.binlog.query import Query
from pipelines.sources.mysql_cdc.binlog.sql_tokens import Kind, Token, tokens


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
    | {
        "REPAIR",
        "CHECK",
        "CHECKSUM",
        "CACHE",
        "INSTALL",
        "UNINSTALL",
        "KILL",
        "USE",
        "PURGE",
        "RESET",
        "CHANGE",
        "STOP",
    }
)
_NOT_TABLES = frozenset(
    {"VIEW", "TRIGGER", "PROCEDURE", "FUNCTION", "EVENT", "USER", "ROLE", "SERVER", "SEQUENCE", "PACKAGE", "INDEX"}
    | {"TABLESPACE", "LOGFILE", "SPATIAL", "RESOURCE", "UNDO", "INSTANCE"}
)
_KEEPS_ROWS = frozenset(
    {"ENABLE", "DISABLE", "ENGINE", "AUTO_INCREMENT", "COMMENT", "ROW_FORMAT", "ALGORITHM", "LOCK", "FORCE", "ORDER"}
    | {"STATS_PERSISTENT", "STATS_AUTO_RECALC", "STATS_SAMPLE_PAGES", "KEY_BLOCK_SIZE", "MAX_ROWS", "MIN_ROWS"}
    | {"AVG_ROW_LENGTH", "CHECKSUM", "PACK_KEYS", "DELAY_KEY_WRITE", "TABLESPACE", "COMPRESSION", "ENCRYPTION"}
    | {"PAGE_COMPRESSED", "PAGE_COMPRESSION_LEVEL", "ENCRYPTED", "ENCRYPTION_KEY_ID", "PAGE_CHECKSUM", "TRANSACTIONAL"}
    | {"NOWAIT", "WAIT", "DEFAULT", "CHARACTER", "CHARSET", "COLLATE", "PARTITION", "REORGANIZE", "COALESCE", "REBUILD"}
    | {"OPTIMIZE", "ANALYZE", "CHECK", "REPAIR", "REMOVE", "WITH", "WITHOUT"}
)
"""First words of ALTER TABLE's actions that change no row and no column."""
_INDEX_WORDS = ("INDEX", "KEY", "UNIQUE", "FULLTEXT", "SPATIAL", "CHECK", "VECTOR")


def judge(query: Query, wanted: Sequence[WantedTable], *, fold_case: bool = False, where: object = "") -> Judgement:
    """What `query` means. `fold_case` when the server's table names know no upper case (lower_case_table_names).

    Raises StatementEvent for a statement that changes rows, SchemaChanged for a change that can not be followed,
    UnsupportedEvent for XA.
    """
    return _Judge(query, wanted, fold_case, where).statement([*tokens(query.text, query.sql_mode)])


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
        return self._unknown(words)

    def _unknown(self, words: Sequence[Token]) -> Judgement:
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
            name = rest[_past_if(rest, 1)].text
            for table in self._wanted:
                if self._fold(table.database) == self._fold(name):
                    raise self._stop(table, "its database was dropped")
            return _NOTHING
        if rest and rest[0].says("TABLE", "TABLES"):
            at = _past_if(rest, 1)
            while at < len(rest):
                table, at = self._table(rest, at)
                if table:
                    raise self._stop(table, "the table was dropped")
                at += 1  # the comma, or a word after the last name
            return _NOTHING
        return _NOTHING if rest and rest[0].says(*_NOT_TABLES) else self._unknown(rest)

    def _rename(self, rest: list[Token]) -> Judgement:
        if not rest or not rest[0].says("TABLE", "TABLES"):
            return _NOTHING if rest and rest[0].says("USER") else self._unknown(rest)
        at = _past_if(rest, 1)
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
            table, _ = self._table(rest, _past_if(rest, at + 1))
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
        table, at = self._table(rest, _past_if(rest, at + 1))
        if table is None:
            return _NOTHING
        if ignore:
            raise self._stop(table, "ALTER IGNORE may have deleted rows")
        if at < len(rest) and rest[at].says("WAIT"):
            at += 2
        added: list[str] = []
        dropped: list[str] = []
        for action in _split(rest[at:]):
            self._action(table, action, added, dropped)
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

    def _action(self, table: WantedTable, action: list[Token], added: list[str], dropped: list[str]) -> None:
        first, rest = action[0], action[1:]
        if first.says("ADD"):
            added += self._add(table, rest)
        elif first.says("DROP"):
            dropped += self._drop_part(table, rest)
        elif first.says("RENAME") and rest and rest[0].says("INDEX", "KEY"):
            return
        elif first.says("ALTER"):
            # ALTER COLUMN c SET DEFAULT …, DROP DEFAULT, ALTER INDEX i INVISIBLE: rows to come only.
            return
        elif not first.says(*_KEEPS_ROWS):
            raise self._stop(table, f"ALTER TABLE … {' '.join(word.text for word in action[:3])} …")

    def _add(self, table: WantedTable, rest: list[Token]) -> Iterator[str]:
        if any(word.says("PRIMARY") for word in rest):
            raise self._stop(table, "its primary key was changed")
        if _cascades(rest):
            raise self._stop(table, "a foreign key was added whose cascades the binlog does not show")
        if not rest or rest[0].says(*_INDEX_WORDS, "CONSTRAINT", "FOREIGN", "PARTITION"):
            return
        if rest[0].says("SYSTEM", "PERIOD"):
            raise self._stop(table, f"ALTER TABLE … ADD {rest[0].text} …")
        at = _past_if(rest, 1 if rest[0].says("COLUMN") else 0)
        if rest[at].text == "(" and rest[at].kind is Kind.SYMBOL:
            yield from (part[0].text for part in _split(rest[at + 1 : -1]) if not part[0].says(*_INDEX_WORDS))
        else:
            yield rest[at].text

    def _drop_part(self, table: WantedTable, rest: list[Token]) -> Iterator[str]:
        key = any(word.names and word.text.upper() == "PRIMARY" for word in rest[:2])
        if rest and (key or rest[0].says("PERIOD", "SYSTEM", "PARTITION")):
            raise self._stop(table, f"ALTER TABLE … DROP {rest[0].text} …")
        if not rest or rest[0].says("INDEX", "KEY", "FOREIGN", "CONSTRAINT", "CHECK"):
            return
        yield rest[_past_if(rest, 1 if rest[0].says("COLUMN") else 0)].text

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


def _past_if(words: Sequence[Token], at: int) -> int:
    """Past IF EXISTS or IF NOT EXISTS."""
    if at < len(words) and words[at].says("IF"):
        at += 1
        if at < len(words) and words[at].says("NOT"):
            at += 1
        if at < len(words) and words[at].says("EXISTS"):
            at += 1
    return at


def _split(words: Sequence[Token]) -> Iterator[list[Token]]:
    """The parts between commas that stand in no parentheses."""
    part: list[Token] = []
    depth = 0
    for word in words:
        depth += word.says("(") - word.says(")")
        if depth == 0 and word.says(","):
            if part:
                yield part
            part = []
        else:
            part.append(word)
    if part:
        yield part


def _cascades(words: Sequence[Token]) -> bool:
    """Whether a foreign key acts on its own: ON DELETE or ON UPDATE, followed by CASCADE or SET."""
    return any(
        before.says("ON") and event.says("DELETE", "UPDATE") and action.says("CASCADE", "SET")
        for before, event, action in zip(words, words[1:], words[2:], strict=False)
    )
