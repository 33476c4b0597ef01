"""The type that snapshot and log both give for a column, and how it becomes the declared one."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True)
class CanonicalType:
    """The one type that both phases give for a column: `spark` in Spark's DDL, `arrow` as the decoder builds it."""

    spark: str
    arrow: pa.DataType


STRING = CanonicalType("STRING", pa.string())
BINARY = CanonicalType("BINARY", pa.binary())
BOOLEAN = CanonicalType("BOOLEAN", pa.bool_())
DATE = CanonicalType("DATE", pa.date32())
INSTANT = CanonicalType("TIMESTAMP", pa.timestamp("us", "UTC"))
LOCAL_TIME = CanonicalType("TIMESTAMP_NTZ", pa.timestamp("us"))

_INTEGERS = {"TINYINT": 3, "SMALLINT": 5, "INT": 10, "BIGINT": 19}
"""Spark's whole numbers, and how many decimal digits each may need."""


def compatible(source: CanonicalType, declared: str) -> str | None:
    """Why a column declared as Spark type `declared` cannot hold every value of `source`; None when it can."""
    have, want = source.spark, _plain(declared)
    if have == want or want == "STRING":
        return None if have == want or have not in ("BINARY", "TIMESTAMP") else _reason(have, want)
    if _digits(have) and _digits(want):
        (whole, fraction), (wanted_whole, wanted_fraction) = _digits(have), _digits(want)  # type: ignore[misc]
        return None if wanted_whole >= whole and wanted_fraction >= fraction else _reason(have, want)
    if (have, want) in _WIDENINGS or (want == "DOUBLE" and have in ("TINYINT", "SMALLINT", "INT")):
        return None
    return _reason(have, want)


_WIDENINGS = {
    ("FLOAT", "DOUBLE"),
    ("TINYINT", "BOOLEAN"),
    ("TINYINT", "FLOAT"),
    ("SMALLINT", "FLOAT"),
    ("BOOLEAN", "TINYINT"),
    ("BOOLEAN", "SMALLINT"),
    ("BOOLEAN", "INT"),
    ("BOOLEAN", "BIGINT"),
    ("DATE", "TIMESTAMP_NTZ"),
    ("TIMESTAMP", "TIMESTAMP_NTZ"),
    ("TIMESTAMP_NTZ", "TIMESTAMP"),
}


def cast_to_declared(expression: str, source: CanonicalType, declared: str, time_zone: str = "UTC") -> str:
    """Spark SQL that gives `expression`, of type `source`, the declared type; the same in both phases.

    `time_zone` ('server-time-zone') is where an instant becomes a local time, or the reverse; the session's own
    time zone takes no part. `compatible` has been asked before.
    """
    have, want = source.spark, _plain(declared)
    zone = "'" + time_zone.replace("\\", "\\\\").replace("'", "\\'") + "'"
    if have == want:
        return expression
    if (have, want) == ("TIMESTAMP", "TIMESTAMP_NTZ"):
        utc = f"TIMESTAMPADD(MICROSECOND, UNIX_MICROS({expression}), TIMESTAMP_NTZ'1970-01-01 00:00:00')"
        return f"CONVERT_TIMEZONE('UTC', {zone}, {utc})"
    if (have, want) == ("TIMESTAMP_NTZ", "TIMESTAMP"):
        utc = f"CONVERT_TIMEZONE({zone}, 'UTC', {expression})"
        return f"TIMESTAMP_MICROS(TIMESTAMPDIFF(MICROSECOND, TIMESTAMP_NTZ'1970-01-01 00:00:00', {utc}))"
    return f"CAST({expression} AS {want})"


def _plain(declared: str) -> str:
    """Spark's spelling without length or blanks: VARCHAR(20) -> STRING, timestamp -> TIMESTAMP."""
    text = "".join(declared.upper().split())
    head = text.partition("(")[0]
    if head in ("VARCHAR", "CHAR"):
        return "STRING"
    names = {"INTEGER": "INT", "LONG": "BIGINT", "SHORT": "SMALLINT", "BYTE": "TINYINT", "TIMESTAMP_LTZ": "TIMESTAMP"}
    if head in ("DECIMAL", "NUMERIC", "DEC"):
        return "DECIMAL" + (text[len(head) :] or "(10,0)")
    return names.get(text, text)


def _digits(spark: str) -> tuple[int, int] | None:
    """Decimal digits before and after the point that a numeric Spark type may hold; None for others."""
    if spark in _INTEGERS:
        return _INTEGERS[spark], 0
    if spark.startswith("DECIMAL("):
        precision, _, scale = spark[8:-1].partition(",")
        return int(precision) - int(scale or 0), int(scale or 0)
    return None


def _reason(have: str, want: str) -> str:
    return f"the source's values are {have}, which {want} cannot hold; declare it as {have}"
