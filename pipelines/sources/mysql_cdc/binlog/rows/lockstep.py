"""Finds every value of every row image, advancing all row events of a table in lockstep.

Inside one event the images are a chain: where one ends is only known once its lengths and NULLs are read. But events
are independent of each other (about 8 kB each, `binlog_row_event_max_size`). So each numpy step reads one image of
*every* event: as many steps as the longest event has images, not as there are rows.

An image is its NULL bits, then its values that are not NULL. Its columns are cut into segments: a run of fixed-width
columns, closed by one column with a length. A step notes where each segment starts and how long each such column is;
`columns_of` then gathers one column of all images at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tidegate.pipelines.sources.mysql_cdc.binlog.events import Offsets, rows_at
from tidegate.pipelines.sources.mysql_cdc.binlog.rows.columns import Width
from tidegate.pipelines.sources.mysql_cdc.binlog.rows.columns.values import FixedValues, Nulls, VariableValues
from tidegate.pipelines.sources.mysql_cdc.errors import MalformedEvent

NullBytes = NDArray[np.uint8]


@dataclass(frozen=True)
class Segment:
    """A run of fixed-width columns, then a `variable` one (None in the last segment).

    `saved` says, for each byte of the NULL bits that concerns the run, how many bytes its 256 values save.
    """

    fixed: tuple[int, ...]
    width: int
    saved: dict[int, Offsets]
    variable: int | None = None
    length_bytes: int = 0


@dataclass(frozen=True)
class RowLayout:
    """The shape of one table's row images."""

    widths: tuple[Width, ...]

    @property
    def null_bytes(self) -> int:
        """Bytes of NULL bits before each image: one bit per column."""
        return (len(self.widths) + 7) // 8

    @property
    def last_null_mask(self) -> int:
        """The bits of the last NULL byte that belong to columns; the server sets the others at will."""
        return (1 << ((len(self.widths) - 1) % 8 + 1)) - 1

    @cached_property
    def segments(self) -> tuple[Segment, ...]:
        """The columns, cut after each that has a length."""
        segments, run = [], []
        for ordinal, width in enumerate(self.widths):
            if width.length_bytes:
                segments.append(self._segment(run, ordinal, width.length_bytes))
                run = []
            else:
                run.append(ordinal)
        segments.append(self._segment(run, None, 0))
        return tuple(segments)

    def _segment(self, run: Sequence[int], variable: int | None, length_bytes: int) -> Segment:
        saved: dict[int, Offsets] = {}
        for ordinal in run:
            table = saved.setdefault(ordinal >> 3, np.zeros(256, np.int64))
            table[np.arange(256) >> (ordinal & 7) & 1 == 1] += self.widths[ordinal].fixed
        width = sum(self.widths[ordinal].fixed for ordinal in run)
        return Segment(tuple(run), width, saved, variable, length_bytes)


@dataclass(frozen=True)
class Images:
    """Where the row images of some events are, in the events' order.

    `event` is the index of each image's event, `row` its own index in that event. `nulls` has an array per NULL byte,
    `starts` one per segment; `values` and `lengths` one per segment with a variable column.
    """

    event: Offsets
    row: Offsets
    nulls: tuple[NullBytes, ...]
    starts: tuple[Offsets, ...]
    values: tuple[Offsets, ...]
    lengths: tuple[Offsets, ...]

    def __len__(self) -> int:
        return len(self.event)

    def take(self, chosen: NDArray[np.intp] | NDArray[np.bool_]) -> Images:
        """Some of the images (indices or a mask), without looking at their values."""
        return Images(
            self.event[chosen],
            self.row[chosen],
            tuple(array[chosen] for array in self.nulls),
            tuple(array[chosen] for array in self.starts),
            tuple(array[chosen] for array in self.values),
            tuple(array[chosen] for array in self.lengths),
        )


def locate(data: bytes, layout: RowLayout, starts: Offsets, ends: Offsets) -> Images:
    """The images in each data[starts[i] : ends[i]], which holds nothing else.

    Raises MalformedEvent when images do not end where their event ends.
    """
    steps = list(_steps(np.frombuffer(data, np.uint8), layout, starts, ends))
    if not steps:
        empty = np.empty(0, np.int64)
        return Images(empty, empty, (), (), (), ())
    if len(steps) == 1:  # one image in each event: nothing to sort
        return steps[0]
    images_of_event = np.bincount(np.concatenate([step.event for step in steps]), minlength=len(starts))
    first_of_event = np.cumsum(images_of_event) - images_of_event
    count = int(images_of_event.sum())
    order = np.empty(count, np.int64)
    order[np.concatenate([first_of_event[step.event] + index for index, step in enumerate(steps)])] = np.arange(count)

    def in_order(arrays: Sequence[NDArray]) -> NDArray:
        return np.concatenate(arrays).take(order)

    # What follows from these is computed again: it takes less time than to bring it into order.
    nulls = [in_order(arrays) for arrays in zip(*(step.nulls for step in steps), strict=True)]
    lengths = iter([in_order(arrays) for arrays in zip(*(step.lengths for step in steps), strict=True)])
    at = in_order([step.starts[0] for step in steps]) - layout.null_bytes
    walk = _walk(layout, nulls, at, lambda segment, place: next(lengths))
    event = np.repeat(np.arange(len(starts)), images_of_event)
    row = np.arange(count) - np.repeat(first_of_event, images_of_event)
    return Images(event, row, tuple(nulls), tuple(walk.starts), tuple(walk.values), tuple(walk.lengths))


