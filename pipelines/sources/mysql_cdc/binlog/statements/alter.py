"""ALTER TABLE: columns added and dropped, other tables that take part, and whether all rows stay as they were."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tidegate.pipelines.sources.mysql_cdc.binlog.statements.sql_tokens import Token, Unparsed, Words

_VALUED = frozenset(
    {"AUTO_INCREMENT", "AVG_ROW_LENGTH", "CHARSET", "CHECKSUM", "COLLATE", "COMMENT", "COMPRESSION", "DELAY_KEY_WRITE"}
    | {"ENCRYPTED", "ENCRYPTION", "ENCRYPTION_KEY_ID", "ALGORITHM", "LOCK", "KEY_BLOCK_SIZE", "MAX_ROWS", "MIN_ROWS"}
    | {"PACK_KEYS", "PAGE_CHECKSUM", "PAGE_COMPRESSED", "PAGE_COMPRESSION_LEVEL", "ROW_FORMAT", "TABLESPACE", "STORAGE"}
    | {"STATS_PERSISTENT", "STATS_AUTO_RECALC", "STATS_SAMPLE_PAGES", "TRANSACTIONAL", "AUTOEXTEND_SIZE", "WAIT"}
    | {"SECONDARY_ENGINE"}
)
"""Options of a table that change no row; one value follows each."""
_LONE = frozenset({"FORCE", "NOWAIT", "DEFAULT", "SECONDARY_LOAD", "SECONDARY_UNLOAD"})
_VALUED_PAIRS = (("CHARACTER", "SET"), ("CHAR", "SET"), ("DATA", "DIRECTORY"), ("INDEX", "DIRECTORY"))
_PAIRS = (
    *_VALUED_PAIRS,
    *(("ENABLE", "KEYS"), ("DISABLE", "KEYS"), ("REMOVE", "PARTITIONING")),
    *(("WITH", "VALIDATION"), ("WITHOUT", "VALIDATION")),
)
_QUERY = ("SELECT", "AS", "LIKE", "VALUES", "TABLE", "IGNORE", "REPLACE", "START")
"""What may follow a new table's options: a query, whose rows are logged; a table it is made like; START TRANSACTION."""
_ENGINES = frozenset({"INNODB", "MYISAM", "ARIA", "ROCKSDB", "NDB", "NDBCLUSTER", "MEMORY", "CSV"})
"""Engines that keep the rows which a table of another one had: BLACKHOLE, MERGE, FEDERATED, … do not."""
_PARTITIONS_KEPT = ("REORGANIZE", "REBUILD", "OPTIMIZE", "ANALYZE", "CHECK", "REPAIR", "COALESCE")
_INDEX_WORDS = ("INDEX", "KEY", "UNIQUE", "FULLTEXT", "SPATIAL", "CHECK")


@dataclass
class Alteration:
    """What the actions of one ALTER TABLE do to the table. `rewrites`: why its rows, names or keys are not followed any
    more, in a few words; empty where they are. `tables`: (database or None, name) of other tables that take part."""

    added: list[str] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    tables: list[tuple[str | None, str]] = field(default_factory=list)
    unknown: list[Token] = field(default_factory=list)
    """The tokens of actions that have no meaning here."""
    rewrites: str = ""
    drops_index: bool = False
    """Whether an index went that may have been unique; the primary key is among `rewrites`."""
    adds_cascade: bool = False
    """Whether a foreign key came that changes rows of this table by itself."""


def read_alteration(words: Words) -> Alteration:
    """The actions of an ALTER TABLE (what follows the table's name). Raises Unparsed where an action ends too soon, or
    names another table in a way that is not understood."""
    found = Alteration()
    columns_to_sort_by = False
    for part in _split(words.rest):
        if columns_to_sort_by and _is_sort_column(part):
            continue
        columns_to_sort_by = part[0].says("ORDER")
        if _action(Words(part), part, found):
            break
    return found


def _action(words: Words, part: Sequence[Token], found: Alteration) -> bool:
    """One action. Returns whether it is the last one, whatever commas follow."""
    if any(words.follows(keyword, "PARTITION") for keyword in (*_PARTITIONS_KEPT, "ADD")):
        return True
    if words.accept("ADD"):
        _add(words, found)
    elif words.accept("DROP"):
        _drop(words, part, found)
    elif words.accept("ALTER"):
        _alter_column(words, part, found)
    elif words.accept("RENAME"):
        _rename(words, part, found)
    elif words.accept("EXCHANGE"):
        _rewrites(found, part)
        words.expect("PARTITION")
        words.name()
        words.expect("WITH", "TABLE")
        found.tables.append(words.table())
    elif words.accept("CONVERT"):
        _rewrites(found, part)
        _convert(words, found)
    elif words.says("MODIFY", "CHANGE", "DISCARD", "IMPORT", "TRUNCATE"):
        _rewrites(found, part)
    else:
        _options(words, part, found)
    return False


def _rewrites(found: Alteration, part: Sequence[Token]) -> None:
    found.rewrites = found.rewrites or f"ALTER TABLE … {' '.join(word.text for word in part[:3])} …"


