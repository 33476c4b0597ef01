"""The fields that messages have, for a column that no row has a value of: does the source call it otherwise?"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tidegate.pipelines.connectors.protocol import FieldsSeen
from tidegate.pipelines.sources.formats.format import Format, Wanted

RECORDS = 1_000
"""So many messages are looked at."""


def fields_of(format: Format, messages: Iterable[bytes | None], wanted: Wanted) -> FieldsSeen:
    """The fields of `messages`, in the order in which they come, and which of the wanted columns they are.

    A format that finds columns by their place has all of them in every message. What is no JSON has none.
    """
    rows_of = format.spec.rows
    if rows_of is None:
        return FieldsSeen(frozenset(column.name for column in wanted.columns))
    names, records = dict[str, None](), 0
    for message in messages:
        if message is None:
            continue
        records += 1
        for row in filter(_is_object, rows_of(_parsed(message))):
            names |= dict.fromkeys(row)
    carried = frozenset(column.name for column in wanted.columns if column.source_name in names)
    return FieldsSeen(carried, tuple(names), records)


def together(parts: Sequence[FieldsSeen]) -> FieldsSeen:
    """Of several parts of the same records, such as their keys and their values."""
    return FieldsSeen(
        frozenset().union(*(part.columns for part in parts)),
        tuple(dict.fromkeys(name for part in parts for name in part.names)),
        max((part.records for part in parts), default=0),
    )


def _parsed(message: bytes) -> Any:
    try:
        return json.loads(message)
    except (ValueError, RecursionError):
        return None


def _is_object(value: Any) -> bool:
    return isinstance(value, Mapping)
