"""Statements that change rows, which a log of statements holds as text: of which table, and whether all that they did
is known.

Triggers of the table and functions that the statement calls may have changed the wanted table, too, and the log does
not show it. Which triggers a table had then nobody can tell: the catalog has those of now, and shows them only to users
with the privilege TRIGGER. The servers allow no trigger in the database `mysql`.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegate.pipelines.sources.mysql_cdc.binlog.statements.query import Token, TokenReader, Unparsed

_MODIFIERS = ("LOW_PRIORITY", "HIGH_PRIORITY", "DELAYED", "QUICK", "IGNORE", "INTO", "FROM")
_OF_MANAGED_SERVERS = "mysql", "rds_"
"""The database and the beginning of the names of the tables in which Amazon's servers log that they live."""
_KNOWN_CALLS = frozenset(
    {"VALUES", "VALUE", "IN", "AND", "OR", "NOW", "SYSDATE", "CURRENT_TIMESTAMP", "UTC_TIMESTAMP", "UNIX_TIMESTAMP"}
    | {"UUID", "USER", "CURRENT_USER", "CONCAT", "COALESCE", "IFNULL"}
)
"""Words that may stand before a parenthesis, and are no function that a person has made."""


def changed_table(statement: Sequence[Token], database: str) -> tuple[str, str] | None:
    """The table that an INSERT, REPLACE, UPDATE or DELETE changes, as it begins; None for other statements, and for one
    of several tables."""
    reader = TokenReader(statement)
    try:
        if not reader.take().matches("INSERT", "REPLACE", "UPDATE", "DELETE"):
            return None
        while reader.accept(*_MODIFIERS):
            pass
        place, name = reader.table()
    except Unparsed:
        return None
    return None if reader.matches(",", ".", "USING") else (place or database, name)


def changes_nothing_else(statement: Sequence[Token], changed: tuple[str, str]) -> bool:
    """Whether a statement changed the rows of that one table alone: it has no triggers, and no other table is read, and
    no function called that a person may have made."""
    database, prefix = _OF_MANAGED_SERVERS
    if changed[0] != database or not changed[1].startswith(prefix):
        return False
    if any(token.matches("SELECT", "TABLE", "JOIN", "WITH") for token in statement):
        return False
    calls = [at for at, token in enumerate(statement) if at and token.matches("(") and statement[at - 1].names]
    qualified = [at for at in calls if at > 1 and statement[at - 2].matches(".")]
    return all(
        statement[at - 1].text == changed[1] or (at not in qualified and statement[at - 1].matches(*_KNOWN_CALLS))
        for at in calls
    )
