"""GTID_TAGGED events of MySQL 8.3 and later: how a transaction begins whose id has a tag.

Layout: MySQL's serialization library (libs/mysql/serialization/readme.md): version, size, and the last field that no
reader may pass over; then fields, each after its number, in order of these. Every number, and each byte of a UUID, is
of variable length: the ones at the low end of the first byte say how many bytes follow it.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Tagged:
    """`name` as MySQL writes it ("uuid:tag:23"). `committed`: when the transaction did, a replicated one at its first
    server; microseconds, UTC."""

    name: str
    committed: int


def parse(body: bytes, where: object = "") -> Tagged:
    """The body of a GTID_TAGGED event. Raises MalformedEvent for one that lacks a part of the name, or the time."""
    try:
        found = _fields(body)
        (number,) = found[_Field.NUMBER]
        source, tag = uuid.UUID(bytes=bytes(found[_Field.UUID])), bytes(found[_Field.TAG]).decode()
        (committed,) = found[_Field.COMMITTED]
        (original,) = found.get(_Field.ORIGINALLY_COMMITTED, (0,))
    except (IndexError, KeyError, ValueError) as error:
        raise MalformedEvent("a tagged transaction's id and commit time cannot be read", where=where) from error
    return Tagged(f"{source}:{tag}:{number >> 1}", original or committed)  # a signed number: 0, -1, 1, -2, …


def _fields(body: bytes) -> dict[int, Sequence[int]]:
    """The numbers, or bytes, of the fields up to the commit times. A field may be left out by its writer."""
    version, at = _number(body, 0)
    if version != _VERSION:
        raise ValueError(version)
    _, at = _number(body, at)
    _, at = _number(body, at)
    found: dict[int, Sequence[int]] = {}
    while at < len(body):
        field, at = _number(body, at)
        if field >= _Field.TRANSACTION_LENGTH:
            break
        if field == _Field.TAG:
            length, at = _number(body, at)
            found[field] = body[at : at + length]
            at += length
            continue
        numbers = []
        for _ in range(_UUID_BYTES if field == _Field.UUID else 1):
            number, at = _number(body, at)
            numbers.append(number)
        found[field] = numbers
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
