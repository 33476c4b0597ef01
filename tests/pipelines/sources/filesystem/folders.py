"""Folders of files that tests write, with times of their choice."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.pipelines.sources.sources_help import Bench, MemorySplits, table
from tidegate.pipelines.sources.filesystem import CONNECTOR

LONG_AGO = 1_700_000_000


@dataclass
class Files:
    """A folder. Every file is a second younger than the one before, and long finished."""

    path: Path
    at: int = LONG_AGO
    _count: int = field(default=0)

    def __post_init__(self) -> None:
        self.path.mkdir(parents=True, exist_ok=True)

    def write(self, name: str, content: str | bytes | Sequence[Mapping[str, Any]], *, age: float | None = None) -> Path:
        """Write a file: text, or rows as JSON lines. `age` in s; by default it is long finished."""
        if not isinstance(content, str | bytes):
            content = "".join(f"{json.dumps(row)}\n" for row in content)
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        self._count += 1
        self.touch(name, self.at + self._count if age is None else time.time() - age)
        return path

    def touch(self, name: str, at: float) -> None:
        """Set a file's time, in s since 1970."""
        os.utime(self.path / name, (at, at))

    def bench(self, role: Any = "probe", columns: Mapping[str, str] | None = None, **options: str) -> Bench:
        """A source of this folder; in `options`, `_` stands for `.` and `-` is written as it is."""
        named = {key.replace("_", "."): value for key, value in options.items()}
        given = {"path": str(self.path), "format": "json", **named}
        made = table(columns or {"id": "INT"}, "filesystem", given, role=role)
        return Bench(CONNECTOR, made, "", now=int(time.time() * 1000), splits=MemorySplits())
