"""Facts about a server and about one of its tables, read from its catalog; `preflight` judges it.

The key that a snapshot is cut into chunks by has its bounds in the server's own SQL: a bound leaves the server as bytes
and goes back as a literal of the same character set and collation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import pymysql
from pymysql.cursors import Cursor

from tidegate.pipelines.errors import SourceError
from tidegate.pipelines.sources.cdc.chunks import SnapshotKey
from tidegate.pipelines.sources.mysql_cdc.binlog.model import Cascades
from tidegate.pipelines.sources.mysql_cdc.errors import DENIED, GONE, code_and_text
from tidegate.pipelines.sources.mysql_cdc.names import lowered
from tidegate.pipelines.sources.mysql_cdc.types import INTEGERS, SourceColumn
from tidegate.pipelines.syntax.types import quoted, quoted_string

KeyKind = Literal["number", "text", "bytes", "moment", "address"]

_KINDS: Mapping[str, KeyKind] = {
    **dict.fromkeys((*INTEGERS, "decimal", "year"), "number"),
    **dict.fromkeys(("char", "varchar"), "text"),
    **dict.fromkeys(("binary", "varbinary"), "bytes"),
    **dict.fromkeys(("date", "datetime", "timestamp", "time"), "moment"),
    **dict.fromkeys(("uuid", "inet4", "inet6"), "address"),
}
_FORMS: Mapping[KeyKind, re.Pattern[str]] = {
    "number": re.compile(r"-?\d+(\.\d+)?"),
    "text": re.compile(r"([0-9A-F]{2})*"),
    "bytes": re.compile(r"([0-9A-F]{2})*"),
    "moment": re.compile(r"-?[0-9:. -]+"),
    "address": re.compile(r"[0-9A-Fa-f:.-]+"),
}
_NAME = re.compile(r"\w+")


class NoBound(SourceError):
    """A text of the splits table that no bound of the key can be."""


@dataclass(frozen=True)
class KeyColumn:
    """A key column that can be compared with a literal. `integer`: whole numbers, whose bounds can be computed."""

    name: str
    kind: KeyKind
    integer: bool = False
    charset: str | None = None
    collation: str | None = None

    @property
    def quoted(self) -> str:
        return quoted(self.name)

    @property
    def fetch(self) -> str:
        """The server's SQL for a bound's text."""
        if self.kind in ("text", "bytes"):
            return f"HEX({quoted(self.name)})"
        return f"CAST({quoted(self.name)} AS CHAR)"

    def literal(self, value: str) -> str:
        """The server's SQL for a bound. Raises NoBound for a text that no bound of this column can be."""
        if not _FORMS[self.kind].fullmatch(value):
            raise NoBound(
                f"{value!r} is no bound of the key column {self.name}", where="splits table", state="nothing was read"
            )
        if self.kind == "number":
            return value
        if self.kind == "bytes":
            return f"X'{value}'"
        if self.kind == "text":
            charset, collation = _NAME.fullmatch(self.charset or ""), _NAME.fullmatch(self.collation or "")
            if charset is None or collation is None:
                raise SourceError(f"the key column {self.name} has no character set", where="snapshot plan")
            return f"_{charset.group()} X'{value}' COLLATE {collation.group()}"
        return f"'{value}'"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> KeyColumn:
        return cls(**values)


@dataclass(frozen=True)
class MysqlKey(SnapshotKey):
    """`SnapshotKey` of a table of MySQL or MariaDB."""

    @property
    def hint(self) -> str:
        """FORCE INDEX: without it a chunk that is a good part of the table would be read by scanning all of it."""
        return f" FORCE INDEX ({quoted(self.index)})" if self.columns else ""

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> MysqlKey:
        columns = tuple(KeyColumn.from_json(column) for column in values["columns"])
        return cls(columns, values["index"], values["unique"])


Flavor = Literal["mariadb", "mysql"]

_VARIABLES = (
    "log_bin",
    "lower_case_table_names",
    "binlog_format",
    "binlog_row_image",
    "binlog_row_metadata",
    "binlog_row_value_options",
    "binlog_expire_logs_seconds",
    "expire_logs_days",
    "gtid_mode",
    "innodb_native_foreign_keys",
    "require_secure_transport",
    "server_id",
    "server_uuid",
    "transaction_isolation",
    "tx_isolation",
    "max_statement_time",
    "max_execution_time",
)


