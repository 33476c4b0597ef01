"""A step's messages as rows: a Spark batch read of exact offsets, decoded by the table's formats."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tidegate.pipelines.connectors.spec import SEQ_TYPE
from tidegate.pipelines.connectors.table import Table
from tidegate.pipelines.sources.formats import VALUE, Wanted, format_named, metadata_column
from tidegate.pipelines.sources.kafka.options import ORDER_OPTION, KafkaOptions, Layout, format_key
from tidegate.pipelines.sources.kafka.steps import KafkaStep, by_topic
from tidegate.pipelines.sources.rows import op_or_poison, quarantines, rejected
from tidegate.pipelines.syntax.types import quoted, spark_string

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BESIDE = ("_marks", "_topic", "_misfit")
"""Columns that `Reader.decoded` adds to a source's columns: the format's marks of a snapshot, the topic's ordinal, and,
with `Reader.keeps_misfits`, what does not fit in the message."""

SUB_BITS = 20
"""`_offset` of a format whose messages give several rows: the message's offset, then its row, in so many bits."""

TASK_MESSAGES = 100_000
"""A partition with more than so many messages is worth a second task."""

FETCH_WAIT_MS = "10"
"""How long a broker may wait for messages behind the last one. All that a step reads is there already; but Spark asks
for the bounds of a partition on the connection on which the consumer has asked for more, which is answered first: by
default after half a second."""

_HEADERS = (
    # As in Flink, the last header of a name counts; Spark's maps take a name once.
    "map_from_entries(filter(transform(headers, h -> struct(h.key, h.value)), "
    "(h, i) -> NOT exists(slice(headers, i + 2, greatest(size(headers), 1)), later -> later.key = h.key)))"
)
_METADATA: Mapping[str, str] = {
    "topic": "topic",
    "partition": "partition",
    "offset": "offset",
    "timestamp": "nullif(timestamp, timestamp_millis(-1))",
    "timestamp-type": "element_at(array('NoTimestampType', 'CreateTime', 'LogAppendTime'), timestampType + 2)",
    "headers": f"coalesce({_HEADERS}, map())",
    "key": "key",
}


def ignore_name(layout: Layout) -> str:
    """The format's own name of the option that ignores messages which do not fit."""
    return f"{layout.value.format}.ignore-parse-errors"


