"""One commit to a Delta table: the version after the one that was read, or none.

The file is written under a name of its own and linked to the version's name, which fails if that is taken: of two
writers one gets the version. delta-rs does the same, but lists the log before and after it. Spark's writer for local
files only checks whether the name is taken, and excludes other writers inside its own JVM alone. Writer features that
are not known here are left to delta-rs.
"""

from __future__ import annotations

import errno
import json
import logging
import re
import tempfile
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import quote, unquote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, RemoveAction
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from tidegate.pipelines.clock import system_clock
from tidegate.pipelines.errors import LakeError
from tidegate.pipelines.lake.by_name import (
    MOST,
    VERSIONED,
    TableState,
    checkpoint_of,
    file_of,
    last_checkpoint,
    name_checkpoint,
    seen,
)
from tidegate.pipelines.location import Address, Location

log = logging.getLogger(__name__)

T = TypeVar("T")

NO_CLEANING = PostCommitHookProperties(create_checkpoint=True, cleanup_expired_logs=False)
"""Only upkeep cleans a log: cleaning at a commit would list all of it to find what is old."""

WRITER_FEATURES = frozenset(
    {"timestampNtz", "appendOnly", "invariants", "clustering", "domainMetadata", "vacuumProtocolCheck", "variantType"}
)
"""What a table may ask of its writers: tables of Tidegate ask for the first, and version 2 means the next two. A file
that is not clustered may be added to a clustered table (the next OPTIMIZE clusters it), VACUUM is not done here, and
the last one asks for nothing where no column is a VARIANT."""

OF_DELTA_RS = frozenset({"changeDataFeed", "deletionVectors", "v2Checkpoint", "columnMapping"}) | {
    "checkConstraints",
    "generatedColumns",
}
"""Further writer features whose tables delta-rs adds files to. Tables that use one of the last three are refused:
delta-rs looks at no row of the files."""

CHECKPOINT_EVERY = "100"
"""Commits from one checkpoint to the next, where the table does not say otherwise; as in delta-rs."""

NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}
"""The errors of a file system that has no hard links."""


@dataclass(frozen=True)
class Removal:
    """A file that leaves a table, by its name in the log. `news`: its rows leave with it."""

    path: str
    size: int
    partition: Mapping[str, str | None]
    news: bool = True


def commit(
    table: TableState | DeltaTable,
    root: Address,
    actions: Sequence[AddAction | Removal],
    *,
    marks: Mapping[str, int] | None = None,
    note: str | None = None,
) -> None:
    """Make the version after that of `table`, which lies at `root`. Raises CommitFailedError where that is there
    already, OSError and DeltaError where it cannot be written.

    The paths of what is added are not encoded; `marks` are transaction versions (application -> version).
    Raises LakeError where the table asks for what is not done here (`require_writable`).
    """
    require_writable(table, root)
    if appends_only(table) and any(isinstance(action, Removal) and action.news for action in actions):
        raise LakeError(
            "rows would leave a table that is only appended to ('delta.appendOnly')",
            where=str(root),
            state="nothing was changed",
            next_command=letting_rows_go(root),
        )
    if not isinstance(table, TableState) or not _writable(table):
        return _by_delta_rs(table, root, actions, marks or {}, note)
    version, content = table.at + 1, _as_text(_logged(table, actions, marks or {}, note))
    try:
        file_of(table.log, version).put_new(content)
    except FileExistsError:
        raise CommitFailedError(f"version {version} of {root} was committed by another writer") from None
    except OSError as error:
        if error.errno in NO_LINKS:
            return _by_delta_rs(table, root, actions, marks or {}, note)
        raise
    _require_last(table.log, table.at)
    every = int(table.described.configuration.get("delta.checkpointInterval", CHECKPOINT_EVERY))
    if version % every == 0:
        checkpoint(table.root, version)
    return None


