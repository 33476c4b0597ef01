"""A Delta table as of one version, read from its log by the names of its files: the log's folder is not listed.

A listing takes 0.8 ms of processor time for each thousand names, and the log of a table with a commit a second has
600,000 of them in a week. The name of the next version's file is known before the file is there, so that name is
opened. Versions leave a log from the oldest on (Delta's rule, `upkeep.clean_log`). So while version V is there, no
later one has been removed, and a missing V + 1 was never committed.

A version is there only while its own commit is: a checkpoint alone shows nothing, as a process that was stopped while
it wrote one puts it into a log that has gone on without it. Only where the log does not name its last checkpoint, or
names one that is gone, a listing finds the newest.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, Self
from urllib.parse import unquote

import pyarrow as pa

from tidegate.pipelines.location import Address, Location, Tag, dataset_of

if TYPE_CHECKING:  # here and in what reads control tables: it takes as long as a status
    import pyarrow.dataset as ds
    from deltalake import Schema

MOST = 1_000
"""The most commits that are read by name, one after another, to follow a table. One that has gone further is read from
its last checkpoint on."""

VERSIONED = re.compile(r"(\d{20})\.(json|crc|checkpoint(\..+)?\.(?:parquet|json)|compacted\.json)$")
"""The files of a log that are of a version: its number, and what the file is of it."""

_PARTS = re.compile(r"\.\d{10}\.(\d{10})")
"""Of the name of one of several files of a checkpoint: how many these are."""

READER_FEATURES = frozenset({"timestampNtz", "vacuumProtocolCheck", "variantType"})
"""Reader features with which the files alone give a table's rows, beside the two reader versions that require none:
tables of Tidegate require the first, the second is about VACUUM alone, and the third about columns of that type, which
Tidegate never reads. delta-rs adds the third to every table with features of which it sets a property."""

UNREADABLE = (OSError, ValueError, KeyError, TypeError, pa.ArrowException)
"""What reading a log raises where it is damaged, or may not be read."""

NOT_COMMITTED = -1


class Protocol(NamedTuple):
    """What a table asks of its readers and writers."""

    min_reader_version: int
    min_writer_version: int
    writer_features: list[str] | None
    reader_features: list[str] | None


class DataFile:
    """A data file, by the `add` that the log has of it. `name`: its path as the log spells it; `path`: relative to the
    table; `text`: its statistics, as JSON."""

    def __init__(self, action: Mapping[str, Any]) -> None:
        self.name: str = action["path"]
        self.path = unquote(self.name)
        self.size: int = action["size"]
        self.modified: int = action["modificationTime"]
        self.partition: Mapping[str, str | None] = dict(action["partitionValues"] or {})
        self.text: str | None = action.get("stats")

    @cached_property
    def stats(self) -> Mapping[str, Any]:
        """As the log has them: numRecords, minValues, maxValues, nullCount."""
        return json.loads(self.text) if self.text else {}

    @property
    def rows(self) -> int | None:
        """How many rows it has; None where the log does not say, as for all that follows."""
        return self.stats.get("numRecords")

    def least(self, column: str) -> Any:
        """A value that none of the column's is below."""
        return self.stats.get("minValues", {}).get(column)

    def greatest(self, column: str) -> Any:
        """A value that none of the column's is above."""
        return self.stats.get("maxValues", {}).get(column)

    def nulls(self, column: str) -> int | None:
        """How many of the column's values are NULL."""
        return self.stats.get("nullCount", {}).get(column)

    def meets(self, column: str, low: int, high: int) -> bool:
        """Whether a value of a column of whole numbers may be from `low` to `high`."""
        least, greatest = self.least(column), self.greatest(column)
        known = isinstance(least, int) and isinstance(greatest, int)
        return not known or (least <= high and greatest >= low)

    def within(self, column: str, low: int, high: int) -> bool:
        """Whether each of them surely is."""
        least, greatest = self.least(column), self.greatest(column)
        known = isinstance(least, int) and isinstance(greatest, int) and self.nulls(column) == 0
        return known and low <= least and greatest <= high


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
    """A table as of a version. `files` by their paths; `applications`: the last transaction version of each; `seen`:
    the tag of its version's commit, None where other writers have left a checkpoint of it alone."""

    root: Location
    version: int
    seen: Tag | None
    protocol: Protocol
    metadata: Metadata
    applications: Mapping[str, int]
    files: Mapping[str, DataFile]

    @property
    def schema(self) -> Schema:
        return _schema(self.metadata.schema)

    @property
    def log(self) -> Location:
        """The folder of its log."""
        return self.root / "_delta_log"

    @property
    def plain(self) -> bool:
        """Whether the Parquet files alone give the rows (no deletion vectors, no column mapping)."""
        if self.protocol.min_reader_version <= 2:
            return self.metadata.configuration.get("delta.columnMapping.mode", "none") == "none"
        return set(self.protocol.reader_features or ()) <= READER_FEATURES

    def committed(self, application: str) -> int:
        """The last transaction version that `application` has committed; NOT_COMMITTED where there is none."""
        return self.applications.get(application, NOT_COMMITTED)

    def place(self, file: DataFile) -> Location:
        return self.root / file.path

    def paths(self, files: Iterable[DataFile] | None = None) -> list[str]:
        """The addresses of files, of all where none are given."""
        return [str(self.place(file)) for file in (self.files.values() if files is None else files)]

    def rows(self, files: Iterable[DataFile] | None = None) -> ds.Dataset:
        """The rows of files (all), with the table's columns: other writers have other types in Parquet for them
        (delta-rs writes text as `string_view`), and older files lack columns. Arrow opens the files itself: delta-rs
        would lend it a file system written in Python, which Arrow's threads let go of a moment after the answer, and a
        process that ends in that moment is aborted (SIGABRT) on its way out."""
        return dataset_of(self.paths(files), pa.schema(self.schema.to_arrow()))

    def there(self) -> bool:
        """Whether its own version is still in the log: then no later one has been removed."""
        return self.seen is not None and seen(self.log, self.version) == self.seen

    def newer(self) -> TableState | None:
        """The table as it is now, as `read` returns it."""
        if not file_of(self.log, self.version + 1).is_there() and self.there():
            return self
        return self.upto(None) or read(self.root)

    def upto(self, version: int | None) -> TableState | None:
        """The table as of a later version (None: now); None where the log does not go on from this one, or goes on too
        far."""
        if not self.there():  # cleaned up past it, or another table was put in its place
            return None
        try:
            return _Reading.on_from(self).to_the_end(version, MOST)
        except UNREADABLE:
            return None


