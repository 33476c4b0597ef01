"""What file footers tell of a batch of chunks, and when they do not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tidegate.pipelines.sources.mysql_cdc.snapshot.files import Span, spans_of

_SEQ = pa.struct([("phase", pa.int32()), ("file", pa.int64()), ("position", pa.int64())])


def write(path: Path, split: str, cuts: list[tuple[int, int] | None], epoch: int = 3, **more: Any) -> str:
    """A file of one row per cut."""
    columns = {
        "_generation": pa.array([1] * len(cuts), pa.int32()),
        "_epoch": pa.array([epoch] * len(cuts), pa.int64()),
        "_split": pa.array([split] * len(cuts)),
        "_seq": pa.array([cut and {"phase": 0, "file": cut[0], "position": cut[1]} for cut in cuts], _SEQ),
    }
    pq.write_table(pa.table(columns), path, **more)
    return str(path)


def test_each_file_is_a_chunk(tmp_path: Path) -> None:
    first = write(tmp_path / "a b.parquet", "chunk-000000", [(7, 450)] * 5, row_group_size=2)
    second = write(tmp_path / "b.parquet", "chunk-000001", [(7, 500), (8, 300)])
    uri = f"file://{first.replace(' ', '%20')}"
    assert spans_of([uri, second], 1, 3) == {
        "chunk-000000": Span((7, 450), (7, 450), 5),
        "chunk-000001": Span((7, 300), (8, 500), 2),
    }
    assert spans_of([], 1, 3) == {}


@pytest.mark.parametrize(
    "case", ["no statistics", "another epoch", "two files of a chunk", "two chunks in a file", "a null", "far away"]
)
def test_where_the_rows_must_be_asked(tmp_path: Path, case: str) -> None:
    cuts: list[tuple[int, int] | None] = [(7, 450), (7, 450)]
    files = [write(tmp_path / "a.parquet", "chunk-000000", cuts)]
    if case == "no statistics":
        files = [write(tmp_path / "b.parquet", "chunk-000001", cuts, write_statistics=False)]
    elif case == "another epoch":
        files.append(write(tmp_path / "b.parquet", "chunk-000001", cuts, epoch=4))
    elif case == "two files of a chunk":
        files.append(write(tmp_path / "b.parquet", "chunk-000000", cuts))
    elif case == "two chunks in a file":
        both = pa.concat_tables([pq.read_table(files[0]), pq.read_table(write(tmp_path / "c.parquet", "other", cuts))])
        pq.write_table(both, files[0])
    elif case == "a null":
        files = [write(tmp_path / "b.parquet", "chunk-000001", [(7, 450), None])]
    else:
        files = ["s3://bucket/a.parquet"]
    assert spans_of(files, 1, 3) is None
