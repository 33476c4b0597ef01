"""What the commits of a Delta table did, read from its log: known without a JVM.

Only a change of data counts; a commit that merely moves rows into other files (OPTIMIZE) did nothing.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from deltalake import DeltaTable

from pipelines.errors import SourceError

Effect = Literal["nothing", "added", "changed"]

SPLIT = "0"
"""A Delta table is read as one split."""


@dataclass(frozen=True)
class Commit:
    """One version. `added` are the log's own lines of the files whose rows it added; `timestamp` is in ms, UTC."""

    version: int
    effect: Effect
    operation: str
    timestamp: int
    added: tuple[str, ...] = ()

    @property
    def rows(self) -> int:
        """How many rows the added files have, as far as the log has counted them."""
        stats = [json.loads(line)["add"].get("stats") for line in self.added]
        return sum(int(json.loads(told).get("numRecords", 0)) for told in stats if told)


class CommitLog:
    """The log of the table at `path`, a folder that this machine can read."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).absolute()
        self._table: DeltaTable | None = None

    def exists(self) -> bool:
        return DeltaTable.is_deltatable(str(self.path))

    def latest(self) -> int:
        """The newest version."""
        return self._opened().version()

    def id(self) -> str:
        """The table's identity: another table in the same place has another."""
        return str(self._opened().metadata().id)

    def schema(self) -> dict[str, Any]:
        """The newest schema, as Spark's JSON."""
        return json.loads(self._opened().schema().to_json())

    def feeds_changes(self, version: int) -> bool:
        """Whether the change data feed was on at `version`."""
        configuration = DeltaTable(str(self.path), version=version).metadata().configuration
        return (configuration.get("delta.enableChangeDataFeed") or "false").lower() == "true"

    def commit(self, version: int) -> Commit:
        """What `version` did. Raises SourceError if the log no longer goes back so far."""
        file = self.path / "_delta_log" / f"{version:020d}.json"
        try:
            lines = file.read_text().splitlines()
        except FileNotFoundError as error:
            raise SourceError(
                f"version {version} of the Delta table is gone: its log was cleaned up before it was read",
                where=str(file),
                state="what was read before stands; nothing after it was read",
                next_command="tidegate run SCRIPT --resnapshot TABLE   (reads the table anew; and make "
                "delta.logRetentionDuration longer)",
            ) from error
        return _commit(version, lines, int(file.stat().st_mtime * 1000))

    def _opened(self) -> DeltaTable:
        if self._table is None:
            self._table = DeltaTable(str(self.path))
        else:
            self._table.update_incremental()
        return self._table


def _commit(version: int, lines: list[str], written_at: int) -> Commit:
    added: list[str] = []
    changed = False
    info: dict[str, Any] = {}
    for line in lines:
        action = json.loads(line) if line.strip() else {}
        if action.get("add", {}).get("dataChange"):
            added.append(line)
        info = action.get("commitInfo", info)
        changed = changed or "cdc" in action or bool(action.get("remove", {}).get("dataChange"))
    return Commit(
        version,
        effect="changed" if changed else "added" if added else "nothing",
        operation=info.get("operation", "a commit"),
        # As Delta's own change data feed has it: a commitInfo's plain timestamp is the writer's, and not in order.
        timestamp=info.get("inCommitTimestamp") or written_at,
        added=tuple(added),
    )
