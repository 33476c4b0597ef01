"""Options of Flink's and flink-cdc's connectors and formats that scripts bring along and that are not options here.

Each documented option is one of three things:

- It has a meaning here: then a connector's or a format's own `OptionSpec` has its name.
- It has no effect here: it is taken, and `explain` says so (`OptionSpec.effect` "none").
- It means something that is not done here: it is refused, with what to do ("refused"), but for values (`spares`) that
  ask for nothing else than what is done anyway.

Source: the pages "Table API Connectors" of Flink 2 and "Flink Sources" of flink-cdc 3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tidegate.pipelines.connectors.spec import OptionSpec

REGISTRY = "its messages name their schema by a number, which only a schema registry knows, and none is asked here"
REFUSED_FORMATS: Mapping[str, str] = {
    "avro-confluent": f"{REGISTRY}: write them as avro (the record alone, by the table's columns) or as json",
    "debezium-avro-confluent": f"{REGISTRY}: let Debezium write debezium-json",
    "avro-glue": f"{REGISTRY}: write them as avro (the record alone, by the table's columns) or as json",
    "maxwell-json": "let Debezium or Canal write the changes: debezium-json, canal-json",
    "ogg-json": "let Debezium write the changes: debezium-json",
    "protobuf": "write the messages as avro or as json",
    "orc": "write the files as parquet",
}
"""Formats of Flink that are not here, and why or what to do instead."""


def _none(name: str, why: str, kind: str = "string") -> OptionSpec:
    return OptionSpec(name, kind, doc=why, changes="neither", effect="none")  # type: ignore[arg-type]


def _refused(name: str, instead: str, *spares: str) -> OptionSpec:
    return OptionSpec(name, doc=instead, changes="neither", effect="refused", spares=spares)


_BUSY = "Spark decides how many tasks read"
_WRITES = "It is for writing, and such a table is only read here"
_ENDS = "A run reads up to where the topic ends when it begins: leave it out, and leave later rows out by WHERE"

_SINKS = (_none("sink.*", _WRITES),)
_PARALLEL = _none("scan.parallelism", _BUSY)

CONNECTORS: Mapping[str, Sequence[OptionSpec]] = {
    "mysql-cdc": (
        _none("heartbeat.interval", "Each read ends at the server's position, so no heartbeat is needed", "duration"),
        _none("scan.snapshot.fetch.size", "Rows are streamed, whatever their number"),
        _none("connect.max-retries", "A run that finds no server fails, and the next one goes on from there"),
        _none("connection.pool.size", "Each chunk has a connection of its own"),
        _none("chunk-meta.group.size", "Chunks are rows of a table of the lake"),
        _none("chunk-key.even-distribution.factor.*", "Chunks have about as many rows each, whatever the key"),
        _none("split-key.even-distribution.factor.*", "Chunks have about as many rows each, whatever the key"),
        _none(
            "scan.incremental.snapshot.chunk.key-column", "Chunks are cut by the primary key, or by another unique one"
        ),
        _none("scan.incremental.snapshot.backfill.skip", "Snapshot and log meet at the cut of each chunk"),
        _none("scan.incremental.snapshot.unbounded-chunk-first.enabled", "Chunks are read side by side"),
        _none("scan.incremental.close-idle-reader.enabled", "A reader ends with its task"),
        _refused(
            "scan.incremental.snapshot.enabled",
            "A snapshot is always read in chunks, without a lock: leave it out",
            "true",
        ),
        _refused(
            "scan.startup.specific-offset.gtid-set",
            "Name the place: 'scan.startup.specific-offset.file' and 'scan.startup.specific-offset.pos'",
        ),
        _refused(
            "scan.startup.specific-offset.skip-events",
            "Begin at a transaction: 'scan.startup.specific-offset.pos' is the position of its first byte",
            "0",
        ),
        _refused(
            "scan.startup.specific-offset.skip-rows",
            "Begin at a transaction: 'scan.startup.specific-offset.pos' is the position of its first byte",
            "0",
        ),
        _refused(
            "scan.parse.online.schema.changes.enabled",
            "Leave it out: docs/mysql-cdc.md says which ALTERs a table goes on after, and when it needs --resnapshot",
            "false",
        ),
        _refused(
            "scan.read-changelog-as-append-only.enabled",
            "Leave it out: a build side follows updates and deletes",
            "false",
        ),
        _refused("scan.newly-added-table.enabled", "Declare each table, and add it to the script", "false"),
        _refused(
            "use.legacy.json.format",
            "JSON comes as the server prints it, with its blanks, from the snapshot and the log alike: leave it out",
            "false",
        ),
        _refused("debezium.binary.handling.mode", "Leave it out: BYTES come as bytes", "bytes", "none"),
        _refused("debezium.snapshot.mode", "Write 'scan.startup.mode': initial, snapshot, latest-offset", "initial"),
        _none("debezium.min.row.count.to.stream.result", "Rows are streamed, whatever their number"),
        _none("debezium.snapshot.fetch.size", "Rows are streamed, whatever their number"),
        _none("debezium.snapshot.locking.mode", "No lock is taken"),
        _none("debezium.max.batch.size", "Steps have limits of their own"),
        _none("debezium.max.queue.size", "Steps have limits of their own"),
        _none("debezium.poll.interval.ms", "The binlog is read up to where it ends"),
        _refused("debezium.*", "Leave it out: the binlog is read without Debezium"),
        _PARALLEL,
    ),
    "kafka": (
        _none("scan.topic-partition-discovery.interval", "Every run looks for new partitions and topics", "duration"),
        _refused("scan.bounded.mode", _ENDS, "unbounded"),
        _refused("scan.bounded.specific-offsets", _ENDS),
        _refused("scan.bounded.timestamp-millis", _ENDS),
        _PARALLEL,
        *_SINKS,
    ),
    "filesystem": (
        _none("source.monitor-interval", "Every run lists the folder when it begins", "duration"),
        _none("source.report-statistics", "No plan depends on it"),
        _none("partition.time-extractor.*", _WRITES),
        _none("auto-compaction", _WRITES),
        _none("compaction.file-size", _WRITES),
        _refused("parquet.utc-timezone", "A time of a Parquet file is in UTC: leave it out", "true"),
        _none("parquet.*", _WRITES),
        _PARALLEL,
        *_SINKS,
    ),
    "datagen": (_PARALLEL,),
    "print": (
        _none("standard-error", "Rows are shown where the command writes"),
        _none("sink.parallelism", "Rows are shown once their epoch is committed, in one place"),
    ),
}
"""By connector; `upsert-kafka` has those of `kafka`."""

_MAPS_AND_NUMBERS = ("map-null-key.mode", "map-null-key.literal", "encode.decimal-as-plain-number")
FORMATS: Mapping[str, Sequence[OptionSpec]] = {
    "json": (
        *(_none(f"json.{name}", _WRITES) for name in (*_MAPS_AND_NUMBERS, "encode.ignore-null-fields")),
        _none("json.decode.json-parser.enabled", "It changes how fast messages are read, not what is read"),
    ),
    "csv": (_none("csv.write-bigdecimal-in-scientific-notation", _WRITES),),
    "avro": (
        _none("avro.open.fastread", "It changes how fast messages are read, not what is read", "boolean"),
        _none("avro.codec", _WRITES),
    ),
    "debezium-json": tuple(
        _none(f"debezium-json.{name}", _WRITES) for name in (*_MAPS_AND_NUMBERS, "encode.ignore-null-fields")
    ),
    "canal-json": tuple(
        _none(f"canal-json.{name}", _WRITES) for name in (*_MAPS_AND_NUMBERS, "encode.ignore-null-fields")
    ),
}
"""By format; a connector may put `key.` or `value.` before them."""


def of_formats(names: Sequence[str], *, prefix: str = "") -> tuple[OptionSpec, ...]:
    """The options of these formats, and of the formats that are not here, each with `prefix` before it."""
    own = [option for name in names for option in FORMATS.get(name, ())]
    gone = [
        _refused(f"{name}.*", f"The format '{name}' cannot be read: {why}") for name, why in REFUSED_FORMATS.items()
    ]
    return tuple(replace(option, name=prefix + option.name) for option in (*own, *gone))
