"""An oracle that shares nothing with the connector: mysql-replication reads the binlog, plain Python applies it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.event import QueryEvent, RotateEvent, XidEvent
from pymysqlreplication.row_event import DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent

from tests.conftest import Database

Row = dict[str, Any]
Place = tuple[int, int]
"""(file number, position)."""


@dataclass(frozen=True)
class Transaction:
    """Its changes as (before, after), and where it ends."""

    end: Place
    changes: list[tuple[Row | None, Row | None]]


def number(file: str) -> int:
    return int(file.rpartition(".")[2])


class Replay:
    """The state of one table at growing positions of the binlog, from a position at which it was empty."""

    def __init__(self, database: Database, table: str, key: str) -> None:
        self.database = database
        self.table = table
        self.key = key
        self.state: dict[Any, Row] = {}
        file, position = database.execute("SHOW MASTER STATUS")[0][:2]
        self._file, self._position = file, int(position)
        self._pending: list[Transaction] = []
        self.transactions = 0

    def to(self, place: Place) -> dict[Any, Row]:
        """The state after all transactions that end at or before `place`, which never goes back."""
        for _ in self.states(place):
            pass
        return self.state

    def states(self, place: Place) -> Iterator[dict[Any, Row]]:
        """The state as it is now, then after each transaction that ends at or before `place`; one object, changed."""
        yield self.state
        if not self._pending or self._pending[-1].end < place:
            self._pending += self._read()
        while self._pending and self._pending[0].end <= place:
            for before, after in self._pending.pop(0).changes:
                if before is not None:
                    del self.state[before[self.key]]
                if after is not None:
                    self.state[after[self.key]] = after
            self.transactions += 1
            yield self.state

    def _read(self) -> Iterator[Transaction]:
        """The transactions from where the last read stopped to the end of the log."""
        stream = BinLogStreamReader(
            connection_settings={
                "host": self.database.server.host,
                "port": self.database.server.port,
                "user": self.database.user,
                "passwd": self.database.password,
            },
            server_id=4242,
            log_file=self._file,
            log_pos=self._position,
            resume_stream=True,
            blocking=False,
            only_events=[QueryEvent, RotateEvent, XidEvent, WriteRowsEvent, UpdateRowsEvent, DeleteRowsEvent],
        )
        changes: list[tuple[Row | None, Row | None]] = []
        try:
            for event in stream:
                if isinstance(event, RotateEvent):
                    self._file, self._position = event.next_binlog, event.position
                elif isinstance(event, XidEvent | QueryEvent):
                    if isinstance(event, QueryEvent) and event.query == "BEGIN":
                        continue
                    self._position = event.packet.log_pos
                    yield Transaction((number(self._file), self._position), changes)
                    changes = []
                elif event.schema == self.database.name and event.table == self.table:
                    changes += [
                        (
                            row.get("before_values") or _deleted(event, row),
                            row.get("after_values") or _written(event, row),
                        )
                        for row in event.rows
                    ]
        finally:
            stream.close()


def _deleted(event: Any, row: Row) -> Row | None:
    return row["values"] if isinstance(event, DeleteRowsEvent) else None


def _written(event: Any, row: Row) -> Row | None:
    return row["values"] if isinstance(event, WriteRowsEvent) else None
