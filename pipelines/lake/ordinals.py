"""The places of rows that UNNEST gives: those of their landed rows, with the ordinal of the element (Spark SQL).

(split, offset) of a landed row becomes (split/upper bits of the offset, its lower bits and the ordinal). So no two rows
have one place, places are in the order of (split, offset, ordinal), and each leads back to its landed row.
"""

from __future__ import annotations

WANTED = "_wanted"
"""Of landed rows that were in quarantine: the offsets of those of their elements that were there."""

ORDINAL_BITS = 20
"""The lowest bits of the offset of a row that UNNEST gives: the ordinal of its element, from 0 on."""


def place_of(split: str, offset: str, ordinal: str = "0L") -> dict[str, str]:
    """`_split` and `_offset` of an element of the row in a place; for the ordinal 0 of a row without elements, too."""
    low, room = (1 << 63 - ORDINAL_BITS) - 1, 1 << ORDINAL_BITS
    if ordinal != "0L":
        more = f"raise_error('UNNEST takes arrays and maps of up to {room:,} elements')"
        ordinal = f"CAST(IF({ordinal} < {room}, {ordinal}, {more}) AS BIGINT)"
    return {
        "_split": f"concat({split}, '/', lpad(CAST(shiftright({offset}, {63 - ORDINAL_BITS}) AS STRING), 7, '0'))",
        "_offset": f"shiftleft({offset} & {low}L, {ORDINAL_BITS}) | {ordinal}",
    }


def first_place(split: str, offset: str, unnests: int) -> tuple[str, str]:
    """The same of the first row that so many UNNEST give of a landed one."""
    for _ in range(unnests):
        split, offset = place_of(split, f"({offset})").values()
    return split, offset


def without_ordinals(offset: str, unnests: int) -> str:
    """Spark SQL of the offset of that first row, by the offset of any."""
    return f"{offset} & {-1 << ORDINAL_BITS * unnests}L"
