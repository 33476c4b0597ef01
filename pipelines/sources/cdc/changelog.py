"""The columns that every row of a changelog carries beside the table's own, as Arrow."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tidegate.pipelines.connectors.spec import SOURCE_COLUMNS

SNAPSHOT_PHASE = 0
LOG_PHASE = 1
"""`_seq.phase`: whatever the log says of a key wins over its snapshot."""

LOG_EPOCH = 0
"""`_seq.log`. A generation reads one log only: where the server's log begins anew, so does the table, in a new
generation."""

SEQ = pa.struct(
    [
        ("phase", pa.int32()),
        ("log", pa.int32()),
        ("file", pa.int64()),
        ("position", pa.int64()),
        ("row", pa.int32()),
    ]
)
ARROW = {
    "_op": pa.string(),
    "_seq": SEQ,
    "_rowtime": pa.timestamp("us", "UTC"),
    "_split": pa.string(),
    "_offset": pa.int64(),
}
SOURCE_FIELDS = [pa.field(name, ARROW[name]) for name in SOURCE_COLUMNS]


def snapshot_columns(split: str, cut: tuple[int, int], began_s: int, first: int, count: int) -> list[pa.Array]:
    """SOURCE_COLUMNS of `count` rows of a chunk, `first` of which came before.

    `_seq` holds the cut. `_rowtime` is `began_s` (s, UTC), just before the read view was opened: the row was like this
    at that time, nobody knows since when. `_offset` numbers a chunk's rows.
    """
    parts = {"phase": SNAPSHOT_PHASE, "log": LOG_EPOCH, "file": cut[0], "position": cut[1], "row": 0}
    seq = [pa.repeat(pa.scalar(parts[part.name], part.type), count) for part in SEQ]
    columns = {
        "_op": pa.repeat("r", count),
        "_seq": pa.StructArray.from_arrays(seq, fields=list(SEQ)),
        "_rowtime": pa.repeat(pa.scalar(began_s * 1_000_000, pa.int64()).cast(ARROW["_rowtime"]), count),
        "_split": pa.repeat(split, count),
        "_offset": pa.array(np.arange(first, first + count, dtype=np.int64)),
    }
    return [columns[name] for name in SOURCE_COLUMNS]
