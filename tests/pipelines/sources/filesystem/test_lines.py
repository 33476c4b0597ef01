"""Records and their places, however a file is cut: against splitting the bytes in plain Python."""

from __future__ import annotations

import bz2
import gzip
import json
import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.pipelines.sources.filesystem import lines
from tidegate.pipelines.sources.filesystem.lines import Range, ending, packed, read_range
from tidegate.pipelines.sources.formats.json_arrays import begins_with_array
from tidegate.pipelines.sources.formats.records import BOM, CsvRecords, JsonRecords, Lines, Records

LINES = Lines()


def expected(data: bytes) -> list[tuple[bytes, int]]:
    """Every line that has a character, and where it begins."""
    return _bare(data, [place for place, byte in enumerate(data) if byte == ord("\n")])


def _bare(data: bytes, breaks: list[int]) -> list[tuple[bytes, int]]:
    """The records between line breaks, and where they begin."""
    found = []
    for start, stop in pairwise([-1, *breaks, len(data)]):
        bare = data[start + 1 : stop].removesuffix(b"\n").removesuffix(b"\r")
        bare = bare.removeprefix(BOM) if start < 0 else bare
        if bare:
            found.append((bare, start + 1))
    return found


def of_csv(data: bytes, escape: bytes | None = None, comments: bool = False) -> list[tuple[bytes, int]]:
    """The records of CSV, one character after another."""
    breaks, state = [], "record"
    place = len(BOM) if data.startswith(BOM) else 0
    while place < len(data):
        one = data[place : place + 1]
        if state == "quoted":
            after = data[place + 1 : place + 2]
            if (one == escape and after in (b'"', escape)) or one == after == b'"':
                place += 1
            elif one == b'"':
                state = "text"
        elif one == b"\n":
            breaks.append(place)
            state = "record"
        elif state == "record" and one == b"#" and comments:
            state = "comment"
        elif state in ("record", "field") and one == b'"':
            state = "quoted"
        elif state != "comment":
            state = "field" if one == b"," else "text"
        place += 1
    return _bare(data, breaks)


def of_json(data: bytes) -> list[tuple[bytes, int]]:
    """The records of JSON: lines are joined where a value may go on."""
    breaks = []
    for place, byte in enumerate(data):
        before, after = data[:place].removeprefix(BOM).strip(), data[place:].strip()
        goes_on = before.endswith((b"{", b"[", b",", b":")) or after.startswith((b"}", b"]", b",", b":"))
        if byte == ord("\n") and not (before and goes_on):
            breaks.append(place)
    whole = [(bare.strip(), place) for bare, place in _bare(data, breaks)]
    return [(bare, place) for bare, place in whole if bare]


def read(path: Path, range_bytes: int = lines.RANGE_BYTES, records: Records = LINES) -> list[tuple[bytes, int]]:
    stat = path.stat()
    found, inside = [], False
    for task in packed([(7, str(path), stat.st_size, stat.st_mtime_ns)], range_bytes):
        for part in task:
            for batch in read_range(replace(part, inside=inside), records):
                assert set(batch["_file"].to_pylist()) <= {7}
                found += zip(batch["_value"].to_pylist(), batch["_position"].to_pylist(), strict=True)
            if records.quotes:
                inside = ending(part, records)[inside]
    return found


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lines")


PIECES = [b"\n", b"\r\n", b"\r", b"a", b"bc", b"\xef\xbb\xbf", b"\xff", b"d" * 20]
IN_CSV = [*PIECES, *[b'"'] * 4, b'""', b"\\", b'\\"', b",", b'",', b',"', b"\n#", b'\n"', b'"\n']
IN_JSON = [*PIECES, b"{", b"}", b"[", b"]", b",", b":", b" ", b"}\n{", b"\n" + b" " * 12, b'"']
Oracle = Callable[[bytes], list[tuple[bytes, int]]]
KINDS: list[tuple[Records, Oracle, list[bytes]]] = [
    (LINES, expected, PIECES),
    (CsvRecords(b",", b'"'), of_csv, IN_CSV),
    (CsvRecords(b",", b'"', b"\\", True), partial(of_csv, escape=b"\\", comments=True), IN_CSV),
    (JsonRecords(), of_json, IN_JSON),
]


