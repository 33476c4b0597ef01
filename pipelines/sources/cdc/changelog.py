"""The columns of a changelog's rows: those added to each row, and the types of the table's own.

Snapshot and log both give a column in its canonical type, which is then cast to the declared one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from tidegate.pipelines.connectors.spec import SOURCE_COLUMNS
from tidegate.pipelines.sources.arrow_types import SOURCE_TYPES, seq_array
from tidegate.pipelines.sources.cdc.errors import ValueTooGreat
from tidegate.pipelines.syntax.types import BINARIES, MAX_FRACTION, STRINGS, TIMESTAMPS, FlinkType, spark_string

SNAPSHOT_PHASE = 0
LOG_PHASE = 1
"""`_seq.phase`: for each key the log wins over the snapshot."""

LOG_EPOCH = 0
"""`_seq.log`. A generation reads one log only: if the server's log begins anew, the table needs a new generation."""

SOURCE_FIELDS = [pa.field(name, kind) for name, kind in SOURCE_TYPES.items()]


def snapshot_columns(split: str, cut: tuple[int, int], began_s: int, first: int, count: int) -> list[pa.Array]:
    """SOURCE_COLUMNS of `count` rows of a chunk, after `first` earlier ones.

    `_seq` holds the cut. `_rowtime` is `began_s` (s, UTC), just before the read view was opened: the row existed like
    this at that time; it is not known since when. `_offset` numbers a chunk's rows.
    """
    columns = {
        "_op": pa.repeat("r", count),
        "_seq": seq_array(count, phase=SNAPSHOT_PHASE, log=LOG_EPOCH, file=cut[0], position=cut[1], row=0),
        "_rowtime": pa.repeat(pa.scalar(began_s * 1_000_000, pa.int64()).cast(SOURCE_TYPES["_rowtime"]), count),
        "_split": pa.repeat(split, count),
        "_offset": pa.array(np.arange(first, first + count, dtype=np.int64)),
    }
    return [columns[name] for name in SOURCE_COLUMNS]


@dataclass(frozen=True)
class CanonicalType:
    """The canonical type of a column, which both phases give: `spark` in Spark's DDL, `arrow` as the decoder builds
    it."""

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
    if (have, want) in _WIDENINGS:
        return None
    if _digits(have) and _digits(want):
        (whole, fraction), (wanted_whole, wanted_fraction) = _digits(have), _digits(want)  # type: ignore[misc]
        return None if wanted_whole >= whole and wanted_fraction >= fraction else _reason(have, want)
    if want == "DOUBLE" and have in ("TINYINT", "SMALLINT", "INT"):
        return None
    return _reason(have, want)


def cut_off(declared: FlinkType, longest: int | None, fraction: int) -> str | None:
    """Why a column declared with a length, or with digits of a second, cannot hold every value of the source; None when
    it can. `longest`: characters of the longest value, bytes of a binary one, None: no limit; `fraction`: digits after
    the source's seconds."""
    if declared.kind in TIMESTAMPS:
        digits = MAX_FRACTION if declared.precision is None else declared.precision
        fitting = replace(declared, precision=fraction)
        return None if digits >= fraction else f"digits of a second would be lost; declare it as {fitting}"
    if declared.kind not in (*STRINGS, *BINARIES) or declared.precision is None:
        return None
    if longest is not None and longest <= declared.precision:
        return None
    limited, unlimited = ("VARCHAR", "STRING") if declared.kind in STRINGS else ("VARBINARY", "BYTES")
    fitting = unlimited if longest is None or longest > _LONGEST else f"{limited}({longest})"
    return f"longer values would not fit; declare it as {fitting}"


_LONGEST = 65_535
"""A longer text or binary value is declared without a length."""

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
    ("DECIMAL(20,0)", "BIGINT"),
}

_GREATEST_BIGINT = 2**63 - 1


def cast_to_declared(
    expression: str, source: CanonicalType, declared: str, time_zone: str = "UTC", name: str = ""
) -> str:
    """Spark SQL that casts `expression`, of type `source`, to the declared type; the same in both phases. `name`: that
    of the column, for errors.

    `time_zone` ('server-time-zone') is where an instant becomes a local time, or the reverse; the session's own time
    zone is not used. `compatible` must have been called before.
    """
    have, want = source.spark, _plain(declared)
    zone = spark_string(time_zone)
    if have == want:
        return expression
    if (have, want) == ("TIMESTAMP", "TIMESTAMP_NTZ"):
        utc = f"TIMESTAMPADD(MICROSECOND, UNIX_MICROS({expression}), TIMESTAMP_NTZ'1970-01-01 00:00:00')"
        return f"CONVERT_TIMEZONE('UTC', {zone}, {utc})"
    if (have, want) == ("TIMESTAMP_NTZ", "TIMESTAMP"):
        utc = f"CONVERT_TIMEZONE({zone}, 'UTC', {expression})"
        return f"TIMESTAMP_MICROS(TIMESTAMPDIFF(MICROSECOND, TIMESTAMP_NTZ'1970-01-01 00:00:00', {utc}))"
    if (have, want) == ("DECIMAL(20,0)", "BIGINT"):  # BIGINT UNSIGNED, whose values mostly fit
        stops = ValueTooGreat.raised_by_sql(name or expression, expression)
        return f"CASE WHEN {expression} > {_GREATEST_BIGINT} THEN {stops} ELSE CAST({expression} AS BIGINT) END"
    return f"CAST({expression} AS {want})"


def _plain(declared: str) -> str:
    """`Column.spark_type` without blanks: DECIMAL(12, 2) -> DECIMAL(12,2)."""
    return "".join(declared.upper().split())


def _digits(spark: str) -> tuple[int, int] | None:
    """Decimal digits before and after the point that a numeric Spark type may hold; None for others."""
    if spark in _INTEGERS:
        return _INTEGERS[spark], 0
    if spark.startswith("DECIMAL("):
        precision, scale = map(int, spark[8:-1].split(","))
        return precision - scale, scale
    return None


def _reason(have: str, want: str) -> str:
    return f"the source's values are {have}, which {want} cannot hold; declare it as {have}"
