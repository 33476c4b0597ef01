"""The events of a scripted table, as files: they outlive every object of the process.

An event is one file in `events/`, named by its number, which is never changed: rows as an Arrow file, a watermark or
idleness as JSON. It appears under its name when it is whole.
"""

from __future__ import annotations

import json
import os
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather as feather

from tidegate.pipelines.errors import SourceError
from tidegate.pipelines.watermarks import BEGINNING, Watermark

_OP = b"op"


@dataclass(frozen=True)
class Rows:
    """Rows with one op: +I, -U, +U or -D. `table` has the scripted table's physical columns."""

    op: str
    table: pa.Table


@dataclass(frozen=True)
class WatermarkEvent:
    """What a table's output sent: `watermark`, or None if only its idleness changed.

    `emitted` is the greatest timestamp sent so far, and whether processing time was; `idle` is how it stands now.
    """

    watermark: Watermark | None
    emitted: Watermark = BEGINNING
    idle: bool = False


Event = Rows | WatermarkEvent


class EventLog:
    """The events of one scripted table, numbered from 0. Several objects may use one folder."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.folder = Path(directory) / "events"

    def __len__(self) -> int:
        return len(self._names())

    def append(self, event: Event) -> None:
        """Add `event` after all that are there."""
        self.folder.mkdir(parents=True, exist_ok=True)
        whole = self.folder / f".{uuid.uuid4().hex}"
        try:
            kind = _write(event, whole)
            self._name(whole, kind)
        finally:
            whole.unlink(missing_ok=True)

    def _name(self, whole: Path, kind: str) -> None:
        """Link, unlike rename, fails where another object has just taken the number."""
        while True:
            try:
                os.link(whole, self.folder / f"{len(self):08d}.{kind}")
            except FileExistsError:
                continue
            return

    def read(self, start: int, stop: int | None = None) -> list[Event]:
        """The events from number `start` on, up to and without `stop`. Raises SourceError if one is gone."""
        return [self._read(name) for name in self._names()[start:stop]]

    def watermark_events(self, start: int, stop: int | None = None) -> list[tuple[int, WatermarkEvent]]:
        """Those of these events that are watermarks or idleness, each with its number."""
        named = list(enumerate(self._names()))[start:stop]
        return [(number, _read_watermark_event(self.folder / name)) for number, name in named if name.endswith("json")]

    def within(self, start: int, stop: int, rows: int) -> int:
        """Where events from `start` on, up to and without `stop`, have reached `rows` rows; at least one event."""
        for number, event in enumerate(self.read(start, stop), start + 1):
            rows -= event.table.num_rows if isinstance(event, Rows) else 0
            if rows <= 0:
                return number
        return stop

    def last_watermark_event(self) -> tuple[WatermarkEvent, bool]:
        """The last of them (or how everything starts), and whether rows came after it."""
        rows_after = False
        for name in reversed(self._names()):
            if name.endswith("json"):
                return _read_watermark_event(self.folder / name), rows_after
            rows_after = True
        return WatermarkEvent(None), rows_after

    def _read(self, name: str) -> Event:
        path = self.folder / name
        if name.endswith("json"):
            return _read_watermark_event(path)
        table = feather.read_table(path)
        return Rows((table.schema.metadata or {})[_OP].decode(), table.replace_schema_metadata(None))

    def _names(self) -> list[str]:
        try:
            names = sorted(name for name in os.listdir(self.folder) if not name.startswith("."))
        except FileNotFoundError:
            return []
        for number, name in enumerate(names):
            if int(name[:8]) != number:
                raise SourceError(
                    f"event {number} is gone",
                    where=str(self.folder),
                    state="the events before it stand",
                    next_command="append all events again in a new directory",
                )
        return names


def _write(event: Event, path: Path) -> str:
    if isinstance(event, Rows):
        feather.write_feather(
            event.table.replace_schema_metadata({_OP: event.op}), str(path), compression="uncompressed"
        )
        return "arrow"
    stored = {
        "watermark": event.watermark and asdict(event.watermark),
        "standing": asdict(event.emitted),
        "idle": event.idle,
    }
    path.write_text(json.dumps(stored))
    return "json"


def _read_watermark_event(path: Path) -> WatermarkEvent:
    found: dict[str, Any] = json.loads(path.read_text())
    watermark = found["watermark"]
    emitted = Watermark(**found["standing"])
    return WatermarkEvent(Watermark(**watermark) if watermark else None, emitted, found["idle"])
