"""What the commits of a Delta table did, read from its log: known without a JVM.

Only a change of data counts; a commit that merely moves rows into other files (OPTIMIZE) did nothing.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tidegate.pipelines.commands import resnapshot
from tidegate.pipelines.errors import SourceError
from tidegate.pipelines.sources.rows import NOTHING_AFTER
from tidegate.pipelines.syntax.types import quoted

if TYPE_CHECKING:
    from deltalake import DeltaTable

Effect = Literal["nothing", "added", "changed"]

SPLIT = "0"
"""A Delta table is read as one split."""


PLAIN_READER = 1
"""The version of Delta's protocol whose readers know no column mapping, no deletion vectors, and no other feature."""

_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.=-]*")
MOST_NAMED = 50
"""Files that a query names one by one, at most: each row looks its own up among them, for 7 µs where they are 500."""


@dataclass(frozen=True)
class Commit:
    """One version. `added` are the log's own lines of the files whose rows it added; `timestamp` is in ms, UTC.
    `schema` is the table's from then on, as Spark's JSON, where the commit says anything of the table itself."""

    version: int
    effect: Effect
    operation: str
    timestamp: int
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    """The paths of files whose rows it changed or removed."""
    compacts: bool = False
    """Whether it wrote rows anew as they were: OPTIMIZE does."""
    schema: Mapping[str, Any] | None = None

    @cached_property
    def files(self) -> list[dict[str, Any]]:
        """The log's entries of the added files."""
        return [json.loads(line)["add"] for line in self.added]

    @property
    def rows(self) -> int:
        """How many rows the added files have, as far as the log has counted them."""
        return sum(int(json.loads(file["stats"]).get("numRecords", 0)) for file in self.files if file.get("stats"))

    @property
    def names(self) -> list[str]:
        """The names of the added files, without their folders."""
        return [file["path"].rpartition("/")[2] for file in self.files]

    @property
    def plain(self) -> bool:
        """Whether it added a few files, each once, in the table's own folder under a plain name, and all their rows."""
        paths = {file["path"] for file in self.files}
        whole = len(paths) == len(self.files) and not any(file.get("deletionVector") for file in self.files)
        return whole and 0 < len(paths) <= MOST_NAMED and all(map(_PLAIN_NAME.fullmatch, paths))


def grouped(commits: Sequence[Commit]) -> list[list[Commit]]:
    """Commits whose rows one query tells apart by the names of their files: of several commits no two files have one
    name, each is spelled in one way, and there are up to MOST_NAMED."""
    found, names = list[list[Commit]](), list[str]()
    for commit in commits:
        names += commit.names
        apart = len(set(names)) == len(names) <= MOST_NAMED and all(map(_PLAIN_NAME.fullmatch, names))
        if found and apart:
            found[-1].append(commit)
        else:
            found.append([commit])
            names = commit.names
    return found


def still_there(commits: Sequence[Commit]) -> list[Commit] | None:
    """What successive commits have added and left, as if each had added nothing else. None where that is not all that
    they did: one removed a file that none of them had added, wrote rows anew as they were, or changed the columns."""
    lines: dict[str, tuple[int, str]] = {}
    for place, commit in enumerate(commits):
        if commit.schema is not None or commit.compacts:
            return None
        for path in commit.removed:
            if lines.pop(path, None) is None:
                return None
        for line, file in zip(commit.added, commit.files, strict=True):
            lines[file["path"]] = place, line
    return [
        replace(commit, effect="added", added=tuple(line for at, line in lines.values() if at == place), removed=())
        for place, commit in enumerate(commits)
    ]