def begin(root: Location, columns: pa.Schema, partition_by: Sequence[str], properties: Mapping[str, str]) -> None:
    """Make version 0 of a table that only Tidegate writes, unless it is there. Raises OSError."""
    from deltalake import Schema

    (root / "_delta_log").make()
    now = system_clock()
    actions: list[Mapping[str, Any]] = [
        {"commitInfo": {"timestamp": now, "operation": "CREATE TABLE", "engineInfo": "tidegate"}},
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {
            "metaData": {
                "id": str(uuid.uuid4()),
                "format": {"provider": "parquet", "options": {}},
                "schemaString": Schema.from_arrow(columns).to_json(),
                "partitionColumns": list(partition_by),
                "configuration": dict(properties),
                "createdTime": now,
            }
        },
    ]
    with suppress(FileExistsError):
        file_of(root / "_delta_log", 0).put_new(_as_text(actions))


def _as_text(actions: Sequence[Mapping[str, Any]]) -> bytes:
    return b"".join(json.dumps(action, separators=(",", ":")).encode() + b"\n" for action in actions)


def _require_last(folder: Location, version: int) -> None:
    """Take back the commit after a version, and raise CommitFailedError, if that version has left the log: it was
    cleaned up meanwhile, so the one after it had been there before, and went too."""
    if seen(folder, version) is None:
        file_of(folder, version + 1).delete()
        raise CommitFailedError(f"{folder} went on past version {version} and was cleaned up")


def until_committed(step: Callable[..., T], *given: Any, attempts: int, wait: float, most: float) -> T:
    """What `step` returns; it is called again when another writer was faster, after a random time that grows from
    `wait` to `most` (s). Raises CommitFailedError when all attempts fail."""
    again = Retrying(
        retry=retry_if_exception_type(CommitFailedError),
        stop=stop_after_attempt(attempts),
        wait=wait_random_exponential(multiplier=wait, max=most),
        reraise=True,
    )
    return again(step, *given)


def checkpoint(root: Location, version: int) -> None:
    """Write the checkpoint of a version, by delta-rs in a folder that has only links to the commits since the last
    checkpoint. If it cannot be written, that is logged, and the next interval tries again: the log only gets longer.

    A process that was stopped here may come back to a log that was cleaned up past the version. Its checkpoint is
    nobody's then, and the log goes on naming the later one.
    """
    folder = root / "_delta_log"
    try:
        with tempfile.TemporaryDirectory(prefix="tidegate-checkpoint-") as apart:
            links = Location(apart) / "_delta_log"
            links.make()
            for file in _by_names(folder, version) or _listed(folder, version):
                file.fetched_to(links)
            DeltaTable(apart).create_checkpoint()
            made = checkpoint_of(folder, version)
            made.put(checkpoint_of(links, version).read())
            if seen(folder, version) is None:
                made.delete()
            else:
                name_checkpoint(folder, version, (links / "_last_checkpoint").read())
    except (DeltaError, OSError, ValueError) as error:
        log.warning("%s: no checkpoint of version %d was written: %s", root, version, error)


def _by_names(folder: Location, version: int) -> list[Location] | None:
    """The log files that make up a version, from the checkpoint on that the log names as its last; None if they are not
    all there."""
    try:
        last = last_checkpoint(folder)
    except (ValueError, KeyError, TypeError):  # it names one that is gone
        return None
    first = 0 if last is None else last + 1
    needed = [] if last is None else [checkpoint_of(folder, last)]
    needed += [file_of(folder, each) for each in range(first, min(version, first + MOST) + 1)]
    return needed if version <= first + MOST and all(map(Location.is_there, needed)) else None


def _listed(folder: Location, version: int) -> list[Location]:
    """The same by a listing: all that the log has up to a version."""
    names = [entry for piece in folder.listed() for entry in piece if VERSIONED.fullmatch(entry.name)]
    return [entry.location for entry in names if int(entry.name[:20]) <= version]