def file_of(log: Location, version: int) -> Location:
    """The file of a version's commit."""
    return log / f"{version:020}.json"


def lacks(log: Location, version: int) -> bool:
    """Whether a log has the version after this one, and not this one: it was lost, or has been cleaned up."""
    return file_of(log, version + 1).is_there() and not file_of(log, version).is_there()


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


def removed_since(table: TableState, moment: int) -> dict[str, Mapping[str, Any]] | None:
    """The files that a table's log has removed at `moment` (ms, UTC) or later, by their paths; each with what the log
    has of it. A checkpoint leaves removals out once they are older than 'delta.deletedFileRetentionDuration' (a week;
    of control tables `delta_log.BRIEF`). None if more than MOST commits would have to be read, or one of them cannot be
    read."""
    import pyarrow.compute as pc  # upkeep alone needs it

    log, removed = table.log, dict[str, Mapping[str, Any]]()
    try:
        checkpoint = last_checkpoint(log)
        for version in range(table.version, -1, -1):
            if version == checkpoint:
                columns = [f"remove.{name}" for name in ("path", "deletionTimestamp", "size", "partitionValues")]
                stored = checkpoint_of(log, version).parquet().read(columns)
                made_at = pc.field("deletionTimestamp")
                found = pa.Table.from_struct_array(stored["remove"].drop_null())
                gone = found.filter((made_at >= moment) | made_at.is_null()).to_pylist()
                removed.update({unquote(file["path"]): file for file in gone})
                break
            if table.version - version > MOST:
                return None
            actions = list(_actions(file_of(log, version).read()))
            gone = [action["remove"] for action in actions if "remove" in action]
            young = (file for file in gone if (file.get("deletionTimestamp") or moment) >= moment)
            removed.update({unquote(file["path"]): file for file in young})
            made_at = _time_of(actions)
            if made_at is not None and made_at < moment:
                break
    except UNREADABLE:  # it has been cleaned up, and no checkpoint is known by its name that has what it had removed
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
    """The table at `root` as it is now; None where there is none. Raises what UNREADABLE lists."""
    place = Location(root)
    log = place / "_delta_log"
    try:
        return _Reading(place).from_checkpoint(*base_of(log)).to_the_end()
    except UNREADABLE:  # there is none, it was cleaned up meanwhile, or another checkpoint is named than there is
        version, files, last = _newest_checkpoint(log)
    if last < 0:
        return None
    found = _Reading(place).from_checkpoint(version, files).to_the_end()
    if found.version < last:
        raise ValueError(f"{log} has version {last}, and no version {found.version + 1}")
    return found


def base_of(log: Location) -> tuple[int, list[Location]]:
    """The version of a checkpoint from which a log is read, and the files of that; -1 and none from the beginning."""
    try:
        version = last_checkpoint(log)
    except (ValueError, KeyError, TypeError):  # damaged, or it names one that is gone
        return _newest_checkpoint(log)[:2]
    if version is not None:
        return version, [checkpoint_of(log, version)]
    return (-1, []) if file_of(log, 0).is_there() else _newest_checkpoint(log)[:2]


