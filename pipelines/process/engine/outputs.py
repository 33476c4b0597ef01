"""Output records as they are collected, and whose they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pipelines.process.errors import WrongValue


class ListCollector:
    """Keeps what is collected, in order."""

    __slots__ = ("collect", "records")

    def __init__(self) -> None:
        self.records: list[Any] = []
        self.collect = self.records.append


def as_tuple(record: Any, names: Sequence[str]) -> tuple[Any, ...]:
    """An output record by the columns of its schema. Raises WrongValue that says what it lacks."""
    if isinstance(record, tuple):
        if len(record) != len(names):
            raise WrongValue(f"an output record has {len(record)} fields, the schema has {len(names)}")
        return record
    if isinstance(record, dict):
        if record.keys() != set(names):
            odd = sorted(record.keys() ^ set(names), key=str)
            raise WrongValue(f"an output record and the schema differ in {', '.join(map(str, odd))}")
        return tuple(record[name] for name in names)
    try:
        return tuple(getattr(record, name) for name in names)
    except AttributeError:
        raise WrongValue(
            f"an output record is a tuple, a dict or an object with {', '.join(names)}, not {type(record).__name__}"
        ) from None