@dataclass(frozen=True)
class Reader:
    """What reading a table's messages needs, apart from the step.

    `keeps_misfits`: messages that the format would pass over come too, with `_misfit`, for what their marks say.
    """

    table: Table
    options: KafkaOptions
    plain: Mapping[str, str]
    layout: Layout
    isolation: str
    keeps_misfits: bool = False

    @property
    def wanted(self) -> Wanted:
        """What the table wants of the value's format."""
        wants = self.layout.value.wanted
        if not self.keeps_misfits:
            return wants
        return replace(wants, options={**wants.options, ignore_name(self.layout): "false"})

    @property
    def by_source(self) -> bool:
        """Whether changes are ordered by the place in the database's log that they name."""
        return self.table.role == "build" and self.plain.get(ORDER_OPTION.name) == "source"

    @property
    def quarantines(self) -> bool:
        return quarantines(self.plain)

    @property
    def consumer(self) -> dict[str, str]:
        """Settings of Kafka's consumers."""
        return {"fetch.max.wait.ms": FETCH_WAIT_MS, **self.options.client, "isolation.level": self.isolation}

    def messages(self, spark: SparkSession, step: KafkaStep) -> DataFrame:
        """The messages of the step, as `decoded` takes them. The step must not be empty."""
        spans = step.read
        starts, stops = by_topic(spans, lambda span: span.start), by_topic(spans, lambda span: span.stop)
        assigned = {topic: sorted(map(int, numbers)) for topic, numbers in starts.items()}
        number = sum(span.offsets for span in spans.values())
        tasks = max(len(spans), min(spark.sparkContext.defaultParallelism, -(-number // TASK_MESSAGES)))
        keys = {column.metadata for column in self.table.physical_columns}
        reader = spark.read.format("kafka").options(**{f"kafka.{key}": value for key, value in self.consumer.items()})
        given = {
            "assign": json.dumps(assigned),
            "startingOffsets": json.dumps(starts),
            "endingOffsets": json.dumps(stops),
            "failOnDataLoss": "true",
            "minPartitions": str(tasks),
            "includeHeaders": str("headers" in keys or self.quarantines).lower(),
        }
        return reader.options(**given).load()

    def decoded(self, messages: DataFrame, step: KafkaStep) -> DataFrame:
        """Rows as `Source.read` gives them, and BESIDE."""
        table, layout = self.table, self.layout
        delivered = [column for column in table.physical_columns if column.metadata in _METADATA]
        own = [f"{_METADATA[column.metadata or '']} AS {quoted('_m_' + column.name)}" for column in delivered]
        if layout.key is not None:
            own.append("key AS _key")
        if self.by_source:
            own.append(f"{place(self.wanted)} AS _place")
        if self.quarantines:
            own += ["key AS _raw_key", "value AS _raw_value", "headers AS _headers"]
        seen = messages.selectExpr(
            f"value AS {VALUE}",
            "concat(topic, '-', partition) AS _split",
            f"{self._ordinal(step)} AS _topic",
            "CAST(partition AS BIGINT) AS _partition",
            "offset AS _position",
            f"{_METADATA['timestamp']} AS _at",
            *own,
        )
        if not layout.upsert:
            # A message without a value is no row, as in Flink; a changelog's tombstone only says what its delete did.
            seen = seen.where(f"{VALUE} IS NOT NULL")
        rows = format_named(layout.value.format).decode(seen, self.wanted)
        rows = rows.withColumnsRenamed({"_fields": "_row", "_error": "_wrong"})
        error = "_wrong"
        if layout.key is not None:
            rows = rows.withColumnsRenamed(
                {"_op": "_row_op", "_sub": "_row_sub", "_time": "_row_time", "_marks": "_row_marks", "_key": VALUE}
            )
            missing = f"{VALUE} IS NULL AS _keyless"
            rows = rows.selectExpr("*", missing)
            rows = format_named(layout.key.format).decode(rows, layout.key.wanted)
            rows = rows.drop("_op", "_sub", "_time", "_marks").withColumnsRenamed(
                {"_row_op": "_op", "_row_sub": "_sub", "_row_time": "_time", "_row_marks": "_marks"}
            )
            error = "coalesce(_wrong, concat('in the key: ', _error))"
            if layout.upsert:
                error = f"IF(_keyless, 'the message has no key', {error})"
        if self.by_source:
            error = f"coalesce({error}, IF(_place IS NULL, {spark_string(NO_PLACE)}, NULL))"
        return self._rows(rows.selectExpr("*", f"{error} AS _misfit"))

    def _rows(self, rows: DataFrame) -> DataFrame:
        op = "IF(_op = 'c', 'u', _op)" if self.layout.upsert else "_op"
        offset = f"shiftleft(_position, {SUB_BITS}) + _sub" if self.layout.changelog else "_position"
        seq = "'phase', 1, 'log', _topic, 'file', _partition, 'position', _position, 'row', _sub"
        if self.by_source:
            # What a snapshot read comes before a change at its place: the first one may begin where its log ends. It
            # comes after those of before: a connector may read the table once more.
            row = "IF(_op = 'r', -1, _place.row)"
            seq = f"'phase', 1, 'log', 0, 'file', _place.file, 'position', _place.position, 'row', {row}"
        rejected_column: list[str] = []
        if self.keeps_misfits:
            rejected_column = ["_misfit"]
        elif self.quarantines:
            rejected_column = [rejected("_misfit", "_misfit", "_raw_value", "_raw_key", "_headers")]
        else:
            op = op_or_poison(op, "_misfit", split="_split", offset="_position")
        return rows.selectExpr(
            *self._columns(),
            f"{op} AS _op",
            f"CAST(named_struct({seq}) AS {SEQ_TYPE}) AS _seq",
            "coalesce(_time, _at) AS _rowtime",
            "_split",
            f"{offset} AS _offset",
            "_marks",
            "_topic",
            *rejected_column,
        )

    def _columns(self) -> list[str]:
        found = []
        for column in self.table.physical_columns:
            beside = format_key(column)
            if beside is not None:
                value = metadata_column(beside)
            elif column.metadata is not None:
                value = quoted("_m_" + column.name)
            elif column.name in self.layout.from_key:
                value = f"_fields.{quoted(self.layout.from_key[column.name])}"
            else:
                value = f"_row.{quoted(column.name)}"
            found.append(f"CAST({value} AS {column.spark_type}) AS {quoted(column.name)}")
        return found

    def _ordinal(self, step: KafkaStep) -> str:
        """A topic's place among the table's topics, by which changes of several topics are ordered."""
        if len(step.topics) == 1:
            return str(next(iter(step.topics.values())).ordinal)
        cases = " ".join(f"WHEN {spark_string(name)} THEN {topic.ordinal}" for name, topic in step.topics.items())
        return f"CASE topic {cases} END"


NO_PLACE = (
    "the message does not say where in the database's log it stands (source.file and source.pos, or source.lsn), "
    "which 'scan.changes.order' = 'source' goes by"
)
_SOURCE = "source STRUCT<file STRING, pos STRING, `row` STRING, lsn STRING>"
_SHAPE = "file: BIGINT, position: BIGINT, row: INT"


def place(wanted: Wanted) -> str:
    """SQL of STRUCT<file, position, row> of the column `value`, a message; NULL where it names none.

    MySQL and MariaDB: the number at the end of the binlog file's name, the position, the row in its event.
    PostgreSQL: the LSN as the position. A row of an incremental snapshot names an empty file, so it has none.
    """
    inside = wanted.flag("debezium-json.schema-include")
    shape = f"payload STRUCT<{_SOURCE.replace('source STRUCT', 'source: STRUCT')}>" if inside else _SOURCE
    source = f"from_json(CAST(value AS STRING), {spark_string(shape)}).{'payload.' if inside else ''}source"
    number = f"try_cast(regexp_extract(s.file, {spark_string(r'([0-9]+)$')}, 1) AS BIGINT)"
    row = "coalesce(try_cast(s.`row` AS INT), 0)"
    log = f"named_struct('file', {number}, 'position', try_cast(s.pos AS BIGINT), 'row', {row})"
    lsn = "named_struct('file', 0L, 'position', try_cast(s.lsn AS BIGINT), 'row', 0)"
    found = f"IF(s.lsn IS NOT NULL, {lsn}, {log})"
    whole = f"IF(p.file IS NULL OR p.position IS NULL, NULL, CAST(p AS STRUCT<{_SHAPE}>))"
    # A lambda over one element names a value, so that the message is parsed once.
    parsed = f"transform(array({source}), s -> {found})"
    return f"get(transform({parsed}, p -> {whole}), 0)"
