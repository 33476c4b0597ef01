"""How numbers, times and reasons are written for people."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from tidegate.pipelines.watermarks.watermark import instant

WHY = {
    "key-null": "the key is null",
    "key-absent": "the key is not in the table",
    "deleted": "the key was deleted",
    "predicate": "the version fails the rest of ON",
    "before-first": "older than the key's first version",
    "beyond-retention": "older than the versions that retention has kept",
    "time-null": "the time is null",
    "where": "WHERE left it out",
    "discarded": "a person discarded it",
}
"""Why a row has no match, or went elsewhere, as text."""


_STOP = re.compile(r"""(?:(?<=\w\w)|(?<=[\d)\]}'"`]))[.!?] (?=\S)([A-Z][a-z]*\b)?""")
"""Between two sentences. A stop after a single letter is one of "e.g."."""


def number(value: int) -> str:
    return f"{value:,}"


def counted(value: int, noun: str) -> str:
    """ "1 row", "2,000 epochs", "3 matches"."""
    plural = "es" if noun.endswith("tch") else "s"
    return f"{value:,} {noun}{'' if value == 1 else plural}"


def sentence(text: str) -> str:
    """`text` as one sentence without its full stop; several sentences are joined by semicolons."""
    joined = _STOP.sub(lambda found: f"; {(found[1] or '').lower()}", " ".join(text.split()))
    return joined.rstrip(". ")


def seconds(value_ms: float) -> str:
    """A length of time that is given in ms."""
    value = value_ms / 1000
    if value < 120:
        return f"{value:.1f} s"
    return f"{value / 60:.0f} min" if value < 7200 else f"{value / 3600:.1f} h"


def moment(value_ms: int | None) -> str:
    """A time (ms, UTC)."""
    if value_ms is None:
        return ""
    try:
        return dt.datetime.fromtimestamp(value_ms / 1000, dt.UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError):  # outside of the years 1 to 9999
        return instant(value_ms)


def value(found: object) -> str:
    """One value of a row, as SQL would write it: `55240`, `'ann'`, `NULL`, `2026-01-01 10:00:00`."""
    if found is None:
        return "NULL"
    if isinstance(found, Decimal):
        return f"{found:f}"
    if isinstance(found, bytes | bytearray):
        return f"X'{found.hex()}'"
    if isinstance(found, str):
        return "'" + found.replace("'", "''") + "'"
    return str(found).upper() if isinstance(found, bool) else str(found)


LONGEST = 60
"""Characters of one value that are shown in a table."""


def on_one_line(text: str) -> str:
    """`text` for a cell: without characters that a terminal obeys, and cut where it is too long."""
    found = "".join(each if each.isprintable() else repr(each)[1:-1] for each in text[: LONGEST + 1])
    return found if len(found) <= LONGEST else f"{found[: LONGEST - 1]}…"


def key(found: Mapping[str, object]) -> str:
    """The columns of a key with their values: `id = 55240, currency = 'EUR'`."""
    return ", ".join(f"{name} = {value(each)}" for name, each in found.items())


def why(reason: str) -> str:
    """`key-absent@user_info` as text."""
    if reason.startswith("violated:"):
        return f"violates {reason.removeprefix('violated:')}"
    name, _, alias = reason.partition("@")
    text = WHY.get(name, name)
    return f"{text} ({alias})" if alias else text


def document(data: Any) -> str:
    """JSON for a program, with the end of its last line."""
    return json.dumps(data, indent=2, ensure_ascii=False, default=str) + "\n"
