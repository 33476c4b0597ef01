"""All that must hold before a table can be read exactly, in one place. Every refusal names what would mend it.

Checks only ask the server; they change nothing. All refusals are reported at once.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pymysql
from pymysql.cursors import Cursor

from tidegate.pipelines.commands import Advised, UnlessLanded, advice, redeclare
from tidegate.pipelines.connectors.table import Table
from tidegate.pipelines.errors import PlanningError, SourceError
from tidegate.pipelines.progress import Progress, SilentProgress
from tidegate.pipelines.sources.mysql_cdc.binlog.model import BinlogPosition
from tidegate.pipelines.sources.mysql_cdc.binlog.rows.columns.texts import SUPPORTED
from tidegate.pipelines.sources.mysql_cdc.catalog import (
    Server,
    SourceTable,
    database_names,
    read_server,
    read_table,
    table_names,
)
from tidegate.pipelines.sources.mysql_cdc.connection import Client, execute_once_unlocked
from tidegate.pipelines.sources.mysql_cdc.errors import DENIED, GONE, BinlogPurged, BinlogRefused, code_and_text
from tidegate.pipelines.sources.mysql_cdc.log import birth
from tidegate.pipelines.sources.mysql_cdc.names import lowered
from tidegate.pipelines.sources.mysql_cdc.options import MysqlOptions
from tidegate.pipelines.sources.mysql_cdc.virtual import session_dependent
from tidegate.pipelines.sources.mysql_cdc.widening import unfit
from tidegate.pipelines.syntax.types import quoted

LEAST_RETENTION_SECONDS = 3600
"""A binlog that is purged sooner may be gone before a snapshot is read or a run comes again."""

OLDEST = "MariaDB 10.5 or MySQL 8"
"""Servers before these do not log the columns' names."""

_ZONES_WITHOUT_CHANGES = frozenset({"UTC", "GMT", "UCT", "Zulu", "Universal", "Greenwich"})


@dataclass(frozen=True)
class Refusal:
    """Why the table cannot be read exactly, and the statement (or edit) that mends it."""

    what: str
    fix: Advised


@dataclass(frozen=True)
class Checked:
    """What preflight found: the server and the table, both fit to be read; `notes` are for people, those `of_keys` once
    for each lake."""

    server: Server
    table: SourceTable
    notes: tuple[str, ...] = ()
    of_keys: tuple[str, ...] = ()


def preflight(
    cursor: Cursor,
    options: MysqlOptions,
    declared: Table,
    followed: Collection[str] = frozenset(),
    progress: Progress | None = None,
    *,
    begins: bool = True,
) -> Checked:
    """Check the server, the grants and the table. Raises SourceError that lists every refusal with its fix.

    `followed`: columns that were there when the generation began. The log says what became of one that is gone.
    `begins`: the generation does so now. Later the log says which tables an XA transaction changes.
    `progress` says when a lock on the table is waited for.
    """
    progress = progress or SilentProgress()
    server = read_server(cursor)
    refusals = [*check_settings(server), *check_encryption(server, options)]
    if server.writes_binlog:
        refusals += [
            *check_grants(cursor, server, options, declared, progress),
            *check_binlog_filter(cursor, server, options),
        ]
    if begins and options.startup.phases:
        refusals += check_prepared(cursor)
    table = read_table(cursor, options.database, options.table)
    if table is None:
        if not refusals:
            refusals.append(_missing_table(cursor, options))
    else:
        refusals += check_definition(table, server, options)
        refusals += check_source_table(table, server, options)
        refusals += check_columns(table, declared, followed)
        refusals += check_virtual(table, declared)
        refusals += check_charsets(table, options, declared)
        refusals += check_key(table, options, declared)
        refusals += check_key_types(table, options, declared)
    if refusals or table is None:
        raise refused(refusals, options)
    notes = encryption_notes(cursor.connection, options)
    return Checked(server, table, tuple(notes), tuple(collation_notes(table, server, declared)))


