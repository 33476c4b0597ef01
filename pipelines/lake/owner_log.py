"""One log an owner: the small records of a source table, of an INSERT or of the lake itself, written without Spark.

An owner's log is one Delta table, partitioned by the kind of its records (`records.STORED`). What is decided together
is one commit; each carries its transaction versions, and is read back. A write whose transaction version is not greater
than the last one is not made, and the record that is then read back counts: a commit that was repeated after a crash,
or lost to another runner, is recognised as such.

The cost of a read does not depend on how many epochs there have been: commits are read by their names, records by
range, and upkeep puts files of about one size together, so that each record is written again a few times in all.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidegate.pipelines.clock import system_clock
from tidegate.pipelines.lake import delta_log
from tidegate.pipelines.lake.by_name import DataFile, TableState
from tidegate.pipelines.lake.records import STORED, OwnerRow, Record
from tidegate.pipelines.location import Address, Location

if TYPE_CHECKING:  # who only reads does without
    import pyarrow.parquet as pq
    from deltalake.transaction import AddAction

    from tidegate.pipelines.lake.commits import Removal

GROUP = 1_000
"""Records of a row group: as many are decoded at once at the most."""

FEW = 8
"""Files of about one size that are not put together yet."""

LARGE = 16_000
"""A file of so many records is never written again."""

AT_ONCE = 256
"""How many files are put together at once: one piece of upkeep takes less than a tick, however many files there are."""

STEP = 128
"""Epochs of a larger file that are decoded at once where records are asked for from the newest on."""

COMPACT_AFTER = 400
"""An append compacts a log that has so many files: for lakes without upkeep."""

CACHED_ROWS = 2_048
"""How many records stay in memory once read from Parquet: those of the last few hundred epochs."""

FORMAT = 5
"""What a lake of this version holds, in the description of the lake's own log. Others are refused, as none is released
yet: 1 had no definitions, 2 staged a target's files in its quarantine's folder, 3 had a kind of plan for each kind of
epoch, 4 had a table for each kind of record."""

FORMAT_IS = "tidegate lake, format "

LAKE = ""
"""The owner of the lake's own log, which names the others; no table can have this name."""

_FILE_SCHEMA = STORED.remove(STORED.get_field_index("kind"))


def folder_of(owner: str) -> str:
    """The name of the folder of an owner's log: never nested, and of letters and digits."""
    if owner == LAKE:
        return "lake"
    sort, name = ("insert", owner.removeprefix("insert ")) if owner.startswith("insert ") else ("table", owner)
    return f"{sort}." + "".join(each if each.isalnum() or each in "_-" else f"~{ord(each):x}~" for each in name)


class OwnerLogs:
    """The logs of a lake's control folder, by owner. The lake's own log names the owners, so that nothing lists."""

    def __init__(self, control: Address) -> None:
        self.control = Location(control)
        self.decoded = _Decoded()
        self._logs: dict[str, OwnerLog] = {}
        self.lake = self.of(LAKE)
        self._named: tuple[list[File], list[str]] = ([], [])

    def of(self, owner: str) -> OwnerLog:
        """The log of an owner, which may have no record yet."""
        found = self._logs.get(owner)
        if found is None:
            found = self._logs.setdefault(owner, OwnerLog(self, owner))
        return found

    def owners(self) -> list[str]:
        """Every owner that may have a record."""
        files = self.lake.files(OwnerRow)
        if self._named[0] != files:
            rows = (row for file in files for row in self.lake.read(file, None, 0, None))
            self._named = files, sorted({OwnerRow.from_row(LAKE, row).name for row in rows})
        return self._named[1]

    def unnamed(self) -> bool:
        """Whether there are logs of owners; asked where no log of the lake names them."""
        return any(entry.name.startswith(("insert.", "table.")) for piece in self.control.listed() for entry in piece)

    def there(self) -> list[OwnerLog]:
        """The logs that have been begun, the lake's own first."""
        logs = (self.of(owner) for owner in (LAKE, *self.owners()))
        return [log for log in logs if log.refresh() is not None]


