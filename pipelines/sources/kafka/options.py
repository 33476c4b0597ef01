"""The WITH options of `kafka` and `upsert-kafka`, named as Flink names them, and what they mean: which topics are read
from where on; which columns lie in a message's key and which in its value."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, cast, get_args

from tidegate.pipelines.connectors.options import field_option, misplaced, misspelled_pattern
from tidegate.pipelines.connectors.spec import OptionSpec
from tidegate.pipelines.connectors.table import Column, Table
from tidegate.pipelines.errors import PlanningError
from tidegate.pipelines.sources.formats import Wanted, problems
from tidegate.pipelines.syntax.secrets import needs_variables

Kind = Literal["kafka", "upsert-kafka"]

VALUE_FORMATS = ("json", "csv", "raw", "avro", "debezium-json", "canal-json", "changelog-json")
APPEND_FORMATS = ("json", "csv", "raw", "avro")
"""Formats that may be a key, and the value of upsert-kafka: each message is exactly one row."""


METADATA_PREFIX = "value."
"""Prefix of the metadata keys of the value's format, as in Flink, since the key's format might have some too."""

StartupMode = Literal["earliest-offset", "latest-offset", "group-offsets", "timestamp", "specific-offsets"]
MODES: tuple[str, ...] = get_args(StartupMode)
SnapshotEnd = Literal["marker", "offsets"]

PROPERTIES = "properties."
SERVERS = "properties.bootstrap.servers"
GROUP = "properties.group.id"
RESET = "properties.auto.offset.reset"

OWN_PROPERTIES = ("auto.offset.reset", "enable.auto.commit")
"""Properties that a plan decides: accepted, as scripts for Flink have them, and not passed on."""

REFUSED_PROPERTIES = ("key.deserializer", "value.deserializer", "interceptor.classes")
"""Properties that Spark's readers do not let anyone set."""

METADATA: Mapping[str, str] = {
    "topic": "STRING",
    "partition": "INT",
    "offset": "BIGINT",
    "timestamp": "TIMESTAMP_LTZ(3)",
    "timestamp-type": "STRING",
    "headers": "MAP<STRING, BYTES>",
    "key": "BYTES",
}
"""METADATA keys and their types: Flink's, and the message's raw key."""

TOPIC_OPTIONS = (
    OptionSpec("topic", doc="The topic, or several with `;` between them.", changes="identity"),
    OptionSpec(
        "topic-pattern",
        doc="In place of `topic`: a regular expression for a topic's whole name. The next run finds topics that were "
        "added.",
        changes="identity",
    ),
)
CONNECTION_OPTIONS = (
    OptionSpec(SERVERS, required=True, doc="The brokers to ask first, as `host:port,host:port`.", changes="identity"),
    OptionSpec(
        "properties.isolation.level",
        "choice",
        default="read_committed",
        choices=("read_committed", "read_uncommitted"),
        doc="Whether messages of open and of aborted transactions are read.",
        changes="rows",
    ),
    OptionSpec(
        "properties.*",
        doc="Properties of Kafka's Java client, passed on unchanged: TLS (`properties.ssl.*`), SASL "
        "(`properties.sasl.*`), timeouts. Write ${VARIABLE} for secrets.",
        changes="neither",
    ),
)
STARTUP_OPTIONS = (
    OptionSpec(
        "scan.startup.mode",
        "choice",
        default="earliest-offset",
        choices=MODES,
        doc="Where the first step begins. A partition that is added later is read from its first message.",
        changes="start",
    ),
    OptionSpec(
        "scan.startup.timestamp-millis",
        "integer",
        doc="For timestamp: the first record time that is read (ms, UTC).",
        changes="start",
    ),
    OptionSpec(
        "scan.startup.specific-offsets",
        doc="For specific-offsets: `partition:0,offset:42;partition:1,offset:300`. A partition that is not named "
        "begins at its first message.",
        changes="start",
    ),
)
INCLUDE_OPTION = OptionSpec(
    "value.fields-include",
    "choice",
    default="ALL",
    choices=("ALL", "EXCEPT_KEY"),
    doc="ALL: the value has the columns of the key too. EXCEPT_KEY: it has only the others.",
    changes="rows",
)
KEY_FIELD_OPTIONS = (
    OptionSpec(
        "key.fields", doc="With `key.format`: the columns that are in the key, with `;` between them.", changes="rows"
    ),
    OptionSpec(
        "key.fields-prefix",
        doc="A prefix that the key's columns have in the table and not in the message. Needs 'value.fields-include' = "
        "'EXCEPT_KEY'.",
        changes="rows",
    ),
)
SNAPSHOT_OPTION = OptionSpec(
    "scan.snapshot.end",
    "choice",
    default="marker",
    choices=get_args(SnapshotEnd),
    doc="For debezium-json on a build side: the snapshot is over when every partition has been read past the end that "
    "it had at a certain moment. marker: when the message landed that Debezium marks as the last of the snapshot. "
    "offsets: at the first plan; for a table that was empty, or without a snapshot.",
    changes="rows",
)

