"""PARTITIONED BY: what the folders of a file say of its rows, as Hive lays them out: `dt=2026-01-01/hour=03/part.json`.

A file lies in one folder for each partition column, in their order, each called `column=value`, from the table's folder
on; what is below these folders is free. Names are URL-encoded (`%3A` is a colon).
"""

from __future__ import annotations

import datetime
import decimal
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import unquote

from tidegate.pipelines.connectors.table import Column, Table
from tidegate.pipelines.sources.formats.text import precision
from tidegate.pipelines.syntax.dialect import parse_type
from tidegate.pipelines.syntax.types import INTEGERS, STRINGS, FlinkType, Kind

DEFAULT_PARTITION = "__HIVE_DEFAULT_PARTITION__"
"""The value that Hive and Spark write for NULL. (Flink's own default is `__DEFAULT_PARTITION__`.)"""

_BITS: Mapping[Kind, int] = {Kind.TINYINT: 7, Kind.SMALLINT: 15, Kind.INT: 31, Kind.BIGINT: 63}


class PartitionError(Exception):
    """What is wrong with the folders of a file; words that go on after the file's name."""


@dataclass(frozen=True)
class Partitions:
    """The partition columns of a table; none where it has no PARTITIONED BY."""

    columns: tuple[Column, ...] = ()
    default_name: str = DEFAULT_PARTITION

    @classmethod
    def of(cls, table: Table, default_name: str) -> Partitions:
        return cls(tuple(table.column(name) for name in table.partition_columns), default_name)

    def owns(self, folder: str) -> bool:
        """Whether a folder's name is that of a partition, whatever its value begins or ends with."""
        name, sign, _ = folder.partition("=")
        return bool(sign) and unquote(name) in {column.name for column in self.columns}

    def values(self, name: str) -> tuple[str | None, ...]:
        """The values of the file `name` (its path below the table's folder), by column: texts that cast to the types
        without loss, None for NULL. Raises PartitionError."""
        folders = name.split("/")[:-1]
        if len(folders) < len(self.columns):
            raise PartitionError(f"does not lie in folders {self._layout()}")
        return tuple(self._value(column, folder) for column, folder in zip(self.columns, folders, strict=False))

    def _layout(self) -> str:
        return "/".join(f"{column.name}=…" for column in self.columns)

    def _value(self, column: Column, folder: str) -> str | None:
        written, sign, text = folder.partition("=")
        try:
            found, text = unquote(written, errors="strict"), unquote(text, errors="strict")
        except UnicodeDecodeError as error:
            raise PartitionError(f"lies in {folder}, which is no UTF-8 text once it is decoded") from error
        if not sign or found != column.name:
            raise PartitionError(f"lies in {folder}, and the folders are {self._layout()}")
        if text == self.default_name:
            if not column.nullable:
                raise PartitionError(f"lies in {folder}, which is NULL, and column {column.name} is NOT NULL")
            return None
        if not fits(text, parse_type(column.type)):
            raise PartitionError(f"lies in {folder}: column {column.name}: '{text}' does not fit {column.type}")
        return text


def fits(text: str, of: FlinkType) -> bool:
    """Whether a text is a value of a partition column's type, as a CSV field would be."""
    if of.kind in STRINGS:
        return True
    if of.kind in INTEGERS:
        bound = 1 << _BITS[of.kind]
        return bool(re.fullmatch(r"[+-]?[0-9]{1,19}", text)) and -bound <= int(text) < bound
    if of.kind is Kind.BOOLEAN:
        return text.lower() in ("true", "false")
    if of.kind is Kind.DECIMAL:
        return bool(re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)", text)) and _has_digits(text, of)
    if of.kind is Kind.DATE:
        return _is_time(text, r"[0-9]{4}-[0-9]{2}-[0-9]{2}", datetime.date.fromisoformat)
    digits = precision(of)
    fraction = rf"(\.[0-9]{{1,{digits}}})?" if digits else ""
    pattern = rf"[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}} [0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}{fraction}"
    return _is_time(text, pattern, datetime.datetime.fromisoformat)


def _has_digits(text: str, of: FlinkType) -> bool:
    number = decimal.Decimal(text).normalize(decimal.Context(prec=200))
    exponent = number.as_tuple().exponent
    assert isinstance(exponent, int)
    scale = of.scale or 0
    return -exponent <= scale and (not number or number.adjusted() < (of.precision or 0) - scale)


def _is_time(text: str, pattern: str, parse: Callable[[str], object]) -> bool:
    if not re.fullmatch(pattern, text):
        return False
    try:
        parse(text)
    except ValueError:
        return False
    return True