def refused(refusals: Sequence[Refusal], options: MysqlOptions) -> SourceError:
    """One error with all problems."""
    if len(refusals) == 1:
        what = refusals[0].what
    else:
        listed = "\n".join(f"  {number}. {refusal.what}" for number, refusal in enumerate(refusals, 1))
        what = f"{len(refusals)} things keep {options.database}.{options.table} from being read exactly:\n{listed}"
    first, *others = dict.fromkeys(refusal.fix for refusal in refusals)
    fixes = advice(first, *(part for fix in others for part in ("\n         ", fix)))
    return SourceError(what, where=options.where, state="nothing was read", next_command=fixes)


def check_settings(server: Server) -> Iterator[Refusal]:
    """How the server writes its binlog."""
    variables = server.variables
    if not server.writes_binlog:
        yield Refusal(
            "the server writes no binlog (log_bin = OFF)",
            "in the server's configuration: [mysqld] log_bin = binlog, server_id = 1; then restart it",
        )
        return
    wanted = {"binlog_format": "ROW", "binlog_row_image": "FULL", "binlog_row_metadata": "FULL"}
    for name, value in wanted.items():
        found = variables.get(name)
        if found is None:
            yield Refusal(f"the server has no {name}, so it is too old", f"use {OLDEST}, or a later one")
        elif found.upper() != value:
            why = {
                "binlog_format": "changes come as statements, not as rows",
                "binlog_row_image": "changes come without all of their columns",
                "binlog_row_metadata": "changes come without the columns' names and signs",
            }[name]
            yield Refusal(
                f"{name} is {found}: {why}",
                f"SET GLOBAL {name} = '{value}';   -- and in [mysqld]; sessions that are open keep theirs",
            )
    if variables.get("binlog_row_value_options"):
        yield Refusal(
            f"binlog_row_value_options is {variables['binlog_row_value_options']}: JSON changes come in part only",
            "SET GLOBAL binlog_row_value_options = '';",
        )
    if server.flavor == "mysql" and variables.get("gtid_mode", "OFF").upper() != "ON":
        yield Refusal(
            f"gtid_mode is {variables.get('gtid_mode', 'OFF')}: without it MySQL does not say where a snapshot stands",
            "SET GLOBAL gtid_mode = ON;   -- after enforce_gtid_consistency, by way of OFF_PERMISSIVE, ON_PERMISSIVE",
        )
    retention = server.retention_seconds
    if retention is not None and retention < LEAST_RETENTION_SECONDS:
        yield Refusal(
            f"the binlog is purged after {retention:.0f} s, which may be before it is read",
            "SET GLOBAL binlog_expire_logs_seconds = 259200;   -- three days",
        )


def check_encryption(server: Server, options: MysqlOptions) -> Iterator[Refusal]:
    """Whether the server accepts encrypted connections only, and the script does not ask for one."""
    if server.variables.get("require_secure_transport", "OFF").upper() == "ON" and not options.server.tls_ca:
        yield Refusal(
            "the server lets in encrypted connections only (require_secure_transport)",
            "add 'jdbc.properties.sslMode' = 'verify-full', 'jdbc.properties.serverSslCert' = '…/ca.pem' to the script",
        )


def encryption_notes(connection: object, options: MysqlOptions) -> Iterator[str]:
    """A connection over a network that anyone on its way can read, or answer in the server's place."""
    if options.server.tls_ca or not isinstance(connection, Client) or connection.on_this_machine:
        return
    how = "encrypted, and nobody checks that it is the server who answers" if connection.encrypted else "not encrypted"
    yield (
        f"{options.where}: the connection to another machine is {how}: whoever is on its way can read the rows or "
        "change them. Add 'jdbc.properties.sslMode' = 'verify-full', 'jdbc.properties.serverSslCert' = '…/ca.pem' to "
        "the script"
    )