ORDER_OPTION = OptionSpec(
    "scan.changes.order",
    "choice",
    default="offset",
    choices=("offset", "source"),
    doc="For debezium-json on a build side: what orders the changes of a key. offset: their place in the topic, so a "
    "key must stay in one partition. source: their place in the database's log, which each message names (MySQL and "
    "MariaDB: source.file, pos, row; PostgreSQL: source.lsn), in whichever partition they are. After every epoch a "
    "check makes sure that all places are of one log. It reads the keys and places of the rows that have landed.",
    changes="rows",
)
KEY_CHECK_OPTION = OptionSpec(
    "scan.key-partitions.check",
    "boolean",
    default="true",
    doc="For a build side of several partitions: check after every epoch that no key came in two partitions. The check "
    "uses an index of the keys, stored beside the indexes of joins. Set it to false only if you know that the "
    "producers choose the partition by the key.",
    changes="neither",
)


@dataclass(frozen=True)
class Startup:
    """scan.startup.mode and what belongs to it; `timestamp` in ms, UTC, `offsets` by partition."""

    mode: StartupMode = "earliest-offset"
    timestamp: int | None = None
    offsets: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class KafkaOptions:
    """The options of one table that concern its topics; the formats read their own. `properties` may be secret."""

    topics: tuple[str, ...]
    pattern: str | None
    startup: Startup
    properties: Mapping[str, str] = field(repr=False)

    @property
    def group(self) -> str | None:
        return self.properties.get("group.id")

    @property
    def reset(self) -> str:
        """Where a partition without a committed offset begins; `none` is an error, as in Flink."""
        return self.properties.get("auto.offset.reset", "none")

    @property
    def client(self) -> dict[str, str]:
        """The properties for a client of Kafka's: without those that a plan decides."""
        given = {key: value for key, value in self.properties.items() if key not in OWN_PROPERTIES}
        whole = given.get("default.api.timeout.ms", "")
        if whole.isdecimal() and "request.timeout.ms" not in given:
            # Kafka refuses requests that may take longer than the whole call; their default is half a minute.
            given["request.timeout.ms"] = str(min(int(whole), 30_000))
        return given

    @property
    def where(self) -> str:
        """The topics and the brokers, for people."""
        return f"{self.pattern or ';'.join(self.topics)} on {self.properties['bootstrap.servers']}"


def parse(options: Mapping[str, str], table: str) -> KafkaOptions:
    """The options with real values. Raises PlanningError that names the first one which cannot be."""
    found = check_topics(options) or check_startup(options)
    if found:
        raise PlanningError(
            f"{table}: {found[0]}",
            where=f"WITH options of {table}",
            state="nothing was read",
            next_command="correct the option, and run again",
        )
    timestamp = options.get("scan.startup.timestamp-millis")
    return KafkaOptions(
        topics=topic_names(options.get("topic", "")),
        pattern=options.get("topic-pattern"),
        startup=Startup(
            cast(StartupMode, options.get("scan.startup.mode", "earliest-offset")),
            None if timestamp is None else int(timestamp),
            specific_offsets(options.get("scan.startup.specific-offsets", "")) or {},
        ),
        properties={key.removeprefix(PROPERTIES): text for key, text in options.items() if key.startswith(PROPERTIES)},
    )


def topic_names(text: str) -> tuple[str, ...]:
    """The topics of a `;` list, each once, in the order written."""
    return tuple(dict.fromkeys(name.strip() for name in text.split(";") if name.strip()))


