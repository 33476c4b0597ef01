"""Which table each row event belongs to: table ids, which a TABLE_MAP gives a meaning until the file ends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tidegate.pipelines.sources.mysql_cdc.binlog.model import WantedTable
from tidegate.pipelines.sources.mysql_cdc.binlog.rows.columns import Collations
from tidegate.pipelines.sources.mysql_cdc.binlog.rows.table_map import (
    POST_HEADER_BYTES,
    TABLE_ID_BYTES,
    parse,
    table_name,
)
from tidegate.pipelines.sources.mysql_cdc.binlog.rows.table_reader import TableReader
from tidegate.pipelines.sources.mysql_cdc.binlog.stream import Events
from tidegate.pipelines.sources.mysql_cdc.binlog.wire.events import HEADER_BYTES, KIND_OF, Event
from tidegate.pipelines.sources.mysql_cdc.binlog.wire.gather import rows_at, unsigned_at
from tidegate.pipelines.sources.mysql_cdc.errors import BinlogEnded

Indices = NDArray[np.intp]

_NO_TABLE = 0xFFFFFF
"""The table id of a row event that holds no row and only ends a statement."""


_SERVER_VERSION = slice(2, 52)
_MARIADB = b"MariaDB"


@dataclass(frozen=True)
class _Known:
    """What a table id stands for. `reader` is None for a table that nobody wants: its columns are not looked at."""

    body: bytes
    reader: TableReader | None


class TableIds:
    """The table ids of the current file."""

    def __init__(self, wanted: Sequence[WantedTable], collations: Collations, *, fold_case: bool = False) -> None:
        self._wanted = wanted
        self._collations = collations
        self._fold = str.casefold if fold_case else str
        self._known: dict[int, _Known] = {}
        self._mariadb = True

    def begin_file(self, format_description: bytes) -> None:
        """Forget all ids. The body of a format-description event says which server wrote the file."""
        self._known.clear()
        self._mariadb = _MARIADB in format_description[_SERVER_VERSION]

    def row_events(self, events: Events) -> list[tuple[TableReader, Indices]]:
        """The row events of wanted tables, by reader, in order of each reader's first event.

        Raises BinlogEnded for rows whose TABLE_MAP was not seen: the range does not begin at a border.
        """
        maps, rows = np.flatnonzero(events.types == Event.TABLE_MAP), np.flatnonzero(KIND_OF[events.types] >= 0)
        if not len(maps) and not len(rows):
            return []
        map_ids, row_ids = _table_ids(events, maps), _table_ids(events, rows)
        found = [
            group
            for table_id in np.unique(np.concatenate([map_ids, row_ids])).tolist()
            if table_id != _NO_TABLE
            for group in self._of_table(events, table_id, maps[map_ids == table_id], rows[row_ids == table_id])
        ]
        return sorted(found, key=lambda group: group[1][0])

    def _of_table(
        self, events: Events, table_id: int, maps: Indices, rows: Indices
    ) -> Iterator[tuple[TableReader, Indices]]:
        """The row events of one id. Its description may change under it: binlog_row_metadata can be set any time."""
        while True:
            known = self._known.get(table_id)
            changed = _first_other(events, maps, known.body) if known else 0
            border = maps[changed] if changed < len(maps) else len(events)
            now = rows[rows < border]
            if len(now) and known is None:
                raise BinlogEnded(
                    f"rows of the table id {table_id} come before its table map: the range begins inside a transaction",
                    where=events.place(int(now[0])),
                )
            if len(now) and known and known.reader:
                yield known.reader, now
            if changed >= len(maps):
                return
            self._known[table_id] = self._read(events, int(border))
            maps, rows = maps[changed + 1 :], rows[len(now) :]

    def _read(self, events: Events, index: int) -> _Known:
        body, place = events.body(index)[POST_HEADER_BYTES:], events.place(index)
        database, name = map(self._fold, table_name(body))
        for table in self._wanted:
            if (self._fold(table.database), self._fold(table.name)) == (database, name):
                return _Known(
                    body, TableReader(table, parse(body, place, mariadb=self._mariadb), self._collations, place)
                )
        return _Known(body, None)


def _table_ids(events: Events, indices: Indices) -> NDArray[np.int64]:
    return unsigned_at(events.data, events.starts[indices] + HEADER_BYTES, TABLE_ID_BYTES)


def _first_other(events: Events, maps: Indices, body: bytes) -> int:
    """Which of the TABLE_MAPs is the first whose body is not `body`; their number when all are."""
    starts = events.starts[maps] + HEADER_BYTES + POST_HEADER_BYTES
    same = events.ends[maps] - starts == len(body)
    same[same] = (rows_at(events.data, starts[same], len(body)) == np.frombuffer(body, np.uint8)).all(axis=1)
    return len(maps) if same.all() else int(np.argmin(same))
