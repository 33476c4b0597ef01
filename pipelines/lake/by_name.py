"""A Delta table as of one version, read from its log by the names of its files: the log's folder is never listed.

A listing takes 0.8 ms of processor time for each thousand names, and the log of a table with a commit a second has
600,000 of them in a week. The name of the next version's file is known before the file is there, so that name is
opened. Versions leave a log from the oldest on (Delta's rule, `upkeep.clean_log`). So while version V is there, no
later one has been removed, and a missing V + 1 was never committed.

A version is there only while its own commit is: a checkpoint alone shows nothing, as a process that was stopped while
it wrote one puts it into a log that has gone on without it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, Self
from urllib.parse import unquote

import pyarrow as pa

from tidegate.pipelines.location import Address, Location, Tag

if TYPE_CHECKING:  # here and in what reads control tables: it takes as long as a status
    from deltalake import Schema

MOST = 1_000
"""The most commits that are read by name, one after another. A log that has more since its checkpoint was written by
someone else, and is left to delta-rs."""

VERSIONED = re.compile(r"(\d{20})\.(json|crc|checkpoint(\..+)?\.parquet|compacted\.json)$")
"""The files of a log that are of a version: its number, and what the file is of it."""

READER_FEATURES = frozenset({"timestampNtz", "vacuumProtocolCheck", "variantType"})
"""Reader features that a table may require, beside the two reader versions that require none: tables of Tidegate
require the first, the second is about VACUUM alone, and the third about columns of that type, which Tidegate never
reads. delta-rs adds the third to every table with features of which it sets a property."""

_UNREADABLE = (OSError, ValueError, KeyError, TypeError, pa.ArrowException)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Protocol(NamedTuple):
    """What a table asks of its readers and writers."""

    min_reader_version: int
    min_writer_version: int
    writer_features: list[str] | None
    reader_features: list[str] | None


class DataFile:
    """A data file, by the `add` that the log has of it. `text`: its statistics, as JSON."""

    def __init__(self, action: Mapping[str, Any]) -> None:
        self.path: str = action["path"]
        self.size: int = action["size"]
        self.modified: int = action["modificationTime"]
        self.partition: Mapping[str, str | None] = dict(action["partitionValues"] or {})
        self.text: str | None = action.get("stats")

    @cached_property
    def stats(self) -> Mapping[str, Any]:
        """As the log has them: numRecords, minValues, maxValues, nullCount."""
        return json.loads(self.text) if self.text else {}


@dataclass(frozen=True)
class Metadata:
    """What a table is: its id, its properties, its partition's columns, its schema as JSON, what it says of itself."""

    id: str
    configuration: Mapping[str, str]
    partition_columns: list[str]
    schema: str
    description: str | None = None

    @classmethod
    def of(cls, action: Mapping[str, Any]) -> Self:
        """Of a `metaData` of the log."""
        columns, configuration = action["partitionColumns"], action["configuration"]
        schema, described = action["schemaString"], action.get("description")
        return cls(action["id"], dict(configuration or {}), list(columns or []), schema, described)


@lru_cache(maxsize=256)
def _schema(text: str) -> Schema:
    """A schema by its JSON, which is the same from version to version."""
    from deltalake import Schema

    return Schema.from_json(text)


@dataclass(frozen=True)
class TableState:
    """A table as of version `at`. `files` by their decoded paths; `applications`: the last transaction version of each;
    `seen`: the tag of its version's file. Its methods are named as in delta-rs."""

    root: Location
    at: int
    seen: Tag
    versions: Protocol
    described: Metadata
    applications: Mapping[str, int]
    files: Mapping[str, DataFile]

    def version(self) -> int:
        return self.at

    def protocol(self) -> Protocol:
        return self.versions

    def metadata(self) -> Metadata:
        return self.described

    def schema(self) -> Schema:
        return _schema(self.described.schema)

    def transaction_version(self, application: str) -> int | None:
        return self.applications.get(application)

    @property
    def log(self) -> Location:
        """The folder of its log."""
        return self.root / "_delta_log"

    def there(self) -> bool:
        """Whether its own version is still in the log: then no later one has been removed."""
        return seen(self.log, self.at) == self.seen

    def newer(self) -> TableState | None:
        """The table as it is now; None if that cannot be found by names."""
        return _Reading(self.root, self).to_the_end()

    def upto(self, version: int) -> TableState | None:
        """The table as of a later version; None if that cannot be found by names."""
        return _Reading(self.root, self).to_the_end(version)

    def column(self, name: str, files: Sequence[DataFile]) -> list[Any]:
        """Of some of its files, what delta-rs calls `name` (path, size_bytes, num_records, partition.x, min.x, max.x,
        null_count.x); times in us. None where it is not known."""
        kind, _, column = name.partition(".")
        if kind in ("min", "max"):
            bounds = [file.stats.get(f"{kind}Values", {}).get(column) for file in files]
            return [_micros(bound) for bound in bounds] if column in self._times else bounds
        return [_KINDS[kind](file, column) for file in files]

    @cached_property
    def _times(self) -> frozenset[str]:
        kinds = {field["name"]: field["type"] for field in json.loads(self.described.schema)["fields"]}
        return frozenset(name for name, kind in kinds.items() if kind in ("timestamp", "timestamp_ntz"))