class OwnerLog:
    """The log of one owner.

    Attributes:
        guard: Called with the log's state before each commit of this runner that needs the owner's lease; it raises
            LeaseHeld where another runner has taken it.
    """

    def __init__(self, logs: OwnerLogs, owner: str) -> None:
        self.owner = owner
        self.path = logs.control / folder_of(owner)
        self.guard: Callable[[], None] | None = None
        self._logs = logs
        self._listed: tuple[TableState | None, dict[str, File]] = (None, {})

    def refresh(self) -> TableState | None:
        """Its Delta table as it is now; None when nothing was ever written."""
        return delta_log.opened(self.path, self._remedy)

    @property
    def _remedy(self) -> str:
        return f"bring {self.path} back from a backup, then run the same command again"

    def create(self) -> TableState:
        """The Delta table, made if it is not there yet; the lake's log names its owner before."""
        table = self.refresh()
        if table is not None:
            return table
        from tidegate.pipelines.lake.commits import create

        if self.owner != LAKE and self.owner not in self._logs.owners():
            lake = self._logs.lake
            number = 1 + max((file.epochs[1] for file in lake.files(OwnerRow)), default=0)
            lake.append([OwnerRow(LAKE, 1, number, self.owner)], {f"owner/{self.owner}": 0})
        properties = {**delta_log.OWN, **delta_log.BRIEF, "delta.checkpointInterval": "10"}
        about = f"{FORMAT_IS}{FORMAT}" if self.owner == LAKE else None
        create(self.path, schema=STORED, partition_by=["kind"], configuration=properties, description=about)
        return self.create()

    def version(self, application: str) -> int:
        """The last transaction version of `application`; -1 when there is none."""
        return delta_log.committed(self.path, application, self._remedy)

    def append(self, rows: Sequence[Record], marks: Mapping[str, int], *, guarded: bool = True) -> bool:
        """Commit records, of whatever kinds, under transaction versions; False when one of these was committed before.
        `guarded`: only while this runner has the lease, if it ever had it. Raises LeaseHeld."""
        from tidegate.pipelines.lake.commits import until_committed

        made = until_committed(self._append, rows, marks, guarded, attempts=50)
        if len(self._files()) > COMPACT_AFTER:
            self.together()
        return made

    def _append(self, rows: Sequence[Record], marks: Mapping[str, int], guarded: bool) -> bool:
        table = self.create()
        if any(table.committed(name) >= version for name, version in marks.items()):
            return False
        if guarded and self.guard is not None:
            self.guard()
        by_kind = groupby(sorted(rows, key=_kind_of), _kind_of)
        self.put(table, [self._written(kind, _table([row.to_row() for row in same])) for kind, same in by_kind], marks)
        return True

    def append_after(self, table: TableState, row: Record) -> None:
        """Commit a record as the version after that of `table`. Raises CommitFailedError when another was faster."""
        self.put(table, [self._written(row.table, _table([row.to_row()]))])

    def put(
        self,
        table: TableState,
        made: Sequence[tuple[AddAction, pa.Table]],
        marks: Mapping[str, int] | None = None,
        gone: Sequence[Removal] = (),
    ) -> None:
        """One commit that adds files (`_written`) and removes others. Raises CommitFailedError when another runner was
        faster; the new files are deleted then."""
        from deltalake.exceptions import CommitFailedError

        from tidegate.pipelines.lake.commits import commit

        try:
            actions = [action for action, _ in made]
            commit(table, [*actions, *gone], marks=marks, listed_ms=delta_log.BRIEF_MINUTES * 60_000)
        except CommitFailedError:
            for action, _ in made:
                (self.path / action.path).delete()
            raise
        for action, part in made:  # a process that was stopped before its commit finds them deleted, as dead files
            if not (self.path / action.path).is_there():
                self._write(action.path, part)

    # --- reading -------------------------------------------------------------------------------------------------

    def _now(self) -> tuple[TableState | None, list[File]]:
        """The table as it is now, and its data files, of all kinds."""
        table, (seen, known) = self.refresh(), self._listed
        if seen is not table:
            of_table = {} if table is None else table.files
            known = {path: known.get(path) or File.of(file) for path, file in of_table.items()}
            self._listed = table, known
        return table, list(known.values())

    def _files(self) -> list[File]:
        return self._now()[1]

    def files(self, kind: type[Record]) -> list[File]:
        """The data files with records of one kind."""
        return [file for file in self._files() if file.kind == kind.table]

    def read(self, file: File, generation: int | None, low: int, high: int | None) -> list[dict[str, Any]]:
        """The records of one data file with low <= epoch <= high, of one generation, as they are stored."""
        place = self.path / file.path
        with delta_log.damage_reported(place, self._remedy):
            rows = self._logs.decoded.rows(place, file, low, high)
        return [
            row
            for row in rows
            if low <= row["epoch"]
            and (high is None or row["epoch"] <= high)
            and (generation is None or row["generation"] == generation)
        ]

    # --- upkeep --------------------------------------------------------------------------------------------------

    def together(self) -> int:
        """Put files of one kind and generation together, the smallest first; no record changes, and of leases only the
        last one stays. Returns how many files fewer there are.

        Another runner's commit in between makes it give up: the next upkeep tries again.
        """
        from deltalake.exceptions import CommitFailedError

        from tidegate.pipelines.lake.commits import Removal

        table, files = self._now()
        chosen = _of_one_size(files)
        if table is None or not chosen:
            return 0
        made: list[tuple[AddAction, pa.Table]] = []
        if (kind := chosen[0].kind) not in LAST_ALONE:
            rows = pa.concat_tables([_columns(self.path / file.path) for file in chosen])
            made = [self._written(kind, rows.sort_by([("epoch", "ascending")]), news=False)]
        try:
            self.put(table, made, gone=[Removal(table.files[file.path], news=False) for file in chosen])
        except CommitFailedError:
            return 0
        return len(chosen) - len(made)

    def _written(self, kind: str, part: pa.Table, *, news: bool = True) -> tuple[AddAction, pa.Table]:
        """A file with records of one kind, which no commit names yet, and these records; `news`: they are in no other
        file."""
        from deltalake.transaction import AddAction

        name = f"{kind}-{uuid.uuid4().hex}.parquet"
        size = self._write(name, part)
        columns = {column: part[column].to_pylist() for column in ("generation", "epoch")}
        stats = {
            "numRecords": part.num_rows,
            "minValues": {column: min(values) for column, values in columns.items()},
            "maxValues": {column: max(values) for column, values in columns.items()},
            "nullCount": {"generation": 0, "epoch": 0},
        }
        return AddAction(name, size, {"kind": kind}, system_clock(), news, json.dumps(stats)), part

    def _write(self, name: str, part: pa.Table) -> int:
        return (self.path / name).write_parquet(part, row_group_size=GROUP, compression="zstd")


