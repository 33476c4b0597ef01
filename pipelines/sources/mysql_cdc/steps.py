"""A plan's ranges, as this connector reads and writes them: a batch of chunks, or a piece of the binlog."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tidegate.pipelines.connectors.protocol import Json
from tidegate.pipelines.sources.cdc.database import SnapshotStep
from tidegate.pipelines.sources.mysql_cdc.binlog.model import BinlogPosition, BinlogRange
from tidegate.pipelines.sources.mysql_cdc.key import MysqlKey
from tidegate.pipelines.sources.mysql_cdc.log import Birth
from tidegate.pipelines.sources.mysql_cdc.types import SourceColumn


@dataclass(frozen=True)
class MysqlSnapshotStep(SnapshotStep):
    """A batch of chunks. `birth` is of the file that `start` is in; `server` the server_uuid, where there is one."""

    start: BinlogPosition
    key: MysqlKey
    columns: tuple[SourceColumn, ...]
    birth: Birth = field(kw_only=True)

    @property
    def log_after(self) -> BinlogPosition:
        """Where the binlog is read from once it has landed."""
        return self.start

    def to_json(self) -> dict[str, Any]:
        return {**super().to_json(), "birth": self.birth.to_json()}


@dataclass(frozen=True)
class BinlogStep:
    """Transactions that begin in `span`, which lies in `files`.

    `birth` is of the file that the span ends in, `start_birth` of the one it starts in (None in a plan of before there
    was one). `flip_at`: the step that reaches it flips; None when that is done.
    `seen_at` (ms, UTC) is when the server's end, `server_end`, was asked for. `known_at` is `reached_at` of the step
    before.
    """

    span: BinlogRange
    files: tuple[str, ...]
    birth: Birth
    columns: tuple[SourceColumn, ...]
    flip_at: BinlogPosition | None
    server_end: BinlogPosition
    seen_at: int
    start_birth: Birth | None = None
    known_at: int = 0
    server: str = ""

    @property
    def reached_at(self) -> int:
        """A time (ms, UTC) at which all that had committed lies before the span's end, known without reading the log:
        when the server's end was asked for, if the span goes that far; else when the file was begun that it ends in."""
        if self.span.end.order >= self.server_end.order:
            return self.seen_at
        return max(self.known_at, self.birth.timestamp * 1000)

    @property
    def log_after(self) -> BinlogPosition:
        return self.span.end

    @property
    def empty(self) -> bool:
        return self.span.start == self.span.end

    @property
    def flips(self) -> bool:
        return self.flip_at is not None and self.span.end.order >= self.flip_at.order

    def to_json(self) -> Json:
        return {
            "kind": "binlog",
            "span": self.span.to_json(),
            "files": list(self.files),
            "birth": self.birth.to_json(),
            "columns": [column.to_json() for column in self.columns],
            "flip_at": self.flip_at.to_json() if self.flip_at else None,
            "server_end": self.server_end.to_json(),
            "seen_at": self.seen_at,
            "start_birth": self.start_birth.to_json() if self.start_birth else None,
            "known_at": self.known_at,
            "server": self.server,
        }

    def __str__(self) -> str:
        return str(self.span)


def step_of(ranges: Mapping[str, Any]) -> MysqlSnapshotStep | BinlogStep:
    """A plan's ranges, read back."""
    columns = tuple(SourceColumn.from_json(column) for column in ranges["columns"])
    birth = Birth.from_json(ranges["birth"])
    if ranges["kind"] == "snapshot":
        return MysqlSnapshotStep(
            first=int(ranges["first"]),
            last=int(ranges["last"]),
            total=int(ranges["total"]),
            start=BinlogPosition.from_json(ranges["start"]),
            birth=birth,
            key=MysqlKey.from_json(ranges["key"]),
            columns=columns,
            server=ranges.get("server", ""),
        )
    return BinlogStep(
        span=BinlogRange.from_json(ranges["span"]),
        files=tuple(ranges["files"]),
        birth=birth,
        columns=columns,
        flip_at=BinlogPosition.from_json(ranges["flip_at"]) if ranges["flip_at"] else None,
        server_end=BinlogPosition.from_json(ranges["server_end"]),
        seen_at=int(ranges["seen_at"]),
        start_birth=Birth.from_json(ranges["start_birth"]) if ranges.get("start_birth") else None,
        known_at=int(ranges.get("known_at", 0)),
        server=ranges.get("server", ""),
    )
