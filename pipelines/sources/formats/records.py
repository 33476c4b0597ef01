r"""Where the records of a text file end: found in its bytes, whole columns at once, at whatever place a file is cut.

A record ends at a line break, and not every line break ends one:

- CSV (RFC 4180): inside of quotes a line break is text. A quote opens a field only as the field's first character.
- JSON: a value may go on over several lines. Between two lines a record ends unless a JSON value may go on there: after
  `{`, `[`, `,` or `:`, or before `,`, `}`, `]` or `:`. (In a string a line break is written as \n.)

A file of JSON that begins with an array is read value by value instead (json_arrays.py).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:  # a script is compiled without it
    import numpy as np

BOM = b"\xef\xbb\xbf"
_NEWLINE, _RETURN, _BLANK = 10, 13, 32


@dataclass(frozen=True)
class Found:
    """What is known of some bytes. `ends`: the places behind each line break that ends a record, up to `known`, a place
    behind a line break: what follows it is not decided yet. `inside`: whether the line there begins inside of
    quotes."""

    ends: np.ndarray
    known: int
    inside: bool = False


class Records(Protocol):
    """How records stand in a file one after another."""

    @property
    def quotes(self) -> bool:
        """Whether the end of a record depends on all that is before it in the file."""
        ...

    @property
    def joins(self) -> bool:
        """Whether it depends on the last character before a line."""
        ...

    @property
    def skips_blanks(self) -> bool:
        """Whether a record of blanks alone is none."""
        ...

    def find(self, data: bytes, inside: bool = False) -> Found:
        """The records of `data`, which begins where a line does (`inside` of quotes, or not); after it more may
        come."""
        ...


def _line_breaks(data: bytes) -> np.ndarray:
    import numpy as np

    return np.flatnonzero(np.frombuffer(data, np.uint8) == _NEWLINE)


@dataclass(frozen=True)
class Lines:
    """Each line is a record."""

    quotes = joins = skips_blanks = False

    def find(self, data: bytes, inside: bool = False) -> Found:
        ends = _line_breaks(data) + 1
        return Found(ends, int(ends[-1]) if len(ends) else 0)


@dataclass(frozen=True)
class JsonRecords:
    """One or more lines are a JSON value."""

    quotes, joins, skips_blanks = False, True, True

    def find(self, data: bytes, inside: bool = False) -> Found:
        import numpy as np

        read = np.frombuffer(data, np.uint8)
        breaks = np.flatnonzero(read == _NEWLINE)
        before, after = breaks - 1, breaks + 1
        for _ in range(8):  # blanks beside a line break are few
            before = np.where((before >= 0) & (read[before] <= _BLANK), before - 1, before)
            after = np.where((after < len(read)) & (read[np.minimum(after, len(read) - 1)] <= _BLANK), after + 1, after)
        last, first = np.maximum(before, 0), np.minimum(after, len(read) - 1)
        if len(breaks) and ((read[last] <= _BLANK).any() or (read[first] <= _BLANK).any()):
            full = np.flatnonzero(read > _BLANK)
            place = np.searchsorted(full, breaks)
            before = np.where(place > 0, full[place - 1] if len(full) else -1, -1)
            after = np.append(full, len(read))[place]
            last, first = np.maximum(before, 0), np.minimum(after, len(read) - 1)
        goes_on = np.isin(read[last], _OPEN) | np.isin(read[first], _CLOSE)
        decided = after < len(read)
        ends = breaks[decided & ~((before >= 0) & goes_on)] + 1
        return Found(ends, int(breaks[decided][-1]) + 1 if decided.any() else 0)


_OPEN = list(b"{[,:")
_CLOSE = list(b"}],:")


@dataclass(frozen=True)
class CsvRecords:
    """A record ends at a line break outside of quotes. All are UTF-8, of one character; `escape` stands before a quote
    inside of quotes, and before itself. `comments`: a record that begins with # is the rest of its line."""

    delimiter: bytes
    quote: bytes
    escape: bytes | None = None
    comments: bool = False

    quotes, joins, skips_blanks = True, False, False

    def find(self, data: bytes, inside: bool = False) -> Found:
        """Quotes are taken for an opening and a closing one by turns, which whole columns show. Where one of them is
        neither (5" of text), the records are found one by one."""
        import numpy as np

        breaks = _line_breaks(data)
        known = int(breaks[-1]) + 1 if len(breaks) else 0
        quotes = self._by_turns(data[:known], inside)
        if quotes is None:
            return self._one_by_one(data, known, inside)
        opened = (np.searchsorted(quotes, breaks) + inside) % 2 == 1
        return Found(breaks[~opened] + 1, known, bool((len(quotes) + inside) % 2))

    def _by_turns(self, data: bytes, inside: bool) -> np.ndarray | None:
        """The places of the quotes that open and close, by turns; None where they do not go by turns."""
        import numpy as np

        if max(map(len, (self.delimiter, self.quote, self._escape or b""))) > 1:
            return None
        read = np.frombuffer(data, np.uint8)
        quotes = np.flatnonzero(read == self.quote[0])
        if not len(quotes):
            return quotes
        if self.comments and (data.startswith(b"#") or b"\n#" in data):
            return None
        if self._escape:
            behind = behind_odd(read, quotes, self._escape[0])
            escaped, quotes = quotes[behind], quotes[~behind]
            if ((np.searchsorted(quotes, escaped) + inside) % 2 == 0).any():
                return None  # outside of quotes an escape is none
        opening = np.arange(int(inside), len(quotes), 2)
        places = quotes[opening]
        before = read[np.maximum(places - 1, 0)]
        opens = (places == 0) | (before == self.delimiter[0]) | (before == _NEWLINE)
        doubled = opening[~opens]
        beside = (doubled > 0) & (quotes[doubled - 1] == quotes[doubled] - 1)
        return quotes if beside.all() else None

    def _one_by_one(self, data: bytes, known: int, inside: bool) -> Found:
        import numpy as np

        ends: list[int] = []
        pattern = self._patterns[inside]
        while (place := ends[-1] if ends else 0) < known:
            record = pattern.match(data, place, known)
            if record is None:
                return Found(np.array(ends, np.int64), known, True)
            ends.append(record.end())
            pattern = self._patterns[False]
        return Found(np.array(ends, np.int64), known, inside and not ends)

    @property
    def _escape(self) -> bytes | None:
        """A quote that escapes itself is doubled."""
        return None if self.escape == self.quote else self.escape

    @cached_property
    def _patterns(self) -> tuple[re.Pattern[bytes], re.Pattern[bytes]]:
        """A record; and the rest of one from inside of quotes on. Every quantifier is possessive."""
        quote, escape = re.escape(self.quote), re.escape(self._escape or b"")
        text = b"%s*+" % _other_than(self.delimiter, b"\n")
        escaped = b"%s(?:%s|%s)|%s|" % (escape, quote, escape, escape) if escape else b""
        within = b"(?:%s++|%s%s%s)*+%s" % (_other_than(self.quote, self._escape), escaped, quote, quote, quote)
        field = b"(?:%s%s%s|(?!%s)%s)" % (quote, within, text, quote, text)
        fields = b"(?:%s%s)*+\n" % (re.escape(self.delimiter), field)
        comment = b"#[^\n]*+\n|" if self.comments else b""
        return re.compile(b"%s%s%s" % (comment, field, fields)), re.compile(b"%s%s%s" % (within, text, fields))


