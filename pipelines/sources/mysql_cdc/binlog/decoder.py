"""Turns chunks of events into batches of changelog rows of one table, which row events name by ids of their file.

    decoder = Decoder(table, collations, start=BinlogPosition("binlog.000001"))
    for chunk in transport.dump(server, start):
        for batch in decoder.feed(chunk): ...

Rows come in binlog order. A batch ends with its chunk, or before a statement that is not just BEGIN or COMMIT. No
event is passed over but those that `events.PASSED_OVER` lists.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidegate.pipelines.commands import then
from tidegate.pipelines.sources.cdc.errors import FRESH
from tidegate.pipelines.sources.mysql_cdc.binlog.events import (
    FLAGS_AT,
    HEADER_BYTES,
    KIND_OF,
    LENGTH_AT,
    SERVER_AT,
    THREAD_SPECIFIC,
    TYPE_AT,
    Chunk,
    Event,
    Kind,
    Offsets,
    rows_at,
    unsigned_at,
)
from tidegate.pipelines.sources.mysql_cdc.binlog.model import BinlogPosition, WantedTable
from tidegate.pipelines.sources.mysql_cdc.binlog.rows.columns import Collations
from tidegate.pipelines.sources.mysql_cdc.binlog.rows.compression import decompress_transaction
from tidegate.pipelines.sources.mysql_cdc.binlog.rows.table_map import (
    POST_HEADER_BYTES,
    TABLE_ID_BYTES,
    parse,
    table_name,
)
from tidegate.pipelines.sources.mysql_cdc.binlog.rows.table_reader import (
    TRUNCATE,
    Rows,
    TableReader,
    batch_of,
    schema_of,
)
from tidegate.pipelines.sources.mysql_cdc.binlog.statements import ddl, query
from tidegate.pipelines.sources.mysql_cdc.binlog.statements.shape import Shape
from tidegate.pipelines.sources.mysql_cdc.binlog.stream import (
    CommitTimes,
    Events,
    EventStream,
    gtid_indices,
    is_half_of_alter,
    require_known,
)
from tidegate.pipelines.sources.mysql_cdc.errors import BinlogEnded, BinlogError, UnsupportedEvent
from tidegate.pipelines.sources.mysql_cdc.names import CASE_MATTERS, Lower
from tidegate.pipelines.syntax.types import quoted

Indices = NDArray[np.intp]

_NO_TABLE = 0xFFFFFF
"""The table id of a row event that holds no row and only ends a statement."""


_NO_FOREIGN_KEYS, _CASCADES_LOGGED = 0x02, 0x10
"""Flags of row events: the session had foreign_key_checks off; MySQL 9.6 and later did what the keys ask for itself."""

_SERVER_VERSION = slice(2, 52)
_MARIADB = b"MariaDB"


@dataclass(frozen=True)
class _Known:
    """What a table id means. `reader` is None for another table than the wanted one: its columns are not parsed.
    `changes_ours`: foreign keys may change rows of the wanted one where rows of this one change."""

    body: bytes
    reader: TableReader | None
    name: str = ""
    changes_ours: bool = False


class TableIds:
    """The table ids of the current file."""

    def __init__(self, wanted: WantedTable, collations: Collations, *, lower: Lower = CASE_MATTERS) -> None:
        self._wanted = wanted
        self._collations = collations
        self._lower = lower
        self._known: dict[int, _Known] = {}
        self._mariadb = True

    def begin_file(self, format_description: bytes) -> None:
        """Forget all ids. The body of a format-description event says which server wrote the file."""
        self._known.clear()
        self._mariadb = _MARIADB in format_description[_SERVER_VERSION]

    def row_events(self, events: Events) -> list[tuple[TableReader, Indices]]:
        """The row events of the wanted table, by reader, in order of each reader's first event.

        Raises BinlogEnded for rows whose TABLE_MAP was not seen: the range does not begin at a border.
        """
        maps = np.flatnonzero(events.types == Event.TABLE_MAP)
        rows = np.flatnonzero((KIND_OF[events.types] >= 0) | (events.types == Event.PARTIAL_UPDATE_ROWS))
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
            if len(now) and known and known.changes_ours:
                self._require_cascades(events, now, known.name)
            if len(now) and known and known.reader:
                partial = now[events.types[now] == Event.PARTIAL_UPDATE_ROWS]
                if len(partial):
                    raise UnsupportedEvent(
                        f"the rows of {self._wanted} hold only the changed parts of their JSON values; on the server:"
                        " SET GLOBAL binlog_row_value_options = '', and no session that sets another",
                        where=events.place(int(partial[0])),
                        next_command=FRESH,
                    )
                yield known.reader, now
            if changed >= len(maps):
                return
            self._known[table_id] = self._read(events, int(border))
            maps, rows = maps[changed + 1 :], rows[len(now) :]

    def _read(self, events: Events, index: int) -> _Known:
        body, place = events.body(index)[POST_HEADER_BYTES:], events.place(index)
        database, name = table_name(body)
        changes_ours = self._wanted.cascades.follow(database, name, self._lower)
        if not self._wanted.is_named(database, name, self._lower):
            return _Known(body, None, f"{database}.{name}", changes_ours)
        seen = parse(body, place, mariadb=self._mariadb)
        return _Known(body, TableReader(self._wanted, seen, self._collations, place), str(self._wanted), changes_ours)

    def _require_cascades(self, events: Events, rows: Indices, table: str) -> None:
        """No row was changed in a way that foreign keys may have gone on with below the log."""
        kinds = KIND_OF[events.types[rows]]
        updates = (kinds == Kind.UPDATE) | (events.types[rows] == Event.PARTIAL_UPDATE_ROWS)
        changes = rows[updates | (kinds == Kind.DELETE)]
        flags = unsigned_at(events.data, events.starts[changes] + HEADER_BYTES + TABLE_ID_BYTES, 2)
        silent = changes[flags & (_NO_FOREIGN_KEYS | _CASCADES_LOGGED) == 0]
        if len(silent):
            keys = ", ".join(f"DROP FOREIGN KEY {quoted(name)}" for name in self._wanted.cascades.names)
            own = f"{quoted(self._wanted.database)}.{quoted(self._wanted.name)}"
            raise UnsupportedEvent(
                f"rows of {table} were changed by a server that does not log the cascades of foreign keys, and"
                f" {self._wanted} has such keys: what they did to it is not in this binlog",
                where=events.place(int(silent[0])),
                next_command=then(
                    f"ALTER TABLE {own} {keys}   (on the server that the rows come from; or define them again with NO"
                    " ACTION. A server that was upgraded needs neither)",
                    FRESH,
                ),
            )


def _table_ids(events: Events, indices: Indices) -> NDArray[np.int64]:
    return unsigned_at(events.data, events.starts[indices] + HEADER_BYTES, TABLE_ID_BYTES)


def _first_other(events: Events, maps: Indices, body: bytes) -> int:
    """Which of the TABLE_MAPs is the first whose body is not `body`; their number when all are."""
    starts = events.starts[maps] + HEADER_BYTES + POST_HEADER_BYTES
    same = events.ends[maps] - starts == len(body)
    same[same] = (rows_at(events.data, starts[same], len(body)) == np.frombuffer(body, np.uint8)).all(axis=1)
    return len(maps) if same.all() else int(np.argmin(same))


log = logging.getLogger(__name__)

_QUIET = (b"BEGIN", b"COMMIT")
"""Statements that only begin or end a transaction; a server may write one for every row."""


class Decoder:
    """One bounded read. `start` and `end` are transaction borders; without `end` everything that is fed is read.

    `lower`: how the server's table names know no upper case. `done` once `end` is reached.
    """

    def __init__(
        self,
        table: WantedTable,
        collations: Collations,
        *,
        start: BinlogPosition,
        end: BinlogPosition | None = None,
        lower: Lower = CASE_MATTERS,
    ) -> None:
        self._stream = EventStream(start, end)
        self._table = table
        self._collations = collations
        self._ids = TableIds(table, collations, lower=lower)
        self._times = CommitTimes()
        self._lower = lower
        self._temporary: dict[int, set[int]] = {}
        """Connections that have a TEMPORARY table of the wanted one's name, by the server that they are connections of:
        a replica logs those of its source under the source's own numbers."""
        self._shapes: dict[str, Shape] = {}
        """The shapes of declared columns that were altered."""
        self._half_of_alter = False
        """Whether the current event group is a part of an ALTER that another one ends."""
        self._distributed: set[tuple[str, ...]] = set()
        """The XA transactions that were read to their end and have no row of the table."""
        self._rows_since_begin = False
        self._rows_of_event: int | None = None
        """Rows so far of an event that holds many, which all have its position; None outside of one."""

    @property
    def done(self) -> bool:
        """Whether the range has been read to its end."""
        return self._stream.done

    @property
    def place(self) -> BinlogPosition:
        """The position of the next event."""
        return self._stream.place

    def feed(self, chunk: Chunk) -> Iterator[pa.RecordBatch]:
        """The changes in the chunk's events. Raises what `errors` lists, each with its place."""
        for events in self._stream.feed(chunk):
            if events.types[0] == Event.FORMAT_DESCRIPTION:
                self._ids.begin_file(events.body(0))
                self._temporary.clear()  # a server that was started anew counts its connections anew
            else:
                yield from self._changes(events, self._times.of(events))

    def _changes(self, events: Events, times: Offsets) -> Iterator[pa.RecordBatch]:
        """Rows of the events between statements, all at once; and what each statement means."""
        first, begins = 0, gtid_indices(events)
        for index in [*_statements(events), len(events)]:
            yield from self._rows(events[first:index], times[first:index])
            begun = begins[(begins >= first) & (begins < index)]
            if len(begun):
                self._half_of_alter = is_half_of_alter(events, int(begun[-1]))
            if index == len(events):
                return
            if events.types[index] == Event.XA_PREPARE:
                self._refuse_distributed(events.place(index), self._rows_since_begin)
            elif events.types[index] == Event.TRANSACTION_PAYLOAD:
                yield from self._compressed_transaction(events, index, int(times[index]))
            elif not self._half_of_alter:
                yield from self._statement(events, index, int(times[index]))
            first = index + 1

    def _rows(self, events: Events, times: Offsets) -> Iterator[pa.RecordBatch]:
        last_rows = -1
        for reader, indices in self._ids.row_events(events):
            last_rows = max(last_rows, int(indices[-1]))
            rows = self._read(reader, events, indices)
            if rows is None:
                continue
            numbers = rows.row
            if self._rows_of_event is not None:
                numbers = self._rows_of_event + np.arange(len(numbers))
                self._rows_of_event += len(numbers)
            chosen = indices[rows.event]
            yield batch_of(
                reader.schema,
                rows.columns,
                file_number=BinlogPosition(events.file).number,
                ops=rows.ops,
                positions=events.positions[chosen],
                rows=numbers,
                times=times[chosen],
            )
        begins = gtid_indices(events)
        self._rows_since_begin &= not len(begins)
        self._rows_since_begin |= last_rows > (begins[-1] if len(begins) else -1)

    def _read(self, reader: TableReader, events: Events, indices: Indices) -> Rows | None:
        try:
            return reader.read(events.data, events.starts[indices], events.ends[indices], events.types[indices])
        except BinlogError as error:
            if error.where:
                raise
            first, last = events.place(int(indices[0])), events.place(int(indices[-1]))
            where = f"{first}, {reader.table}" if first == last else f"{first} to {last.position}, {reader.table}"
            raise error.at(where) from error

    def _compressed_transaction(self, events: Events, index: int, time: int) -> Iterator[pa.RecordBatch]:
        """All its rows have the position of the one event that holds them, and are counted through it."""
        place, self._rows_of_event = events.place(index), 0
        for chunk in decompress_transaction(events.body(index), place):
            starts = chunk.starts
            ends = starts + unsigned_at(chunk.data, starts + LENGTH_AT, 4)
            types = np.frombuffer(chunk.data, np.uint8)[starts + TYPE_AT]
            inner = Events(events.file, chunk.data, starts, ends, types, np.full(len(starts), place.position))
            require_known(inner)
            yield from self._changes(inner, np.full(len(inner), time))
        self._rows_of_event = None

    def _statement(self, events: Events, index: int, time: int) -> Iterator[pa.RecordBatch]:
        place = events.place(index)
        compressed = events.types[index] == Event.QUERY_COMPRESSED
        flags = int(unsigned_at(events.data, events.starts[index : index + 1] + FLAGS_AT, 2)[0])
        statement = query.parse(
            events.body(index),
            self._collations,
            place,
            compressed=compressed,
            thread_specific=bool(flags & THREAD_SPECIFIC),
        )
        origin = int(unsigned_at(events.data, events.starts[index : index + 1] + SERVER_AT, 4)[0])
        temporary = self._temporary.setdefault(origin, set())
        judged = ddl.judge(
            statement,
            self._table,
            temporary=temporary,
            shapes=self._shapes,
            lower=self._lower,
            where=place,
        )
        if judged.effect is ddl.Effect.UNDO and self._rows_since_begin:
            raise UnsupportedEvent(
                "a transaction that also changed tables which know no ROLLBACK was rolled back; its rows are in the"
                " binlog all the same",
                where=place,
                next_command=FRESH,
            )
        if judged.effect is ddl.Effect.XA_END:
            self._refuse_distributed(place, self._rows_since_begin)
            self._distributed.add(judged.xid)
        if judged.effect is ddl.Effect.XA_COMMIT:
            known_from = self._table.all_seen_from
            if judged.xid not in self._distributed and (known_from is None or place.order < known_from.order):
                raise self._prepared_before(place)
            self._distributed.discard(judged.xid)
        if judged.note:
            log.warning("%s at %s: %s", self._table, place, judged.note)
        if judged.effect is ddl.Effect.TRUNCATE:
            yield self._truncate(place, time)

    def _refuse_distributed(self, place: BinlogPosition, ours: bool) -> None:
        """Raise UnsupportedEvent for a distributed transaction that has rows of the table."""
        if ours:
            raise UnsupportedEvent(
                f"a distributed (XA) transaction has changed {self._table}: its rows stand in the binlog before anyone"
                " knows whether it commits; keep such transactions away from this table",
                where=place,
                next_command=FRESH,
            )

    def _prepared_before(self, place: BinlogPosition) -> UnsupportedEvent:
        """A distributed transaction commits whose rows were not read here. A step before that read rows of the table
        among them would have stopped; but they may lie before all that the generation has read."""
        grant = self._table.xa_grant
        return UnsupportedEvent(
            f"a distributed (XA) transaction commits whose rows may have been logged before {self._table} was read, and"
            " may be its own: which ones were prepared then is not known",
            where=place,
            next_command=then(grant, FRESH) if grant else FRESH,
        )

    def _truncate(self, place: BinlogPosition, time: int) -> pa.RecordBatch:
        schema = schema_of(self._table)
        columns = [pa.nulls(1, schema.field(column.name).type) for column in self._table.columns]
        return batch_of(
            schema,
            columns,
            file_number=place.number,
            ops=np.array([TRUNCATE], np.int8),
            positions=np.array([place.position]),
            rows=np.zeros(1, np.int64),
            times=np.array([time]),
        )


def _statements(events: Events) -> list[int]:
    """The events that must be looked at one by one, in order."""
    types = events.types
    loud = np.isin(types, (Event.QUERY_COMPRESSED, Event.TRANSACTION_PAYLOAD, Event.XA_PREPARE))
    queries = np.flatnonzero(types == Event.QUERY)
    if len(queries):
        loud[queries] = ~_is_quiet(events, queries)
    return np.flatnonzero(loud).tolist()


def _is_quiet(events: Events, queries: Indices) -> np.ndarray:
    """Which QUERY events say no more than BEGIN or COMMIT."""
    bodies = events.starts[queries] + HEADER_BYTES
    database = unsigned_at(events.data, bodies + query.DATABASE_LENGTH_AT, 1)
    status = unsigned_at(events.data, bodies + query.STATUS_LENGTH_AT, 2)
    texts = bodies + query.POST_HEADER.size + status + database + 1
    quiet = np.zeros(len(queries), bool)
    for statement in _QUIET:
        same = np.flatnonzero(events.ends[queries] - texts == len(statement))
        if len(same):
            found = rows_at(events.data, texts[same], len(statement)) == np.frombuffer(statement, np.uint8)
            quiet[same] = found.all(axis=1)
    return quiet
