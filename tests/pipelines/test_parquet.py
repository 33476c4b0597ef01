"""Files that a Delta table can adopt: whole or not there, with statistics, and read by Spark as they were written."""

from __future__ import annotations

import datetime
import errno
import io
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tidegate.pipelines import parquet
from tidegate.pipelines.parquet import bounds_of_files, column_bounds, write_file

SEQ = pa.struct([("file", pa.int64()), ("position", pa.int64())])


def batch(first: int, count: int = 10) -> pa.RecordBatch:
    numbers = range(first, first + count)
    return pa.RecordBatch.from_pydict(
        {
            "split": pa.repeat("chunk-0", count),
            "seq": pa.array([{"file": 3, "position": 450}] * count, SEQ),
            "k": pa.array(numbers, pa.int64()),
            "price": pa.array([Decimal(n).scaleb(-2) for n in numbers], pa.decimal128(12, 2)),
            "at": pa.array([datetime.datetime(1, 1, 1)] * count, pa.timestamp("us")),
        }
    )


def test_the_footer_shows_of_every_column(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    assert write_file(path, [batch(0), batch(10, 0), batch(10)]) == 20
    footer = pq.read_metadata(path)
    assert (footer.num_rows, footer.num_row_groups) == (20, 1)
    assert column_bounds(footer, "split") == ("chunk-0", "chunk-0")
    assert column_bounds(footer, "seq.position") == (450, 450)
    assert column_bounds(footer, "k") == (0, 19)
    assert pq.read_table(path)["price"].to_pylist() == [Decimal(n).scaleb(-2) for n in range(20)]
    columns = {footer.row_group(0).column(n).path_in_schema: footer.row_group(0).column(n) for n in range(6)}
    assert "RLE_DICTIONARY" in columns["split"].encodings
    assert "RLE_DICTIONARY" not in columns["k"].encodings


def test_columns_of_lists_and_maps_are_written(tmp_path: Path) -> None:
    lists, maps = pa.list_(pa.string()), pa.map_(pa.string(), pa.list_(pa.float64()))
    rows = [{"l": ["a", None], "m": [("k", [1.5])], "s": {"l": []}}, {"l": None, "m": [], "s": None}]
    schema = pa.schema([("l", lists), ("m", maps), ("s", pa.struct([("l", lists)]))])
    assert write_file(tmp_path / "a.parquet", [pa.RecordBatch.from_pylist(rows, schema)]) == 2
    assert pq.read_table(tmp_path / "a.parquet").to_pylist() == rows


def test_what_is_held_does_not_grow_with_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "GROUP_BYTES", 3 * batch(0).nbytes)
    write_file(tmp_path / "a.parquet", (batch(10 * n) for n in range(10)))
    footer = pq.read_metadata(tmp_path / "a.parquet")
    assert [footer.row_group(n).num_rows for n in range(footer.num_row_groups)] == [30, 30, 30, 10]
    assert column_bounds(footer, "k") == (0, 99)


def test_a_page_does_not_grow_with_its_values(tmp_path: Path) -> None:
    """Narrow columns are written many values at once, and a wide one in pages of about a megabyte all the same."""
    rows = pa.RecordBatch.from_pydict(
        {"k": pa.array(range(20_000)), "text": pa.array([f"{n:02000}" for n in range(20_000)])}
    )
    write_file(tmp_path / "wide.parquet", [rows])
    written = pq.ParquetFile(tmp_path / "wide.parquet")
    assert parquet._written_at_once(pa.table({"k": rows["k"]})) == 1 << 16
    assert parquet._written_at_once(pa.Table.from_batches([rows])) == 1024
    assert written.read().to_batches()[0].equals(rows)


def test_numbers_with_nan_have_no_bounds(tmp_path: Path) -> None:
    """Arrow leaves NaN out of them, and Spark takes it for the greatest number: a reader would pass rows over."""
    struct = pa.struct([("deep", pa.float32()), ("k", pa.int64())])
    values = pa.array([{"deep": 1.0, "k": 7}, {"deep": 2.0, "k": 8}], struct)
    write_file(tmp_path / "a.parquet", [pa.RecordBatch.from_pydict({"x": [1.0, float("nan")], "s": values})])
    footer = pq.read_metadata(tmp_path / "a.parquet")
    assert [column_bounds(footer, name) for name in ("x", "s.deep", "s.k")] == [None, None, (7, 8)]