def check_grants(
    cursor: Cursor, server: Server, options: MysqlOptions, declared: Table, progress: Progress
) -> Iterator[Refusal]:
    """What the user may do, found out by doing it."""
    table = options.quoted
    names = [quoted(column.name) for column in declared.message_columns] or ["1"]
    any_row = f"SELECT {', '.join(names)} FROM {table} LIMIT 0"  # noqa: S608 quoted identifiers
    _, denied = _asked(cursor, any_row, lambda asked: execute_once_unlocked(cursor, asked, declared.name, progress))
    if denied:
        yield Refusal(f"the user may not read the table: {denied}", f"GRANT SELECT ON {table} TO {server.account};")
    _, denied = _asked(cursor, server.status_command)
    if denied:
        grant = f"GRANT REPLICATION CLIENT ON *.* TO {server.account};"
        yield Refusal(f"the user may not ask for the binlog's position: {denied}", grant)
    if denied := _dump_denied(options):
        grant = f"GRANT REPLICATION SLAVE ON *.* TO {server.account};"
        yield Refusal(f"the user may not read the binlog: {denied}", grant)


def check_definition(table: SourceTable, server: Server, options: MysqlOptions) -> Iterator[Refusal]:
    """That the user may see more of the table than the columns that are granted one by one."""
    if table.kind == "BASE TABLE" and not table.create:
        yield Refusal(
            "the user may read columns of the table, and not how it is defined",
            f"GRANT SELECT ON {options.quoted} TO {server.account};",
        )


def _asked(
    cursor: Cursor, statement: str, execute: Callable[[str], object] | None = None
) -> tuple[Sequence[Sequence[Any]], str | None]:
    """The rows of a query, by `execute`; and what the server says if the user may not ask it, which gives no
    rows. Nor does what is not there at all: other checks report that."""
    try:
        (execute or cursor.execute)(statement)
        return cursor.fetchall(), None
    except pymysql.err.MySQLError as error:
        code, message = code_and_text(error)
        if code in DENIED:
            return (), message
        if code not in GONE:
            raise
    return (), None


def _dump_denied(options: MysqlOptions) -> str | None:
    """What the server says if the user may not read the binlog: asked for a file that is not there, it judges the user
    first."""
    try:
        birth(options.server, BinlogPosition("-"))
    except BinlogRefused as error:
        return code_and_text(error.__cause__ or error)[1]
    except BinlogPurged:
        pass
    return None


def check_binlog_filter(cursor: Cursor, server: Server, options: MysqlOptions) -> Iterator[Refusal]:
    """Whether the server leaves this database out of its binlog."""
    rows, _ = _asked(cursor, server.status_command)  # check_grants reports a user who may not ask
    only, ignored = map(_list, rows[0][2:4]) if rows else ([], [])
    if (only and options.database not in only) or options.database in ignored:
        yield Refusal(
            f"the server leaves the database {options.database} out of its binlog (binlog_do_db, binlog_ignore_db)",
            "take the filter out of the server's configuration, then restart it",
        )


def prepared(cursor: Cursor) -> int | None:
    """How many prepared XA transactions are open; None where the user may not ask (MySQL's XA_RECOVER_ADMIN may)."""
    found, denied = _asked(cursor, "XA RECOVER")
    return None if denied else len(found)


def check_prepared(cursor: Cursor) -> Iterator[Refusal]:
    """That no prepared XA transaction is open: its changes are in the log already, and in no read view yet."""
    yield from refusal_of_prepared(prepared(cursor))


def refusal_of_prepared(count: int | None) -> Iterator[Refusal]:
    """`check_prepared`, where so many are."""
    if count:
        yield Refusal(
            f"{count} prepared XA transactions are open: no snapshot can know on which side of it they are",
            "XA RECOVER;   -- then XA COMMIT or XA ROLLBACK each of them",
        )


def _list(text: str | None) -> list[str]:
    return [name.strip() for name in (text or "").split(",") if name.strip()]


