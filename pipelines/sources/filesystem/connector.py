"""`'connector' = 'filesystem'`: its options, and what is wrong with them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from tidegate.pipelines import paths
from tidegate.pipelines.connectors.protocol import Source, SourceContext
from tidegate.pipelines.connectors.spec import ERROR_OPTION, ConnectorSpec, OptionSpec
from tidegate.pipelines.connectors.table import Table
from tidegate.pipelines.sources.filesystem.listing import DEFAULT_PARTITION
from tidegate.pipelines.sources.filesystem.source import PARQUET, SETTLE_TIME, FilesystemSource
from tidegate.pipelines.sources.formats import FORMATS, format_options, metadata_of, problems, wanted
from tidegate.pipelines.syntax.secrets import needs_variables

LINES = ("json", "csv", "debezium-json", "canal-json", "changelog-json")
"""Formats of a message a line."""

METADATA: Mapping[str, str] = {
    "file.path": "STRING",
    "file.name": "STRING",
    "file.size": "BIGINT",
    "file.modification-time": "TIMESTAMP_LTZ(3)",
}
OPTIONS = (
    OptionSpec("path", required=True, doc="The folder, or one file; file:// may stand before it.", changes="identity"),
    OptionSpec(
        "format", required=True, doc=f"How the files are written: {', '.join((*LINES, PARQUET))}.", changes="rows"
    ),
    OptionSpec(
        "source.path.regex-pattern",
        doc="A regular expression: only files whose absolute path it matches wholly.",
        changes="rows",
    ),
    OptionSpec(
        "partition.default-name",
        default=DEFAULT_PARTITION,
        doc="For PARTITIONED BY: the value in a folder's name that means NULL.",
        changes="rows",
    ),
    OptionSpec(
        "source.settle-time",
        "duration",
        default=SETTLE_TIME,
        doc="A file is read once nothing has been written to it for so long.",
        changes="neither",
    ),
    OptionSpec(
        "source.monitor-interval",
        "duration",
        doc="Accepted for scripts of Flink. Every run lists the folder when it begins.",
        changes="neither",
    ),
    ERROR_OPTION,
    *format_options(LINES),
)


def updates(options: Mapping[str, str]) -> bool:
    """Whether a table of these options has rows that change others."""
    chosen = FORMATS.get(options.get("format", ""))
    return chosen is not None and chosen.spec.changelog


def check(table: Table) -> Sequence[str]:
    """What is wrong with a table."""
    name, found = table.options["format"], []
    if why := paths.problem(table.options["path"]):
        found.append(f"'path': {why}")
    if needs_variables(name):
        found.append("'format' cannot come from the environment")
    elif name == "avro":
        # Known as the format of a message: these files are containers with a schema of their own.
        found.append("'format': files of Avro's own kind are not read: write them as parquet, which has the same types")
    elif name != PARQUET:
        found += problems(name, wanted(table, table.options), names=(*LINES, PARQUET))
    else:
        own = {option.name for option in format_options(LINES)}
        found += [f"'{key}' has no meaning: the format is parquet" for key in table.options if key in own]
    if "partition.default-name" in table.options and not table.partition_columns:
        found.append("'partition.default-name' has no meaning without PARTITIONED BY")
    pattern = table.options.get("source.path.regex-pattern", "")
    if not needs_variables(pattern):
        try:
            re.compile(pattern)
        except re.error as error:
            found.append(f"'source.path.regex-pattern' is no regular expression: {error}")
    if not table.message_columns:
        found.append(f"{table.name} has no column that is in the files")
    return found


class FilesystemConnector:
    """`'connector' = 'filesystem'`."""

    spec = ConnectorSpec(
        name="filesystem",
        doc="The files of a folder that grows, each read once.",
        options=OPTIONS,
        partitioned=True,
        system_time=True,
        system_watermark=True,
        metadata=METADATA,
        format_metadata=lambda options: metadata_of(options.get("format", "")),
        updates=updates,
        check=check,
    )

    def source(self, context: SourceContext) -> Source:
        return FilesystemSource(context)


CONNECTOR = FilesystemConnector()
