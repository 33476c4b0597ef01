"""Which columns of a table lie in a message's key and which in its value, and what cannot go together there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from tidegate.pipelines.connectors.table import Column, Table
from tidegate.pipelines.sources.formats import Wanted, problems
from tidegate.pipelines.sources.kafka.options import topic_names
from tidegate.pipelines.syntax.types import spark_string

Kind = Literal["kafka", "upsert-kafka"]

VALUE_FORMATS = ("json", "csv", "raw", "avro", "debezium-json", "canal-json", "changelog-json")
APPEND_FORMATS = ("json", "csv", "raw", "avro")
"""Formats that may be a key, and the value of upsert-kafka: each message is exactly one row."""


METADATA_PREFIX = "value."
"""Prefix of the metadata keys of the value's format, as in Flink, since the key's format might have some too."""


@dataclass(frozen=True)
class Part:
    """The key or the value of the messages: its format, and its columns as the message names them.

    `option` is what the script calls the format; `names` are the table's names of the columns, in the same order;
    `metadata` are the format's metadata keys that the table names.
    """

    format: str
    option: str
    columns: tuple[Column, ...]
    names: tuple[str, ...]
    prefix: str
    metadata: tuple[str, ...] = ()

    def wanted(self, table: Table, options: Mapping[str, str]) -> Wanted:
        """What the table needs of the format; a key's format never decides what becomes of a row."""
        plain = {key.removeprefix(self.prefix): text for key, text in options.items() if key.startswith(self.prefix)}
        return Wanted(self.columns, plain, table.role, table.primary_key, self.metadata)

    def problems(self, table: Table, names: Sequence[str]) -> list[str]:
        """What is wrong with its format. Options are called as the script has them, with their prefix."""
        wanted = self.wanted(table, table.options)
        found = problems(self.format, wanted, names=names, option=self.option)
        for plain in wanted.options if self.prefix else ():
            found = [problem.replace(f"'{plain}'", f"'{self.prefix}{plain}'") for problem in found]
        return found


@dataclass(frozen=True)
class Layout:
    """Where each column is read from. `key` is None where nothing is taken from the key.

    `from_key` are the table's columns that the key decides.
    """

    value: Part
    key: Part | None
    from_key: frozenset[str]
    upsert: bool

    @property
    def changelog(self) -> bool:
        """Whether a message may say several things of a row, or that it is gone."""
        return self.value.format not in APPEND_FORMATS


def layout(table: Table, options: Mapping[str, str], kind: Kind) -> Layout:
    """The layout of a table whose options `check` found no fault with."""
    columns = tuple(column for column in table.physical_columns if column.metadata is None)
    keys = key_columns(table, options, kind)
    except_key = options.get("value.fields-include", "ALL") == "EXCEPT_KEY"
    valued = tuple(column for column in columns if not (except_key and column.name in keys))
    option = "format" if "format" in options else "value.format"
    value = Part(
        options.get(option, ""),
        option,
        valued,
        tuple(column.name for column in valued),
        "" if option == "format" else "value.",
        tuple(key for column in table.physical_columns if (key := format_key(column)) is not None),
    )
    upsert = kind == "upsert-kafka"
    # Where the value has the key's columns too it decides, as in Flink; but a tombstone has nothing but its key.
    from_key = frozenset(keys if except_key or upsert else ())
    if not from_key:
        return Layout(value, None, from_key, upsert)
    prefix = options.get("key.fields-prefix", "")
    named = {column.name: replace(column, name=column.name.removeprefix(prefix)) for column in columns}
    key = Part(options.get("key.format", ""), "key.format", tuple(named[name] for name in keys), tuple(keys), "key.")
    return Layout(value, key, from_key, upsert)


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
    if not planned.value.columns:
        return ["'value.fields-include' = 'EXCEPT_KEY' leaves no column for the value"]
    wrong = planned.value.problems(table, APPEND_FORMATS if kind == "upsert-kafka" else VALUE_FORMATS)
    if "key.format" in options and kind == "kafka" and planned.key is None:
        wrong += [] if options["key.format"] in APPEND_FORMATS else problems_of_key(options["key.format"])
    if planned.key is not None:
        wrong += planned.key.problems(table, APPEND_FORMATS)
    return wrong


def problems_of_key(name: str) -> list[str]:
    """What is wrong with a key's format that is no format of keys."""
    return [f"'key.format': '{name}' is no format of keys; there are {', '.join(APPEND_FORMATS)}"]


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
    there = {column.name for column in table.physical_columns if column.metadata is None}
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
