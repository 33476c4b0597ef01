"""What the demo's line says while a table is loading, and when it follows the binlog."""

from __future__ import annotations

import pytest

from tidegate.orchestration.demo.play import waiting_by_reason
from tidegate.pipelines.runtime.ledger import WhereRowsAre
from tidegate.pipelines.runtime.status import Chunks, Flip, InsertStatus, LakeStatus, SourceStatus

LOADING = Chunks(17, 124)


def source(
    table: str, rows: int, chunks: Chunks | None = None, flip: Flip | None = None, lag_ms: int | None = None
) -> SourceStatus:
    return SourceStatus(
        table=table,
        generation=1,
        epochs=2,
        planned=3,
        rows=rows,
        phase="unbounded" if flip else "bounded",
        step="",
        chunks=chunks,
        flip=flip,
        watermark=None,
        use_processing_time=flip is not None,
        idle=False,
        lag_ms=lag_ms,
        position="binlog.000001:4",
        landed_at=1000,
        holder=None,
    )


def insert(waiting: int | None) -> InsertStatus:
    rows = None if waiting is None else WhereRowsAre("e", "click_event", 1, landed=600_000, waiting=waiting)
    return InsertStatus(
        insert="e",
        target="e",
        probe="click_event",
        generation=1,
        epoch=0,
        kind=None,
        state=None,
        planned_at=None,
        pins=(),
        reasons=(),
        waits_for=("user_info",),
        rows=rows,
        holder=None,
        given_up="",
        process=False,
    )


CLICKS = source("click_event", 600_000)
FLIP = Flip(2, 1000, {"file": "binlog.000001", "position": 4}, "binlog.000001:900")


@pytest.mark.parametrize(
    ("user_info", "waiting", "line"),
    [
        (source("user_info", 0), 500_000, "500,000"),
        (
            source("user_info", 137_632, LOADING),
            512_345,
            "512,345 · user_info 17 of 124 chunks, 137,632 rows",
        ),
        (
            source("user_info", 1_000_000, Chunks(124, 124), lag_ms=2400),
            512_345,
            "512,345 · user_info 124 of 124 chunks, 1,000,000 rows",
        ),
        (
            source("user_info", 1_060_000, Chunks(124, 124), FLIP, 2400),
            0,
            "0 · user_info 2.4 s behind the binlog",
        ),
        (source("user_info", 0), None, "0"),
    ],
    ids=["nothing yet", "chunks", "all chunks, not flipped", "flipped", "no clicks"],
)
def test_the_line_says_who_waits_how_much_is_read_and_how_far_behind(
    user_info: SourceStatus, waiting: int | None, line: str
) -> None:
    assert waiting_by_reason(LakeStatus("lake", 2000, (user_info, CLICKS), (insert(waiting),))) == line
