"""Lines and their places, however a file is cut: against splitting the bytes in plain Python."""

from __future__ import annotations

import bz2
import gzip
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.pipelines.sources.filesystem import lines
from tidegate.pipelines.sources.filesystem.lines import Range, packed, read_range


def expected(data: bytes) -> list[tuple[bytes, int]]:
    """Every line that has a character, and where it begins."""
    found, position = [], 0
    for line in data.split(b"\n"):
        bare = line.removesuffix(b"\r")
        bare = bare.removeprefix(b"\xef\xbb\xbf") if position == 0 else bare
        if bare:
            found.append((bare, position))
        position += len(line) + 1
    return found


def read(path: Path, range_bytes: int = lines.RANGE_BYTES) -> list[tuple[bytes, int]]:
    stat = path.stat()
    found = []
    for task in packed([(7, str(path), stat.st_size, stat.st_mtime_ns)], range_bytes):
        for part in task:
            for batch in read_range(part):
                assert set(batch["_file"].to_pylist()) == {7}
                found += zip(batch["_value"].to_pylist(), batch["_position"].to_pylist(), strict=True)
    return found


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lines")


PIECES = [b"\n", b"\r\n", b"\r", b"a", b"bc", b"\xef\xbb\xbf", b"\xff", b"d" * 20]


@settings(deadline=None)
@given(
    text=st.lists(st.sampled_from(PIECES)).map(b"".join),
    size=st.integers(1, 30),
    block=st.integers(1, 30),
)
def test_any_cut_gives_the_same_lines(place: Path, text: bytes, size: int, block: int) -> None:
    path = place / "file"
    path.write_bytes(text)
    whole, lines.BLOCK_BYTES = lines.BLOCK_BYTES, block
    try:
        assert read(path, size) == expected(text)
    finally:
        lines.BLOCK_BYTES = whole


@pytest.mark.parametrize(("ending", "pack"), [(".gz", gzip.compress), (".bz2", bz2.compress)])
def test_compressed_files_are_unpacked(tmp_path: Path, ending: str, pack) -> None:
    path = tmp_path / f"file{ending}"
    for text in (b"".join(b"line %d\n" % number for number in range(10_000)) + b"last", b""):
        path.write_bytes(pack(text))
        assert read(path, 100) == expected(text)


@pytest.mark.parametrize("ending", [".gz", ".bz2", ".zst"])
def test_an_archive_without_a_byte_is_cut(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"file{ending}"
    path.write_bytes(b"")
    with pytest.raises(RuntimeError, match="the archive is cut or damaged: it has not a single byte"):
        read(path)
    (batch,) = read_range(Range(0, str(path), 0, path.stat().st_mtime_ns, 0, 0), keeps_broken=True)
    assert [text.split(":")[0] for text in batch["_cut"].to_pylist()] == ["the archive is cut or damaged"]


def test_small_files_share_a_task() -> None:
    files = [(number, f"/f{number}", size, 0) for number, size in enumerate((40, 50, 20, 0, 250))]
    tasks = [[(part.number, part.start, part.stop) for part in task] for task in packed(files, 100)]
    assert tasks == [[(0, 0, 40), (1, 0, 50)], [(2, 0, 20), (3, 0, 0)], [(4, 0, 100)], [(4, 100, 200)], [(4, 200, 250)]]


def test_a_file_that_is_not_as_it_was_planned(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"a\nb\n")
    stat = path.stat()
    part = Range(0, str(path), stat.st_size, stat.st_mtime_ns, 0, stat.st_size)
    reading = read_range(part)
    assert next(reading)["_value"].to_pylist() == [b"a", b"b"]
    os.utime(path, (1, 1))
    with pytest.raises(RuntimeError, match=r"not as it was planned: .*/file"):
        next(reading)
    with pytest.raises(RuntimeError, match="not as it was planned"):
        next(read_range(part))
    path.unlink()
    with pytest.raises(RuntimeError, match="not as it was planned"):
        next(read_range(part))


def test_a_line_without_end_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "MAX_LINE_BYTES", 10)
    monkeypatch.setattr(lines, "BLOCK_BYTES", 8)
    path = tmp_path / "file"
    path.write_bytes(b"a\n" + b"x" * 100)
    with pytest.raises(RuntimeError, match="a line of more than 10 bytes, at byte 2"):
        read(path)
