"""ALTER TABLE: which columns it adds and drops, and whether it leaves all rows as they were."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pipelines.sources.mysql_cdc.binlog.statements.sql_tokens import Kind, Token

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


class RowsRewritten(Exception):
    """The ALTER changes rows, names or keys in a way that the binlog does not show; the text says which."""


def altered_columns(words: Sequence[Token]) -> tuple[list[str], list[str]]:
    """The names of the columns added and dropped by the actions of an ALTER TABLE (what follows the table's name).

    Raises RowsRewritten for any action that does more, or that is not understood.
    """
    added: list[str] = []
    dropped: list[str] = []
    for action in _split(words):
        first, rest = action[0], action[1:]
        if first.says("ADD"):
            added += _add(rest)
        elif first.says("DROP"):
            dropped += _drop(rest)
        elif first.says("RENAME") and rest and rest[0].says("INDEX", "KEY"):
            continue
        elif first.says("ALTER"):
            continue  # ALTER COLUMN c SET DEFAULT …, ALTER INDEX i INVISIBLE: rows to come only
        elif not first.says(*_KEEPS_ROWS):
            raise RowsRewritten(f"ALTER TABLE … {' '.join(word.text for word in action[:3])} …")
    return added, dropped


def _add(rest: Sequence[Token]) -> Iterator[str]:
    if any(word.says("PRIMARY") for word in rest):
        raise RowsRewritten("its primary key was changed")
    if _cascades(rest):
        raise RowsRewritten("a foreign key was added whose cascades the binlog does not show")
    if not rest or rest[0].says(*_INDEX_WORDS, "CONSTRAINT", "FOREIGN", "PARTITION"):
        return
    if rest[0].says("SYSTEM", "PERIOD"):
        raise RowsRewritten(f"ALTER TABLE … ADD {rest[0].text} …")
    at = past_if(rest, 1 if rest[0].says("COLUMN") else 0)
    if rest[at].text == "(" and rest[at].kind is Kind.SYMBOL:
        yield from (part[0].text for part in _split(rest[at + 1 : -1]) if not part[0].says(*_INDEX_WORDS))
    else:
        yield rest[at].text


def _drop(rest: Sequence[Token]) -> Iterator[str]:
    key = any(word.names and word.text.upper() == "PRIMARY" for word in rest[:2])
    if rest and (key or rest[0].says("PERIOD", "SYSTEM", "PARTITION")):
        raise RowsRewritten(f"ALTER TABLE … DROP {rest[0].text} …")
    if not rest or rest[0].says("INDEX", "KEY", "FOREIGN", "CONSTRAINT", "CHECK"):
        return
    yield rest[past_if(rest, 1 if rest[0].says("COLUMN") else 0)].text


def past_if(words: Sequence[Token], at: int) -> int:
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
