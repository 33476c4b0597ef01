"""Whether a row is late: its rowtime is at or below the table's watermark as of the epoch before."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

_LEAST, _MOST = -(2**63), 2**63 - 1


def rowtime_ms() -> Column:
    """The rowtime in ms, a part of one counted as a whole one: it is at or below t exactly if this is."""
    rowtime = F.col("_rowtime")
    return F.unix_millis(rowtime) + F.when(F.pmod(F.unix_micros(rowtime), F.lit(1000)) == 0, 0).otherwise(1)


def micros(watermark: int) -> int:
    """A watermark in ms as microseconds, or the end of what a column can hold."""
    return max(_LEAST, min(_MOST, watermark * 1000))
