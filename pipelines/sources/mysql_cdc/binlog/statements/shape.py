"""A column's type, as far as it decides which values the column can hold, and which types hold every value of another.

A value that a wider type holds is read as the same value: an INT's number from a BIGINT, a VARCHAR's text from a TEXT.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidegate.pipelines.sources.mysql_cdc.binlog.statements.query import TokenReader, tokens
from tidegate.pipelines.sources.mysql_cdc.types import INTEGERS, MAX_DECIMAL_DIGITS, SourceColumn

_OTHER_NAMES = {"integer": "int", "numeric": "decimal", "dec": "decimal", "bool": "tinyint", "boolean": "tinyint"}
_BITS = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}
_SIZES: Mapping[str, int] = {
    f"{size}{kind}": most
    for kind in ("text", "blob")
    for size, most in (("tiny", 0xFF), ("", 0xFFFF), ("medium", 0xFFFFFF), ("long", 0xFFFFFFFF))
}
"""Types whose values may have so many bytes."""
_CHARACTER_BYTES = {"ascii": 1, "latin1": 1, "utf8mb3": 3}
_WIDER_SETS = {"ascii": ("utf8mb3", "utf8mb4"), "utf8mb3": ("utf8mb4",)}
"""Character sets, and those in which each of their texts is the same bytes."""


@dataclass(frozen=True)
class Shape:
    """A type in one way of writing: without the width at which whole numbers are shown. `details`: what stands in its
    parentheses; `charset`: of a text, where it is known."""

    name: str
    details: tuple[str, ...] = ()
    unsigned: bool = False
    charset: str | None = None

    def holds(self, other: Shape) -> bool:
        """Whether each value of `other` is the same value in this type; their character sets aside."""
        mine, its = (self.name, self.details, self.unsigned), (other.name, other.details, other.unsigned)
        return mine == its or self._is_wider(other)

    def _is_wider(self, other: Shape) -> bool:
        name, old = self.name, other.name
        if name in _BITS and old in _BITS:
            more = _BITS[name] - _BITS[old]
            return more >= 0 if self.unsigned == other.unsigned else more > 0 and other.unsigned
        if name == old == "decimal":
            (digits, scale), (old_digits, old_scale) = self._numbers(2), other._numbers(2)
            as_text = [each > MAX_DECIMAL_DIGITS for each in (digits, old_digits)]
            same = self.unsigned == other.unsigned and scale == old_scale and as_text[0] == as_text[1]
            return same and digits >= old_digits
        if name == old and name in ("enum", "set"):  # names keep their numbers, and the rows their bytes
            return self.details[: len(other.details)] == other.details
        if name == old and name in ("char", "varchar", "varbinary"):
            return self._numbers(1) >= other._numbers(1)
        if name in _SIZES and not self.details and name[-4:] == {"varchar": "text", "varbinary": "blob"}.get(old):
            width = 1 if old == "varbinary" else _CHARACTER_BYTES.get(other.charset or "", 4)
            return _SIZES[name] >= other._numbers(1)[0] * width
        if name in _SIZES and old in _SIZES and not self.details and not other.details:
            return name[-4:] == old[-4:] and _SIZES[name] >= _SIZES[old]
        return False

    @property
    def counts_bytes(self) -> bool:
        """Whether how much text it takes depends on the character set: a TEXT's length is one of bytes."""
        return self.name in _SIZES

    def _numbers(self, count: int) -> list[int]:
        return [*(int(each) for each in self.details if each.isdecimal()), 0, 0][:count]


def read_shape(reader: TokenReader) -> Shape:
    """The type that follows. Raises Unparsed."""
    name = reader.name().lower()
    name = _OTHER_NAMES.get(name, name)
    details = [token.text for token in reader.group() if not token.matches(",")] if reader.matches("(") else []
    unsigned = False
    while reader.matches("UNSIGNED", "ZEROFILL", "SIGNED"):
        unsigned |= not reader.take().matches("SIGNED")
    return Shape(name, () if name in INTEGERS else tuple(details), unsigned)


def shape_of(column: SourceColumn) -> Shape:
    """The shape of a column that the server has described."""
    found = read_shape(TokenReader([*tokens(column.column_type)]))
    return Shape(found.name, found.details, found.unsigned, column.charset)


def charset_holds(wider: str | None, other: str | None) -> bool:
    """Whether each text in the character set `other` is the same one in `wider`."""
    return wider == other or wider in _WIDER_SETS.get(other or "", ())