_KINDS = {
    "path": lambda file, _: file.path,
    "size_bytes": lambda file, _: file.size,
    "num_records": lambda file, _: file.stats.get("numRecords"),
    "partition": lambda file, column: file.partition.get(column),
    "null_count": lambda file, column: file.stats.get("nullCount", {}).get(column),
}


def _micros(text: object) -> int | None:
    """A bound of a time; None outside of the years 1 to 9999."""
    if not isinstance(text, str):
        return None
    with suppress(ValueError, OverflowError):
        at = datetime.fromisoformat(text)
        return ((at if at.tzinfo else at.replace(tzinfo=UTC)) - _EPOCH) // timedelta(microseconds=1)
    return None


def file_of(log: Location, version: int) -> Location:
    """The file of a version's commit."""
    return log / f"{version:020}.json"


def checkpoint_of(log: Location, version: int) -> Location:
    """The file of a version's checkpoint."""
    return log / f"{version:020}.checkpoint.parquet"


def seen(log: Location, version: int) -> Tag | None:
    """The tag of a version's commit in the log; None where it is gone."""
    return file_of(log, version).tag()


def last_checkpoint(log: Location) -> int | None:
    """The version that the log names as its last checkpoint; None where it has none, or one of several files. Raises
    ValueError where that version has left the log: a process that was stopped has named it after the log had gone
    on."""
    try:
        checkpoint = json.loads((log / "_last_checkpoint").read())
    except FileNotFoundError:
        return None
    if checkpoint.get("parts") or "v2Checkpoint" in checkpoint:
        return None
    version = checkpoint["version"]
    if seen(log, version) is None:
        raise ValueError(f"{log} has no version {version}, which it names as its last checkpoint")
    return version


def name_checkpoint(log: Location, version: int, hint: bytes) -> bool:
    """Have the log name a version's checkpoint as its last one, by `hint`, unless it names that or a later one. Whether
    it names such a one now: not so while another writer is at it."""
    place = log / "_last_checkpoint"
    try:
        text, there = place.read_tagged()
    except FileNotFoundError:
        return place.put_instead(hint, None)
    try:
        named = int(json.loads(text)["version"])
    except (ValueError, KeyError, TypeError):  # damaged
        named = -1
    return named >= version or place.put_instead(hint, there)


def removed_since(root: Location, at: int, moment: int) -> dict[str, Mapping[str, Any]] | None:
    """The files that the log of the table at `root`, whose version is `at`, has removed at `moment` (ms, UTC) or later,
    by their decoded paths; each with what the log has of it. A checkpoint leaves removals out once they are older than
    'delta.deletedFileRetentionDuration' (a week; of control tables `delta_log.BRIEF`). None if more than MOST commits
    would have to be read, or one of them cannot be read."""
    import pyarrow.compute as pc  # upkeep alone needs it

    log, removed = root / "_delta_log", dict[str, Mapping[str, Any]]()
    try:
        checkpoint = last_checkpoint(log)
        for version in range(at, -1, -1):
            if version == checkpoint:
                columns = [f"remove.{name}" for name in ("path", "deletionTimestamp", "size", "partitionValues")]
                stored = checkpoint_of(log, version).parquet().read(columns)
                made_at = pc.field("deletionTimestamp")
                found = pa.Table.from_struct_array(stored["remove"].drop_null())
                gone = found.filter((made_at >= moment) | made_at.is_null()).to_pylist()
                removed.update({unquote(file["path"]): file for file in gone})
                break
            if at - version > MOST:
                return None
            actions = list(_actions(file_of(log, version).read()))
            gone = [action["remove"] for action in actions if "remove" in action]
            young = (file for file in gone if (file.get("deletionTimestamp") or moment) >= moment)
            removed.update({unquote(file["path"]): file for file in young})
            made_at = _time_of(actions)
            if made_at is not None and made_at < moment:
                break
    except _UNREADABLE:  # it has been cleaned up, and no checkpoint is known by its name that has what it had removed
        return None
    return removed


