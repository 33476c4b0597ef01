"""The text of a script: where an offset is, what a line looks like underlined, and which parts must not be shown.

Offsets count characters from 0; a span ends before its `end`. Lines and columns count from 1.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple
from unicodedata import east_asian_width

from sqlglot import Token, TokenType

from tidegate.pipelines.syntax.errors import Location, SqlError
from tidegate.pipelines.syntax.secrets import is_secret, is_variable, passwords_in, secret_words

HIDDEN = "***"
WIDEST = 160
"""A longer source line is cut to a window around the underlined place."""


class Span(NamedTuple):
    """A piece of the script: `start` <= offset < `end`."""

    start: int
    end: int

    def to(self, other: Span) -> Span:
        """From the start of this to the end of `other`."""
        return Span(min(self.start, other.start), max(self.end, other.end))


def span_of(token: Token) -> Span:
    return Span(token.start, token.end + 1)


class Source:
    """A script's text. `hide` says which spans hold secrets; no error shows them. `hints`: tokens of the hints that
    nobody has read, by where the token in front of each ends."""

    def __init__(self, text: str, path: str | None = None) -> None:
        self.text = text
        self.path = path
        self._starts = [0, *(found.end() for found in re.finditer(r"\r?\n|\r", text))]
        self._hidden: list[Span] = []
        self.hints: dict[int, list[Token]] = {}

    def location(self, offset: int) -> Location:
        """Line and column of an offset."""
        line = bisect_right(self._starts, offset)
        return Location(line, offset - self._starts[line - 1] + 1)

    def error(self, span: Span, what: str, hint: str | None = None, also: Span | None = None) -> SqlError:
        """A `SqlError` at `span`, to be raised by the caller; `also` is a second place to look at."""
        second = self.error(also, "see also") if also is not None else None
        start = self._visible(span.start)
        place = self.location(start)
        excerpt = self._excerpt(Span(start, max(span.end, start + 1)))
        return SqlError(
            what, line=place.line, column=place.column, excerpt=excerpt, hint=hint, path=self.path, also=second
        )

    def shown(self, span: Span) -> str:
        """The text of a span, for a message: secrets hidden, long text cut, line breaks as spaces."""
        if any(hidden.start < span.end and span.start < hidden.end for hidden in self._hidden):
            return HIDDEN
        text = " ".join(self.text[span.start : span.end].split())
        return text if len(text) <= 60 else f"{text[:57]}…"

    def written(self, tokens: Sequence[Token]) -> str:
        """Tokens as they were written, on one line and without comments: a gap of any kind becomes one space."""
        pieces: list[str] = []
        for position, token in enumerate(tokens):
            if position and tokens[position - 1].end + 1 < token.start:
                pieces.append(" ")
            pieces.append(self.text[token.start : token.end + 1])
        return "".join(pieces)

    def hide(self, tokens: Sequence[Token], broken_at: int | None = None) -> None:
        """Find what must never be shown: values of secret options, credentials inside URLs.

        `broken_at` is where an unfinished string begins; everything after it may be a secret. A script with a quote too
        many or too few shifts what is a string, so a line that assigns to a quoted secret name is hidden as well.
        """
        for index, token in enumerate(tokens):
            if token.token_type != TokenType.STRING:
                continue
            if is_secret(token.text):
                self._hide_value(token, tokens[index + 1 : index + 4])
        if broken_at is not None:
            self._hidden.append(Span(broken_at + 1, len(self.text)))
        self._hidden.extend(Span(*found) for found in passwords_in(self.text))
        for start in self._starts:
            self._hide_shifted(start, self._line_end(start))
        self._hidden.sort()

    def _hide_value(self, key: Token, after: Sequence[Token]) -> None:
        """Hide what follows a secret's name: the value alone where all is as it should be, else all that may be it."""
        kinds = [token.token_type for token in after]
        if kinds[:2] == [TokenType.EQ, TokenType.STRING] and kinds[2:] in ([TokenType.COMMA], [TokenType.R_PAREN]):
            if not is_variable(after[1].text):
                self._hidden.append(span_of(after[1]))
            return
        signs = (TokenType.EQ, TokenType.COMMA, TokenType.R_PAREN)
        start = after[0].end + 1 if kinds[:1] == [TokenType.EQ] else key.end + 1
        if not all(map(_of_a_name, key.text)):
            start = key.start  # no option's name: a quote too many may have drawn the value into it
        value = next((token for token in after if token.token_type not in signs), key)
        self._hidden.append(Span(start, self._line_end(max(start, value.end))))

    def _hide_shifted(self, start: int, end: int) -> None:
        """Hide the rest of a line behind a secret's name that touches a quote, whatever the tokens are."""
        line = self.text[start:end]
        for after in secret_words(line):
            first = last = after
            while first and _of_a_name(line[first - 1]):
                first -= 1
            while last < len(line) and _of_a_name(line[last]):
                last += 1
            behind = line[last : last + 1]
            if behind not in _QUOTES and line[max(first - 1, 0) : first] not in _QUOTES:
                continue
            last += behind in _QUOTES
            value = len(line) - len(line[last:].lstrip(" \t="))
            assigned = "=" in line[last:value]
            known = line.startswith("'${", value) or any(hidden.start == start + value for hidden in self._hidden)
            if not (assigned and known):
                self._hidden.append(Span(start + after, end))

    def _line_end(self, offset: int) -> int:
        line = bisect_right(self._starts, offset)
        end = self._starts[line] if line < len(self._starts) else len(self.text)
        while end > offset and self.text[end - 1] in "\r\n":
            end -= 1
        return end

    def _visible(self, offset: int) -> int:
        """`offset`, but at the end of the text the end of what is written, so that there is a line to show."""
        if offset < len(self.text):
            return offset
        return len(self.text.rstrip())

    def _excerpt(self, span: Span) -> str:
        place = self.location(span.start)
        start = self._starts[place.line - 1]
        end = self._line_end(start)
        cells: list[tuple[str, bool]] = []
        offset = start
        while offset < end:
            hidden = next((hidden for hidden in self._hidden if hidden.start <= offset < hidden.end), None)
            if hidden is None:
                cells.append((self.text[offset], span.start <= offset < span.end))
                offset += 1
                continue
            marked = hidden.start < span.end and span.start < hidden.end
            cells.extend((star, marked) for star in HIDDEN)
            offset = hidden.end
        if not any(marked for _, marked in cells):
            cells.append((" ", True))
        return _underlined(cells, str(place.line))


