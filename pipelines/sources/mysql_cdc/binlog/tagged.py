"""GTID_TAGGED events of MySQL 8.3 and later: how a transaction begins whose id has a tag.

Layout: MySQL's serialization library (libs/mysql/serialization/readme.md): version, size, and the last field that no
reader may pass over; then fields, each after its number, in order of these. Every number, and each byte of a UUID, is
of variable length: the ones at the low end of the first byte say how many bytes follow it.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from tidegate.pipelines.sources.mysql_cdc.errors import MalformedEvent

_VERSION: Final = 1
_UUID_BYTES: Final = 16
_LONGEST: Final = 9


class _Field(IntEnum):
    """Fields of the event, by number (MySQL `Gtid_event::define_fields`)."""

    FLAGS = 0
    UUID = 1
    NUMBER = 2
    TAG = 3
    LAST_COMMITTED = 4
    SEQUENCE_NUMBER = 5
    COMMITTED = 6
    ORIGINALLY_COMMITTED = 7
    TRANSACTION_LENGTH = 8


def commit_time(body: bytes, where: object = "") -> int:
    """When the transaction committed, of a replicated one at its first server; microseconds, UTC.

    Raises MalformedEvent for a body that says no such time.
    """
    try:
        times = _times(body)
        return times.get(_Field.ORIGINALLY_COMMITTED) or times[_Field.COMMITTED]
    except (IndexError, KeyError, ValueError) as error:
        raise MalformedEvent("a tagged transaction's commit time cannot be read", where=where) from error


def _times(body: bytes) -> dict[int, int]:
    """The commit times, by field. A field that is not among those that were written is left out by its writer."""
    version, at = _number(body, 0)
    if version != _VERSION:
        raise ValueError(version)
    _, at = _number(body, at)
    _, at = _number(body, at)
    found: dict[int, int] = {}
    while at < len(body):
        field, at = _number(body, at)
        if field >= _Field.TRANSACTION_LENGTH:
            break
        if field == _Field.TAG:
            length, at = _number(body, at)
            at += length
            continue
        for _ in range(_UUID_BYTES if field == _Field.UUID else 1):
            found[field], at = _number(body, at)
    return found


def _number(body: bytes, at: int) -> tuple[int, int]:
    """The unsigned number at `at`, and where it ends."""
    first = body[at]
    size = min((~first & (first + 1)).bit_length() or _LONGEST, _LONGEST)
    end = at + size
    if end > len(body):
        raise IndexError(end)
    if size == _LONGEST:
        return int.from_bytes(body[at + 1 : end], "little"), end
    return int.from_bytes(body[at:end], "little") >> size, end