def specific_offsets(text: str) -> dict[int, int] | None:
    """`partition:0,offset:42;…` by partition; None where it is spelled otherwise."""
    found: dict[int, int] = {}
    for part in filter(None, (part.strip() for part in text.split(";"))):
        pair = re.fullmatch(r"partition\s*:\s*(\d+)\s*,\s*offset\s*:\s*(\d+)", part)
        if pair is None or int(pair[1]) in found:
            return None
        found[int(pair[1])] = int(pair[2])
    return found


def check_topics(options: Mapping[str, str]) -> Sequence[str]:
    """What is wrong with the choice of topics; values that hold `${…}` are taken to be right."""
    topics, pattern = options.get("topic"), options.get("topic-pattern")
    if topics is None and pattern is None:
        return ["'topic' is missing: which topic is read?"]
    if topics is not None and pattern is not None:
        return ["'topic' and 'topic-pattern' cannot go together"]
    if topics is not None and not needs_variables(topics):
        wrong = [name for name in topic_names(topics) if not re.fullmatch(r"[A-Za-z0-9._-]{1,249}", name)]
        if wrong:
            return [f"'topic': '{wrong[0]}' is no name of a topic"]
        if not topic_names(topics):
            return ["'topic' names no topic"]
    return misspelled_pattern(options, "topic-pattern")


_BELONG = {
    "timestamp": ("scan.startup.timestamp-millis",),
    "specific-offsets": ("scan.startup.specific-offsets",),
}


def check_startup(options: Mapping[str, str]) -> Sequence[str]:
    """What is wrong with the place to begin at."""
    found = misplaced(options, "scan.startup.mode", "earliest-offset", _BELONG)
    if options.get("scan.startup.mode") == "group-offsets" and GROUP not in options:
        found.append(f"'scan.startup.mode' = 'group-offsets' needs '{GROUP}'")
    offsets = options.get("scan.startup.specific-offsets")
    if offsets is not None and not needs_variables(offsets):
        if not specific_offsets(offsets):
            found.append("'scan.startup.specific-offsets' is written as 'partition:0,offset:42;partition:1,offset:300'")
        elif "topic-pattern" in options or len(topic_names(options.get("topic", ""))) > 1:
            found.append("'scan.startup.specific-offsets' names partitions, so there can be one 'topic' only")
    if (
        RESET in options
        and options[RESET] not in ("earliest", "latest", "none")
        and not needs_variables(options[RESET])
    ):
        found.append(f"'{RESET}' is 'earliest', 'latest' or 'none'")
    return found


@dataclass(frozen=True)
class Part:
    """The key or the value of the messages: its format, what the script calls that (`option`), and what the table wants
    of it: columns as the message names them. A key's format never decides what becomes of a row."""

    format: str
    option: str
    wanted: Wanted

    def problems(self, names: Sequence[str]) -> list[str]:
        """What is wrong with its format. Options are called as the script has them, with their prefix."""
        prefix = self.option.removesuffix("format")
        found = problems(self.format, self.wanted, names=names, option=self.option)
        for plain in self.wanted.options if prefix else ():
            found = [problem.replace(f"'{plain}'", f"'{prefix}{plain}'") for problem in found]
        return found


@dataclass(frozen=True)
class Layout:
    """Where each column is read from. `key` is None where nothing is taken from the key.

    `from_key` are the table's columns that the key decides, each with its name in the key.
    """

    value: Part
    key: Part | None
    from_key: Mapping[str, str]
    upsert: bool

    @property
    def changelog(self) -> bool:
        """Whether a message may be several changes of a row, or its end."""
        return self.value.format not in APPEND_FORMATS