class CommitLog:
    """The log of the table at `path`, a folder that this machine can read. `name`: what the script calls it."""

    def __init__(self, path: str | Path, name: str) -> None:
        self.path, self.name = Path(path).absolute(), name
        self._table: DeltaTable | None = None

    def exists(self) -> bool:
        from deltalake import DeltaTable

        return DeltaTable.is_deltatable(str(self.path))

    def latest(self) -> int:
        """The newest version."""
        return self._opened().version()

    def id(self) -> str:
        """The table's id when it was last read: another table in the same place has another."""
        return str((self._table or self._opened()).metadata().id)

    def schema(self, version: int | None = None) -> dict[str, Any]:
        """The schema as of `version`, or the newest, as Spark's JSON."""
        table = self._opened(version)
        return json.loads(table.schema().to_json())

    def plain_schema(self, version: int) -> dict[str, Any] | None:
        """The schema as of `version`, as Spark's JSON, if the rows are exactly those of the Parquet files; None if they
        may not be."""
        from deltalake.exceptions import DeltaError

        table = self._table
        try:
            table = table if table is not None and table.version() == version else self._opened(version)
        except DeltaError:  # Delta's reader says what is gone
            return None
        schema = json.loads(table.schema().to_json())
        plain = table.protocol().min_reader_version == PLAIN_READER and not table.metadata().partition_columns
        return schema if plain and _bare(schema) else None

    def feeds_changes(self, version: int) -> bool:
        """Whether the change data feed was on at `version`."""
        configuration = self._opened(version).metadata().configuration
        return (configuration.get("delta.enableChangeDataFeed") or "false").lower() == "true"

    def digest(self, version: int) -> str | None:
        """A digest of the log's file of the commit `version`, which no writer changes (Delta's protocol: commits are
        atomic and immutable). None if the log has no such file: it was cleaned up, or there is no such version."""
        try:
            return hashlib.sha256(self._file(version).read_bytes()).hexdigest()[:16]
        except FileNotFoundError:
            return None

    def commit(self, version: int) -> Commit:
        """What `version` did. Raises SourceError if the log no longer goes back so far."""
        file = self._file(version)
        try:
            lines = file.read_text().splitlines()
        except FileNotFoundError as error:
            raise SourceError(
                f"version {version} of the Delta table is gone: its log was cleaned up before it was read",
                where=str(file),
                state=NOTHING_AFTER,
                next_command=resnapshot(self.name, "reads the table anew; and make delta.logRetentionDuration longer"),
            ) from error
        return _commit(version, lines, int(file.stat().st_mtime * 1000))

    def _file(self, version: int) -> Path:
        return self.path / "_delta_log" / f"{version:020d}.json"

    def _opened(self, version: int | None = None) -> DeltaTable:
        from deltalake import DeltaTable

        if version is not None:
            return DeltaTable(str(self.path), version=version, without_files=True)
        if self._table is None:
            self._table = DeltaTable(str(self.path))
        else:
            self._table.update_incremental()
        return self._table


def _commit(version: int, lines: list[str], written_at: int) -> Commit:
    added: list[str] = []
    removed: list[str] = []
    changed = compacts = False
    schema: dict[str, Any] | None = None
    info: dict[str, Any] = {}
    for line in lines:
        action = json.loads(line) if line.strip() else {}
        if action.get("add", {}).get("dataChange"):
            added.append(line)
        if action.get("remove", {}).get("dataChange"):
            removed.append(action["remove"]["path"])
        compacts = compacts or any(
            action[kind].get("dataChange") is False for kind in ("add", "remove") if kind in action
        )
        info = action.get("commitInfo", info)
        # The change data feed names what was inserted as well: only what is removed is a change.
        changed = changed or bool(action.get("remove", {}).get("dataChange"))
        if "metaData" in action:
            schema = json.loads(action["metaData"]["schemaString"])
    return Commit(
        version,
        effect="changed" if changed else "added" if added else "nothing",
        operation=info.get("operation", "a commit"),
        # As Delta's own change data feed has it: a commitInfo's plain timestamp is the writer's, and not in order.
        timestamp=info.get("inCommitTimestamp") or written_at,
        added=tuple(added),
        removed=tuple(removed),
        compacts=compacts,
        schema=schema,
    )


def _bare(schema: Mapping[str, Any]) -> bool:
    """Whether a schema says nothing of its columns but names and types."""
    return all(not field.get("metadata") and _bare_type(field["type"]) for field in schema["fields"])


def _bare_type(kind: Any) -> bool:
    if not isinstance(kind, dict):
        return True
    if kind["type"] == "struct":
        return _bare(kind)
    return all(_bare_type(kind[part]) for part in ("elementType", "keyType", "valueType") if part in kind)


def path_part(name: str) -> str:
    """A name in a path of names; quoted where it holds the dot that is between them."""
    return quoted(name) if "." in name else name


def identities(schema: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """The identities of a schema's columns, by their paths: the physical name, which column mapping keeps when a column
    is renamed and never reuses; without column mapping the name."""
    found: dict[str, str] = {}
    for field in schema["fields"]:
        path = prefix + path_part(field["name"])
        found[path] = field.get("metadata", {}).get("delta.columnMapping.physicalName", field["name"])
        inside = field["type"]
        while isinstance(inside, dict) and inside["type"] in ("array", "map"):
            inside = inside["elementType" if inside["type"] == "array" else "valueType"]
        if isinstance(inside, dict) and inside["type"] == "struct":
            found |= identities(inside, f"{path}.")
    return found
