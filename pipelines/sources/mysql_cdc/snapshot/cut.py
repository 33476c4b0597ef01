"""The cut: the log position that one snapshot chunk's read view equals. MariaDB and MySQL have each a rule for it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Protocol

from pymysql.cursors import Cursor

from tidegate.pipelines.errors import SourceError
from tidegate.pipelines.sources.cdc.database import CutRule
from tidegate.pipelines.sources.mysql_cdc.binlog.model import BinlogPosition
from tidegate.pipelines.sources.mysql_cdc.binlog.scan import Borders, scan_borders
from tidegate.pipelines.sources.mysql_cdc.catalog import Server
from tidegate.pipelines.sources.mysql_cdc.connection import ServerOptions

Scan = Callable[[ServerOptions, BinlogPosition, BinlogPosition], Iterable[Borders]]

SESSION_STATEMENT = "START TRANSACTION WITH CONSISTENT SNAPSHOT"
"""Opens the read view, under REPEATABLE READ only: READ COMMITTED ignores it without a word."""


class MysqlCutRule(CutRule[BinlogPosition], Protocol):
    """`CutRule` of a server whose read views have their place by SQL."""

    def columns(self, cursor: Cursor, start: BinlogPosition) -> tuple[str, str]:
        """SQL of the file's number and of the position that a read view opened from now on has reached, whole numbers,
        asked once in each chunk's read view, before its rows. `start` is what `start` gave before the first chunk."""
        ...


def cut_rule(server: Server, options: ServerOptions) -> MysqlCutRule:
    """The rule of this server."""
    return MariaDbCut(server) if server.flavor == "mariadb" else MySqlCut(server, options)


def status_position(cursor: Cursor, server: Server) -> BinlogPosition:
    """Where the server will write next. Raises SourceError when it writes no binlog."""
    cursor.execute(server.status_command)
    found = cursor.fetchone()
    if found is None:
        raise no_binlog()
    return BinlogPosition(found[0], int(found[1]))


def no_binlog() -> SourceError:
    """The server writes no binlog."""
    return SourceError(
        "the server writes no binlog",
        state="nothing was read",
        next_command="start it with log_bin = binlog and a server_id in its configuration",
    )


class MariaDbCut:
    """MariaDB reports it: BINLOG_SNAPSHOT_FILE and _POSITION of the very transaction, in the order of commits."""

    exact = True
    # Made a number here: '' would be 0, and is no position.
    _STATUS = (
        "(SELECT CAST(NULLIF({}, '') AS SIGNED) FROM information_schema.SESSION_STATUS WHERE VARIABLE_NAME = '{}')"
    )

    def __init__(self, server: Server) -> None:
        self._server = server

    def start(self, cursor: Cursor) -> BinlogPosition:
        # Not SHOW MASTER STATUS: it may be past transactions that are written and not yet visible.
        cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        cursor.execute(SESSION_STATEMENT)
        cursor.execute("SHOW STATUS LIKE 'binlog_snapshot_%'")
        found = {name.lower(): value for name, value in cursor.fetchall()}
        cursor.execute("COMMIT")
        if not found.get("binlog_snapshot_file"):
            raise no_binlog()
        return BinlogPosition(found["binlog_snapshot_file"], int(found["binlog_snapshot_position"]))

    def columns(self, cursor: Cursor, start: BinlogPosition) -> tuple[str, str]:
        file = self._STATUS.format("SUBSTRING_INDEX(VARIABLE_VALUE, '.', -1)", "BINLOG_SNAPSHOT_FILE")
        return file, self._STATUS.format("VARIABLE_VALUE", "BINLOG_SNAPSHOT_POSITION")

    def after(self, cursor: Cursor) -> BinlogPosition:
        return status_position(cursor, self._server)


class MySqlCut:
    """MySQL 8 knows only which transactions are visible (gtid_executed), not where they are in the log.

    A file and position would cover transactions that are written but not yet visible. So the set is read before the
    view is opened, and the position is the place of the first transaction in the log that is not in the set.
    """

    exact = False

    def __init__(self, server: Server, options: ServerOptions, scan: Scan = scan_borders) -> None:
        self._server = server
        self._options = options
        self._scan = scan

    def start(self, cursor: Cursor) -> BinlogPosition:
        # Nothing before the newest file is invisible: a new one begins when all transactions of the old are committed.
        return self._visible(cursor, None)

    def columns(self, cursor: Cursor, start: BinlogPosition) -> tuple[str, str]:
        reached = self._visible(cursor, start)
        return str(reached.number), str(reached.position)

    def after(self, cursor: Cursor) -> BinlogPosition:
        return status_position(cursor, self._server)

    def _visible(self, cursor: Cursor, known: BinlogPosition | None) -> BinlogPosition:
        """Just before the first transaction that is not visible, looked for from `known` on."""
        cursor.execute("SELECT @@GLOBAL.gtid_executed")
        executed = GtidSet.parse((cursor.fetchone() or ("",))[0])
        end = status_position(cursor, self._server)
        for borders in self._scan(self._options, known or BinlogPosition(end.file), end):
            for index in range(len(borders)):
                transaction = borders.gtid(index)
                # One without a readable id is taken as not visible: to begin too early only costs time.
                if transaction is None or transaction not in executed:
                    return borders.place(index)
        return end


class GtidSet:
    """A set of MySQL's transaction ids, "uuid:1-5:7,uuid:tag:1-3". `"uuid:6" in GtidSet.parse(…)` asks for one."""

    def __init__(self, intervals: dict[str, list[tuple[int, int]]]) -> None:
        self._intervals = intervals

    @classmethod
    def parse(cls, text: str) -> GtidSet:
        """From @@gtid_executed. Raises SourceError for a text of another form."""
        intervals: dict[str, list[tuple[int, int]]] = {}
        for source in "".join(text.split()).split(","):
            if not source:
                continue
            uuid, *parts = source.lower().split(":")
            if not re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", uuid) or not parts:
                raise SourceError(f"{source!r} is no set of transaction ids", where="@@gtid_executed")
            name = uuid
            for part in parts:
                numbers = re.fullmatch(r"(\d+)(?:-(\d+))?", part)
                if numbers:
                    first = int(numbers.group(1))
                    intervals.setdefault(name, []).append((first, int(numbers.group(2) or first)))
                elif re.fullmatch(r"[a-z_]\w{0,31}", part):
                    name = f"{uuid}:{part}"
                else:
                    raise SourceError(f"{source!r} is no set of transaction ids", where="@@gtid_executed")
        return cls(intervals)

    def __contains__(self, transaction: str) -> bool:
        name, _, number = transaction.lower().rpartition(":")
        return any(first <= int(number) <= last for first, last in self._intervals.get(name, ()))