@dataclass(frozen=True)
class Server:
    """A server's flavor, version and the global variables that matter; a variable it does not have is missing."""

    flavor: Flavor
    version: tuple[int, int]
    variables: Mapping[str, str]
    account: str
    """The account that the user was let in as, quoted for GRANT: 'reader'@'%'."""

    @property
    def status_command(self) -> str:
        """How this server is asked for its binlog position."""
        modern = self.flavor == "mysql" and self.version >= (8, 2)
        return "SHOW BINARY LOG STATUS" if modern else "SHOW MASTER STATUS"

    @property
    def writes_binlog(self) -> bool:
        return self.variables.get("log_bin", "OFF").upper() in ("ON", "1")

    @property
    def logs_cascades(self) -> bool:
        """Whether what foreign keys change by themselves is in the binlog: MySQL 9.6 and later do it above InnoDB."""
        native = self.variables.get("innodb_native_foreign_keys", "OFF").upper()
        return self.flavor == "mysql" and self.version >= (9, 6) and native in ("OFF", "0")

    @property
    def lowers_names(self) -> bool:
        """Whether names of databases and tables have no case."""
        return self.variables.get("lower_case_table_names", "0") != "0"

    @property
    def isolation_variable(self) -> str:
        return "transaction_isolation" if "transaction_isolation" in self.variables else "tx_isolation"

    @property
    def retention_seconds(self) -> float | None:
        """How long the server keeps its binlog; None: until someone purges it."""
        seconds = float(self.variables.get("binlog_expire_logs_seconds") or 0)
        days = float(self.variables.get("expire_logs_days") or 0)
        return seconds or days * 86400 or None


_NO_PAD = re.compile(r"_nopad_|_0900_")
"""In the names of collations that do not pad: MariaDB's, MySQL's."""


@dataclass(frozen=True)
class SourceTable:
    """A table as the server describes it. `rows` is the engine's estimate; `keys` are the columns of the unique indexes
    over whole columns that are never null, PRIMARY first; `virtual`: columns that are computed where they are read,
    with their expressions."""

    kind: str
    engine: str
    rows: int
    columns: tuple[SourceColumn, ...]
    collations: Mapping[str, str | None]
    keys: Mapping[str, tuple[str, ...]]
    create: str
    virtual: Mapping[str, str] = field(default_factory=dict)

    def column(self, name: str) -> SourceColumn | None:
        """The column called `name`; the servers' column names have no case."""
        return next((column for column in self.columns if lowered(column.name) == lowered(name)), None)

    def key_column(self, name: str) -> KeyColumn | None:
        """The column called `name` as one that can be compared with a literal; None where its order and its literals do
        not agree (ENUM sorts by number and compares by name; an index of CHAR has padded texts, which a collation
        without PAD compares as they are, so a text with a character below the blank lies elsewhere)."""
        described = self.column(name)
        kind = _KINDS.get(described.data_type) if described else None
        if described is None or kind is None:
            return None
        collation = self.collations.get(described.name)
        if described.data_type == "char" and _NO_PAD.search(collation or ""):
            return None
        return KeyColumn(name, kind, described.data_type in INTEGERS, described.charset, collation)

    @property
    def snapshot_key(self) -> MysqlKey:
        """What to cut a snapshot by: the primary key (else another key), as far as its columns can be compared."""
        for index, names in self.keys.items():
            columns: list[KeyColumn] = []
            for column in map(self.key_column, names):
                if column is None:
                    break
                columns.append(column)
            if columns:
                return MysqlKey(tuple(columns), index, unique=len(columns) == len(names))
        return MysqlKey()

    @property
    def cascades(self) -> Sequence[str]:
        """Names of the foreign keys by which the server changes rows of this table by itself."""
        return [name for name, _ in _cascading(self.create)]


def _cascading(create: str) -> Sequence[tuple[str, str]]:
    """The foreign keys of a CREATE TABLE by which the server changes rows of the table by itself: the name, and what
    follows FOREIGN KEY (."""
    # information_schema shows foreign keys only to those who may write; SHOW CREATE TABLE shows them to readers.
    # MariaDB does not double a backtick in a constraint's name there, so names are taken as they stand.
    found = re.finditer(r"^\s*CONSTRAINT `(.+?)` FOREIGN KEY \((.*)$", create, re.MULTILINE)
    return [
        (match.group(1).replace("``", "`"), match.group(2))
        for match in found
        if _CHANGING.search(re.sub(r"`[^`]*`", "", match.group(2)))
    ]


_CHANGING = re.compile(r"ON (?:DELETE|UPDATE) (?:CASCADE|SET NULL|SET DEFAULT)")
_REFERENCES = re.compile(r"(?:`(?:[^`]|``)+`(?:, )?)+\) REFERENCES (?:`((?:[^`]|``)+)`\.)?`((?:[^`]|``)+)` \(")


def read_cascades(cursor: Cursor, database: str, table: str) -> Cascades:
    """What foreign keys change of a table by themselves."""
    names: list[str] = []
    parents: set[tuple[str, str]] = set()
    waiting = [(database, table)]
    while waiting:
        child = waiting.pop()
        try:
            definition = _definition(cursor, *child)
        except pymysql.err.MySQLError as error:
            if code_and_text(error)[0] not in GONE:
                raise
            definition = ""
        if not definition:
            return Cascades(tuple(names), None)
        found = _cascading(definition)
        names = names or [name for name, _ in found]
        for _, rule in found:
            parent = _REFERENCES.match(rule)
            if parent is None:
                return Cascades(tuple(names), None)
            place, name = (part.replace("``", "`") if part else child[0] for part in parent.groups())
            if (place, name) not in parents:
                parents.add((place, name))
                waiting.append((place, name))
    return Cascades(tuple(names), frozenset(parents))


