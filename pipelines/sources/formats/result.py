"""The columns that every `Format.decode` ends with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.pipelines.sources.formats.format import VALUE, Wanted
from tidegate.pipelines.syntax.types import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def kept(messages: DataFrame) -> list[str]:
    """The columns that pass through."""
    return [quoted(name) for name in messages.columns if name != VALUE]


def added(rows: DataFrame, others: list[str], wanted: Wanted, ignore: str | None) -> DataFrame:
    """DECODED of a format that only adds: `rows` have `others`, `_fields`, `_error`, and `_null` where the message is
    null. `ignore`: the option that passes over what does not fit."""
    op = "IF(_null, 'd', 'c')" if wanted.build else "IF(_null, '-D', '+I')"
    decoded = rows.selectExpr(
        *others,
        f"{op} AS _op",
        "IF(_error IS NULL, _fields, NULL) AS _fields",
        "_error",
        "0 AS _sub",
        "CAST(NULL AS TIMESTAMP) AS _time",
        "CAST(NULL AS STRING) AS _marks",
    )
    return fitting(decoded, wanted, ignore)


def fitting(decoded: DataFrame, wanted: Wanted, ignore: str | None) -> DataFrame:
    """`decoded`, without what does not fit if the option `ignore` says so."""
    return decoded.where("_error IS NULL") if ignore and wanted.flag(ignore) else decoded
