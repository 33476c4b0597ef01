"""JSON messages that are plain, read as columns of Arrow, a batch at a time: the short way; the rest is left to others.

A message is plain if each value is written as its column's type is: a number for numbers, a string for text and times.
Every other goes the long way (json_text.py), exactly, with what does not fit. Both ways give the same rows.

Arrow's parser is strict where Spark's is not: a number is no string, and a digit too many is an error. It refuses a
whole batch, though, so batches are halved around what does not fit. And it trusts its caller with much: it wants one
object a line, goes as deep as that is nested, reads NaN, and counts the digits of a DECIMAL before it moves its point.
`_plain` and the types that it is asked for make sure of all that.
"""

# pyright: reportAttributeAccessIssue=false
# (pyarrow makes its compute functions when it is imported)
from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property, reduce
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from tidegate.pipelines.sources.formats import shape
from tidegate.pipelines.sources.formats.format import QUICK, VALUE, Quick, Wanted
from tidegate.pipelines.spark_versions import has_arrow_udf, over_arrays
from tidegate.pipelines.syntax.dialect import parse_type
from tidegate.pipelines.syntax.types import NESTED, STRINGS, FlinkType, Kind, quoted, spark_string

if TYPE_CHECKING:
    from pyspark.sql import Column

PIECE_BYTES = 4 << 20
"""Messages of about so many bytes are parsed at once, however many a batch holds."""

FEWEST = 256
"""Of a batch with a message that does not fit, pieces of so many messages are not halved any further: calling the
parser costs more than decoding them the long way."""

LONG, MOST_BRACKETS = 1_000, 500
"""A message longer than this may be nested too deep; one with more brackets than this is not read."""

LONGEST = 64 << 20
"""Bytes of the longest message that is read."""

_EMPTY = pa.scalar(b"{}", pa.binary())
_OPEN, _CLOSE, _LIST, _NEWLINE, _RETURN = b"{}[\n\r"

_NOT_JSON = r"[:,\[][ \t]*-?(?:NaN|Inf)"
"""What the parser takes for a number and JSON has not."""
_EXPONENT = r':[ \t]*"?[-+]?[0-9.]+[eE][-+]?[0-9]+[" \t,}]|\\u00(?:3[0-9]|[46]5|2[bBdDeE])'
"""A number with an exponent, maybe in quotes, maybe behind escapes. As a DECIMAL it may end the process: Arrow looks
for its power of ten where there is none."""

_DIGITS_128, _DIGITS_256 = 38, 76


@dataclass(frozen=True)
class JsonColumn:
    """A member of the messages, by name. `nullable`: whether a message without it is plain."""

    name: str
    type: pa.DataType
    nullable: bool = True

    @property
    def asked(self) -> pa.DataType:
        """The type that the parser is asked for: a decimal with room for all digits that it takes, once the point has
        moved."""
        of = self.type
        if not pa.types.is_decimal(of) or of.precision + of.scale <= _DIGITS_128:
            return of
        return pa.decimal256(_DIGITS_256 - of.scale, of.scale)

    def odd(self, values: pa.Array) -> list[pa.Array]:
        """Masks of values (of type `asked`) that are no values of `type`."""
        masks = [] if self.nullable else [values.is_null()]
        if pa.types.is_floating(self.type):
            masks.append(pc.invert(pc.is_finite(values)).fill_null(False))
        elif pa.types.is_decimal(self.type):
            most = pa.scalar(Decimal((0, (9,) * self.type.precision, -self.type.scale)), self.asked)
            masks.append(pc.or_(pc.greater(values, most), pc.less(values, pc.negate(most))).fill_null(False))
        return masks

    def given(self, values: pa.Array, left: pa.Array | None) -> pa.Array:
        """`values` (of type `asked`) as `type`; where `left` is set the result is arbitrary."""
        if values.type == self.type:
            return values
        return (values if left is None else pc.if_else(left, None, values)).cast(self.type)


@dataclass(frozen=True)
class JsonRows:
    """Reads messages (binary) as structs of `columns`, of which there is at least one; null for a message that is null,
    or not plain."""

    columns: Sequence[JsonColumn]

    @cached_property
    def type(self) -> pa.StructType:
        return pa.struct([pa.field(column.name, column.type) for column in self.columns])

    def __call__(self, messages: pa.Array) -> pa.StructArray:
        messages = messages.cast(pa.binary())
        plain = _plain(messages, self._odd)
        texts = messages if plain.all() else pc.if_else(pa.array(plain), messages, _EMPTY)
        rows = [row for piece in _pieces(texts) for row in self._read(piece)]
        found = pa.concat_arrays([pa.nulls(0, self.type), *rows])
        return found if plain.all() else pc.if_else(pa.array(plain), found, pa.scalar(None, self.type))

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
        found = [(column, _whole(read.column(column.name))) for column in self.columns]
        odd = [mask for column, values in found for mask in column.odd(values)]
        left = reduce(pc.or_, odd) if odd else None
        given = [column.given(values, left) for column, values in found]
        return pa.StructArray.from_arrays(given, fields=list(self.type), mask=left)

    @cached_property
    def _parsing(self) -> pj.ParseOptions:
        schema = pa.schema([(column.name, column.asked) for column in self.columns])
        return pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")

    @cached_property
    def _odd(self) -> str:
        decimals = any(pa.types.is_decimal(column.type) for column in self.columns)
        return f"{_NOT_JSON}|{_EXPONENT}" if decimals else _NOT_JSON


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)


