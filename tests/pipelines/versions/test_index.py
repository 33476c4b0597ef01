"""What a row meets, against a search that looks at every version: by both times, over runs, shards, truncates, pins."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import at_length, searched
from tidegate.pipelines.connectors.spec import SEQ_PARTS, SEQ_TYPE
from tidegate.pipelines.errors import LakeError
from tidegate.pipelines.sources.arrow_types import arrow_type
from tidegate.pipelines.versions import (
    ABSENT,
    BEFORE_FIRST,
    GONE,
    MATCH,
    IndexOf,
    Made,
    hashing,
    make,
    opened,
    run_files,
)

TIME = pa.timestamp("us", tz="UTC")
KINDS = {
    "number": pa.int64(), "text": pa.string(), "real": pa.float64(), "exact": pa.decimal128(20, 2), "flag": pa.bool_(),
    "raw": pa.binary(),
}  # fmt: skip
VALUES = {
    "number": [None, 0, 1, -1, 2**63 - 1, -(2**63)],
    "text": [
        None,
        "",
        "a",
        "ä",
        "a\0",
        "abcdefgh",
        "abcdefghi",
        *("a" * size for size in (16, 17, 40)),
        "a" * 16 + "b",
    ],
    "real": [None, 0.0, -0.0, math.nan, -math.nan, 1.5, math.inf],
    "exact": [None, Decimal("0.00"), Decimal("-1.50"), Decimal("123456789012345678.25")],
    "flag": [None, True, False],
    "raw": [None, b"", b"\0", b"\0\0"],
}


NOTES = ("one", "two", None)


@dataclass(frozen=True)
class Row:
    """A row of a changelog; `seq` are two parts of it, the second of which makes it another one."""

    op: str
    key: tuple[Any, ...]
    time: int | None
    seq: tuple[int | None, int]
    epoch: int


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[str], list[Row], list[tuple[tuple[Any, ...], int]], list[int], int, int]:
    """Key columns, a changelog, probes (key, time), the ends of runs, their shards, a pin."""
    columns = draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=2, unique=True))
    key = st.tuples(*(st.sampled_from(VALUES[name]) for name in columns))
    moment = st.one_of(st.integers(-3, 3), st.sampled_from([-(2**62), 2**62]))
    drawn = draw(
        st.lists(
            st.tuples(
                st.sampled_from("rucuudt"), key, st.one_of(st.none(), moment), st.sampled_from([None, 0, 1, 2**40]),
                st.integers(1, 5),
            ),
            max_size=14,
        )
    )  # fmt: skip
    places = draw(st.permutations(range(len(drawn))))
    rows = [
        Row(op, (None,) * len(columns) if op == "t" else k, time, (part, place), epoch)
        for (op, k, time, part, epoch), place in zip(drawn, places, strict=True)
    ]
    probes = draw(st.lists(st.tuples(key, moment), min_size=1, max_size=6))
    cuts = sorted({5, *draw(st.lists(st.integers(1, 4), max_size=2))})
    return columns, rows, probes, cuts, draw(st.sampled_from([1, 2, 4])), draw(st.integers(1, 5))


def written(folder: Path, columns: list[str], rows: list[Row]) -> str:
    seqs = [{**dict.fromkeys(SEQ_PARTS), "file": row.seq[0], "position": row.seq[1]} for row in rows]
    table = pa.table(
        {
            **{name: pa.array([row.key[n] for row in rows], KINDS[name]) for n, name in enumerate(columns)},
            "place": pa.array(range(len(rows)), pa.int64()),
            "note": pa.array([NOTES[place % 3] for place in range(len(rows))], pa.string()),
            "_rowtime": pa.array([row.time for row in rows], TIME),
            "_seq": pa.array(seqs, arrow_type(SEQ_TYPE)),
            "_op": pa.array([row.op for row in rows], pa.string()),
            "_generation": pa.repeat(pa.scalar(1, pa.int32()), len(rows)),
            "_epoch": pa.array([row.epoch for row in rows], pa.int64()),
        }
    )
    pq.write_table(table, folder / "rows.parquet")
    return str(folder / "rows.parquet")


def made(folder: Path, columns: list[str], file: str, cuts: list[int], shards: int) -> tuple[Made, ...]:
    types = {**{name: KINDS[name] for name in columns}, "place": pa.int64(), "note": pa.string()}
    spans = zip([0, *cuts[:-1]], cuts, strict=True)
    return tuple(
        Made(str(folder / f"{after}-{upto}.{shard}"), (file,), 1, after, upto, tuple(columns), types, shard, shards)
        for after, upto in spans
        for shard in range(shards)
    )


def equal(one: Any, other: Any) -> bool:
    both = isinstance(one, float) and isinstance(other, float) and math.isnan(one) and math.isnan(other)
    return both or one == other


def order(row: Row) -> tuple[int, int]:
    return (-1 if row.seq[0] is None else row.seq[0], row.seq[1])


def expected(rows: list[Row], key: tuple[Any, ...], at: int | None, pin: int) -> tuple[int, int | None]:
    """What a row meets, and the place of the version; `at` None: as of the pin."""
    seen = [row for row in rows if row.epoch <= pin and (at is None or row.time is not None)]
    own = [row for row in seen if row.op != "t" and all(equal(a, b) for a, b in zip(row.key, key, strict=True))]
    if not own:
        return ABSENT, None
    if at is None:
        last = max(own, key=order)
        gone = any(row.op == "t" and order(row) > order(last) for row in rows if row.epoch <= pin)
    else:
        by = [row for row in own if row.time is not None and row.time <= at]
        if not by:
            return BEFORE_FIRST, None
        last = max(by, key=lambda row: (row.time, *order(row)))
        gone = any(
            row.op == "t" and (row.time, *order(row)) > (last.time, *order(last)) and row.time <= at for row in seen
        )
    return (GONE, None) if gone or last.op == "d" else (MATCH, rows.index(last))


@pytest.mark.parametrize("colliding", at_length([False, True]))
@searched(100)
@given(case=cases())
def test_a_row_meets_what_a_look_at_all_versions_finds(
    tmp_path_factory: pytest.TempPathFactory, colliding: bool, case: Any
) -> None:
    columns, rows, probes, cuts, shards, pin = case
    folder = tmp_path_factory.mktemp("index")
    keys = [pa.array([key[n] for key, _ in probes], KINDS[name]) for n, name in enumerate(columns)]
    times = np.array([at for _, at in probes], np.int64)
    with pytest.MonkeyPatch.context() as patch:
        if colliding:  # by the salt that is tried first, all texts of one length are one
            whole = hashing.hashed
            few = np.uint64(0xFFFFFFFF00000001)
            hashes = lambda parts, salt=hashing.SALT: (  # noqa: E731
                whole(parts, salt) & few
                if salt == hashing.SALT and not hashing.one_to_one(parts)
                else whole(parts, salt)
            )
            for module in ("run_files", "index"):
                patch.setattr(f"tidegate.pipelines.versions.{module}.hashed", hashes)
            patch.setattr("tidegate.pipelines.versions.run_files.SALT", hashing.SALT)
            patch.setattr("tidegate.pipelines.versions.run_files._REPEATED", 0)  # all text is a dictionary
            patch.setattr("tidegate.pipelines.versions.run_files._APART", 1)
            patch.setattr("tidegate.pipelines.versions.run.HOT_VERSIONS", 1)
            patch.setattr("tidegate.pipelines.versions.run.FEW_ABSENT", 1)  # the others are looked for as well
            patch.setattr("tidegate.pipelines.versions.index.BLOCK", 2)
        index = opened(IndexOf(made(folder, columns, written(folder, columns, rows), cuts, shards), pin, None))
        for at in (times, None):
            found = index.find(keys, at)
            met = found.what == MATCH
            places, notes = (column.to_pylist() for column in index.taken(["place", "note"], found, met))
            assert notes == [None if place is None else NOTES[place % 3] for place in places]
            for number, (key, time) in enumerate(probes):
                if None not in key:  # what a NULL finds means nothing
                    wanted = expected(rows, key, None if at is None else time, pin)
                    assert (found.what[number], places[number]) == wanted
            of_keys = index.of(keys, timed=at is not None)
            again = of_keys.find(keys, at)
            assert again.what.tolist() == found.what.tolist(), "the versions of these keys are all that it takes"
            assert of_keys.taken(["place"], again, met)[0].to_pylist() == places
            epochs = index.numbers("epochs", found)
            assert all(epochs[n] == rows[places[n]].epoch for n in np.flatnonzero(met))


def test_versions_that_are_ordered_by_several_threads_are_in_the_order_of_one_sort() -> None:
    numbers = np.random.default_rng(1)
    hashes = numbers.choice(numbers.integers(0, 1 << 64, 30_000, np.uint64), 2 * run_files._APART)
    times, rank = numbers.integers(-9, 9, len(hashes)), numbers.permutation(len(hashes))
    with ThreadPoolExecutor(2) as pool:
        order = run_files._ordered(hashes, times, rank, pool)
    assert np.array_equal(order, np.lexsort((rank, times, hashes)))


def test_two_keys_of_one_hash_are_distinguished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first salt gives all keys one hash; another is taken, and a key that is not there is not found."""
    real = hashing.hashed
    monkeypatch.setattr(run_files, "hashed", lambda parts, salt: real(parts, salt) * np.uint64(salt != hashing.SALT))
    rows = [Row("c", ("a",), 1, (0, 0), 1), Row("c", ("b",), 2, (0, 1), 1)]
    runs = made(tmp_path, ["text"], written(tmp_path, ["text"], rows), [1], 1)
    make(runs[0])
    index = opened(IndexOf(runs, 1, 2))
    assert index.runs[0][0].salt != hashing.SALT
    found = index.find([pa.array(["a", "b", "c"])], None)
    assert found.what.tolist() == [MATCH, MATCH, ABSENT]
    assert index.taken(["place"], found, found.what == MATCH)[0].to_pylist() == [0, 1, None]


