"""The server's binlog files: which there are, how long, and whether they are still the ones that a plan speaks of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pymysql.cursors import Cursor

from tidegate.pipelines.errors import SourceError
from tidegate.pipelines.sources.cdc.errors import resnapshot
from tidegate.pipelines.sources.mysql_cdc.binlog.model import FIRST_POSITION, BinlogPosition


@dataclass(frozen=True)
class LogFiles:
    """The server's binlog files in order, with their sizes in bytes, as of one moment."""

    sizes: Mapping[str, int]

    @property
    def names(self) -> Sequence[str]:
        return list(self.sizes)

    def bytes_between(self, start: BinlogPosition, end: BinlogPosition) -> int:
        """How many bytes of log lie in [start, end); 0 when there are none."""
        if end.order <= start.order:
            return 0
        if start.number == end.number:
            return end.position - start.position
        between = sum(
            size for name, size in self.sizes.items() if start.number < BinlogPosition(name).number < end.number
        )
        first = max(0, self.sizes.get(start.file, start.position) - start.position)
        return first + between + end.position

    def crossed(self, start: BinlogPosition, end: BinlogPosition) -> list[str]:
        """The files that [start, end) touches."""
        return [name for name in self.sizes if start.number <= BinlogPosition(name).number <= end.number]

    def following(self, file: str) -> str | None:
        """The file after `file`; None for the newest."""
        names = list(self.sizes)
        index = names.index(file) + 1
        return names[index] if index < len(names) else None


def log_files(cursor: Cursor) -> LogFiles:
    """SHOW BINARY LOGS."""
    cursor.execute("SHOW BINARY LOGS")
    return LogFiles({row[0]: int(row[1]) for row in cursor.fetchall()})


def with_number(like: BinlogPosition, number: int, position: int) -> BinlogPosition:
    """The position in the file with `number`, named as `like`'s file is."""
    stem, _, digits = like.file.rpartition(".")
    return BinlogPosition(f"{stem}.{number:0{len(digits)}d}", position)


@dataclass(frozen=True)
class Birth:
    """A binlog file's own beginning: when it was made (s, UTC) and by which server. A file of the same name that
    another server wrote, or the same server after its log began anew, was born otherwise."""

    timestamp: int
    server_id: int

    def __str__(self) -> str:
        return f"{self.timestamp}-{self.server_id}"

    def to_json(self) -> dict[str, Any]:
        return {"timestamp": self.timestamp, "server_id": self.server_id}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Birth:
        return cls(int(values["timestamp"]), int(values["server_id"]))


def check_reachable(position: BinlogPosition, files: LogFiles, table: str, where: str) -> None:
    """Raise SourceError unless the server still has the log from `position` on."""
    size = files.sizes.get(position.file)
    if size is None:
        oldest = next(iter(files.sizes), None)
        gone = oldest is not None and BinlogPosition(oldest).number > position.number
        raise SourceError(
            f"{table}: the binlog {position.file} has been purged"
            if gone
            else f"{table}: the server has no binlog {position.file}: it is another server, or its binlog began anew",
            where=f"{where}, position {position}; the server's files: {oldest} to {files.names[-1] if oldest else '-'}",
            state="what was committed before is kept; changes after that position cannot be had any more",
            next_command=resnapshot(table),
        )
    if not FIRST_POSITION <= position.position <= size:
        raise SourceError(
            f"{table}: {position.file} ends at {size}, before the position that was read last: "
            "it is another server, or its binlog began anew",
            where=f"{where}, position {position}",
            state="what was committed before is kept; nothing of this server was read",
            next_command=resnapshot(table),
        )


def check_birth(recorded: Birth, found: Birth, position: BinlogPosition, table: str, where: str) -> None:
    """Raise SourceError unless the file at `position` is the one that the plans speak of."""
    if recorded == found:
        return
    if recorded.server_id != found.server_id:
        what = f"the binlog was written by server_id {recorded.server_id}, it is now by {found.server_id}"
    else:
        what = f"{position.file} is not the file that was read before: the server's binlog began anew"
    raise SourceError(
        f"{table}: {what}",
        where=f"{where}, position {position}",
        state="what was committed before is kept; nothing of this log was read",
        next_command=resnapshot(table),
    )


def check_server(recorded: str, found: str, table: str, where: str) -> None:
    """Raise SourceError where the server is another one than was read, by the id that it has itself. A MySQL server has
    a server_uuid; MariaDB has none, and "" is never another one."""
    if recorded and found and recorded != found:
        raise SourceError(
            f"{table}: the server is another one than was read",
            where=f"{where}: server_uuid {found}, it was {recorded}",
            state="what was committed before is kept; nothing of this server was read",
            next_command=resnapshot(table),
        )
