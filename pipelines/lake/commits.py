"""One commit to a Delta table: the version after the one that was read, or none.

The file is written under a name of its own and linked to the version's name, which fails if that is taken: of two
writers one gets the version. delta-rs does the same, but lists the log before and after it. Spark's writer for local
files only checks whether the name is taken, and excludes other writers inside its own JVM alone.

A commit is durable when it is made (`pipelines/location.py`). delta-rs syncs nothing: what it commits, and the
checkpoint of a table that others may write too, it writes apart, and they are put here.
"""

from __future__ import annotations

import json
import logging
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeVar
from urllib.parse import quote

from deltalake import DeltaTable, PostCommitHookProperties
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from tidegate.pipelines.clock import system_clock
from tidegate.pipelines.errors import LakeError
from tidegate.pipelines.lake.by_name import (
    DataFile,
    TableState,
    base_of,
    checkpoint_of,
    file_of,
    lacks,
    name_checkpoint,
    seen,
)
from tidegate.pipelines.lake.checkpoints import checkpoint_of_state
from tidegate.pipelines.lake.delta_log import opened
from tidegate.pipelines.location import Address, Location

log = logging.getLogger(__name__)

T = TypeVar("T")

NO_CLEANING = PostCommitHookProperties(create_checkpoint=True, cleanup_expired_logs=False)
"""Only upkeep cleans a log: cleaning at a commit would list all of it to find what is old."""

WRITER_FEATURES = frozenset(
    {"timestampNtz", "appendOnly", "invariants", "clustering", "domainMetadata", "vacuumProtocolCheck", "variantType"}
) | {"changeDataFeed", "deletionVectors", "v2Checkpoint", "columnMapping", "checkConstraints", "generatedColumns"}
"""What a table may ask of its writers: tables of Tidegate ask for the first, and version 2 means the next two. A file
that is not clustered may be added to a clustered table (the next OPTIMIZE clusters it), and VACUUM is not done here. A
change data feed is what was added and removed. Tables that have a column of type VARIANT, or use one of the last three,
are refused, as no row of the files is looked at."""

CHECKPOINT_EVERY = "100"
"""Commits from one checkpoint to the next, where the table does not say otherwise; as in delta-rs."""


_CLEANED = "{} went on past version {} and was cleaned up"


@dataclass(frozen=True)
class Removal:
    """A file that leaves a table. `news`: its rows leave with it."""

    file: DataFile
    news: bool = True


def commit(
    table: TableState,
    actions: Sequence[AddAction | Removal],
    *,
    marks: Mapping[str, int] | None = None,
    note: str | None = None,
    listed_ms: int | None = None,
) -> None:
    """Make the version after that of `table`. Raises CommitFailedError where that is there already, or a file that is
    removed has left the table; OSError and DeltaError where it cannot be written.

    The paths of what is added are not encoded; `marks` are transaction versions (application -> version). `listed_ms`:
    of a log that Tidegate alone writes, for how long its checkpoints list a file that was removed.
    Raises LakeError where the table asks for what is not done here (`require_writable`).
    """
    require_writable(table)
    gone = [action for action in actions if isinstance(action, Removal)]
    if appends_only(table) and any(removal.news for removal in gone):
        raise LakeError(
            "rows would leave a table that is only appended to ('delta.appendOnly')",
            where=str(table.root),
            state="nothing was changed",
            next_command=letting_rows_go(table.root),
        )
    if left := [removal.file.path for removal in gone if removal.file.path not in table.files]:
        raise CommitFailedError(f"{left[0]} has left the table meanwhile")
    version, lines = table.version + 1, _lines(table, actions, marks or {}, note)
    if lacks(table.log, version) and table.there():  # it would be what comes before later commits
        raise LakeError(
            f"the log of the table has version {version + 1}, and no version {version}",
            where=str(table.root),
            state="nothing was changed",
            next_command=f"bring {table.root} back from a backup, then run the same command again",
        )
    _put(table.log, version, ("\n".join(lines) + "\n").encode())
    _require_last(table)
    every = int(table.metadata.configuration.get("delta.checkpointInterval", CHECKPOINT_EVERY))
    if version % every == 0:
        checkpoint(table.root, version, None if listed_ms is None else partial(_of_state, table, listed_ms))


