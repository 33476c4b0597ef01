"""Late rows of a table whose every row emits (on-event), counted without putting all rows in order.

A row is late by what its split has emitted before it: the greatest value of the rows before. Rows are taken by blocks
of offsets. Each block's greatest value, and with it what was emitted before each block, comes from one aggregate; the
rows of a block are then told apart by one number, unless the block itself emits something between its own rows. Only
the rows of such blocks are put in order, each block by itself.

What comes to the driver is a row for a block: some ten thousand, and never more than `MOST_BLOCKS`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce

import pyarrow as pa
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from pipelines.runtime.watermarking.late import late_by, micros, rowtime_ms
from pipelines.watermarks import MIN_TIMESTAMP

SMALL_EPOCH = 65_536
"""Rows that are put in order sooner than they are gone through twice."""

MOST_BLOCKS = 131_072
"""Where there are more, offsets did not lie as the footers had it look, and rows are put in order after all."""

_LEAST_BITS, _MOST_BITS = 9, 63
_BLOCKS = 16_384
"""As many are aimed at."""
_WIDER = 1_024
"""So much wider than the narrowest, for its rows, is a row group that goes from one file or version to another."""
_RUNS = 16
"""As many ranges of offsets are put into the condition of the second look; more are put as one."""

_GREATEST_OFFSET = 2**63 - 1


@dataclass(frozen=True)
class Rows:
    """How many rows lie from one offset to another: what the footer of a file tells of a row group. `count` > 0."""

    count: int
    first: int
    last: int

    @property
    def width(self) -> int:
        """Offsets for a row, about."""
        return (self.last - self.first) // self.count + 1


@dataclass(frozen=True)
class Blocks:
    """How an epoch's offsets are cut: block n of a split has offsets n * 2**bits and so on, 2**bits of them.

    Attributes:
        split: The only one; None where there are several.
        guess: What may have been emitted before most blocks (ms): the greatest of all values, of the table's watermark
            and the splits' own. Rows at or below it are counted on the first look, so that where it is right no
            second one is needed.
    """

    bits: int
    split: str | None
    guess: int

    @classmethod
    def of(cls, rows: Sequence[Rows], split: str | None, guess: int) -> Blocks:
        """The smallest blocks of which `rows` have not too many. Offsets may hold a file's number and a place in it, so
        rows that go from one file to another are taken to lie as close as the others."""
        narrowest = min(each.width for each in rows)
        spans = [each.last - each.first if each.width < _WIDER * narrowest else each.count * narrowest for each in rows]
        bits = _LEAST_BITS
        while bits < _MOST_BITS and sum(
            min(each.count, (span >> bits) + 1) for each, span in zip(rows, spans, strict=True)
        ) > max(_BLOCKS, len(rows)):
            bits += 1
        return cls(bits, split, guess)

    def offsets(self, first: int, last: int) -> tuple[int, int]:
        """The first offset of one block and the last one of another."""
        return first << self.bits, min((last + 1 << self.bits) - 1, _GREATEST_OFFSET)


@dataclass(frozen=True)
class Block:
    """What one look says of a block. Rowtimes in ms, a part of one counted as a whole one; None where none has one.

    Attributes:
        greatest: value of its rows.
        guessed: rows whose rowtime is at or below the guess.
        newest: the greatest rowtime, a part of a ms left out.
    """

    split: str
    number: int
    rows: int
    greatest: int | None
    least_rowtime: int | None
    newest: int | None
    guessed: int


@dataclass
class Told:
    """What the blocks of one split say together.

    Attributes:
        late: rows that are known to be.
        level: blocks whose late rows are those at or below one number, by their own; `rising`: blocks that emit more
            than that between their rows.
    """

    rows: int = 0
    late: int = 0
    greatest: int | None = None
    newest: int | None = None
    level: dict[int, int] = field(default_factory=dict)
    rising: dict[int, int] = field(default_factory=dict)


def told(blocks: Iterable[Block], standing: Mapping[str, int], default: int, guess: int) -> dict[str, Told]:
    """By split. `standing`: the watermark before the epoch (ms), `default` of a split that it does not know."""
    found: dict[str, Told] = {}
    for split, own in itertools.groupby(sorted(blocks, key=lambda b: (b.split, b.number)), key=lambda b: b.split):
        before = standing.get(split, default)
        item = found[split] = Told()
        for block in own:
            item.rows += block.rows
            item.newest = _greatest(item.newest, block.newest)
            _judge(item, block, before, guess)
            item.greatest = _greatest(item.greatest, block.greatest)
            before = max(before, MIN_TIMESTAMP if block.greatest is None else block.greatest)
    return found


def _judge(item: Told, block: Block, before: int, guess: int) -> None:
    """Add what is late in `block`, before which `before` was emitted, or remember that it needs another look."""
    after = before if block.greatest is None else max(before, block.greatest)
    if block.least_rowtime is None or block.least_rowtime > after:
        return
    if before < after:
        item.rising[block.number] = before
    elif before == guess:
        item.late += block.guessed
    else:
        item.level[block.number] = before


def _greatest(one: int | None, other: int | None) -> int | None:
    return max((value for value in (one, other) if value is not None), default=None)


def scan(
    rows: DataFrame, value: str, blocks: Blocks, standing: Mapping[str, int], default: int
) -> dict[str, Told] | None:
    """What `rows` (_split, _offset, _seq, _rowtime and `value`) say of each split, all late rows counted. None where
    they have more than `MOST_BLOCKS`."""
    numbered = rows.withColumn("_block", F.shiftright("_offset", blocks.bits))
    looked = list(_looked(numbered, value, blocks))
    if len(looked) > MOST_BLOCKS:
        return None
    found = told(looked, standing, default, blocks.guess)
    level = {split: item.level for split, item in found.items() if item.level}
    rising = {split: item.rising for split, item in found.items() if item.rising}
    again: list[DataFrame] = []
    if level:
        again.append(_late_by_split(_of_blocks(numbered, blocks, level), blocks))
    if rising:
        again.append(_late_by_split(_in_order(_of_blocks(numbered, blocks, rising), value), blocks))
    if again:
        for split, late in reduce(DataFrame.unionByName, again).collect():  # not more than two rows a split
            found[split].late += late
    return found


def _looked(rows: DataFrame, value: str, blocks: Blocks) -> Iterator[Block]:
    key = [F.col("_split")] if blocks.split is None else []
    rowtime = F.unix_micros("_rowtime")
    seen = rows.groupBy(*key, "_block").agg(
        F.count(F.lit(1)),
        F.max(value),
        F.min(rowtime),
        F.max(rowtime),
        F.count_if(late_by(F.lit(micros(blocks.guess)))),
    )
    for *split, number, count, greatest, least, most, guessed in seen.limit(MOST_BLOCKS + 1).collect():
        yield Block(
            split[0] if split else blocks.split or "",
            number,
            count,
            greatest,
            None if least is None else -(-least // 1000),
            None if most is None else most // 1000,
            guessed,
        )


def _of_blocks(rows: DataFrame, blocks: Blocks, wanted: Mapping[str, Mapping[int, int]]) -> DataFrame:
    """The rows of `wanted` blocks (by split: number, and what was emitted before it), with that as _before."""
    known = [(split, number, before) for split, own in wanted.items() for number, before in own.items()]
    splits, numbers, before = map(list, zip(*known, strict=True))
    runs = _runs(sorted(set(numbers)))
    runs = runs if len(runs) <= _RUNS else [(runs[0][0], runs[-1][1])]
    ranges = [blocks.offsets(*run) for run in runs]
    inside = " OR ".join(f"_offset BETWEEN {first} AND {last}" for first, last in ranges)
    table = {"_split": pa.array(splits, pa.string())} if blocks.split is None else {}
    table |= {"_block": pa.array(numbers, pa.int64()), "_before": pa.array(before, pa.int64())}
    frame = rows.sparkSession.createDataFrame(pa.table(table))
    return rows.where(inside).join(F.broadcast(frame), [name for name in table if name != "_before"])


def _runs(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Sorted numbers as ranges, first and last."""
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return found


def _in_order(rows: DataFrame, value: str) -> DataFrame:
    """`rows` with what `value` has emitted since in the same block in their _before, too."""
    rising = Window.partitionBy("_split", "_block").orderBy("_offset", "_seq")
    so_far = F.max(value).over(rising.rowsBetween(Window.unboundedPreceding, -1))
    return rows.withColumn("_before", F.greatest("_before", so_far))


def _late_by_split(rows: DataFrame, blocks: Blocks) -> DataFrame:
    """How many of `rows` are late by their _before."""
    late = F.count_if(rowtime_ms() <= F.col("_before")).alias("late")
    if blocks.split is None:
        return rows.groupBy("_split").agg(late)
    return rows.agg(F.lit(blocks.split).alias("_split"), late)
