"""A generator of one's own over an epoch's rows: one pass on the executors, a split's rows in their order.

The rows come in Arrow batches, sorted by Spark; a split's generator takes up the state that the epoch before stored
and gives back its new one. What comes to the driver is one row a split.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from tidegate.pipelines.runtime.watermark_log.passes import SplitPass, SplitsBefore, rowtime_ms
from tidegate.pipelines.runtime.watermark_log.running import GeneratorRun
from tidegate.pipelines.syntax.types import quoted
from tidegate.pipelines.watermarks import MIN_TIMESTAMP, Watermark, WatermarkStrategy

_SCHEMA = pa.schema(
    [
        ("split", pa.string()),
        ("rows", pa.int64()),
        ("late", pa.int64()),
        ("timestamp", pa.int64()),
        ("processing", pa.bool_()),
        ("idle", pa.bool_()),
        ("state", pa.string()),
        ("rowtime", pa.int64()),
    ]
)


def scan(
    rows: DataFrame | None, strategy: WatermarkStrategy, splits_before: SplitsBefore, now: int, columns: Sequence[str]
) -> list[SplitPass]:
    """What the generators of `strategy` make of `rows`; those of splits without rows are asked too, if periodic.

    Args:
        rows: With `columns`, which make an element, and _split, _offset, _seq, _rowtime.
        now: The epoch's time in ms, UTC.

    Raises GeneratorError, inside of what Spark raises where it was a worker's.
    """
    found: list[SplitPass] = []
    if rows is not None:
        own = F.coalesce(F.unix_millis("_rowtime"), F.lit(MIN_TIMESTAMP)).alias("_own")
        whole = F.coalesce(rowtime_ms(), F.lit(MIN_TIMESTAMP)).alias("_whole")
        ordered = (
            rows.select("_split", "_offset", "_seq", own, whole, *map(quoted, columns))
            .repartition("_split")
            .sortWithinPartitions("_split", "_offset", "_seq")
            .drop("_seq")
        )
        passes = ordered.mapInArrow(_worker(strategy, splits_before, now, tuple(columns)), from_arrow_schema(_SCHEMA))
        for row in passes.collect():  # one row a split
            watermark = Watermark(row["timestamp"], row["processing"])
            state = json.loads(row["state"])
            counts = (row["split"], row["rows"], row["late"])
            found.append(SplitPass(*counts, watermark, state, row["idle"], row["rowtime"]))
    seen = {item.split for item in found}
    quiet = [name for name, split in splits_before.splits.items() if name not in seen and not split.ended]
    return found + [GeneratorRun(strategy, name, splits_before, now).end() for name in quiet]


def _worker(
    strategy: WatermarkStrategy, splits_before: SplitsBefore, now: int, columns: tuple[str, ...]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        split: str | None = None
        active: GeneratorRun | None = None
        for batch in batches:
            splits = batch.column("_split").to_pylist()
            offsets = batch.column("_offset").to_pylist()
            times = zip(batch.column("_own").to_pylist(), batch.column("_whole").to_pylist(), strict=True)
            elements = batch.select(list(columns)).to_pylist()
            for name, offset, (own, whole), element in zip(splits, offsets, times, elements, strict=True):
                if active is None or name != split:
                    if active is not None:
                        yield _described(active.end())
                    split, active = name, GeneratorRun(strategy, name, splits_before, now)
                active.row(element, offset, own, whole)
        if active is not None:
            yield _described(active.end())

    return run


def _described(item: SplitPass) -> pa.RecordBatch:
    row = {
        "split": item.split,
        "rows": item.rows,
        "late": item.late,
        "timestamp": item.watermark.timestamp,
        "processing": item.watermark.use_processing_time,
        "idle": item.idle,
        "state": json.dumps(item.state),
        "rowtime": item.rowtime,
    }
    return pa.RecordBatch.from_pylist([row], _SCHEMA)
