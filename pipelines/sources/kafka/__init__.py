"""kafka and upsert-kafka: topics of Apache Kafka, read in exact ranges of offsets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tidegate.pipelines.connectors import flink
from tidegate.pipelines.connectors.options import flag
from tidegate.pipelines.connectors.protocol import Source, SourceContext
from tidegate.pipelines.connectors.spec import ERROR_OPTION, ConnectorSpec, OptionSpec
from tidegate.pipelines.connectors.table import Table
from tidegate.pipelines.sources.formats import format_options, metadata_of
from tidegate.pipelines.sources.kafka.options import (
    APPEND_FORMATS,
    CONNECTION_OPTIONS,
    INCLUDE_OPTION,
    KEY_CHECK_OPTION,
    KEY_FIELD_OPTIONS,
    METADATA,
    METADATA_PREFIX,
    ORDER_OPTION,
    PROPERTIES,
    REFUSED_PROPERTIES,
    SNAPSHOT_OPTION,
    STARTUP_OPTIONS,
    TOPIC_OPTIONS,
    VALUE_FORMATS,
    Kind,
    check_fields,
    check_startup,
    check_topics,
    value_format,
)
from tidegate.pipelines.sources.kafka.snapshot_end import MARKED_FORMATS, marks_its_snapshot

START_OPTIONS = tuple(option.name for option in STARTUP_OPTIONS)
_FORMAT = OptionSpec("format", doc=f"How the value is written: {', '.join(VALUE_FORMATS)}.", changes="rows")
_VALUE_FORMAT = OptionSpec(
    "value.format", doc="The same as `format`. The format's options are then written `value.json.…`.", changes="rows"
)
_KEY_FORMAT = OptionSpec("key.format", doc=f"How the key is written: {', '.join(APPEND_FORMATS)}.", changes="rows")


def check(table: Table, kind: Kind) -> Sequence[str]:
    """What is wrong with a table of this connector, as far as the script alone shows."""
    options = table.options
    found = [*check_topics(options), *check_startup(options)]
    found += [
        f"'{key}' has no meaning: messages are read as bytes, and the plan decides which"
        for key in options
        if key.startswith(PROPERTIES) and key.removeprefix(PROPERTIES) in REFUSED_PROPERTIES
    ]
    found += check_fields(table, kind)
    if not found and kind == "upsert-kafka" and table.role == "probe":
        return [
            "an upsert-kafka table can be the build side of a temporal join, not the probe side: its messages do not "
            "say which row they replace; 'kafka' reads them as they are"
        ]
    return found or _snapshot_problems(table)


def _snapshot_problems(table: Table) -> list[str]:
    options, name = table.options, value_format(table.options)
    for own, why in (("scan.snapshot.end", "snapshot"), (ORDER_OPTION.name, "place in a log")):
        if own in options and name not in MARKED_FORMATS:
            return [f"'{own}' has no meaning with the format '{name}': its messages name no {why}"]
        if own in options and table.role == "probe":
            return [f"'{own}' is for a build side"]
    mode = options.get("scan.startup.mode", "earliest-offset")
    if table.role == "build" and marks_its_snapshot(options) and mode != "earliest-offset":
        return [
            f"'scan.startup.mode' = '{mode}' may begin behind the end of the snapshot, which then never comes: "
            "write 'scan.snapshot.end' = 'offsets', or begin at 'earliest-offset'"
        ]
    return []


@dataclass(frozen=True)
class KafkaConnector:
    """`'connector' = 'kafka'`, or `'upsert-kafka'`. Importing it needs no Spark, so that a script compiles fast."""

    kind: Kind
    spec: ConnectorSpec

    def source(self, context: SourceContext) -> Source:
        """A reader of one table. Opens no connection yet."""
        from tidegate.pipelines.sources.kafka.source import KafkaSource

        return KafkaSource(context, self.kind)


CONNECTOR = KafkaConnector(
    "kafka",
    ConnectorSpec(
        name="kafka",
        doc="Topics of Apache Kafka, in exact ranges of offsets.",
        options=(
            *TOPIC_OPTIONS,
            *CONNECTION_OPTIONS,
            *STARTUP_OPTIONS,
            _FORMAT,
            _VALUE_FORMAT,
            _KEY_FORMAT,
            *KEY_FIELD_OPTIONS,
            INCLUDE_OPTION,
            ERROR_OPTION,
            SNAPSHOT_OPTION,
            ORDER_OPTION,
            KEY_CHECK_OPTION,
            *format_options(VALUE_FORMATS),
            *format_options(VALUE_FORMATS, prefix="value."),
            *format_options(APPEND_FORMATS, prefix="key."),
        ),
        system_time=True,
        system_watermark=True,
        start_options=START_OPTIONS,
        by_name=True,
        foreign=(
            *flink.CONNECTORS["kafka"],
            *flink.of_formats(VALUE_FORMATS),
            *flink.of_formats(VALUE_FORMATS, prefix="value."),
            *flink.of_formats(APPEND_FORMATS, prefix="key."),
        ),
        metadata=METADATA,
        format_metadata=lambda options: metadata_of(value_format(options), prefix=METADATA_PREFIX),
        phases=marks_its_snapshot,
        signals=marks_its_snapshot,
        updates=lambda options: value_format(options) not in APPEND_FORMATS,
        ordered_by_split=lambda options: flag(options, KEY_CHECK_OPTION.name, "true"),
        check=lambda table: check(table, "kafka"),
    ),
)

UPSERT_CONNECTOR = KafkaConnector(
    "upsert-kafka",
    ConnectorSpec(
        name="upsert-kafka",
        doc="A topic whose newest message of a key is the key's row, and whose tombstones delete it.",
        options=(
            TOPIC_OPTIONS[0],
            *CONNECTION_OPTIONS,
            *STARTUP_OPTIONS,
            replace(_KEY_FORMAT, required=True),
            OptionSpec(
                "value.format",
                required=True,
                doc=f"How the value is written: {', '.join(APPEND_FORMATS)}.",
                changes="rows",
            ),
            KEY_FIELD_OPTIONS[1],
            INCLUDE_OPTION,
            ERROR_OPTION,
            KEY_CHECK_OPTION,
            *format_options(APPEND_FORMATS, prefix="value."),
            *format_options(APPEND_FORMATS, prefix="key."),
        ),
        append_only=False,
        needs_primary_key=True,
        system_time=True,
        system_watermark=True,
        start_options=START_OPTIONS,
        by_name=True,
        foreign=(
            *flink.CONNECTORS["kafka"],
            *flink.of_formats(APPEND_FORMATS),
            *flink.of_formats(APPEND_FORMATS, prefix="value."),
            *flink.of_formats(APPEND_FORMATS, prefix="key."),
        ),
        metadata=METADATA,
        check=lambda table: check(table, "upsert-kafka"),
    ),
)

__all__ = ["CONNECTOR", "UPSERT_CONNECTOR"]
