"""The place of a target's row in the order of changes, packed into the fields of a seq."""

from __future__ import annotations

import random

import pyarrow as pa

from tidegate.pipelines.connectors.spec import SEQ_PARTS
from tidegate.pipelines.joins.writer import Release, ordered, split_of


def test_the_order_is_that_of_epoch_rowtime_split_and_offset() -> None:
    draw, rows, places = random.Random(7), list[tuple[int, ...]](), list[tuple[int, ...]]()
    times = (None, -(2**57), -1, 0, 1, 2**32 - 1, 2**32, 2**57)
    landed = [(epoch, split) for epoch in (9, 10, 123_456) for split in ("1", "10", "2", "ö/2026.csv")]
    splits = tuple(sorted(split_of(*each) for each in landed))
    for epoch in (1, 2, 2**31 - 1):
        some = [(draw.choice(times), *draw.choice(landed), draw.choice((0, 1, 2**62))) for _ in range(200)]
        time, of, split, offset = (list(column) for column in zip(*some, strict=True))
        frame = {
            "_probe_epoch": pa.array(of, pa.int64()),
            "_probe_split": pa.array(split).dictionary_encode(),
            "_probe_offset": pa.array(offset, pa.int64()),
            "_probe_time": pa.array(time, pa.int64()),
        }
        seqs = ordered(frame.__getitem__, Release(1, epoch, 0, "quarantine", splits=splits)).to_pylist()
        lowest = -(2**63)  # NULL is before any value
        rows += [
            (epoch, lowest if at is None else at, splits.index(split_of(own, name)), n) for at, own, name, n in some
        ]
        places += [tuple(lowest if seq[part] is None else seq[part] for part in SEQ_PARTS) for seq in seqs]
    by_row, by_place = (sorted(range(len(rows)), key=keys.__getitem__) for keys in (rows, places))
    assert by_row == by_place
    assert len(set(rows)) == len(set(places))
