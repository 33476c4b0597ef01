"""The WITH options of `mysql-cdc`, named as flink-cdc names them, and what they mean."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, cast, get_args
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from tidegate.pipelines.connectors.options import field_option, misnamed_fields, misplaced
from tidegate.pipelines.connectors.spec import SOURCE_COLUMNS, OptionSpec
from tidegate.pipelines.connectors.table import Table
from tidegate.pipelines.errors import PlanningError
from tidegate.pipelines.syntax.durations import parse_duration
from tidegate.pipelines.syntax.types import folded, quoted

if TYPE_CHECKING:
    from tidegate.pipelines.sources.mysql_cdc.connection import ServerOptions

StartupMode = Literal["initial", "snapshot", "latest-offset", "specific-offset", "timestamp"]
MODES: tuple[str, ...] = get_args(StartupMode)
SNAPSHOT_MODES = ("initial", "snapshot")
"""Those in which a bounded phase, the snapshot, comes first."""
JDBC_PREFIX = "jdbc.properties."

DEFAULT_CHUNK_ROWS = 100_000
"""Each chunk costs a connection, a read view and a file. Measured when JDBC read the chunks and each had a task, on two
cores, 1M rows of seven columns: 6.4 to 7.0 s in chunks of 8,096 rows (flink-cdc's default), 4.2 s of 20,000, 2.8 s of
50,000, 2.4 s of 100,000, 2.1 s of 500,000. Memory does not depend on it, rows are streamed."""

ANSWER_TIMEOUT_S = 900.0
"""How long a reader of a snapshot waits for the server, which may have to look for the first row."""

OPTIONS: tuple[OptionSpec, ...] = (
    OptionSpec("hostname", required=True, doc="The server's host name or address.", changes="identity"),
    # Another port goes on: the source itself holds the server against the birth of its binlog.
    OptionSpec("port", "integer", default="3306", doc="The server's TCP port.", changes="neither"),
    OptionSpec(
        "username",
        required=True,
        doc="A user with SELECT, REPLICATION SLAVE and REPLICATION CLIENT.",
        changes="neither",
    ),
    OptionSpec(
        "password",
        required=True,
        doc="The user's password. Write ${VARIABLE} to keep it out of the script.",
        changes="neither",
    ),
    OptionSpec("database-name", required=True, doc="The database: one name, not a pattern.", changes="identity"),
    OptionSpec("table-name", required=True, doc="The table: one name, not a pattern.", changes="identity"),
    OptionSpec(
        "server-id",
        doc="The id or ids that binlog connections show to the server: '5400' or '5400-5408'. Default: they show none.",
        changes="neither",
    ),
    OptionSpec(
        "server-time-zone",
        default="UTC",
        doc="The time zone that turns a TIMESTAMP of the server into a local time of the script, or a DATETIME into an "
        "instant.",
        changes="rows",
    ),
    OptionSpec(
        "scan.startup.mode",
        "choice",
        default="initial",
        choices=MODES,
        doc="initial: the snapshot, then the binlog. snapshot: up to the end of the snapshot. The others: only the "
        "binlog.",
        changes="start",
    ),
    OptionSpec(
        "scan.startup.specific-offset.file", doc="For specific-offset: the binlog file to begin in.", changes="start"
    ),
    OptionSpec(
        "scan.startup.specific-offset.pos",
        "integer",
        doc="For specific-offset: the position of a transaction's first byte in that file.",
        changes="start",
    ),
    OptionSpec(
        "scan.startup.timestamp-millis",
        "integer",
        doc="For timestamp: the first commit time that is read (ms, UTC).",
        changes="start",
    ),
    OptionSpec(
        "scan.incremental.snapshot.chunk.size",
        "integer",
        default=str(DEFAULT_CHUNK_ROWS),
        doc="About how many rows one snapshot chunk has. One query in one read view reads a chunk.",
        changes="neither",
    ),
    OptionSpec(
        "connect.timeout",
        "duration",
        default="30 s",
        doc="How long it may take to connect.",
        changes="neither",
    ),
    OptionSpec(
        f"{JDBC_PREFIX}*",
        doc="Accepted for scripts of flink-cdc. sslMode and serverSslCert hold for all connections; sessionVariables, "
        "connectTimeout and socketTimeout hold for connections that read a snapshot. See docs/mysql-cdc.md.",
        changes="neither",
    ),
    OptionSpec(
        f"{JDBC_PREFIX}sessionVariables",
        doc="The variables that are SET in each session that reads a snapshot: 'a=1,b=2'.",
        changes="rows",
    ),
)


@dataclass(frozen=True)
class Startup:
    """scan.startup.mode and what belongs to it; `timestamp` in ms, UTC."""

    mode: StartupMode = "initial"
    file: str | None = None
    position: int | None = None
    timestamp: int | None = None

    @property
    def phases(self) -> bool:
        """Whether a bounded phase, the snapshot, comes first."""
        return self.mode in SNAPSHOT_MODES

    def to_options(self) -> dict[str, str]:
        """The WITH options that say so."""
        given = (self.mode, self.file, self.position, self.timestamp)
        names = ("mode", "specific-offset.file", "specific-offset.pos", "timestamp-millis")
        found = zip(names, given, strict=True)
        return {f"scan.startup.{name}": str(value) for name, value in found if value is not None}


@dataclass(frozen=True)
class MysqlOptions:
    """The options of one table, resolved and parsed.

    `snapshot_server`: as `server`, for connections that read a snapshot. `session_variables` of these are as SET takes
    them ("a=1,b=2"), and may be secret.
    """

    server: ServerOptions
    snapshot_server: ServerOptions
    database: str
    table: str
    startup: Startup
    time_zone: str
    chunk_rows: int
    session_variables: str = field(repr=False)

    @property
    def quoted(self) -> str:
        """The table in the server's SQL."""
        return f"{quoted(self.database)}.{quoted(self.table)}"

    @property
    def where(self) -> str:
        """`database.table on host:port`, for people."""
        return f"{self.database}.{self.table} on {self.server.where}"


def parse(options: Mapping[str, str], where: str = "WITH options") -> MysqlOptions:
    """The options with real values. Raises PlanningError that names the first one which cannot be."""
    # What reads the binlog needs Spark; a script that is only compiled should not wait for it.
    from tidegate.pipelines.sources.mysql_cdc.connection import ServerOptions

    problems = check_options(options)
    if problems:
        raise PlanningError(problems[0], where=where, state="nothing was run", next_command="edit the script")
    values = {spec.name: spec.default for spec in OPTIONS if spec.default is not None} | dict(options)
    jdbc = {key.removeprefix(JDBC_PREFIX): value for key, value in options.items() if key.startswith(JDBC_PREFIX)}
    server = ServerOptions(
        hostname=values["hostname"],
        port=int(values["port"]),
        username=values["username"],
        password=values["password"],
        server_ids=_server_ids(values.get("server-id", "")),
        connect_timeout=parse_duration(values["connect.timeout"]).total_seconds(),
        tls_ca=jdbc.get("serverSslCert"),
        tls_identity=jdbc.get("sslMode", "").lower() in _NAMED_TLS,
    )
    return MysqlOptions(
        server=server,
        snapshot_server=replace(
            server,
            connect_timeout=_seconds(jdbc.get("connectTimeout")) or server.connect_timeout,
            read_timeout=_seconds(jdbc.get("socketTimeout")) or ANSWER_TIMEOUT_S,
        ),
        database=values["database-name"],
        table=values["table-name"],
        startup=_startup(values),
        time_zone=values["server-time-zone"],
        chunk_rows=int(values["scan.incremental.snapshot.chunk.size"]),
        session_variables=jdbc.get("sessionVariables", ""),
    )


def _seconds(milliseconds: str | None) -> float:
    """A JDBC driver's time limit, where 0 is none."""
    return int(milliseconds or 0) / 1000


def check_table(table: Table) -> Sequence[str]:
    """What is wrong with a table of this connector, as far as the script alone shows."""
    problems = list(check_options(table.options))
    if table.role == "probe":
        problems.append(
            "a mysql-cdc table can be the build side of a temporal join, not the probe side: its changes come again "
            "where snapshot and binlog overlap, which a changelog absorbs and a probe side would not"
        )
    for column in table.columns:
        if column.metadata is not None and column.metadata not in METADATA:
            known = ", ".join(sorted(METADATA))
            problems.append(f"mysql-cdc has no metadata column '{column.metadata}'; it has {known}")
    problems += misnamed_fields(table.message_columns, by=table.connector)
    for column in table.message_columns:
        if folded(column.source_name) in SOURCE_COLUMNS:
            problems.append(
                f"'{field_option(column.name)}' = '{column.source_name}': rows carry a column of that name of their "
                "own, so the server's cannot be read: a generated column of another name can"
            )
    return problems


METADATA: Mapping[str, str] = {
    "database_name": "STRING",
    "table_name": "STRING",
    "op_ts": "TIMESTAMP_LTZ(6)",
}
"""METADATA keys and their types: flink-cdc's, whose op_ts has milliseconds. It is null in snapshot rows."""


def check_options(options: Mapping[str, str]) -> Sequence[str]:
    """What is wrong with the options; values that hold `${…}` are taken to be right."""
    known = {key: value for key, value in options.items() if "${" not in value}
    problems = []
    for key, rule in _RULES.items():
        if key in known and (wrong := rule(known[key])):
            problems.append(f"'{key}' = '{known[key]}': {wrong}")
    problems += misplaced(options, "scan.startup.mode", "initial", _BELONG)
    problems += _tls_problems(known)
    problems += [wrong for key in options if key.startswith(JDBC_PREFIX) and (wrong := _unread(key))]
    return problems


_BELONG = {
    "specific-offset": ("scan.startup.specific-offset.file", "scan.startup.specific-offset.pos"),
    "timestamp": ("scan.startup.timestamp-millis",),
}


def _startup(values: Mapping[str, str]) -> Startup:
    position = values.get("scan.startup.specific-offset.pos")
    millis = values.get("scan.startup.timestamp-millis")
    return Startup(
        mode=cast(StartupMode, values["scan.startup.mode"]),
        file=values.get("scan.startup.specific-offset.file"),
        position=int(position) if position else None,
        timestamp=int(millis) if millis else None,
    )


def _server_ids(text: str) -> tuple[int, ...]:
    if not text:
        return ()
    first, _, last = text.partition("-")
    return tuple(range(int(first), int(last or first) + 1))


def _whole(least: int, greatest: int) -> object:
    def rule(value: str) -> str | None:
        right = value.strip().lstrip("-").isdecimal() and least <= int(value) <= greatest
        return None if right else f"a whole number from {least} to {greatest} is wanted"

    return rule


def _plain_name(value: str) -> str | None:
    if re.search(r"[*|()\[\]\\^$+?]", value):
        return "one table is read by one CREATE TABLE: write its plain name, not a pattern"
    return None if value.strip() else "a name is wanted"


def _zone(value: str) -> str | None:
    try:
        ZoneInfo(value)
    except (ZoneInfoNotFoundError, ValueError):
        if not re.fullmatch(r"[+-]\d\d:\d\d", value):
            return "no such time zone; write a name like 'Europe/Berlin', or '+02:00'"
    return None


def _duration(value: str) -> str | None:
    try:
        parse_duration(value)
    except ValueError as error:
        return str(error)
    return None


def _ids(value: str) -> str | None:
    found = re.fullmatch(r"(\d+)(?:-(\d+))?", value)
    if found and 0 < int(found.group(1)) <= int(found.group(2) or found.group(1)) < 2**32:
        return None
    return "an id like '5400', or a range like '5400-5408', is wanted"


def _one_of_modes(value: str) -> str | None:
    return None if value in MODES else f"one of {', '.join(MODES)} is wanted"


def _no_tls(value: str) -> str | None:
    wanted = f"write '{JDBC_PREFIX}sslMode' = 'verify-full' and '{JDBC_PREFIX}serverSslCert'"
    return None if value.strip().lower() == "false" else wanted


_RULES = {
    "port": _whole(1, 65535),
    "database-name": _plain_name,
    "table-name": _plain_name,
    "server-id": _ids,
    "server-time-zone": _zone,
    "scan.startup.mode": _one_of_modes,
    "scan.startup.specific-offset.pos": _whole(4, 2**63 - 1),
    "scan.startup.timestamp-millis": _whole(0, 2**63 - 1),
    "scan.incremental.snapshot.chunk.size": _whole(1, 2**31 - 1),
    "connect.timeout": _duration,
    f"{JDBC_PREFIX}connectTimeout": _whole(0, 2**31 - 1),
    f"{JDBC_PREFIX}socketTimeout": _whole(0, 2**31 - 1),
    f"{JDBC_PREFIX}useSSL": _no_tls,
}

_READ = ("sslMode", "serverSslCert", "sessionVariables", "connectTimeout", "socketTimeout")
_NEEDLESS = frozenset(
    {
        "useSSL",
        "allowPublicKeyRetrieval",
        "characterEncoding",
        "connectionTimeZone",
        "fetchsize",
        "rewriteBatchedStatements",
        "serverTimezone",
        "tinyInt1isBit",
        "useCursorFetch",
        "useServerPrepStmts",
        "useUnicode",
        "zeroDateTimeBehavior",
    }
)
"""Properties of JDBC drivers that scripts have, and that say how values get into Java: no row depends on them here."""


def _unread(key: str) -> str | None:
    name = key.removeprefix(JDBC_PREFIX)
    if name in _READ or name in _NEEDLESS:
        return None
    return (
        f"'{key}' cannot be followed: a snapshot is read without a JDBC driver. Of the driver's properties "
        f"{', '.join(_READ)} are"
    )


_NAMED_TLS = {"verify-full", "verify_identity"}
_CHECKED_TLS = {"verify-ca", "verify_ca", *_NAMED_TLS}


def _tls_problems(options: Mapping[str, str]) -> list[str]:
    mode = options.get(f"{JDBC_PREFIX}sslMode", "disable").lower()
    certificate = options.get(f"{JDBC_PREFIX}serverSslCert")
    if mode in _CHECKED_TLS:
        return [] if certificate else [f"'{JDBC_PREFIX}sslMode' = '{mode}' needs '{JDBC_PREFIX}serverSslCert' (a file)"]
    if mode not in ("disable", "disabled"):
        return [
            f"'{JDBC_PREFIX}sslMode' = '{mode}': the snapshot and the binlog are read over connections of their own, "
            "which encrypt alike only with 'verify-ca' or 'verify-full' and 'jdbc.properties.serverSslCert'"
        ]
    return [f"'{JDBC_PREFIX}serverSslCert' needs '{JDBC_PREFIX}sslMode' = 'verify-full'"] if certificate else []
