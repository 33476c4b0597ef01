"""One commit to a Delta table: the version after the one that was read, or none.

The file is written under a name of its own and linked to the version's name, which fails if that is taken: of two
writers one gets the version. delta-rs does the same, but lists the log before and after it. Spark's writer for local
files only checks whether the name is taken, and excludes other writers inside its own JVM alone. Writer features that
are not known here are left to delta-rs.

A commit is durable when it is made (`pipelines/location.py`). delta-rs syncs nothing: what it commits, and the
checkpoint of a table that others may write too, it writes apart, and they are put here.
"""

from __future__ import annotations

import errno
import json
import logging
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeVar
from urllib.parse import quote, unquote

from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, RemoveAction
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from tidegate.pipelines.clock import system_clock
from tidegate.pipelines.errors import LakeError
from tidegate.pipelines.lake.by_name import (
    MOST,
    TableState,
    checkpoint_of,
    file_of,
    last_checkpoint,
    name_checkpoint,
    seen,
)
from tidegate.pipelines.lake.checkpoints import checkpoint_of_state
from tidegate.pipelines.location import Address, Location, durable, settle

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


_CLEANED = "{} went on past version {} and was cleaned up"


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
    listed_ms: int | None = None,
) -> None:
    """Make the version after that of `table`, which lies at `root`. Raises CommitFailedError where that is there
    already, OSError and DeltaError where it cannot be written.

    The paths of what is added are not encoded; `marks` are transaction versions (application -> version). `listed_ms`:
    of a log that Tidegate alone writes, for how long its checkpoints list a file that was removed.
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
    version, lines = table.at + 1, _lines(table, actions, marks or {}, note)
    if not _put(table.log, version, ("\n".join(lines) + "\n").encode()):
        return _by_delta_rs(table, root, actions, marks or {}, note)
    _require_last(table.log, table.at)
    every = int(table.described.configuration.get("delta.checkpointInterval", CHECKPOINT_EVERY))
    if version % every == 0:
        checkpoint(table.root, version, None if listed_ms is None else partial(_of_state, table, listed_ms))
    return None


def create(root: Address, *, mode: Literal["ignore", "overwrite"] = "ignore", **how: Any) -> None:
    """Make a table that is not there yet, or (overwrite) begin it anew, as `DeltaTable.create` does. Raises DeltaError
    and OSError."""
    with suppress(CommitFailedError) if mode == "ignore" else nullcontext():
        by_delta_rs(root, lambda apart: DeltaTable.create(apart, mode=mode, **how))


def by_delta_rs(root: Address, step: Callable[[str], object], version: int | None = None) -> None:
    """Make the commit that `step` makes by delta-rs at an address, after a `version` (None: the newest one): it is made
    apart, on the log alone, and put here, so that it is whole or not there. On a storage without links it is made in
    place, and synced then. `step` writes no file of rows. Raises CommitFailedError where another writer is faster, and
    what `step` does."""
    folder = Location(root) / "_delta_log"
    if version is None:
        version = DeltaTable(str(root)).version() if DeltaTable.is_deltatable(str(root)) else -1
    if version < 0:
        folder.make()
    followed = version >= 0 and seen(folder, version) is not None  # others keep a checkpoint alone
    with _apart(folder, version) as apart:
        try:
            step(str(apart))
        except DeltaError as error:
            if followed and seen(folder, version) is None:
                raise CommitFailedError(_CLEANED.format(folder, version)) from error
            raise
        log_apart = apart / "_delta_log"
        made, checkpointed = file_of(log_apart, version + 1), checkpoint_of(log_apart, version + 1)
        if not made.is_there():  # there was nothing to do
            return
        written = made.read().replace(f"file://{apart}".encode(), f"file://{Location(root)}".encode())
        if not _put(folder, version + 1, written):
            step(str(root))
            return _noted(folder)
        if followed:
            _require_last(folder, version)
        if checkpointed.is_there():
            content, hint = checkpointed.read(), (log_apart / "_last_checkpoint").read()
            checkpoint(Location(root), version + 1, lambda: (content, hint))
    return None


def _put(folder: Location, version: int, commit: bytes) -> bool:
    """Put the file of a version; False where the storage has no links. Raises CommitFailedError if it is there."""
    try:
        file_of(folder, version).put_new(commit)
        return True
    except FileExistsError:
        raise CommitFailedError(f"version {version} of {folder.parent} was committed by another writer") from None
    except OSError as error:
        if error.errno in NO_LINKS:
            return False
        raise


def _noted(folder: Location) -> None:
    """Make durable what delta-rs has just written to a log."""
    version = DeltaTable(str(folder.parent)).version()
    written = [file_of(folder, version), checkpoint_of(folder, version), folder / "_last_checkpoint"]
    settle()
    durable(file for file in written if file.is_there())


def _require_last(folder: Location, version: int) -> None:
    """Take back the commit after a version, and raise CommitFailedError, if that version has left the log: it was
    cleaned up meanwhile, so the one after it had been there before, and went too."""
    if seen(folder, version) is None:
        file_of(folder, version + 1).delete()
        raise CommitFailedError(_CLEANED.format(folder, version))


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
    table = before.upto(before.at + 1)
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
            for file in _by_names(folder, version) or _listed(folder, version):
                file.fetched_to(links)
        yield Location(apart)


def _by_names(folder: Location, version: int) -> list[Location] | None:
    """The log files that make up a version, from the checkpoint on that the log names as its last; None if they are not
    all there."""
    try:
        last = last_checkpoint(folder)
    except (ValueError, KeyError, TypeError):  # it names one that is gone
        return None
    first = last or 0  # of a checkpoint its commit too: delta-rs looks at the one that it goes on from
    needed = [] if last is None else [checkpoint_of(folder, last)]
    needed += [file_of(folder, each) for each in range(first, min(version, first + MOST) + 1)]
    return needed if version <= first + MOST and all(map(Location.is_there, needed)) else None


def _listed(folder: Location, version: int) -> list[Location]:
    """The same by a listing: all that the log has up to a version."""
    names = [entry for piece in folder.listed() for entry in piece]
    return [
        entry.location
        for entry in names
        if entry.name == "_sidecars" or (entry.name[:20].isdigit() and int(entry.name[:20]) <= version)
    ]


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


def _lines(
    table: TableState, actions: Sequence[AddAction | Removal], marks: Mapping[str, int], note: str | None
) -> list[str]:
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
    found += [{"txn": {"appId": name, "version": version, "lastUpdated": now}} for name, version in marks.items()]
    return [json.dumps(action, separators=(",", ":")) for action in found]


def _by_delta_rs(
    table: TableState | DeltaTable,
    root: Address,
    actions: Sequence[AddAction | Removal],
    marks: Mapping[str, int],
    note: str | None,
) -> None:
    now = system_clock()

    def make(at: str) -> None:
        delta = DeltaTable(at)
        if delta.version() != table.version():
            raise CommitFailedError(f"{root} has gone on from version {table.version()} to {delta.version()}")
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

    by_delta_rs(root, make, table.version())