@pytest.mark.parametrize(("records", "oracle", "pieces"), KINDS, ids=["lines", "csv", "csv, escapes", "json"])
@settings(deadline=None)
@given(data=st.data(), size=st.integers(1, 30), block=st.integers(1, 30))
def test_any_cut_gives_the_same_records(
    place: Path, records: Records, oracle: Oracle, pieces: list[bytes], data: st.DataObject, size: int, block: int
) -> None:
    text = data.draw(st.lists(st.sampled_from(pieces)).map(b"".join))
    if records.joins and begins_with_array(text):
        text = b"x" + text
    path = place / "file"
    path.write_bytes(text)
    whole, lines.BLOCK_BYTES = lines.BLOCK_BYTES, block
    try:
        assert read(path, size, records) == oracle(text)
    finally:
        lines.BLOCK_BYTES = whole


def test_a_quote_in_the_first_bytes_of_a_file_is_open_in_all_its_ranges(place: Path) -> None:
    (place / "file").write_bytes(b'"\na')
    records = next(records for records, oracle, _ in KINDS if oracle is of_csv)
    assert read(place / "file", 1, records) == [(b'"\na', 0)]


@pytest.mark.parametrize("before", [0, 12, 15, 16, 17, 40])
def test_a_bracket_where_the_first_read_ends_is_no_array_yet(place: Path, before: int) -> None:
    """What follows it says whether objects do."""
    text = b" " * before + b"[a\n"
    (place / "file").write_bytes(text)
    assert read(place / "file", 30, JsonRecords()) == of_json(text)


VALUES = st.recursive(
    st.sampled_from([1, "a", '"', "\\", '\\"', "[{,", "}]", ""]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["k", "]", '"']), inner, max_size=2),
)


@settings(deadline=None)
@given(
    arrays=st.lists(st.lists(st.dictionaries(st.just("v"), VALUES), max_size=4), min_size=1, max_size=3),
    indent=st.sampled_from([None, 0, 2, 70]),
    size=st.integers(1, 30),
    block=st.integers(1, 30),
)
def test_an_array_is_read_value_by_value(place: Path, arrays: list[Any], indent: int, size: int, block: int) -> None:
    path = place / "array"
    path.write_text("\n".join(json.dumps(array, indent=indent) for array in arrays))
    whole, lines.BLOCK_BYTES = lines.BLOCK_BYTES, block
    try:
        found = read(path, size, JsonRecords())
    finally:
        lines.BLOCK_BYTES = whole
    assert [json.loads(value) for value, _ in found] == [value for array in arrays for value in array]
    text = path.read_bytes()
    assert all(text[position:].startswith(value) for value, position in found)


@pytest.mark.parametrize(
    ("text", "kept", "error"),
    [
        (b'[{"a": 1}, {"a": 2', b'{"a": 1}', "the JSON array is not closed"),
        (b'[{"a": 1}, {"a": 2}}, {"a": 7}]', b'{"a": 1}', "what follows is no JSON array"),
        (b'[{"a": 1}] {"a": 7}\n{"a": 8}', b'{"a": 1}', "what follows is no JSON array"),
    ],
)
def test_what_is_broken_in_an_array_is_one_record(tmp_path: Path, text: bytes, kept: bytes, error: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(text)
    part = Range(0, str(path), len(text), path.stat().st_mtime_ns, 0, len(text))
    with pytest.raises(RuntimeError, match=error):
        list(read_range(part, JsonRecords()))
    *fine, broken = [row for batch in read_range(part, JsonRecords(), keeps_broken=True) for row in batch.to_pylist()]
    assert [row["_value"] for row in fine] == [kept]
    assert text.endswith(broken["_value"])
    assert (broken["_cut"], broken["_position"]) == (error, len(text) - len(broken["_value"]))


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
    (batch,) = read_range(Range(0, str(path), 0, path.stat().st_mtime_ns, 0, 0), LINES, keeps_broken=True)
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
    reading = read_range(part, LINES)
    assert next(reading)["_value"].to_pylist() == [b"a", b"b"]
    os.utime(path, (1, 1))
    with pytest.raises(RuntimeError, match=r"not as it was planned: .*/file"):
        next(reading)
    with pytest.raises(RuntimeError, match="not as it was planned"):
        next(read_range(part, LINES))
    path.unlink()
    with pytest.raises(RuntimeError, match="not as it was planned"):
        next(read_range(part, LINES))


def test_a_record_without_end_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "MAX_RECORD_BYTES", 10)
    monkeypatch.setattr(lines, "BLOCK_BYTES", 8)
    path = tmp_path / "file"
    path.write_bytes(b"a\n" + b"x" * 100)
    with pytest.raises(RuntimeError, match=r'"position": 2, "error": "it has more than 10 bytes"'):
        read(path)