def layout(table: Table, options: Mapping[str, str], kind: Kind) -> Layout:
    """The layout of a table whose options `check` found no fault with."""
    columns = {column.name: column for column in table.message_columns}
    keys = key_columns(table, options, kind)
    except_key = options.get("value.fields-include", "ALL") == "EXCEPT_KEY"

    def part(option: str, columns: Iterable[Column], metadata: tuple[str, ...] = ()) -> Part:
        prefix = option.removesuffix("format")
        plain = {key.removeprefix(prefix): text for key, text in options.items() if key.startswith(prefix)}
        wants = Wanted(tuple(columns), plain, table.role, table.primary_key, metadata)
        return Part(options.get(option, ""), option, wants)

    valued = [column for column in columns.values() if not (except_key and column.name in keys)]
    metadata = tuple(key for column in table.physical_columns if (key := format_key(column)) is not None)
    value = part("format" if "format" in options else "value.format", valued, metadata)
    upsert = kind == "upsert-kafka"
    # Where the value has the key's columns too it decides, as in Flink; but a tombstone has nothing but its key.
    if not keys or not (except_key or upsert):
        return Layout(value, None, {}, upsert)
    prefix = options.get("key.fields-prefix", "")
    inside = {name: name.removeprefix(prefix) for name in keys}
    key = part("key.format", (replace(columns[name], name=inside[name]) for name in keys))
    return Layout(value, key, inside, upsert)


def format_key(column: Column) -> str | None:
    """The metadata key of the value's format that a column is; None for any other column."""
    key = column.metadata or ""
    return key.removeprefix(METADATA_PREFIX) if key.startswith(METADATA_PREFIX) else None


def value_format(options: Mapping[str, str]) -> str:
    """The name of the value's format; empty where none is given."""
    return options.get("format", options.get("value.format", ""))


def key_columns(table: Table, options: Mapping[str, str], kind: Kind) -> tuple[str, ...]:
    """The table's columns that are in the key."""
    return table.primary_key if kind == "upsert-kafka" else topic_names(options.get("key.fields", ""))


def check_fields(table: Table, kind: Kind) -> Sequence[str]:
    """What is wrong with formats, key and value of a table, as far as the script alone shows."""
    options = table.options
    found = _formats_given(options, kind) or _key_given(table, options, kind)
    if found:
        return found
    planned = layout(table, options, kind)
    if not planned.value.wanted.columns:
        return ["'value.fields-include' = 'EXCEPT_KEY' leaves no column for the value"]
    wrong = planned.value.problems(APPEND_FORMATS if kind == "upsert-kafka" else VALUE_FORMATS)
    key = options.get("key.format")
    if kind == "kafka" and planned.key is None and key is not None and key not in APPEND_FORMATS:
        wrong.append(f"'key.format': '{key}' is no format of keys; there are {', '.join(APPEND_FORMATS)}")
    if planned.key is not None:
        of_key = planned.key.problems(APPEND_FORMATS)
        for name, inside in planned.from_key.items():
            of_key = [problem.replace(f"'{field_option(inside)}'", f"'{field_option(name)}'") for problem in of_key]
        wrong += of_key
    return wrong


def _formats_given(options: Mapping[str, str], kind: Kind) -> list[str]:
    if kind == "upsert-kafka":
        return [f"'{name}' is missing" for name in ("key.format", "value.format") if name not in options]
    if "format" in options and "value.format" in options:
        return ["'format' and 'value.format' are the same: leave one out"]
    if "format" not in options and "value.format" not in options:
        return ["'format' is missing: how are the messages written?"]
    strays = [
        key for key in options if key.startswith("value.") and key.partition(".")[2].partition(".")[0] in VALUE_FORMATS
    ]
    if "format" in options and strays:
        return [f"'{strays[0]}' goes with 'value.format', and this table has 'format'"]
    return []


def _key_given(table: Table, options: Mapping[str, str], kind: Kind) -> list[str]:
    keys = key_columns(table, options, kind)
    prefix = options.get("key.fields-prefix", "")
    except_key = options.get("value.fields-include", "ALL") == "EXCEPT_KEY"
    there = {column.name for column in table.message_columns}
    if kind == "kafka":
        for one, other in (("key.format", "key.fields"), ("key.fields", "key.format")):
            if one in options and other not in options:
                return [f"'{one}' needs '{other}' beside it"]
    if except_key and not keys:
        return ["'value.fields-include' = 'EXCEPT_KEY' needs 'key.format' and 'key.fields'"]
    unknown = [name for name in keys if name not in there]
    if unknown:
        return [f"'key.fields' names {unknown[0]}, which is no column that the message could have"]
    if prefix and not except_key:
        return ["'key.fields-prefix' needs 'value.fields-include' = 'EXCEPT_KEY'"]
    without = [name for name in keys if not name.startswith(prefix) or name == prefix]
    if prefix and without:
        return [f"'key.fields-prefix' = '{prefix}': the key's column {without[0]} does not begin with it"]
    return []
