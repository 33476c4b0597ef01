"""Patterns of LIKE and SIMILAR TO as regular expressions of Java.

Source: Flink's SqlLikeUtils. What it leaves as it is in a pattern of SIMILAR TO stays a part of Java's language: a
point is any character, `^` outside of brackets is the beginning. `_` is no end of a line.
"""

from __future__ import annotations

from collections.abc import Iterator

JAVA = "[]()|^-+*?{}$\\."
"""Characters that mean something in Java's regular expressions."""
SPECIAL = "[]()|^-+*_%?{}"
"""Characters that mean something in a pattern of SIMILAR TO."""

_CLASSES = {
    "ALPHA": r"\p{Alpha}",
    "UPPER": r"\p{Upper}",
    "LOWER": r"\p{Lower}",
    "DIGIT": r"\d",
    "SPACE": " ",
    "WHITESPACE": r"\s",
    "ALNUM": r"\p{Alnum}",
}
CLASSES = {f"[:{word}:]": regex for name, regex in _CLASSES.items() for word in (name, name.lower())}


class NoPattern(ValueError):
    """A text that is no pattern: its message says why."""


def like(pattern: str, escape: str) -> str:
    """The regular expression that finds what is LIKE `pattern`, from its beginning to its end. `escape`: a character,
    or empty for none. Raises NoPattern."""
    found, place = "", 0
    while place < len(pattern):
        character = pattern[place]
        place += 1
        if character == escape:
            character = pattern[place : place + 1]
            if character not in ("_", "%", escape):
                raise NoPattern(f"`{escape}` escapes nothing")
            place += 1
        elif character in "_%":
            found += "." if character == "_" else "(?s:.*)"
            continue
        found += f"\\{character}" if character in JAVA else character
    return rf"\A{found}\z"


def similar(pattern: str, escape: str) -> str:
    """The regular expression that finds what is similar to `pattern`, from its beginning to its end. Raises
    NoPattern."""
    if escape == ":" and not ("[:" in pattern and ":]" in pattern):
        raise NoPattern("`:` escapes nothing")
    return rf"\A(?:{''.join(_parts(pattern, escape))})\z"


def _parts(pattern: str, escape: str) -> Iterator[str]:
    place = 0
    while place < len(pattern):
        character = pattern[place]
        place += 1
        if character == escape:
            yield _escaped(pattern, place, escape)
            place += 1
        elif character == "_":
            yield "."
        elif character == "%":
            yield "(?s:.*)"
        elif character == "[":
            text, place = _enumeration(pattern, place, escape)
            yield f"[{text}]"
        elif character == "]":
            raise NoPattern("`]` ends no `[`")
        else:
            yield f"\\{character}" if character in "\\$" else character


def _escaped(pattern: str, place: int, escape: str) -> str:
    character = pattern[place : place + 1]
    if character and character in SPECIAL:
        return f"\\{character}" if character in JAVA else character
    if character != escape:
        raise NoPattern(f"`{escape}` escapes nothing")
    if character in JAVA:  # Flink passes it on to Java as it is
        raise NoPattern(f"`{escape}{escape}` means something else to Flink: name another escape")
    return character


def _enumeration(pattern: str, place: int, escape: str) -> tuple[str, int]:
    """What stands in brackets, and where it goes on behind them."""
    found = ""
    while place < len(pattern):
        character = pattern[place]
        known = next((name for name in CLASSES if pattern.startswith(name, place)), None)
        place += 1
        if character == "]":
            return found, place
        if character == escape:
            found += _escaped(pattern, place, escape)
            place += 1
        elif known is not None:
            found += CLASSES[known]
            place += len(known) - 1
        elif character in SPECIAL and character not in "-^":
            raise NoPattern(f"`{character}` cannot stand in [ ]")
        else:
            found += character
    raise NoPattern("`[` does not end")
