"""Whether Parquet files have the table's columns: found in their footers, before a row is read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from tidegate.pipelines.commands import or_else, resnapshot
from tidegate.pipelines.connectors.table import Column
from tidegate.pipelines.errors import SourceError
from tidegate.pipelines.sources.arrow_types import arrow_type
from tidegate.pipelines.sources.filesystem.listing import File, Folder


def rows_of(path: str) -> int:
    """How many rows a file has."""
    return pq.read_metadata(path).num_rows


PASS_OVER = "set 'format.on-error' = 'quarantine' to pass over the file and keep its name"


def misfits(folder: Folder, files: Sequence[File], columns: Sequence[Column]) -> dict[str, str]:
    """What is wrong with those files that `check` refuses, by name."""
    found: dict[str, str] = {}
    for file in files:
        try:
            check(folder, [file], columns)
        except SourceError as error:
            found[file.name] = error.what.removeprefix(f"{folder.table}: ")
    return found


def check(folder: Folder, files: Sequence[File], columns: Sequence[Column]) -> None:
    """Raise SourceError for a file that is no Parquet file, or lacks a column, or has it in a type that cannot be read
    as the declared one without loss."""
    for file in files:
        try:
            found = pq.read_schema(folder.full(file.name))
        except (pa.ArrowInvalid, OSError) as error:
            raise folder.error(
                f"is no Parquet file: {str(error).splitlines()[0]}",
                or_else(PASS_OVER, resnapshot(folder.table, "once the right file is there")),
                name=file.name,
            ) from error
        names = Counter(name.lower() for name in found.names)
        for column in columns:
            if names[column.name.lower()] > 1:
                alike = [name for name in found.names if name.lower() == column.name.lower()]
                raise folder.error(
                    f"has columns that differ in the case of their letters alone: {', '.join(alike)}",
                    or_else(PASS_OVER, resnapshot(folder.table, "once it has other names")),
                    name=file.name,
                )
            if column.name not in found.names:
                raise folder.error(
                    f"has no column {column.name}; it has {', '.join(found.names)}",
                    f"{PASS_OVER}, or take {column.name} out of the script",
                    name=file.name,
                )
            if not fits(found.field(column.name).type, arrow_type(column.spark_type)):
                raise folder.error(
                    f"has column {column.name} as {found.field(column.name).type}, the script as {column.type}",
                    f"{PASS_OVER}, or write the file's type into the script, and cast in the SELECT",
                    name=file.name,
                )


def fits(found: pa.DataType, declared: pa.DataType) -> bool:
    """Whether every value of a file's type is one of the declared type, and Spark reads it so."""
    if isinstance(found, pa.DictionaryType):
        return fits(found.value_type, declared)
    if pa.types.is_struct(found) and pa.types.is_struct(declared):
        names = {field.name: field.type for field in found}
        if len({name.lower() for name in names}) < found.num_fields:
            return False
        return all(field.name in names and fits(names[field.name], field.type) for field in declared)
    if pa.types.is_map(found) and pa.types.is_map(declared):
        return fits(found.key_type, declared.key_type) and fits(found.item_type, declared.item_type)
    if _is_list(found) and _is_list(declared):
        return fits(found.value_type, declared.value_type)
    if pa.types.is_timestamp(found) and pa.types.is_timestamp(declared):
        return found.unit in ("ms", "us") and (found.tz is None) == (declared.tz is None)
    if pa.types.is_decimal(found) and pa.types.is_decimal(declared):
        return found.scale == declared.scale and found.precision <= declared.precision
    if pa.types.is_signed_integer(found) and pa.types.is_signed_integer(declared):
        return found.bit_width <= declared.bit_width
    if pa.types.is_floating(found) and pa.types.is_floating(declared):
        # Spark reads no float16.
        return 32 <= found.bit_width <= declared.bit_width
    same = [pa.types.is_boolean, pa.types.is_date, _is_text, _is_binary]
    return any(kind(found) and kind(declared) for kind in same)


def _is_list(of: pa.DataType) -> bool:
    return pa.types.is_list(of) or pa.types.is_large_list(of)


def _is_text(of: pa.DataType) -> bool:
    return pa.types.is_string(of) or pa.types.is_large_string(of)


def _is_binary(of: pa.DataType) -> bool:
    return pa.types.is_binary(of) or pa.types.is_large_binary(of) or pa.types.is_fixed_size_binary(of)
