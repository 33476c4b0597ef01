"""Names as the servers compare them: those of columns always, those of databases and tables with
lower_case_table_names = 1 or 2.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from functools import cache

Lower = Mapping[int, int | str]
"""The code of each letter that is another one to a server, and that one, for `str.translate`."""

CASE_MATTERS: Lower = {}
"""Each name is its own."""


def lowered(name: str) -> str:
    """`name` in lower case, letter by letter: of no letter become two, so `ß` stays, and `İ` is `i`."""
    return name.lower() if name.isascii() else name.translate(letters())


@cache
def letters() -> Lower:
    """How every server lowers names: it goes by Unicode 3.0, and knows no letter, or lower one of a letter, that is
    younger. Names have no letter above U+FFFF."""
    capitals = (letter for letter in map(chr, range(0x10000)) if letter.lower() != letter)
    return {ord(letter): letter.lower()[0] for letter in capitals if _known(letter) and _known(letter.lower()[0])}


_AFTER_3_0 = frozenset("ȠϘϴҊӅӉӍ") | {chr(code) for code in range(0x500, 0x510)}
"""Capitals of Unicode 3.1 and 3.2, the oldest that Python knows besides its own."""


def _known(letter: str) -> bool:
    return letter not in _AFTER_3_0 and unicodedata.ucd_3_2_0.category(letter) != "Cn"
