"""The values of a file of JSON that is one array, or several, one after another: each is a message of its own.

Values end at the commas of an array and at its closing bracket, outside of strings. What is inside of a value is left
to whoever reads it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tidegate.pipelines.sources.formats.records import BOM, behind_odd, trimmed


def begins_with_array(head: bytes) -> bool:
    """Whether a file of JSON that begins with `head` is an array of objects."""
    text = head.removeprefix(BOM).lstrip()
    return text.startswith(b"[") and (text[1:].lstrip()[:1] in (b"{", b"]", b""))


def is_undecided(head: bytes) -> bool:
    """Whether more of the file is needed to say so."""
    return BOM.startswith(head) or head.removeprefix(BOM).strip() in (b"", b"[")


@dataclass(frozen=True)
class Values:
    """Values of an array: `starts` and `stops` in `data`, whose first byte is at `position` in the file."""

    data: bytes
    position: int
    starts: np.ndarray
    stops: np.ndarray


class ArrayValues:
    """Reads the values of a file of JSON that is an array (or one after another), piece by piece."""

    def __init__(self, position: int = 0) -> None:
        self.position = position
        """Where the bytes begin that are no value yet: a comma's next one, or what is broken."""
        self.rest = b""
        self.broken: str | None = None
        self._seen = self._depth = self._escapes = 0
        self._in_string = False
        self._opened = False

    def feed(self, piece: bytes) -> Values:
        """The values that end in `piece`."""
        data, position = self.rest + piece, self.position
        if self.broken:
            self.rest = data
            return Values(b"", position, np.array([], np.int64), np.array([], np.int64))
        borders, kinds, depths = self._borders(piece)
        borders = borders + len(self.rest)
        wrong = self._wrong(data, borders, kinds, depths)
        borders, kinds = borders[:wrong], kinds[:wrong]
        begins = np.concatenate(([0], borders[:-1] + 1)) if len(borders) else borders
        within = kinds != _LIST  # before the bracket that opens an array there is no value
        starts, stops = trimmed(np.frombuffer(data, np.uint8), begins[within], borders[within])
        first = np.concatenate(([self._opened], kinds[:-1] == _LIST)) if len(kinds) else np.array([], bool)
        nothing = (first[within]) & (kinds[within] == _END) & (starts == stops)
        if len(kinds):
            self._opened = bool(kinds[-1] == _LIST)
            self.rest, self.position = data[borders[-1] + 1 :], position + int(borders[-1]) + 1
        else:
            self.rest = data
        return Values(data, position, starts[~nothing], stops[~nothing])

    def end(self) -> None:
        """The file has ended: what is left over is broken."""
        if not self.broken and (self._depth or self._in_string):
            self.broken = "the JSON array is not closed"
        elif not self.broken and self.rest.strip():
            self.broken = _NO_ARRAY

    def _borders(self, piece: bytes) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Where values may begin or end: the places of brackets and commas of an array, which they are, and the depth
        behind each."""
        read = np.frombuffer(piece, np.uint8)
        quotes = np.flatnonzero(read == _QUOTE)
        quotes = quotes[~behind_odd(read, quotes, _ESCAPE, self._escapes)]
        marks = np.flatnonzero(_IS_MARK[read])
        marks = marks[(np.searchsorted(quotes, marks) + self._in_string) % 2 == 0]
        kinds = read[marks]
        depths = self._depth + np.cumsum(_DEEPER[kinds])
        self._in_string = bool((len(quotes) + self._in_string) % 2)
        tail = len(piece) - len(piece.rstrip(b"\\"))
        self._escapes = (tail + self._escapes if tail == len(piece) else tail) % 2
        chosen = np.where(kinds == _COMMA, depths == 1, np.where(_DEEPER[kinds] > 0, depths == 1, depths == 0))
        chosen |= depths < 0
        chosen |= (kinds == _COMMA) & (depths == 0)
        self._depth = int(depths[-1]) if len(depths) else self._depth
        return marks[chosen], kinds[chosen], depths[chosen]

    def _wrong(self, data: bytes, borders: np.ndarray, kinds: np.ndarray, depths: np.ndarray) -> int:
        """How many of the borders are those of arrays; sets `broken` if not all are."""
        fine = (kinds == _COMMA) & (depths == 1) | (kinds == _LIST) & (depths == 1) | (kinds == _END) & (depths == 0)
        count = int(np.argmin(fine)) if not fine.all() else len(fine)
        for place in np.flatnonzero(kinds[:count] == _LIST):
            if data[borders[place - 1] + 1 if place else 0 : borders[place]].strip():
                count = int(place)
                break
        if count < len(fine):
            self.broken = _NO_ARRAY
        return count


_NO_ARRAY = "what follows is no JSON array"
_QUOTE, _ESCAPE, _COMMA, _LIST, _END = b'"\\,[]'
_DEEPER = np.zeros(256, np.int64)
_DEEPER[list(b"[{")], _DEEPER[list(b"]}")] = 1, -1
_IS_MARK = _DEEPER != 0
_IS_MARK[_COMMA] = True