def _writable(table: TableState) -> bool:
    versions = table.versions
    return versions.min_writer_version <= 2 or (
        versions.min_writer_version == 7 and set(versions.writer_features or ()) <= WRITER_FEATURES
    )


def appends_only(table: TableState | DeltaTable) -> bool:
    """Whether no row may leave the table (the property `delta.appendOnly`)."""
    return table.metadata().configuration.get("delta.appendOnly", "false").lower() == "true"


def letting_rows_go(root: Address) -> str:
    """What lets rows leave a table that is only appended to."""
    allowed = f"ALTER TABLE delta.`{root}` SET TBLPROPERTIES ('delta.appendOnly' = 'false')"
    return f"in Spark: {allowed}, then run the same command again"


def require_writable(table: TableState | DeltaTable, root: Address) -> None:
    """Raise LakeError, which names the features, where files of rows that were written before must not be added to a
    table: writers of Delta's protocol would have to do more for it."""
    if asked := _asked_of_writers(table):
        raise LakeError(
            f"the table asks its writers for what Tidegate does not do: {', '.join(asked)}",
            where=str(root),
            state="nothing was changed",
            next_command="give the script's table a new name or 'path', so that Tidegate makes it without them",
        )


def _asked_of_writers(table: TableState | DeltaTable) -> list[str]:
    protocol, configuration = table.protocol(), table.metadata().configuration
    asked = sorted(set(protocol.writer_features or ()) - WRITER_FEATURES - OF_DELTA_RS)
    asked += sorted(name for name in configuration if name.startswith("delta.constraints."))
    if configuration.get("delta.columnMapping.mode", "none") != "none":
        asked.append("columnMapping")
    if protocol.min_writer_version >= 2:
        text = table.described.schema if isinstance(table, TableState) else table.schema().to_json()
        marks = {"delta.invariants": "invariants", "delta.generationExpression": "generatedColumns"}
        marks["delta.identity.start"] = "identityColumns"
        asked += [name for mark, name in marks.items() if f'"{mark}"' in text and name not in asked]
        if re.search(r'[tT]ype":\s*"variant"', text):
            asked.append("variantType")
    return asked


def _logged(
    table: TableState, actions: Sequence[AddAction | Removal], marks: Mapping[str, int], note: str | None
) -> list[Mapping[str, Any]]:
    now = system_clock()
    parts = json.dumps(table.described.partition_columns)
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
                "path": action.path,
                "deletionTimestamp": now,
                "dataChange": action.news,
                "extendedFileMetadata": True,
                "partitionValues": dict(action.partition),
                "size": action.size,
            }
            found.append({"remove": removed})
    return found + [{"txn": {"appId": name, "version": version, "lastUpdated": now}} for name, version in marks.items()]


def _by_delta_rs(
    table: TableState | DeltaTable,
    root: Address,
    actions: Sequence[AddAction | Removal],
    marks: Mapping[str, int],
    note: str | None,
) -> None:
    delta = DeltaTable(str(root))
    if delta.version() != table.version():
        raise CommitFailedError(f"{root} has gone on from version {table.version()} to {delta.version()}")
    folder, now = Location(root) / "_delta_log", system_clock()
    was_there = seen(folder, delta.version()) is not None  # others keep a checkpoint alone
    try:
        delta.create_write_transaction(
            [
                action
                if isinstance(action, AddAction)
                else RemoveAction(
                    unquote(action.path),
                    data_change=action.news,
                    deletion_timestamp=now,
                    size=action.size,
                    partition_values=dict(action.partition),
                )
                for action in actions
            ],
            "append",
            delta.schema(),
            partition_by=list(delta.metadata().partition_columns),
            commit_properties=CommitProperties(
                app_transactions=[Transaction(name, version) for name, version in marks.items()],
                custom_metadata={"userMetadata": note} if note else None,
                max_commit_retries=0,
            ),
            post_commithook_properties=NO_CLEANING,
        )
    finally:
        if was_there:
            _require_last(folder, table.version())