def check_source_table(table: SourceTable, server: Server, options: MysqlOptions) -> Iterator[Refusal]:
    """What kind of table it is."""
    name = options.quoted
    if table.kind == "SYSTEM VERSIONED":
        yield Refusal(
            f"{name} is system-versioned: its deletes come as updates",
            f"ALTER TABLE {name} DROP SYSTEM VERSIONING;   -- this drops its history",
        )
    elif table.kind != "BASE TABLE":
        yield Refusal(
            f"{name} is a {table.kind.lower()}, whose changes are not in the binlog", "name the table that it reads"
        )
        return
    if options.startup.phases and table.engine.lower() != "innodb":
        yield Refusal(
            f"the table's engine is {table.engine}: only InnoDB gives a consistent snapshot",
            f"ALTER TABLE {name} ENGINE = InnoDB;",
        )
    for constraint in () if server.logs_cascades else table.cascades:
        yield Refusal(
            f"the foreign key {constraint} changes rows of {name} by itself (CASCADE, SET NULL), "
            "and such changes are not in the binlog",
            f"ALTER TABLE {name} DROP FOREIGN KEY {quoted(constraint)};   -- or define it again with NO ACTION",
        )


def check_columns(table: SourceTable, declared: Table, followed: Collection[str]) -> Iterator[Refusal]:
    """That every declared column is there, or was, and that its type can hold what comes."""
    for column in declared.message_columns:
        found = table.column(column.name)
        if found is None:
            if column.name in followed:
                continue
            names = [known.name for known in table.columns]
            yield Refusal(
                f"the table has no column {column.name}{_did_you_mean(column.name, names)}",
                redeclare(f"edit the CREATE TABLE of {declared.name}; the table has {', '.join(names)}"),
            )
            continue
        try:
            reason = unfit(found, column)
        except PlanningError as error:
            yield Refusal(error.what, error.advice)
            continue
        if reason:
            yield Refusal(
                f"column {column.name} is {column.type} in the script and {found.column_type} in the table: {reason}",
                redeclare(f"edit the type of {column.name} in the CREATE TABLE of {declared.name}"),
            )


def check_virtual(table: SourceTable, declared: Table) -> Iterator[Refusal]:
    """That no declared column is computed anew by each session that reads it."""
    names = {lowered(column.source_name) for column in declared.message_columns}
    for name, why in session_dependent(table).items():
        if lowered(name) in names:
            yield Refusal(
                f"{name} is VIRTUAL and {why}, so each session that reads it may see another value: the log has that of"
                " the session that wrote",
                redeclare(f"leave {name} out of the CREATE TABLE of {declared.name}, and compute it in the script"),
            )


def check_charsets(table: SourceTable, options: MysqlOptions, declared: Table) -> Iterator[Refusal]:
    """That text can be decoded: in the log it is in the column's character set, and no server converts it."""
    for column in declared.message_columns:
        found = table.column(column.name)
        if found is None:
            continue
        if found.data_type in ("enum", "set") and found.charset in (None, "binary"):
            yield Refusal(
                f"{column.name} is {found.column_type} in the character set binary, which cannot be read from a log",
                f"ALTER TABLE {options.quoted} MODIFY {quoted(column.name)} {found.column_type} CHARACTER SET utf8mb4;"
                + UnlessLanded(f"   -- or leave it out of the CREATE TABLE of {declared.name}", advice()),
            )
        elif found.charset not in {None, "binary", *SUPPORTED}:
            yield Refusal(
                f"{column.name} is text in the character set {found.charset}, which cannot be read from a log",
                f"ALTER TABLE {options.quoted} CONVERT TO CHARACTER SET utf8mb4;"
                + UnlessLanded(f"   -- or leave it out of the CREATE TABLE of {declared.name}", advice()),
            )