def read_server(cursor: Cursor) -> Server:
    """The server's own facts."""
    cursor.execute("SELECT VERSION(), CURRENT_USER()")
    version, account = cursor.fetchone() or ("", "")
    names = ", ".join(f"'{name}'" for name in _VARIABLES)
    cursor.execute(f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({names})")
    variables = {name.lower(): value for name, value in cursor.fetchall()}
    major, minor = [*re.findall(r"\d+", version), "0", "0"][:2]
    user, _, host = account.rpartition("@")
    return Server(
        flavor="mariadb" if "mariadb" in version.lower() else "mysql",
        version=(int(major), int(minor)),
        variables=variables,
        account=f"{quoted_string(user)}@{quoted_string(host)}",
    )


def read_table(cursor: Cursor, database: str, table: str) -> SourceTable | None:
    """The table's facts; None if the user sees no such table."""
    cursor.execute(
        "SELECT TABLE_TYPE, ENGINE, TABLE_ROWS FROM information_schema.TABLES"
        " WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s",
        (database, table),
    )
    found = cursor.fetchone()
    if found is None:
        return None
    kind, engine, rows = found
    columns = read_columns(cursor, database, table)
    cursor.execute(
        "SELECT COLUMN_NAME, COLLATION_NAME, EXTRA, GENERATION_EXPRESSION FROM information_schema.COLUMNS"
        " WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s",
        (database, table),
    )
    described = cursor.fetchall()
    collations = {name: collation for name, collation, *_ in described}
    virtual = {name: str(given) for name, _, extra, given in described if "VIRTUAL" in (extra or "").upper()}
    return SourceTable(
        kind=kind,
        engine=engine or "",
        rows=int(rows or 0),
        columns=columns,
        collations=collations,
        keys=_keys(cursor, database, table),
        create=_definition(cursor, database, table) if kind == "BASE TABLE" else "",
        virtual=virtual,
    )


def _keys(cursor: Cursor, database: str, table: str) -> Mapping[str, tuple[str, ...]]:
    """`SourceTable.keys`."""
    cursor.execute(
        "SELECT INDEX_NAME, COLUMN_NAME, SUB_PART, NULLABLE FROM information_schema.STATISTICS"
        " WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s AND NON_UNIQUE = 0"
        " ORDER BY INDEX_NAME <> 'PRIMARY', INDEX_NAME, SEQ_IN_INDEX",
        (database, table),
    )
    keys: dict[str, tuple[str, ...]] = {}
    partial = set()
    for index, name, prefix, nullable in cursor.fetchall():
        keys[index] = (*keys.get(index, ()), name)
        # An index over an expression (MySQL 8) has no column name.
        if name is None or prefix is not None or nullable == "YES":
            partial.add(index)
    return {index: names for index, names in keys.items() if index not in partial}


def _definition(cursor: Cursor, database: str, table: str) -> str:
    """The CREATE TABLE of a table; empty where the user may not see it, which the preflight then reports."""
    try:
        cursor.execute(f"SHOW CREATE TABLE {quoted(database)}.{quoted(table)}")
    except pymysql.err.MySQLError as error:
        if code_and_text(error)[0] not in DENIED:
            raise
        return ""
    return str((cursor.fetchone() or ("", ""))[1])


def read_columns(cursor: Cursor, database: str, table: str) -> tuple[SourceColumn, ...]:
    """The columns that the table has now, in their order; none for a table that is not there."""
    cursor.execute(
        "SELECT COLUMN_NAME, DATA_TYPE, COLUMN_TYPE, CHARACTER_SET_NAME, NUMERIC_PRECISION, NUMERIC_SCALE,"
        " DATETIME_PRECISION, CHARACTER_OCTET_LENGTH, IS_NULLABLE, CHARACTER_MAXIMUM_LENGTH,"
        " COALESCE(GENERATION_EXPRESSION, '') <> '', EXTRA"
        " FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s ORDER BY ORDINAL_POSITION",
        (database, table),
    )
    columns = []
    for row in cursor.fetchall():
        name, kind, whole, charset, precision, scale, fraction, length, nullable, characters, generated, extra = row
        columns.append(
            SourceColumn(
                name=name,
                data_type=kind.lower(),
                column_type=whole,
                charset=charset,
                precision=_int(precision),
                scale=_int(scale),
                fraction=_int(fraction),
                length=_int(length),
                nullable=nullable == "YES",
                characters=_int(characters),
                generated=bool(generated),
                auto_increment="auto_increment" in (extra or "").lower(),
            )
        )
    return tuple(columns)


def _int(value: Any) -> int | None:
    return None if value is None else int(value)


def table_names(cursor: Cursor, database: str) -> Sequence[str]:
    """The tables of `database` that the user sees."""
    cursor.execute("SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s", (database,))
    return [row[0] for row in cursor.fetchall()]


def database_names(cursor: Cursor) -> Sequence[str]:
    """The databases that the user sees."""
    cursor.execute("SELECT SCHEMA_NAME FROM information_schema.SCHEMATA")
    return [row[0] for row in cursor.fetchall()]