def create(root: Address, *, mode: Literal["ignore", "overwrite"] = "ignore", **how: Any) -> None:
    """Make a table that is not there yet, or (overwrite) begin it anew, as `DeltaTable.create` does. Raises DeltaError
    and OSError."""
    with suppress(CommitFailedError) if mode == "ignore" else nullcontext():
        by_delta_rs(root, lambda apart: DeltaTable.create(apart, mode=mode, **how))


def by_delta_rs(root: Address, step: Callable[[str], object]) -> None:
    """Make the commit that `step` makes by delta-rs at an address: it is made apart, on the log alone, and put here, so
    that it is whole or not there. `step` writes no file of rows. Raises CommitFailedError where another writer is
    faster, and what `step` does."""
    folder, table = Location(root) / "_delta_log", opened(root)
    version = -1 if table is None else table.version
    if table is None:
        folder.make()
    with _apart(folder, version) as apart:
        try:
            step(str(apart))
        except DeltaError as error:
            if table is not None and table.seen is not None and not table.there():
                raise CommitFailedError(_CLEANED.format(folder, version)) from error
            raise
        log_apart = apart / "_delta_log"
        made, checkpointed = file_of(log_apart, version + 1), checkpoint_of(log_apart, version + 1)
        if not made.is_there():  # there was nothing to do
            return
        _put(folder, version + 1, made.read().replace(f"file://{apart}".encode(), f"file://{Location(root)}".encode()))
        if table is not None:
            _require_last(table)
        if checkpointed.is_there():
            content, hint = checkpointed.read(), (log_apart / "_last_checkpoint").read()
            checkpoint(Location(root), version + 1, lambda: (content, hint))


def _put(folder: Location, version: int, commit: bytes) -> None:
    """Put the file of a version. Raises CommitFailedError if it is there."""
    try:
        file_of(folder, version).put_new(commit)
    except FileExistsError:
        raise CommitFailedError(f"version {version} of {folder.parent} was committed by another writer") from None


def _require_last(table: TableState) -> None:
    """Take back the commit after a table's version, and raise CommitFailedError, if that version has left the log: it
    was cleaned up meanwhile, so the one after it had been there before, and went too."""
    if table.seen is not None and seen(table.log, table.version) is None:
        file_of(table.log, table.version + 1).delete()
        raise CommitFailedError(_CLEANED.format(table.log, table.version))


def until_committed(step: Callable[..., T], *given: Any, attempts: int, wait: float = 0.001, most: float = 0.2) -> T:
    """What `step` returns; it is called again when another writer was faster, after a random time that grows from
    `wait` to `most` (s). Raises CommitFailedError when all attempts fail."""
    again = Retrying(
        retry=retry_if_exception_type(CommitFailedError),
        stop=stop_after_attempt(attempts),
        wait=wait_random_exponential(multiplier=wait, max=most),
        reraise=True,
    )
    return again(step, *given)


def checkpoint(root: Location, version: int, write: Callable[[], tuple[bytes, bytes]] | None = None) -> None:
    """Put the checkpoint of a version that `write` returns, with what the log says of its last one; by default written
    by delta-rs. If it cannot be written, that is logged, and the next interval tries again: the log only gets longer.

    A process that was stopped here may come back to a log that was cleaned up past the version. Its checkpoint is
    nobody's then, and the log goes on naming the later one.
    """
    folder = root / "_delta_log"
    try:
        content, hint = (write or partial(_of_delta_rs, folder, version))()
        made = checkpoint_of(folder, version)
        made.put(content)
        if seen(folder, version) is None:
            made.delete()
        else:
            name_checkpoint(folder, version, hint)
    except (DeltaError, OSError, ValueError) as error:
        log.warning("%s: no checkpoint of version %d was written: %s", root, version, error)


def _of_delta_rs(folder: Location, version: int) -> tuple[bytes, bytes]:
    """A checkpoint, written in a folder that has only links to the commits since the last one."""
    with _apart(folder, version) as apart:
        links = apart / "_delta_log"
        DeltaTable(str(apart)).create_checkpoint()
        return checkpoint_of(links, version).read(), (links / "_last_checkpoint").read()