def test_a_key_that_only_shares_its_hash_is_not_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [Row("c", ("a",), 1, (0, 0), 1)]
    runs = made(tmp_path, ["text"], written(tmp_path, ["text"], rows), [1], 1)
    for module in ("run_files", "index"):
        monkeypatch.setattr(
            f"tidegate.pipelines.versions.{module}.hashed", lambda parts, salt=0: np.zeros(len(parts[0]), np.uint64)
        )
    found = opened(IndexOf(runs, 1, 1)).find([pa.array(["a", "b"])], None)
    assert found.what.tolist() == [MATCH, ABSENT]


def test_an_index_that_lacks_rows_is_made_anew_and_refused_where_the_table_lacks_them(tmp_path: Path) -> None:
    """A run of a commit that was lost, or of fewer rows than landed, is used by nobody."""
    rows = [Row("c", (1,), 1, (0, 0), 1), Row("c", (2,), 2, (0, 1), 1)]
    file = written(tmp_path, ["number"], rows[:1])
    runs = made(tmp_path, ["number"], file, [1], 1)
    make(runs[0])
    written(tmp_path, ["number"], rows)
    found = opened(IndexOf(runs, 1, 2)).find([pa.array([2])], None)
    assert found.what.tolist() == [MATCH]
    with pytest.raises(LakeError, match="a build's files hold 2 rows, and the watermark log has 3"):
        opened(IndexOf(runs, 1, 3))


def test_keys_are_one_where_their_bytes_are() -> None:
    """Lengths about the words that a text is cut into, bytes that look like what is behind it, slices of a column."""
    texts = [prefix * (size // 2) + prefix[: size % 2] for prefix in ("ab", "a\0", "\0\0") for size in range(40)]
    texts += ["a" * size + "b" for size in range(40)]
    column = pa.array([None, *texts, *texts], pa.string())[1:]
    parts = hashing.words([column])
    hashes = hashing.hashed(parts)
    again = hashing.words([pa.array(texts, pa.large_string())])
    assert hashing.hashed(again).tolist() == hashes[: len(texts)].tolist() == hashes[len(texts) :].tolist()
    assert len(set(hashes.tolist())) == len(set(texts))
    stored = pa.table(hashing.stored(parts))
    back = hashing.restored({name: stored[name].combine_chunks() for name in stored.column_names})
    rows = np.arange(len(texts))
    for shift in range(0, len(texts), 7):
        wanted = [texts[(n + shift) % len(texts)] == texts[n] for n in rows]
        words = zip(back, again, strict=True)
        found = np.all([hashing.same(mine, (rows + shift) % len(texts), own, rows) for mine, own in words], axis=0)
        assert found.tolist() == wanted