def check_key(table: SourceTable, options: MysqlOptions, declared: Table) -> Iterator[Refusal]:
    """That the declared primary key is a key of the table."""
    if not declared.primary_key or table.kind == "VIEW":
        return
    wanted = {name.lower() for name in declared.primary_key}
    keys = [{name.lower() for name in names} for names in table.keys.values()]
    if wanted in keys:
        return
    columns = ", ".join(declared.primary_key)
    if keys:
        real = ", ".join(next(iter(table.keys.values())))
        yield Refusal(
            f"({columns}) is declared as the primary key, and the table's key is ({real})",
            redeclare(f"declare PRIMARY KEY ({real}) NOT ENFORCED in the CREATE TABLE of {declared.name}"),
        )
    else:
        yield Refusal(
            f"({columns}) is declared as the primary key, and the table has no key at all",
            f"ALTER TABLE {options.quoted} ADD PRIMARY KEY ({', '.join(map(quoted, declared.primary_key))});",
        )


def check_key_types(table: SourceTable, options: MysqlOptions, declared: Table) -> Iterator[Refusal]:
    """That no two keys of the table become one in the declared types."""
    for column in declared.physical_columns:
        found = table.column(column.name)
        if column.name not in declared.primary_key or found is None:
            continue
        try:
            have = found.canonical
        except PlanningError:
            continue  # check_columns reports it
        types = f"the key column {column.name} is {found.column_type} in the table and {column.type} in the script:"
        moved = {have.spark, column.spark_type} == {"TIMESTAMP", "TIMESTAMP_NTZ"}
        if moved and options.time_zone not in _ZONES_WITHOUT_CHANGES and not options.time_zone.startswith("Etc/"):
            digits = max(3, found.fraction or 0)
            right = f"TIMESTAMP_LTZ({digits})" if have.spark == "TIMESTAMP" else f"TIMESTAMP({digits})"
            yield Refusal(
                f"{types} where the clocks of {options.time_zone} change, two keys of the table would be one",
                redeclare(f"declare {column.name} as {right} in the CREATE TABLE of {declared.name}"),
            )
        elif have.spark == "TINYINT" and column.spark_type == "BOOLEAN":
            yield Refusal(
                f"{types} all numbers but 0 would be one key",
                redeclare(f"declare {column.name} as TINYINT in the CREATE TABLE of {declared.name}"),
            )


def collation_notes(table: SourceTable, server: Server, declared: Table) -> Iterator[str]:
    """What a person should know of text keys that the server compares otherwise than byte by byte."""
    for name in declared.primary_key:
        found = table.column(name)
        collation = table.collations.get(found.name) if found else None
        if found is None or not collation or collation == "binary" or collation.endswith(("_nopad_bin", "_0900_bin")):
            continue
        blanks = "blanks at the end"
        if not collation.endswith("_bin"):
            blanks = "case, accents or blanks at the end"
        elif found.data_type == "char":  # comes without them
            continue
        exact = f"{found.charset}_nopad_bin" if server.flavor == "mariadb" else "utf8mb4_0900_bin"
        yield (
            f"{declared.name}: the server compares the key column {name} by {collation}, so texts that differ in"
            f" {blanks} are one key there. Here they are not equal: a probe row finds a row only by the very text that"
            f" the table has. Write both alike in the join, or ALTER the column to COLLATE {exact}"
        )


def _missing_table(cursor: Cursor, options: MysqlOptions) -> Refusal:
    databases = database_names(cursor)
    if options.database not in databases:
        hint = _did_you_mean(options.database, databases)
        return Refusal(
            f"the server has no database {options.database}{hint}", redeclare("edit 'database-name' in the script")
        )
    hint = _did_you_mean(options.table, table_names(cursor, options.database))
    return Refusal(
        f"the database {options.database} has no table {options.table}{hint}",
        redeclare("edit 'table-name' in the script"),
    )


def _did_you_mean(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"; did you mean {close[0]}?" if close else ""
