"""QUERY events: the statement's text, its default database, and the settings that change how it reads.

Layout: MySQL `libs/mysql/binlog/event/statement_events.h`, Query_event.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from tidegate.pipelines.sources.mysql_cdc.binlog.rows.columns import Collations
from tidegate.pipelines.sources.mysql_cdc.binlog.rows.columns.charsets import decode_text
from tidegate.pipelines.sources.mysql_cdc.binlog.rows.compression import decompress_rows
from tidegate.pipelines.sources.mysql_cdc.errors import MalformedEvent

POST_HEADER = struct.Struct("<IIBHH")
"""Thread id, seconds it took, length of the database's name, error code, length of the status variables."""
DATABASE_LENGTH_AT, STATUS_LENGTH_AT = 8, 11

_SQL_MODE, _CHARSET = 1, 4
_STATUS_BYTES = {0: 4, _SQL_MODE: 8, 3: 4, _CHARSET: 6}
_STATUS_WITH_LENGTH = {5: 1, 6: 1, 2: 2}
"""Status variables that begin with their length, and the bytes beside their text."""

_UTF8 = "utf8mb4"


@dataclass(frozen=True)
class Query:
    """A statement as it was logged."""

    text: str
    database: str
    sql_mode: int = 0


def parse(body: bytes, collations: Collations, where: object = "", *, compressed: bool = False) -> Query:
    """A QUERY event's body without header and checksum."""
    try:
        _, _, name_length, _, status_length = POST_HEADER.unpack_from(body)
        status = body[POST_HEADER.size : POST_HEADER.size + status_length]
        at = POST_HEADER.size + status_length
        database = body[at : at + name_length].decode()
        raw = body[at + name_length + 1 :]
        sql_mode, charset = _settings(status, collations)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise MalformedEvent(f"a statement that cannot be read: {error}", where=where) from error
    if compressed:
        raw = decompress_rows(raw, where)
    # A statement may hold any bytes inside its strings; names and keywords are never hurt by them.
    text = raw.decode(errors="surrogateescape") if charset == _UTF8 else decode_text(charset, raw, "a statement", where)
    return Query(text, database, sql_mode)


def _settings(status: bytes, collations: Collations) -> tuple[int, str]:
    """sql_mode and the client's character set; utf8mb4 when it is not said."""
    at, sql_mode, charset = 0, 0, _UTF8
    while at < len(status):
        code = status[at]
        at += 1
        if code in _STATUS_WITH_LENGTH:
            at += status[at] + _STATUS_WITH_LENGTH[code]
            continue
        if code == _SQL_MODE:
            (sql_mode,) = struct.unpack_from("<Q", status, at)
        elif code == _CHARSET:
            charset = collations.get(int.from_bytes(status[at : at + 2], "little"), _UTF8)
        elif code not in _STATUS_BYTES:
            break  # variables are written in order of age: both of ours come before any that is not known
        at += _STATUS_BYTES[code]
    return sql_mode, _UTF8 if charset.startswith(("utf8", "ascii")) else charset
