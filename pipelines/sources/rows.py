"""What the rows of several sources have in common: a frame of none, and data that does not fit the table: it fails the
step, which names it, or becomes a REJECTED row ('format.on-error')."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tidegate.pipelines.commands import UnlessLanded, advice, in_another_lake
from tidegate.pipelines.connectors.spec import ERROR_OPTION, REJECTED, REJECTED_TYPE, SOURCE_COLUMNS
from tidegate.pipelines.connectors.table import Table
from tidegate.pipelines.errors import SourceError
from tidegate.pipelines.frames import empty_frame
from tidegate.pipelines.syntax.types import quoted, spark_string

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

POISON = "tidegate: data does not fit: "
"""Prefix of an executor's exception; JSON of the place and the error follows."""


NOTHING_AFTER = "what was read before stands; nothing after it was read"
"""The state that an error leaves behind which a source finds before it reads a step."""


def schema(table: Table, more: Mapping[str, str] | None = None) -> StructType:
    """The columns of `Source.read`; `more`: further ones, with their Spark types."""
    from pyspark.sql.types import StructType

    columns = {column.name: column.spark_type for column in table.physical_columns}
    named = {**columns, **SOURCE_COLUMNS, **(more or {})}.items()
    found = StructType.fromDDL(", ".join(f"{quoted(name)} {kind}" for name, kind in named))
    assert isinstance(found, StructType)
    return found


def no_rows(spark: SparkSession, table: Table, more: Mapping[str, str] | None = None) -> DataFrame:
    """No rows of `schema`."""
    return empty_frame(spark, schema(table, more))


def quarantines(options: Mapping[str, str]) -> bool:
    """Whether data that does not fit goes to the table's quarantine."""
    return options.get(ERROR_OPTION.name) == "quarantine"


def op_or_poison(op: str, error: str, **place: str) -> str:
    """SQL of a row's `op`; where `error` is not null the step fails, and `misfit` finds the `place` (all SQL)."""
    fields = ", ".join(f"'{name}', {sql}" for name, sql in {**place, "error": error}.items())
    poison = f"CAST(raise_error(concat({spark_string(POISON)}, to_json(named_struct({fields})))) AS STRING)"
    return f"IF({error} IS NULL, {op}, {poison})"


def rejected(error: str, reason: str, value: str, key: str = "NULL", headers: str = "NULL") -> str:
    """SQL of REJECTED; null where `error` is."""
    found = f"named_struct('reason', {reason}, 'key', {key}, 'value', {value}, 'headers', {headers})"
    return f"IF({error} IS NULL, NULL, CAST({found} AS {REJECTED_TYPE})) AS {REJECTED}"


def misfit(error: BaseException, mark: str = POISON) -> dict[str, Any] | None:
    """What a task raised behind `mark`: the place and the error; None if `error` is another one."""
    text = str(error)
    start = text.find(mark)
    if start < 0:
        return None
    try:
        found, _ = json.JSONDecoder().raw_decode(text, start + len(mark))
    except json.JSONDecodeError:
        return None
    return found


def misfit_error(what: str, where: str, unit: str) -> SourceError:
    """The error of a step that `what` has failed. `unit`: what does not fit, in the plural ("lines")."""
    return SourceError(
        what,
        where=where,
        state="nothing of the epoch is committed; epochs before it stand",
        next_command=advice(
            f"set 'format.on-error' = 'quarantine' to keep such {unit} apart",
            UnlessLanded(" (or correct the columns)", advice()),
            ", then run the same command again",
            UnlessLanded("", "; or " + in_another_lake("correct the columns")),
        ),
    )