LAST_ALONE = frozenset({"lease"})
"""Kinds of which only the last record is ever asked for."""


def _kind_of(row: Record) -> str:
    return row.table


def _table(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=_FILE_SCHEMA)


def _columns(path: Location) -> pa.Table:
    return path.parquet().read().select(_FILE_SCHEMA.names).cast(_FILE_SCHEMA)


@dataclass(frozen=True)
class File:
    """A data file, and what its epochs and generations are: first and last."""

    kind: str
    path: str
    epochs: tuple[int, int]
    generations: tuple[int, int]
    rows: int

    @classmethod
    def of(cls, file: DataFile) -> File:
        """From the log's entry, whose bounds give epochs and generations."""
        epochs, generations = ((file.least(name), file.greatest(name)) for name in ("epoch", "generation"))
        return cls(file.partition["kind"] or "", file.path, epochs, generations, file.rows or 0)

    def may_hold(self, generation: int | None, low: int, high: int | None) -> bool:
        """Whether a record with low <= epoch <= high may be in it, of one generation."""
        in_time = self.epochs[1] >= low and (high is None or self.epochs[0] <= high)
        return in_time and (generation is None or self.generations[0] <= generation <= self.generations[1])

    def spans(self) -> list[tuple[int, int]]:
        """Its epochs in spans that are decoded at once, the oldest first."""
        first, last = self.epochs
        if self.rows <= STEP:
            return [(first, last)]
        edges = range(last + 1, first, -STEP)
        return [(max(edge - STEP, first), edge - 1) for edge in reversed(edges)]