def _steps(octets: NDArray[np.uint8], layout: RowLayout, at: Offsets, ends: Offsets) -> Iterator[Images]:
    """The first image of each event that has one, then the second of each, and so on; `row` is 0 in all."""

    def length_at(segment: Segment, place: Offsets) -> Offsets:
        length = octets.take(place, mode="clip").astype(np.int64)
        for index in range(1, segment.length_bytes):
            length |= octets.take(place + index, mode="clip").astype(np.int64) << (8 * index)
        return length

    event = np.arange(len(at))
    while True:
        alive = at < ends  # an event may hold no image at all
        if not alive.all():
            event, at, ends = event[alive], at[alive], ends[alive]
        if not len(at):
            return
        # Reads past the buffer are clipped: a row that runs over its event is found by its end, once the step is done.
        nulls = [octets.take(at + index, mode="clip") for index in range(layout.null_bytes)]
        nulls[-1] &= layout.last_null_mask
        walk = _walk(layout, nulls, at, length_at)
        at = walk.end
        if (at > ends).any():
            raise MalformedEvent(f"a row image runs {(at - ends).max()} bytes over the end of its event")
        places = (tuple(walk.starts), tuple(walk.values), tuple(walk.lengths))
        yield Images(event, np.zeros_like(event), tuple(nulls), *places)


@dataclass(frozen=True)
class _Walk:
    """Of some images: where segments and values start, how long the latter are, and where the images end."""

    starts: list[Offsets]
    values: list[Offsets]
    lengths: list[Offsets]
    end: Offsets


def _walk(
    layout: RowLayout, nulls: list[NullBytes], at: Offsets, length_at: Callable[[Segment, Offsets], Offsets]
) -> _Walk:
    """Through images that begin at `at`. `length_at` gives the length of a segment's variable column, written at a
    place; it is set to 0 where the value is NULL."""
    with_nulls = [bool(bits.any()) for bits in nulls]
    starts, values, lengths = [], [], []
    at = at + layout.null_bytes
    for segment in layout.segments:
        starts.append(at)
        at = at + segment.width
        for index, saved in segment.saved.items():
            if with_nulls[index]:
                at = at - saved.take(nulls[index])
        if segment.variable is None:
            continue
        length = length_at(segment, at)
        index, bit = divmod(segment.variable, 8)
        if with_nulls[index]:
            null = nulls[index] >> bit & 1 == 1
            length[null] = 0
            at = at + np.where(null, 0, segment.length_bytes)
        else:
            at = at + segment.length_bytes
        values.append(at)
        lengths.append(length)
        at = at + length
    return _Walk(starts, values, lengths, at)


def columns_of(
    data: bytes, layout: RowLayout, images: Images, wanted: Sequence[int]
) -> dict[int, FixedValues | VariableValues]:
    """The values of the `wanted` columns (ordinals) of all images. There must be at least one image."""
    with_nulls = [bool(bits.any()) for bits in images.nulls]
    chosen = set(wanted)

    def nulls_of(ordinal: int) -> Nulls:
        index, bit = divmod(ordinal, 8)
        if not with_nulls[index]:
            return None
        null = images.nulls[index] >> bit & 1 == 1
        return null if null.any() else None

    found: dict[int, FixedValues | VariableValues] = {}
    variable = 0
    for segment, start in zip(layout.segments, images.starts, strict=True):
        if chosen.intersection(segment.fixed):
            if any(with_nulls[index] for index in segment.saved):
                found.update(_one_by_one(data, layout, segment, start, chosen, nulls_of))
            else:
                found.update(_together(data, layout, segment, start, chosen))
        if segment.variable is not None:
            if segment.variable in chosen:
                found[segment.variable] = VariableValues(
                    data, images.values[variable], images.lengths[variable], nulls_of(segment.variable)
                )
            variable += 1
    return found


def _together(
    data: bytes, layout: RowLayout, segment: Segment, start: Offsets, chosen: set[int]
) -> Iterator[tuple[int, FixedValues]]:
    """The chosen columns of a run without NULLs: one gather from the first to the last of them."""
    first, last = min(chosen.intersection(segment.fixed)), max(chosen.intersection(segment.fixed))
    before = sum(layout.widths[ordinal].fixed for ordinal in segment.fixed if ordinal < first)
    run = [ordinal for ordinal in segment.fixed if first <= ordinal <= last]
    rows = rows_at(data, start + before, max(sum(layout.widths[ordinal].fixed for ordinal in run), 1))
    at = 0
    for ordinal in run:
        width = layout.widths[ordinal].fixed
        if ordinal in chosen:
            yield ordinal, FixedValues(rows[:, at : at + width], None)
        at += width


def _one_by_one(
    data: bytes,
    layout: RowLayout,
    segment: Segment,
    start: Offsets,
    chosen: set[int],
    nulls_of: Callable[[int], Nulls],
) -> Iterator[tuple[int, FixedValues]]:
    """The chosen columns of a run with NULLs, which take no bytes: each image has its own places."""
    for ordinal in segment.fixed:
        width, nulls = layout.widths[ordinal].fixed, nulls_of(ordinal)
        if ordinal in chosen:
            at = start if nulls is None else np.where(nulls, 0, start)
            yield ordinal, FixedValues(rows_at(data, at, max(width, 1)), nulls)
        start = start + width if nulls is None else start + np.where(nulls, 0, width)