def _add(words: Words, found: Alteration) -> None:
    rest = words.rest
    if any(word.says("PRIMARY") for word in rest):
        found.rewrites = found.rewrites or "its primary key was changed"
    found.adds_cascade |= _cascades(rest)
    if words.says(*_INDEX_WORDS, "CONSTRAINT", "FOREIGN", "PRIMARY"):
        return
    if words.says("VECTOR") and any(words.follows("VECTOR", after) for after in ("INDEX", "KEY", "(")):
        return
    if words.follows("SYSTEM", "VERSIONING") or words.follows("PERIOD", "FOR") or words.says("OR"):
        found.rewrites = found.rewrites or f"ALTER TABLE … ADD {rest[0].text} …"
        return
    words.accept("COLUMN")
    words.past_if()
    if words.says("("):
        for part in _split(words.group()):
            if not part[0].says(*_INDEX_WORDS, "CONSTRAINT", "FOREIGN", "PRIMARY"):
                found.added.append(Words(part).name())
    else:
        found.added.append(words.name())


def _drop(words: Words, part: Sequence[Token], found: Alteration) -> None:
    if words.follows("FOREIGN", "KEY") or words.says("CHECK"):
        return
    if words.accept("INDEX", "KEY", "CONSTRAINT"):
        words.past_if()
        if words.name().upper() == "PRIMARY":
            _rewrites(found, part)
        found.drops_index = True
    elif words.says("PRIMARY", "PARTITION") or words.follows("PERIOD", "FOR") or words.follows("SYSTEM", "VERSIONING"):
        _rewrites(found, part)
    else:
        words.accept("COLUMN")
        words.past_if()
        found.dropped.append(words.name())


def _alter_column(words: Words, part: Sequence[Token], found: Alteration) -> None:
    """ALTER COLUMN c SET DEFAULT …, ALTER INDEX i INVISIBLE, …: rows to come only."""
    if words.accept("INDEX", "KEY", "CHECK", "CONSTRAINT"):
        words.past_if()
        words.name()
        return
    words.accept("COLUMN")
    words.past_if()
    words.name()
    if not words.follows("DROP", "DEFAULT") and not any(
        words.follows("SET", what) for what in ("DEFAULT", "VISIBLE", "INVISIBLE")
    ):
        found.unknown += part


def _rename(words: Words, part: Sequence[Token], found: Alteration) -> None:
    if words.says("INDEX", "KEY"):
        return
    _rewrites(found, part)
    if not words.says("COLUMN"):
        words.accept("TO", "AS", "=")
        found.tables.append(words.table())


def _convert(words: Words, found: Alteration) -> None:
    """CONVERT TO CHARACTER SET …; MariaDB's CONVERT TABLE t TO PARTITION … and CONVERT PARTITION p TO TABLE t."""
    if words.accept("TABLE"):
        found.tables.append(words.table())
        words.expect("TO", "PARTITION")
    elif words.accept("PARTITION"):
        words.name()
        words.expect("TO", "TABLE")
        found.tables.append(words.table())
    else:
        words.expect("TO")
        if not words.says("CHARACTER", "CHAR", "CHARSET"):
            raise Unparsed


def read_options(words: Words) -> Alteration:
    """The options of a CREATE TABLE, up to its partitions, its query, or the end: the `tables` of a MERGE table, and
    what is `unknown`. Raises Unparsed."""
    found = Alteration()
    while not words.done and not words.follows("PARTITION", "BY") and not words.says(*_QUERY):
        if not _option(words, found):
            found.unknown.append(words.take())
    return found


def _options(words: Words, part: Sequence[Token], found: Alteration) -> None:
    """Options of the table, which stand one after another, and may end with how it is partitioned."""
    while not words.done and not words.follows("PARTITION", "BY") and not words.follows("ORDER", "BY"):
        if not _option(words, found):
            found.unknown += part
            return


def _option(words: Words, found: Alteration) -> bool:
    """Past one option, if it is known."""
    pair = next((pair for pair in _PAIRS if words.follows(*pair)), None)
    if pair is not None:
        words.expect(*pair)
        if pair in _VALUED_PAIRS:
            _value(words)
    elif words.accept("ENGINE"):
        engine = _value(words).text
        if engine.upper() not in _ENGINES:
            found.rewrites = found.rewrites or f"ALTER TABLE … ENGINE = {engine}"
    elif words.accept("UNION"):
        found.rewrites = found.rewrites or "ALTER TABLE … UNION …"
        words.accept("=")
        found.tables += [Words(table).table() for table in _split(words.group())]
    elif words.accept(*_VALUED):
        _value(words)
    else:
        return words.accept(*_LONE)
    return True


def _value(words: Words) -> Token:
    words.accept("=")
    return words.take()


def _is_sort_column(part: Sequence[Token]) -> bool:
    """Whether this is one more column of ORDER BY a, b."""
    names = part[:-1] if part[-1].says("ASC", "DESC") else part
    return len(names) == 1 and names[0].names and not names[0].says(*_LONE)


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