def _other_than(*characters: bytes | None) -> bytes:
    """A pattern of one byte that begins none of the characters."""
    given = [re.escape(character) for character in characters if character]
    if all(len(character) <= 1 for character in characters if character):
        return b"[^%s]" % b"".join(given)
    return b"(?:(?!%s)[\\x00-\\xff])" % b"|".join(given)


def behind_odd(read: np.ndarray, places: np.ndarray, escape: int, before: int = 0) -> np.ndarray:
    """Which of the `places` stand behind an odd number of escapes. `before`: how many of them end what is before
    `read`."""
    import numpy as np

    other = np.flatnonzero(read != escape)
    found = np.searchsorted(other, places)
    last = np.where(found > 0, other[found - 1], -1 - before)
    return (places - 1 - last) % 2 == 1


def trimmed(read: np.ndarray, starts: np.ndarray, stops: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Pieces of `read` without the blanks at their ends."""
    import numpy as np

    starts, stops = starts.copy(), stops.copy()
    for _ in range(64):
        left = np.flatnonzero(starts < stops)
        ahead, behind = left[read[starts[left]] <= _BLANK], left[read[stops[left] - 1] <= _BLANK]
        behind = behind[~np.isin(behind, ahead, assume_unique=True) | (stops[behind] - starts[behind] > 1)]
        if not len(ahead) and not len(behind):
            return starts, stops
        starts[ahead] += 1
        stops[behind] -= 1
    for place in np.flatnonzero(starts < stops):  # such a run of blanks is rare
        text = read[starts[place] : stops[place]].tobytes()
        starts[place] += len(text) - len(text.lstrip(_BLANKS))
        stops[place] -= min(len(text) - len(text.rstrip(_BLANKS)), int(stops[place] - starts[place]))
    return starts, stops


_BLANKS = bytes(range(_BLANK + 1))
