"""Records as process functions see them: named tuples of a table's columns."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Mapping
from functools import lru_cache
from typing import Any


@lru_cache(maxsize=256)
def record_type(columns: tuple[str, ...]) -> type:
    """The class of records with these columns. A name that Python cannot say is reached by place (`record[2]`)."""
    return namedtuple("Record", columns, rename=True)


def record_of(element: Mapping[str, Any]) -> Any:
    """A row that is a mapping, as a record."""
    return record_type(tuple(element))(*element.values())