def _pieces(texts: pa.Array) -> Iterator[pa.Array]:
    ends = np.cumsum(pc.binary_length(texts).to_numpy(zero_copy_only=False), dtype=np.int64)
    if not len(ends):
        return
    borders = np.searchsorted(ends, np.arange(PIECE_BYTES, ends[-1], PIECE_BYTES), side="right")
    for start, end in pairwise(np.unique([0, *borders, len(texts)])):
        yield texts.slice(start, end - start)


def _plain(messages: pa.Array, odd: str) -> np.ndarray:
    """Which messages are one object on one line, for all that can be seen from outside, not too deep nor too long, and
    hold nothing that matches `odd`."""
    _, offsets, buffer = messages.buffers()
    if not len(messages) or buffer is None:
        return np.zeros(len(messages), bool)
    places = np.frombuffer(offsets, np.int32)[messages.offset :][: len(messages) + 1]
    data = np.frombuffer(buffer, np.uint8)[places[0] : places[-1]]
    starts, ends = places[:-1] - places[0], places[1:] - places[0]
    lengths = ends - starts
    plain = messages.is_valid().to_numpy(zero_copy_only=False) & (lengths >= 2) & (lengths <= LONGEST)
    plain[plain] = (data[starts[plain]] == _OPEN) & (data[ends[plain] - 1] == _CLOSE)
    broken = np.flatnonzero((data == _NEWLINE) | (data == _RETURN))
    plain[np.searchsorted(ends, broken, side="right")] = False
    if lengths.max() > LONG:
        brackets = np.flatnonzero((data == _OPEN) | (data == _LIST))
        plain &= np.searchsorted(brackets, ends) - np.searchsorted(brackets, starts) <= MOST_BRACKETS
    found = pc.match_substring_regex(messages, odd).fill_null(False)
    return plain & ~found.to_numpy(zero_copy_only=False)


_ARROW = {
    Kind.BOOLEAN: pa.bool_(),
    Kind.TINYINT: pa.int8(),
    Kind.SMALLINT: pa.int16(),
    Kind.INT: pa.int32(),
    Kind.BIGINT: pa.int64(),
    Kind.FLOAT: pa.float32(),
    Kind.DOUBLE: pa.float64(),
}


def quick(wanted: Wanted, leaf: shape.Leaf) -> Quick | None:
    """The short way of a table; None if some column's type has none, and on a Spark without Arrow functions. `leaf`
    reads what is text in both ways."""
    types = [parse_type(column.type) for column in wanted.columns]
    if not types or any(of.kind in NESTED for of in types) or not has_arrow_udf():
        return None
    columns, values, fits, names = [], [], [f"{QUICK} IS NOT NULL"], []
    for column, of in zip(wanted.columns, types, strict=True):
        read = _arrow_type(of)
        columns.append(JsonColumn(column.source_name, read or pa.string(), column.nullable))
        names.append(f"{quoted(column.source_name)}: {of.spark if read else 'STRING'}")
        value = f"{QUICK}.{quoted(column.source_name)}"
        if read is None:
            text, value = value, leaf(value, of)
            fits.append(f"({text} IS NULL OR {value} IS NOT NULL)")
        values.append(f"{spark_string(column.name)}, {value}")
    row = f"IF({' AND '.join(fits)}, named_struct({', '.join(values)}), NULL)"
    return Quick(_parsed(JsonRows(tuple(columns)), f"STRUCT<{', '.join(names)}>"), row)


def _arrow_type(of: FlinkType) -> pa.DataType | None:
    """The type that Arrow is asked for; None for one that is written as text, and read from it by `leaf`."""
    if of.kind is Kind.DECIMAL:
        return pa.decimal128(of.precision or 0, of.scale or 0)
    return pa.string() if of.kind in STRINGS and of.precision is None else _ARROW.get(of.kind)


def _parsed(rows: JsonRows, struct: str) -> Callable[[], Column]:
    def parse(messages):  # without annotations: Spark would read them
        return rows(messages)

    def column() -> Column:
        return over_arrays(parse, [pa.binary()], struct)(VALUE)

    return column