def committed_at(log: Location, version: int) -> int | None:
    """When a version was committed (ms, UTC), as its writer has it; None where it does not say."""
    return _time_of(_actions(file_of(log, version).read()))


def _time_of(actions: Iterable[Mapping[str, Any]]) -> int | None:
    info = next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
    return info.get("inCommitTimestamp") or info.get("timestamp")


def _actions(commit: bytes) -> Iterator[dict[str, Any]]:
    """The actions of a commit's file."""
    return (json.loads(line) for line in commit.splitlines() if line)


def read(root: Address) -> TableState | None:
    """The table at `root` as it is now; None if there is no table, or it cannot be read by names (damaged ones too)."""
    return _Reading(Location(root)).to_the_end()


@dataclass
class _Reading:
    """A table that is being read, on from a state of it or from its log's last checkpoint."""

    root: Location
    known: TableState | None = None
    at: int = -1
    seen: Tag | None = None
    versions: Protocol | None = None
    described: Metadata | None = None
    applications: dict[str, int] = field(default_factory=dict)
    files: dict[str, DataFile] = field(default_factory=dict)

    def to_the_end(self, end: int | None = None) -> TableState | None:
        log = self.root / "_delta_log"
        try:
            if self.known is None:
                self._begin(log)
            elif not file_of(log, self.known.at + 1).is_there():
                return self.known if self.known.there() else None
            elif not self.known.there():  # cleaned up past it, or another table was put in its place
                return None
            else:
                self._go_on(self.known)
            begun = self.at
            while self.at != end and self._commit(log, self.at + 1):
                if self.at - begun > MOST:
                    return None
        except _UNREADABLE:
            return None
        return self._end(log)

    def _begin(self, log: Location) -> None:
        checkpoint = last_checkpoint(log)
        if checkpoint is None:
            return
        self.at, path = checkpoint, checkpoint_of(log, checkpoint)
        self.seen = seen(log, checkpoint)
        columns = [f"add.{name}" for name in ("path", "size", "modificationTime", "partitionValues", "stats")]
        stored = path.parquet().read([*columns, "metaData", "protocol", "txn"])
        for name in ("metaData", "protocol", "txn", "add"):  # `drop_null` imports NumPy, longer than a status takes
            self._take({name: action} for action in stored[name].to_pylist() if action is not None)

    def _go_on(self, known: TableState) -> None:
        self.at, self.seen = known.at, known.seen
        self.versions, self.described = known.versions, known.described
        self.applications, self.files = dict(known.applications), dict(known.files)

    def _commit(self, log: Location, version: int) -> bool:
        """Take in a version; False where it is not there."""
        try:
            text, there = file_of(log, version).read_tagged()
        except FileNotFoundError:
            return False
        actions = list(_actions(text))
        self._take(action for action in actions if "add" not in action)
        self._take(action for action in actions if "add" in action)
        self.at, self.seen = version, there
        return True

    def _take(self, actions: Iterable[Mapping[str, Any]]) -> None:
        for action in actions:
            if added := action.get("add"):
                self.files[unquote(added["path"])] = DataFile(added)
            elif removed := action.get("remove"):
                self.files.pop(unquote(removed["path"]), None)
            elif txn := action.get("txn"):
                self.applications[txn["appId"]] = txn["version"]
            elif described := action.get("metaData"):
                self.described = Metadata.of(described)
            elif protocol := action.get("protocol"):
                self.versions = Protocol(
                    protocol["minReaderVersion"],
                    protocol["minWriterVersion"],
                    protocol.get("writerFeatures"),
                    protocol.get("readerFeatures"),
                )

    def _end(self, log: Location) -> TableState | None:
        if self.seen is None or self.versions is None or self.described is None:
            return None
        if not readable(self.versions, self.described.configuration) or seen(log, self.at) != self.seen:
            return None
        return TableState(self.root, self.at, self.seen, self.versions, self.described, self.applications, self.files)


def readable(versions: Protocol, configuration: Mapping[str, str]) -> bool:
    """Whether the Parquet files and the log alone give a table's rows: no deletion vectors, no column mapping, no
    sidecars."""
    if versions.min_reader_version <= 2:
        return configuration.get("delta.columnMapping.mode", "none") == "none"
    return set(versions.reader_features or ()) <= READER_FEATURES
