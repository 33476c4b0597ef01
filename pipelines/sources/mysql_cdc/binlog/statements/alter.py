"""ALTER TABLE: columns added and dropped, other tables that take part, and whether all rows stay as they were."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tidegate.pipelines.sources.mysql_cdc.binlog.statements.column import read_charset
from tidegate.pipelines.sources.mysql_cdc.binlog.statements.query import Token, TokenReader
from tidegate.pipelines.sources.mysql_cdc.names import lowered

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

    added: list[tuple[str, bool]] = field(default_factory=list)
    """Columns, and whether each was added only if it was not there."""
    dropped: list[str] = field(default_factory=list)
    modified: list[tuple[str, Sequence[Token], Sequence[Token]]] = field(default_factory=list)
    """Columns with a new definition, by their old names: (name, definition, the whole action)."""
    renamed: list[tuple[str, str, Sequence[Token]]] = field(default_factory=list)
    """Columns with a new name: (old, new, the whole action)."""
    converts: tuple[str, Sequence[Token]] | None = None
    """The character set that every text was converted to, and the whole action."""
    tables: list[tuple[str | None, str]] = field(default_factory=list)
    unknown: list[Token] = field(default_factory=list)
    """The tokens of actions that have no meaning here."""
    rewrites: str = ""
    drops_index: bool = False
    """Whether an index went that may have been unique; the primary key is among `rewrites`."""
    adds_cascade: bool = False
    """Whether a foreign key came that changes rows of this table by itself."""


def read_alteration(reader: TokenReader) -> Alteration:
    """The actions of an ALTER TABLE (what follows the table's name). Raises Unparsed where an action ends too soon, or
    names another table in a way that is not understood."""
    found = Alteration()
    columns_to_sort_by = False
    for part in _split(reader.rest):
        if columns_to_sort_by and _is_sort_column(part):
            continue
        columns_to_sort_by = part[0].matches("ORDER")
        if _action(TokenReader(part), part, found):
            break
    return found


def _action(reader: TokenReader, part: Sequence[Token], found: Alteration) -> bool:
    """One action. Returns whether it is the last one, whatever commas follow."""
    if any(reader.follows(keyword, "PARTITION") for keyword in (*_PARTITIONS_KEPT, "ADD")):
        return True
    found.adds_cascade |= _cascades(part)
    if reader.accept("ADD"):
        _add(reader, found)
    elif reader.accept("DROP"):
        _drop(reader, part, found)
    elif reader.accept("ALTER"):
        _alter_column(reader, part, found)
    elif reader.accept("RENAME"):
        _rename(reader, part, found)
    elif reader.accept("EXCHANGE"):
        _rewrites(found, part)
        reader.expect("PARTITION")
        reader.name()
        reader.expect("WITH", "TABLE")
        found.tables.append(reader.table())
    elif reader.accept("CONVERT"):
        _convert(reader, part, found)
    elif reader.matches("MODIFY", "CHANGE"):
        _modify(reader, part, found)
    elif reader.matches("DISCARD", "IMPORT", "TRUNCATE"):
        _rewrites(found, part)
    else:
        _options(reader, part, found)
    return False


def _rewrites(found: Alteration, part: Sequence[Token]) -> None:
    found.rewrites = found.rewrites or shown(part)


def shown(part: Sequence[Token]) -> str:
    """An action, in a few words."""
    return f"ALTER TABLE … {' '.join(token.text for token in part[:3])} …"


def _modify(reader: TokenReader, part: Sequence[Token], found: Alteration) -> None:
    changes = reader.take().matches("CHANGE")
    reader.accept("COLUMN")
    reader.past_if()
    name = reader.name()
    new = reader.name() if changes else name
    if lowered(new) != lowered(name):
        found.renamed.append((name, new, part))
    _keeps_primary_key(reader.rest, found)
    found.modified.append((name, reader.rest, part))


def _keeps_primary_key(definition: Sequence[Token], found: Alteration) -> None:
    if any(token.matches("PRIMARY") for token in definition):
        found.rewrites = found.rewrites or "its primary key was changed"


def _add(reader: TokenReader, found: Alteration) -> None:
    rest = reader.rest
    _keeps_primary_key(rest, found)
    if reader.matches(*_INDEX_WORDS, "CONSTRAINT", "FOREIGN", "PRIMARY"):
        return
    if reader.matches("VECTOR") and any(reader.follows("VECTOR", after) for after in ("INDEX", "KEY", "(")):
        return
    if reader.follows("SYSTEM", "VERSIONING") or reader.follows("PERIOD", "FOR") or reader.matches("OR"):
        found.rewrites = found.rewrites or f"ALTER TABLE … ADD {rest[0].text} …"
        return
    reader.accept("COLUMN")
    unless_there = reader.past_if()
    if reader.matches("("):
        for part in _split(reader.group()):
            if not part[0].matches(*_INDEX_WORDS, "CONSTRAINT", "FOREIGN", "PRIMARY"):
                found.added.append((TokenReader(part).name(), unless_there))
    else:
        found.added.append((reader.name(), unless_there))


def _drop(reader: TokenReader, part: Sequence[Token], found: Alteration) -> None:
    if reader.follows("FOREIGN", "KEY") or reader.matches("CHECK"):
        return
    if reader.accept("INDEX", "KEY", "CONSTRAINT"):
        reader.past_if()
        if reader.name().upper() == "PRIMARY":
            _rewrites(found, part)
        found.drops_index = True
    elif (
        reader.matches("PRIMARY", "PARTITION")
        or reader.follows("PERIOD", "FOR")
        or reader.follows("SYSTEM", "VERSIONING")
    ):
        _rewrites(found, part)
    else:
        reader.accept("COLUMN")
        reader.past_if()
        found.dropped.append(reader.name())


def _alter_column(reader: TokenReader, part: Sequence[Token], found: Alteration) -> None:
    """ALTER COLUMN c SET DEFAULT …, ALTER INDEX i INVISIBLE, …: rows to come only."""
    if reader.accept("INDEX", "KEY", "CHECK", "CONSTRAINT"):
        reader.past_if()
        reader.name()
        return
    reader.accept("COLUMN")
    reader.past_if()
    reader.name()
    if not reader.follows("DROP", "DEFAULT") and not any(
        reader.follows("SET", what) for what in ("DEFAULT", "VISIBLE", "INVISIBLE")
    ):
        found.unknown += part


def _rename(reader: TokenReader, part: Sequence[Token], found: Alteration) -> None:
    if reader.matches("INDEX", "KEY"):
        return
    if reader.accept("COLUMN"):
        reader.past_if()
        old = reader.name()
        reader.expect("TO")
        found.renamed.append((old, reader.name(), part))
    else:
        _rewrites(found, part)
        reader.accept("TO", "AS", "=")
        found.tables.append(reader.table())


def _convert(reader: TokenReader, part: Sequence[Token], found: Alteration) -> None:
    """CONVERT TO CHARACTER SET …; MariaDB's CONVERT TABLE t TO PARTITION … and CONVERT PARTITION p TO TABLE t."""
    if reader.accept("TABLE"):
        _rewrites(found, part)
        found.tables.append(reader.table())
        reader.expect("TO", "PARTITION")
    elif reader.accept("PARTITION"):
        _rewrites(found, part)
        reader.name()
        reader.expect("TO", "TABLE")
        found.tables.append(reader.table())
    else:
        reader.expect("TO")
        found.converts = read_charset(reader), part
        if reader.accept("COLLATE"):
            reader.take()
        if not reader.done:
            found.unknown += part


def read_options(reader: TokenReader) -> Alteration:
    """The options of a CREATE TABLE, up to its partitions, its query, or the end: the `tables` of a MERGE table, and
    what is `unknown`. Raises Unparsed."""
    found = Alteration()
    while not reader.done and not reader.follows("PARTITION", "BY") and not reader.matches(*_QUERY):
        if not _option(reader, found):
            found.unknown.append(reader.take())
    return found


def _options(reader: TokenReader, part: Sequence[Token], found: Alteration) -> None:
    """Options of the table, which stand one after another, and may end with how it is partitioned."""
    while not reader.done and not reader.follows("PARTITION", "BY") and not reader.follows("ORDER", "BY"):
        if not _option(reader, found):
            found.unknown += part
            return


def _option(reader: TokenReader, found: Alteration) -> bool:
    """Past one option, if it is known."""
    pair = next((pair for pair in _PAIRS if reader.follows(*pair)), None)
    if pair is not None:
        reader.expect(*pair)
        if pair in _VALUED_PAIRS:
            _value(reader)
    elif reader.accept("ENGINE"):
        engine = _value(reader).text
        if engine.upper() not in _ENGINES:
            found.rewrites = found.rewrites or f"ALTER TABLE … ENGINE = {engine}"
    elif reader.accept("UNION"):
        found.rewrites = found.rewrites or "ALTER TABLE … UNION …"
        reader.accept("=")
        found.tables += [TokenReader(table).table() for table in _split(reader.group())]
    elif reader.accept(*_VALUED):
        _value(reader)
    else:
        return reader.accept(*_LONE)
    return True


def _value(reader: TokenReader) -> Token:
    reader.accept("=")
    return reader.take()


def _is_sort_column(part: Sequence[Token]) -> bool:
    """Whether this is one more column of ORDER BY a, b."""
    names = part[:-1] if part[-1].matches("ASC", "DESC") else part
    return len(names) == 1 and names[0].names and not names[0].matches(*_LONE)


def _split(tokens: Sequence[Token]) -> Iterator[list[Token]]:
    """The parts between commas that stand in no parentheses."""
    part: list[Token] = []
    depth = 0
    for token in tokens:
        depth += token.matches("(") - token.matches(")")
        if depth == 0 and token.matches(","):
            if part:
                yield part
            part = []
        else:
            part.append(token)
    if part:
        yield part


def _cascades(tokens: Sequence[Token]) -> bool:
    """Whether a foreign key acts on its own: ON DELETE or ON UPDATE, followed by CASCADE or SET."""
    return any(
        before.matches("ON") and event.matches("DELETE", "UPDATE") and action.matches("CASCADE", "SET")
        for before, event, action in zip(tokens, tokens[1:], tokens[2:], strict=False)
    )
