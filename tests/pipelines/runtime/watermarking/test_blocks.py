"""Late rows counted by blocks of offsets are those that the rows in order say."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pipelines.lake import SplitWatermark
from pipelines.runtime.watermarking import blocks, builtin
from pipelines.runtime.watermarking.blocks import Block, Blocks, Told, told
from pipelines.runtime.watermarking.passes import SplitsBefore
from pipelines.watermarks import MAX_TIMESTAMP, MIN_TIMESTAMP
from tests.pipelines.runtime.watermarking.test_builtin import BOUNDED, EXPRESSION, by_hand, frame
from tests.pipelines.runtime.watermarking.test_builtin import told as said

_row = st.tuples(
    st.sampled_from("abc"),
    st.integers(0, 3),  # how far from the offset before
    st.one_of(st.none(), st.integers(-200, 200)),  # the rowtime in tenths of a ms
    st.one_of(st.none(), st.integers(-20, 20)),  # what the expression gives
)
Row = tuple[str, int, int | None, int | None]


def before(floor: int, own: dict[str, int]) -> SplitsBefore:
    """Splits that were at `own`, of a table at `floor`."""
    return SplitsBefore(
        {name: SplitWatermark(name, at, False, state={"greatest": at, "since": 0}) for name, at in own.items()}, floor
    )


def cut(
    spark: SparkSession, rows: Sequence[Row], generator: builtin.BuiltIn, standing: SplitsBefore
) -> list[tuple[str, int, int, int]]:
    """What is said of an epoch that was counted on its way into the lake."""
    whole = frame(spark, rows)
    counts = (F.count(F.lit(1)).alias("rows"), *builtin.tally(standing, 1), *builtin.ends_of_rows())
    tally = builtin.valued(whole, generator).agg(*counts).collect()[0].asDict()
    tally["offsets"] = [blocks.Rows(len(rows), rows[0][1], rows[-1][1])]
    assert builtin._blocks(tally, 1, standing) is not None
    return sorted(map(said, builtin.scan(whole, generator, 1, standing, tally)))


@pytest.mark.parametrize("generator", [EXPRESSION, BOUNDED], ids=["expression", "bounded"])
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    found=st.lists(_row, min_size=1, max_size=40),
    splits=st.sampled_from(["a", "ab", "abc"]),
    bits=st.integers(0, 3),
    runs=st.sampled_from([1, 16]),
    floor=st.integers(-25, 15),
    own=st.dictionaries(st.sampled_from("ab"), st.integers(-25, 15)),
    wild=st.booleans(),
)
def test_blocks_say_what_the_generator_says(
    spark: SparkSession,
    generator: builtin.BuiltIn,
    found: list[Any],
    splits: str,
    bits: int,
    runs: int,
    floor: int,
    own: dict[str, int],
    wild: bool,
) -> None:
    rows, offset = [], -20
    for number, (split, further, tenths, value) in enumerate(found):
        offset += 1 + (further if wild else 0)
        at = tenths if wild or tenths is None else tenths // 20 + 10 * number  # as a rule time goes on
        rows.append((splits["abc".index(split) % len(splits)], offset, at, value if wild else number))
    standing = before(floor, own)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "SMALL_EPOCH", 1)
        patch.setattr(blocks, "_LEAST_BITS", bits)
        patch.setattr(blocks, "_RUNS", runs)
        assert cut(spark, rows, generator, standing) == list(map(said, by_hand(generator, 1, rows, standing)))


B = "b"


def block(number: int, greatest: int | None, rowtimes: tuple[int, int] | None, guessed: int = 0) -> Block:
    least, most = rowtimes or (None, None)
    return Block(B, number, 10, greatest, least, most, guessed)


@pytest.mark.parametrize(
    ("blocks_", "expected"),
    [
        ([block(0, 50, (51, 60))], Told(10, 0, 50, 60)),  # later than all that is emitted in it
        ([block(0, 50, (50, 60))], Told(10, 0, 50, 60, rising={0: 0})),  # by what stands before it, not by a guess
        ([block(0, 90, (91, 99)), block(1, 80, (1, 99), 7)], Told(20, 7, 90, 99)),  # the guess was right
        ([block(0, 50, (51, 60)), block(3, 40, (1, 60), 7)], Told(20, 0, 50, 60, level={3: 50})),
        ([block(0, 50, (51, 60)), block(1, None, None)], Told(20, 0, 50, 60)),  # no row of it has a time
        ([block(1, 40, (1, 60)), block(0, 50, (51, 60))], Told(20, 0, 50, 60, level={1: 50})),  # in any order
        ([block(0, None, (-5, 60))], Told(10, 0, None, 60, level={0: 0})),  # late by what was emitted before
    ],
)
def test_what_one_look_tells(blocks_: list[Block], expected: Told) -> None:
    assert told(blocks_, {B: 0}, 0, guess=90) == {B: expected}


def test_a_split_that_nobody_knew_stands_at_the_table_s_watermark() -> None:
    found = told([block(0, -3, (1, 9))], {"other": 99}, 5, guess=90)
    assert found[B].level == {0: 5}


M = 1_000_000
LAYOUTS = {
    "a row an offset": [blocks.Rows(M, 0, M - 1)],
    "few rows": [blocks.Rows(10, 0, 9)],
    "numbered far apart": [blocks.Rows(M, 0, M << 20)],  # a message may be several rows
    "ten files of a directory": [blocks.Rows(M // 10, n << 40, (n << 40) + M // 10) for n in range(10)],
    "two partitions": [blocks.Rows(M, 5 * 10**9, 5 * 10**9 + M), blocks.Rows(M, M, 2 * M)],
    "two hundred partitions": [blocks.Rows(M // 10, 7, 7 + M // 10) for _ in range(200)],
    "the last offsets there are": [blocks.Rows(M, 2**63 - 1 - M, 2**63 - 1)],
    "before zero": [blocks.Rows(M, -M, -1)],
    "more groups than blocks": [blocks.Rows(10, 20 * n, 20 * n + 9) for n in range(20_000)],
}


@pytest.mark.parametrize("rows", LAYOUTS.values(), ids=LAYOUTS)
def test_blocks_are_small_and_not_too_many_however_offsets_lie(rows: list[blocks.Rows]) -> None:
    cut = Blocks.of(rows, "a", 0)
    there = [min(each.count, (each.last >> cut.bits) - (each.first >> cut.bits) + 1) for each in rows]
    assert sum(there) <= max(16_384, 2 * len(rows))
    assert cut.bits == 9 or sum(there) > 5_000
    for each in rows:
        first, last = cut.offsets(each.first >> cut.bits, each.last >> cut.bits)
        assert first <= each.first <= each.last <= last < 2**63


@pytest.mark.parametrize(
    "rows",
    [
        [blocks.Rows(5 * M, 0, 500 * M), blocks.Rows(M, 450 * M, (1 << 40) + 10 * M)],
        [blocks.Rows(3 * M, 0, 300 * M), *(blocks.Rows(M, n << 40, n + 3 << 40) for n in range(1, 30))],
    ],
)
def test_rows_of_several_files_in_one_group_make_no_large_blocks(rows: list[blocks.Rows]) -> None:
    """A hundred offsets a row: so do those that go from one file to another, which is 2**40 further."""
    rows_of_a_block = 2 ** Blocks.of(rows, "a", 0).bits / 100
    assert rows_of_a_block < 4 * max(512, sum(each.count for each in rows) / 16_384)


def test_offsets_that_lie_otherwise_than_it_looked(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "MOST_BLOCKS", 3)
    monkeypatch.setattr(blocks, "SMALL_EPOCH", 1)
    monkeypatch.setattr(blocks, "_LEAST_BITS", 0)
    rows = [("a", n, 10 * n, 5) for n in range(4)]
    standing = before(0, {})
    found = builtin.valued(frame(spark, rows), EXPRESSION)
    assert blocks.scan(found, builtin.VALUE, Blocks(0, "a", 5), {}, 0) is None
    assert blocks.scan(found, builtin.VALUE, Blocks(1, "a", 5), {}, 0) is not None
    assert cut(spark, rows, EXPRESSION, standing) == list(map(said, by_hand(EXPRESSION, 1, rows, standing)))


@pytest.mark.parametrize("ends", [(MIN_TIMESTAMP, MAX_TIMESTAMP), (MAX_TIMESTAMP, MAX_TIMESTAMP)])
def test_both_ends_of_time(spark: SparkSession, ends: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "SMALL_EPOCH", 1)
    monkeypatch.setattr(blocks, "_LEAST_BITS", 1)
    rows = [("a", n, 10 * n, ends[n // 2 % 2]) for n in range(6)]
    for floor in (MIN_TIMESTAMP, 3, MAX_TIMESTAMP):
        standing = before(floor, {})
        assert cut(spark, rows, EXPRESSION, standing) == list(map(said, by_hand(EXPRESSION, 1, rows, standing)))


def test_rows_of_one_offset_are_told_apart_by_their_order(spark: SparkSession) -> None:
    """Several rows of one message: the block has them all."""
    rows = frame(spark, [("a", 7, 100, 9), ("a", 7, 90, 9), ("a", 7, 80, 9)])
    rows = rows.withColumn("_seq", F.unix_millis("_rowtime"))
    cut = Blocks(0, "a", 9)
    assert blocks.scan(builtin.valued(rows, EXPRESSION), builtin.VALUE, cut, {}, 0)["a"].late == 1  # 9 after 8, not 10


def test_no_row_leaves_spark_sql_and_only_doubtful_blocks_are_put_in_order(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans: list[str] = []
    collect = type(spark.range(1)).collect

    def seen(self: Any) -> Any:
        plans.append(self._jdf.queryExecution().toString())
        return collect(self)

    monkeypatch.setattr(type(spark.range(1)), "collect", seen)
    rows = builtin.valued(frame(spark, [("a", n, 10 * n, n if n < 4 else 0) for n in range(8)]), EXPRESSION)
    blocks.scan(rows, builtin.VALUE, Blocks(1, "a", 3), {"a": -1}, -1)
    first, second = plans
    assert "Window" not in first
    assert "Sort" not in first
    assert "Window" in second
    assert re.search(r"between\(_offset#\d+L, 0, 3\)", second)
    assert not re.search("python|arrow|pandas", first + second, re.IGNORECASE)


@pytest.mark.parametrize("name", ["late", "a'b`c.d\"", "_before"])
def test_a_split_may_have_any_name(spark: SparkSession, name: str) -> None:
    """The only one, with blocks of both kinds that are looked at again."""
    values, times = [1, 1, 5, 9, 2, 2, 2, 2], [0, 2, 3, 6, 8, 9, 10, 11]
    rows = [(name, n, 10 * at, value) for n, (value, at) in enumerate(zip(values, times, strict=True))]
    expected = [said(item) for item in by_hand(EXPRESSION, 1, rows, before(0, {}))]
    for split in (name, None):
        found = blocks.scan(builtin.valued(frame(spark, rows), EXPRESSION), builtin.VALUE, Blocks(1, split, 12), {}, 0)
        assert [(key, item.rows, item.late, item.greatest) for key, item in found.items()] == expected


def test_what_an_epoch_before_left_to_emit_is_not_known_by_blocks() -> None:
    """It is emitted with the first row: rows are looked at as a whole, as of a small epoch and with a longer gap."""
    rows = [blocks.Rows(10**6, 0, 10**6)]
    tally = {"rows": 10**6, "greatest": 5, "offsets": rows}
    standing = before(0, {"a": 3})
    assert builtin._blocks(tally, 1, standing) == Blocks.of(rows, None, 5)
    assert builtin._blocks({**tally, "first_split": "a", "last_split": "a"}, 1, standing) == Blocks.of(rows, "a", 5)
    assert builtin._blocks({**tally, "greatest": None}, 1, standing) == Blocks.of(rows, None, 3)
    assert builtin._blocks({**tally, "rows": 1000}, 1, standing) is None
    assert builtin._blocks({"rows": 10**6, "greatest": 5}, 1, standing) is None
    assert builtin._blocks(tally, 2, standing) is None
    assert builtin._blocks(tally, None, standing) is None
    assert builtin._blocks(tally, 1, SplitsBefore(standing.splits)) is None
    left = SplitWatermark("a", 3, False, state={"greatest": 4, "since": 1})
    assert builtin._blocks(tally, 1, SplitsBefore({"a": left}, 0)) is None
    for name, known in (("a", False), ("b", True)):  # the only split of the epoch is asked alone
        own = {**tally, "first_split": name, "last_split": name}
        assert (builtin._blocks(own, 1, SplitsBefore({"a": replace(left, ended=True)}, 0)) is not None) == known