def _newest_checkpoint(log: Location) -> tuple[int, list[Location], int]:
    """By a listing: the newest version that has a checkpoint, and the files of that; -1 where a log begins without one.
    And its last version; -1 where there is no log."""
    made, last = defaultdict[tuple[int, str], list[Location]](list), -1
    for entry in (entry for piece in log.listed() for entry in piece):
        if (found := VERSIONED.fullmatch(entry.name)) is None or not found[2].startswith(("json", "checkpoint.")):
            continue
        last = max(last, int(found[1]))
        if found[2] != "json":
            parts = _PARTS.match(found[3] or "")
            made[int(found[1]), parts[1] if parts else entry.name].append(entry.location)
    for (version, parts), files in sorted(made.items(), reverse=True):
        if not parts.isdigit() or len(files) == int(parts):
            return version, files, last
    return -1, [], last


@dataclass
class _Reading:
    """A table that is being read, on from a state of it or from a checkpoint."""

    root: Location
    version: int = -1
    seen: Tag | None = None
    protocol: Protocol | None = None
    metadata: Metadata | None = None
    applications: dict[str, int] = field(default_factory=dict)
    files: dict[str, DataFile] = field(default_factory=dict)

    @classmethod
    def on_from(cls, known: TableState) -> Self:
        """From a version that was read before."""
        given = known.root, known.version, known.seen, known.protocol, known.metadata
        return cls(*given, dict(known.applications), dict(known.files))

    def from_checkpoint(self, version: int, files: Sequence[Location]) -> Self:
        """From the files of a version's checkpoint; -1: from the beginning."""
        self.version, self.seen = version, seen(self.root / "_delta_log", version)
        for file in files:
            self._take_checkpoint(file)
        return self

    def to_the_end(self, end: int | None = None, most: int | None = None) -> TableState:
        """The table once the commits up to `end` are taken in, or all; `most` of them at the most. Raises ValueError
        where the log does not have it, or has been cleaned up meanwhile."""
        log, begun = self.root / "_delta_log", self.version
        while self.version != end and self._take_commit(log, self.version + 1):
            if most is not None and self.version - begun > most:
                raise ValueError(f"{log} has gone on by more than {most} versions")
        if self.protocol is None or self.metadata is None:
            raise ValueError(f"{log} does not say what the table is")
        if self.version != end and lacks(log, self.version + 1):
            raise ValueError(f"{log} has version {self.version + 2}, and no version {self.version + 1}")
        if seen(log, self.version) != self.seen:
            raise ValueError(f"{log} was cleaned up while it was read")
        return TableState(
            self.root, self.version, self.seen, self.protocol, self.metadata, self.applications, self.files
        )

    def _take_checkpoint(self, file: Location) -> None:
        """Take in a file of a checkpoint and, of version 2, those that it names."""
        if file.name.endswith(".json"):
            stored = defaultdict[str, list[dict[str, Any]]](list)
            for action in _actions(file.read()):
                for name, content in action.items():
                    stored[name].append(content)
        else:
            columns = [f"add.{name}" for name in ("path", "size", "modificationTime", "partitionValues", "stats")]
            rows = file.parquet().read([*columns, "metaData", "protocol", "txn", "sidecar.path"])
            stored = {name: rows[name].to_pylist() for name in rows.column_names}  # `drop_null` imports NumPy
        for name in ("metaData", "protocol", "txn", "add"):
            self._take({name: action} for action in stored.get(name, ()) if action is not None)
        for sidecar in filter(None, stored.get("sidecar", ())):
            self._take_checkpoint(self.root / "_delta_log" / "_sidecars" / sidecar["path"])

    def _take_commit(self, log: Location, version: int) -> bool:
        """Take in a version; False where it is not there."""
        try:
            text, there = file_of(log, version).read_tagged()
        except FileNotFoundError:
            return False
        actions = list(_actions(text))
        self._take(action for action in actions if "add" not in action)
        self._take(action for action in actions if "add" in action)
        self.version, self.seen = version, there
        return True

    def _take(self, actions: Iterable[Mapping[str, Any]]) -> None:
        for action in actions:
            if added := action.get("add"):
                file = DataFile(added)
                self.files[file.path] = file
            elif removed := action.get("remove"):
                self.files.pop(unquote(removed["path"]), None)
            elif txn := action.get("txn"):
                self.applications[txn["appId"]] = txn["version"]
            elif described := action.get("metaData"):
                self.metadata = Metadata.of(described)
            elif protocol := action.get("protocol"):
                names = ("minReaderVersion", "minWriterVersion", "writerFeatures", "readerFeatures")
                self.protocol = Protocol(*map(protocol.get, names))