def test_no_rows_make_no_file(tmp_path: Path) -> None:
    assert write_file(tmp_path / "a.parquet", [batch(0, 0)]) == 0
    assert list(tmp_path.iterdir()) == []


def test_a_failure_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "GROUP_BYTES", 1)

    def broken() -> Iterator[pa.RecordBatch]:
        yield batch(0)
        assert [path.suffix for path in tmp_path.iterdir()] == [".writing"]
        raise ConnectionResetError("gone")

    with pytest.raises(ConnectionResetError):
        write_file(tmp_path / "a.parquet", broken())
    assert list(tmp_path.iterdir()) == []


class FullDisk(io.FileIO):
    """A file on a disk that has room for its first bytes."""

    def write(self, data: Any) -> int:
        if self.tell() >= 4:
            raise OSError(errno.ENOSPC, "No space left on device, for rows")
        return super().write(data)


def test_a_full_disk_leaves_nothing_and_the_first_error_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Writer(pq.ParquetWriter):
        def __init__(self, path: Path, *given: Any, **named: Any) -> None:
            super().__init__(FullDisk(path, "w"), *given, **named)

        def close(self) -> None:
            super().close()
            raise OSError(errno.ENOSPC, "No space left on device, for the footer")

    monkeypatch.setattr(pq, "ParquetWriter", Writer)
    with pytest.raises(OSError, match=r"device, for rows$") as refused:
        write_file(tmp_path / "a.parquet", [batch(0)])
    assert refused.value.errno == errno.ENOSPC
    assert list(tmp_path.iterdir()) == []


def test_dictionaries_are_written_as_their_texts(tmp_path: Path) -> None:
    """Batches of several dictionaries, NULLs, values of a dictionary that no row has: rows and bounds are texts'."""
    texts = [["b", None, "c"] * 50, [None] * 150, ["x", "b", "b"] * 50]
    dictionaries = [["a", "b", "c", "z"], ["a"], ["x", "y", "b"]]
    batches = [
        pa.record_batch({"text": pa.DictionaryArray.from_arrays(
            pa.array([None if text is None else known.index(text) for text in found], pa.int32()), pa.array(known)
        )})
        for found, known in zip(texts, dictionaries, strict=True)
    ]  # fmt: skip
    assert write_file(tmp_path / "rows.parquet", batches) == 450
    file = pq.ParquetFile(tmp_path / "rows.parquet")
    assert file.schema_arrow.field("text").type == pa.string()
    assert file.read()["text"].to_pylist() == [text for found in texts for text in found]
    bounds = file.metadata.row_group(0).column(0).statistics
    assert (bounds.min, bounds.max, bounds.null_count) == ("b", "x", 200)


def footer(path: Path, values: list[Any], **more: Any) -> pq.FileMetaData:
    pq.write_table(pa.table({"s": pa.array(values, pa.string()), "n": list(range(len(values)))}), path, **more)
    return pq.read_metadata(path)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ([], (None, None)),
        ([[]], (None, None)),
        ([["b"], []], ("b", "b")),
        ([["b", "c"], ["a" * 300]], ("a" * 300, "c")),
        ([["b"], ["b", None]], None),
        ([["b"], [None]], None),
    ],
)
def test_bounds(files: list[list[Any]], expected: Any, tmp_path: Path) -> None:
    footers = [footer(tmp_path / f"{n}.parquet", values, row_group_size=1) for n, values in enumerate(files)]
    assert bounds_of_files(footers, "s") == expected


def test_no_bounds_without_statistics(tmp_path: Path) -> None:
    assert bounds_of_files([footer(tmp_path / "a.parquet", ["a"], write_statistics=False)], "s") is None
    assert bounds_of_files([footer(tmp_path / "b.parquet", ["a"])], "another") is None