def _of_state(before: TableState, listed_ms: int) -> tuple[bytes, bytes]:
    """A checkpoint of the version after `before`."""
    table = before.upto(before.version + 1)
    if table is None:
        raise ValueError("the log has gone on without it")
    return checkpoint_of_state(table, listed_ms)


@contextmanager
def _apart(folder: Location, version: int) -> Iterator[Location]:
    """A folder with the log of a version, as links to the commits since the last checkpoint; -1: with none."""
    with tempfile.TemporaryDirectory(prefix="tidegate-log-") as apart:
        links = Location(apart) / "_delta_log"
        if version >= 0:
            links.make()
            last, files = base_of(folder)
            commits = (file_of(folder, each) for each in range(max(last, 0), version + 1))
            for file in (*files, *commits, folder / "_sidecars"):
                if file.is_there():  # of a checkpoint its commit too: delta-rs looks at the one that it goes on from
                    file.fetched_to(links)
        yield Location(apart)


def appends_only(table: TableState) -> bool:
    """Whether no row may leave the table (the property `delta.appendOnly`)."""
    return table.metadata.configuration.get("delta.appendOnly", "false").lower() == "true"


def letting_rows_go(root: Address) -> str:
    """What lets rows leave a table that is only appended to."""
    allowed = f"ALTER TABLE delta.`{root}` SET TBLPROPERTIES ('delta.appendOnly' = 'false')"
    return f"in Spark: {allowed}, then run the same command again"


def require_writable(table: TableState) -> None:
    """Raise LakeError, which names the features, where files of rows that were written before must not be added to a
    table: writers of Delta's protocol would have to do more for it."""
    if asked := _asked_of_writers(table):
        raise LakeError(
            f"the table asks its writers for what Tidegate does not do: {', '.join(asked)}",
            where=str(table.root),
            state="nothing was changed",
            next_command="give the script's table a new name or 'path', so that Tidegate makes it without them",
        )


def _asked_of_writers(table: TableState) -> list[str]:
    protocol, configuration, text = table.protocol, table.metadata.configuration, table.metadata.schema
    asked = sorted(set(protocol.writer_features or ()) - WRITER_FEATURES)
    asked += sorted(name for name in configuration if name.startswith("delta.constraints."))
    if configuration.get("delta.columnMapping.mode", "none") != "none":
        asked.append("columnMapping")
    if protocol.min_writer_version >= 2:
        marks = {"delta.invariants": "invariants", "delta.generationExpression": "generatedColumns"}
        marks["delta.identity.start"] = "identityColumns"
        asked += [name for mark, name in marks.items() if f'"{mark}"' in text and name not in asked]
        if re.search(r'[tT]ype":\s*"variant"', text):
            asked.append("variantType")
    return asked


def _lines(
    table: TableState, actions: Sequence[AddAction | Removal], marks: Mapping[str, int], note: str | None
) -> list[str]:
    now = system_clock()
    parts = json.dumps(table.metadata.partition_columns)
    info: dict[str, Any] = {
        "timestamp": now,
        "operation": "WRITE",
        "operationParameters": {"mode": "Append", "partitionBy": parts},
        "engineInfo": "tidegate",
        **({"userMetadata": note} if note else {}),
    }
    found: list[Mapping[str, Any]] = [{"commitInfo": info}]
    for action in actions:
        if isinstance(action, AddAction):
            added = {
                "path": quote(action.path, safe="/=~!$&'()*+,;@"),
                "partitionValues": dict(action.partition_values),
                "size": action.size,
                "modificationTime": action.modification_time,
                "dataChange": action.data_change,
                "stats": action.stats,
            }
            found.append({"add": added})
        else:
            removed = {
                "path": action.file.name,
                "deletionTimestamp": now,
                "dataChange": action.news,
                "extendedFileMetadata": True,
                "partitionValues": dict(action.file.partition),
                "size": action.file.size,
            }
            found.append({"remove": removed})
    found += [{"txn": {"appId": name, "version": version, "lastUpdated": now}} for name, version in marks.items()]
    return [json.dumps(action, separators=(",", ":")) for action in found]
