"""JSON messages as columns of Arrow, a batch at a time; what is not plain is left to others. Knows nothing of Spark.

Arrow's parser is strict: a number is no string, and each has all its digits or is refused. It refuses a whole batch,
though, so batches are halved around what does not fit. It trusts its caller to give it one object a line, and goes
as deep as that is nested: both are made sure of here.
"""

# pyright: reportAttributeAccessIssue=false
# (pyarrow makes its compute functions when it is imported)
from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property, reduce
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

PIECE_BYTES = 4 << 20
"""Messages of about so many bytes are parsed at once, however many a batch holds."""

FEWEST = 256
"""So many messages of which one does not fit are not taken apart any more: to call the parser costs as much as they."""

LONG, MOST_BRACKETS = 1_000, 500
"""A message longer than this may be nested too deep; one with more brackets than this is not read."""

_EMPTY = pa.scalar(b"{}", pa.binary())
_OPEN, _CLOSE, _LIST, _NEWLINE, _RETURN = b"{}[\n\r"


@dataclass(frozen=True)
class JsonColumn:
    """A member of the messages, by name. `nullable`: whether a message without it is plain."""

    name: str
    type: pa.DataType
    nullable: bool = True

    def odd(self, values: pa.Array) -> list[pa.Array]:
        """Masks of values that Arrow's parser takes and the type does not."""
        masks = [] if self.nullable else [values.is_null()]
        if pa.types.is_floating(self.type):
            masks.append(pc.invert(pc.is_finite(values)).fill_null(False))
        elif pa.types.is_decimal(self.type):  # it minds the digits after the point, not those before
            most = _greatest(self.type)
            masks.append(pc.or_(pc.greater(values, most), pc.less(values, pc.negate(most))).fill_null(False))
        return masks


def _greatest(of: pa.Decimal128Type) -> pa.Scalar:
    return pa.scalar(Decimal((0, (9,) * of.precision, -of.scale)), of)


@dataclass(frozen=True)
class JsonRows:
    """Reads messages (binary) as structs of `columns`; null where a message is none, or not plain."""

    columns: Sequence[JsonColumn]
    piece_bytes: int = field(default=PIECE_BYTES)

    @cached_property
    def type(self) -> pa.StructType:
        return pa.struct([pa.field(column.name, column.type) for column in self.columns])

    def __call__(self, messages: pa.Array) -> pa.StructArray:
        plain = _plain(messages)
        texts = messages if plain.all() else pc.if_else(pa.array(plain), messages, _EMPTY)
        rows = [row for piece in self._pieces(texts) for row in self._read(piece)]
        found = pa.concat_arrays([pa.nulls(0, self.type), *rows])
        return found if plain.all() else pc.if_else(pa.array(plain), found, pa.scalar(None, self.type))

    def _pieces(self, texts: pa.Array) -> Iterator[pa.Array]:
        ends = np.cumsum(pc.binary_length(texts).to_numpy(zero_copy_only=False), dtype=np.int64)
        if not len(ends):
            return
        borders = np.searchsorted(ends, np.arange(self.piece_bytes, ends[-1], self.piece_bytes), side="right")
        for start, end in pairwise(np.unique([0, *borders, len(texts)])):
            yield texts.slice(start, end - start)

    def _read(self, texts: pa.Array) -> list[pa.StructArray]:
        try:
            return [self._rows(texts)]
        except pa.ArrowInvalid:
            if len(texts) <= FEWEST:
                return [pa.nulls(len(texts), self.type)]
            half = len(texts) // 2
            return [*self._read(texts.slice(0, half)), *self._read(texts.slice(half))]

    def _rows(self, texts: pa.Array) -> pa.StructArray:
        """Raises ArrowInvalid where a message is no UTF-8, no JSON, or has a value of another type."""
        lists = pa.ListArray.from_arrays(pa.array([0, len(texts)], pa.int32()), texts.cast(pa.string()))
        lines = pc.binary_join(lists, "\n")[0].as_buffer()
        read = pj.read_json(
            pa.BufferReader(lines),
            read_options=pj.ReadOptions(use_threads=False, block_size=lines.size + 1),
            parse_options=self._parsing,
        )
        if read.num_rows != len(texts):
            raise pa.ArrowInvalid("not one object a message")
        found = [_whole(read.column(column.name)) for column in self.columns]
        odd = [mask for column, values in zip(self.columns, found, strict=True) for mask in column.odd(values)]
        return pa.StructArray.from_arrays(found, fields=list(self.type), mask=reduce(pc.or_, odd) if odd else None)

    @property
    def _parsing(self) -> pj.ParseOptions:
        return pj.ParseOptions(explicit_schema=pa.schema(list(self.type)), unexpected_field_behavior="ignore")


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)


def _plain(messages: pa.Array) -> np.ndarray:
    """Which messages are one object on one line, for all that can be seen from outside, and not too deep."""
    _, offsets, buffer = messages.buffers()
    if not len(messages) or buffer is None:
        return np.zeros(len(messages), bool)
    data = np.frombuffer(buffer, np.uint8)
    places = np.frombuffer(offsets, np.int32)[messages.offset :][: len(messages) + 1]
    starts, ends = places[:-1], places[1:]
    plain = messages.is_valid().to_numpy(zero_copy_only=False) & (ends - starts >= len(_EMPTY.as_py()))
    plain[plain] = (data[starts[plain]] == _OPEN) & (data[ends[plain] - 1] == _CLOSE)
    broken = np.flatnonzero((data == _NEWLINE) | (data == _RETURN))
    plain[np.searchsorted(places, broken, side="right") - 1] = False
    if (ends - starts).max() > LONG:
        brackets = np.flatnonzero((data == _OPEN) | (data == _LIST))
        plain &= np.searchsorted(brackets, ends) - np.searchsorted(brackets, starts) <= MOST_BRACKETS
    return plain