_QUOTES = ("'", "`", '"')


def _of_a_name(character: str) -> bool:
    """Whether a character may stand in an option's name."""
    return character.isalnum() or character in "._-"


def _underlined(cells: list[tuple[str, bool]], number: str) -> str:
    """The line and its carets, under a gutter with the line's number."""
    first = next(index for index, (_, marked) in enumerate(cells) if marked)
    cut_left = cut_right = ""
    if len(cells) > WIDEST:
        begin = max(0, first - WIDEST // 2)
        cut_left, cut_right = "…" if begin else "", "…" if begin + WIDEST < len(cells) else ""
        cells = cells[begin : begin + WIDEST]
    line = "".join(character if character.isprintable() or character == "\t" else "�" for character, _ in cells)
    carets = "".join(_under(character, marked) for character, marked in cells)
    gutter = " " * len(number)
    padding = " " * len(cut_left)
    return f"  {number} | {cut_left}{line.rstrip()}{cut_right}\n  {gutter} | {padding}{carets.rstrip()}"


def _under(character: str, marked: bool) -> str:
    """What goes below a character so that the carets line up: tabs stay tabs, wide characters take two cells."""
    if character == "\t":
        return "\t" if not marked else "^"
    width = 2 if east_asian_width(character) in "WF" else 1
    return ("^" if marked else " ") * width
