"""A script whose servers and topics are replaced by scripted tables, which a test fills by hand."""

from __future__ import annotations

from dataclasses import replace

from tidegate.pipelines.connectors.options import SINK_OPTIONS, SOURCE_OPTIONS, find_option
from tidegate.pipelines.connectors.registry import connector
from tidegate.pipelines.connectors.spec import OptionSpec
from tidegate.pipelines.connectors.table import Column, Options, Table
from tidegate.pipelines.sources.scripted import CONNECTOR
from tidegate.pipelines.sql.compile import Pipeline


def only_grows(pipeline: Pipeline, name: str) -> bool:
    """Whether the table may have inserts only, as for any other connector: a processing-time probe, or an input of a
    process. Such rows are released one by one; in event time updates are joined at their own times."""
    whole = {table.name for table in pipeline.tables.values() if any(part.name == name for part in table.parts)}
    return any(insert.time != "event" for insert in pipeline.inserts if {name, *whole} & {*insert.probes})


def played(pipeline: Pipeline) -> Pipeline:
    """`pipeline` with tables of `'connector' = 'scripted'` in the place of all that it reads and writes.

    Columns, keys, watermarks, constraints, and the options that every source or target has stay as they are. A source
    has phases, and signals their end, where its own connector does. Columns that the connector itself fills (METADATA,
    PARTITIONED BY, SYSTEM_ROWTIME()) are columns like others, filled by the test. Where Python emits the watermarks of
    a table without WATERMARK FOR (`with_strategy`, a process's generator), its rows move it, as ever.
    """
    used = {"build": SOURCE_OPTIONS, "probe": SOURCE_OPTIONS, "sink": SINK_OPTIONS}
    tables = {
        name: _played(table, used[table.role], _emits_watermarks(pipeline, table)) if table.role in used else table
        for name, table in pipeline.tables.items()
    }
    return replace(pipeline, tables=tables)


def _emits_watermarks(pipeline: Pipeline, table: Table) -> bool:
    in_python = pipeline.generators(table.name) or table.name in pipeline.strategies
    return table.watermark is not None or not in_python


def _played(table: Table, kept: tuple[OptionSpec, ...], tells_time: bool) -> Table:
    options = {name: value for name, value in table.options.items() if find_option(name, kept) is not None}
    if table.role != "sink":
        spec = connector(table.connector).spec
        phases, signals = spec.phases(table.options), spec.signals(table.options)
        given = {"phases": phases, "signals": signals, "tells-time": tells_time}
        options |= {name: str(value).lower() for name, value in given.items()}
    return replace(
        table,
        columns=tuple(map(_delivered, table.columns)),
        options=Options({"connector": CONNECTOR.spec.name, **options}),
        parts=(),
        partition_columns=(),
    )


def _delivered(column: Column) -> Column:
    """The column, delivered in its declared type by the test."""
    column = replace(column, metadata=None, delivered=None)
    return replace(column, expression=None, sql=None) if column.source_time else column