class _Decoded:
    """The decoded rows of data files, which never change once they are written; only some stay in memory."""

    def __init__(self) -> None:
        self._cached: OrderedDict[tuple[Location, int, int], list[dict[str, Any]]] = OrderedDict()
        self._held = 0
        self._lock = threading.Lock()

    def rows(self, path: Location, file: File, low: int, high: int | None) -> list[dict[str, Any]]:
        """The rows of a file with low <= epoch <= high; where it is small, all of them."""
        first, last = max(low, file.epochs[0]), file.epochs[1] if high is None else min(high, file.epochs[1])
        if file.rows <= FEW:
            first, last = file.epochs
        with self._lock:
            if (path, first, last) in self._cached:
                self._cached.move_to_end((path, first, last))
                return self._cached[path, first, last]
        stored = path.parquet()
        groups = [group for group in range(stored.num_row_groups) if _meets(stored.metadata, group, first, last)]
        table = stored.read_row_groups(groups) if groups else stored.schema_arrow.empty_table()
        if (first, last) != file.epochs:
            inside = [place for place, epoch in enumerate(table["epoch"].to_pylist()) if first <= epoch <= last]
            # They lie together, but for files of other writers. (Arrow's own filter would import pandas.)
            table = table.slice(inside[0], inside[-1] - inside[0] + 1) if inside else table.slice(0, 0)
        rows = [row for row in table.to_pylist() if first <= row["epoch"] <= last]
        if len(rows) <= STEP:
            self._keep((path, first, last), rows)
        return rows

    def _keep(self, what: tuple[Location, int, int], rows: list[dict[str, Any]]) -> None:
        with self._lock:
            self._cached[what] = rows
            self._held = sum(map(len, self._cached.values()))
            while self._held > CACHED_ROWS:
                _, old = self._cached.popitem(last=False)
                self._held -= len(old)


def _meets(metadata: pq.FileMetaData, group: int, first: int, last: int) -> bool:
    """Whether a row group may hold epochs from `first` to `last`."""
    place = metadata.schema.names.index("epoch")
    found = metadata.row_group(group).column(place).statistics
    return found is None or not found.has_min_max or (found.min <= last and found.max >= first)


def _of_one_size(files: Iterable[File]) -> list[File]:
    """The files to put together next, the oldest first; of kinds of which only the last record is asked for, those to
    remove."""
    sizes: dict[tuple[int, str, tuple[int, int]], list[File]] = defaultdict(list)
    for file in sorted(files, key=lambda file: file.epochs):
        if file.rows < LARGE:
            size = 0 if file.kind in LAST_ALONE else file.rows.bit_length() // 2
            sizes[size, file.kind, file.generations].append(file)
    for (_, kind, _), same in sorted(sizes.items()):
        if len(same) > FEW and kind in LAST_ALONE:
            return same[:-1]
        if len(same) > FEW:
            sums = accumulate(file.rows for file in same)
            return [file for file, rows in zip(same[:AT_ONCE], sums, strict=False) if rows <= 2 * LARGE]
    return []
