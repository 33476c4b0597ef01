"""One control table: small rows, written without Spark; each commit carries its transaction version and is read back.

A write whose transaction version is not greater than the last one is not made, and the row that is then read back
counts: a commit that was repeated after a crash, or lost to another runner, is recognised as such.

The cost of a read does not depend on how many epochs there have been: commits are read by their names, rows by range,
and upkeep puts them into blocks (BLOCK epochs of one owner and generation a file) that are never written again.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections import OrderedDict, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from urllib.parse import unquote

import pyarrow as pa

from tidegate.pipelines.clock import system_clock
from tidegate.pipelines.lake import delta_log
from tidegate.pipelines.lake.records import Record, file_schema_of, schema_of
from tidegate.pipelines.location import Address, Location

if TYPE_CHECKING:  # who only reads does without
    import pyarrow.parquet as pq
    from deltalake.transaction import AddAction

    from tidegate.pipelines.lake.commits import Removal

R = TypeVar("R", bound=Record)

BLOCK = 1_000
"""Epochs of one owner and generation that are put together in one file."""

WHOLE = 16
"""As many full blocks become one file, which nobody writes again."""

FEW = 16
"""The block that still grows is not compacted while it has no more files than this."""

AT_ONCE = 256
"""How many files are put together at once: one piece of upkeep takes less than a tick, however many files there are."""

STEP = 128
"""Epochs of a larger file that are decoded at once where rows are asked for from the newest on."""

COMPACT_AFTER = 400
"""An append compacts the files of its owner when a control table has so many files: for lakes without upkeep."""

BLOCKS = "_blocks"
"""The folder of a control table with the files that were put together."""

CACHED_ROWS = 2_048
"""How many rows of control tables stay in memory once read from Parquet: those of the last few hundred epochs."""


class ControlTable(Generic[R]):
    """The rows of one record type, by owner."""

    def __init__(self, root: Address, record: type[R]) -> None:
        self.path = Location(root) / record.table
        self.record = record
        self._wide = False
        self._listed: tuple[delta_log.Table | None, int, dict[str, _File]] = (None, -1, {})
        self._decoded = _Decoded()
        self._firsts: dict[tuple[str, int], R] = {}

    def create(self) -> delta_log.Table:
        """The Delta table, made if it is not there yet."""
        table = self.refresh()
        if table is None:
            from deltalake import DeltaTable

            self.path.make()
            DeltaTable.create(
                str(self.path),
                schema=schema_of(self.record),
                mode="ignore",
                partition_by=["owner"],
                configuration={**delta_log.OWN, **delta_log.BRIEF, "delta.checkpointInterval": "100"},
            )
            return self.create()
        if not self._wide:
            self._widen(table)
            table = self.refresh() or table
        return table

    def _widen(self, table: delta_log.Table) -> None:
        """Add the columns that a table made by an older version lacks; its rows have null there."""
        from deltalake import DeltaTable, Schema

        there = {field.name for field in table.schema().fields}
        if missing := [field for field in schema_of(self.record) if field.name not in there]:
            DeltaTable(str(self.path)).alter.add_columns(list(Schema.from_arrow(pa.schema(missing)).fields))
        self._wide = True

    def refresh(self) -> delta_log.Table | None:
        """The table as it is now; None when nothing was ever written."""
        return delta_log.opened(self.path, self._remedy)

    @property
    def _remedy(self) -> str:
        """What to do when the table cannot be read: most control tables hold what is stored nowhere else."""
        if self.record.for_people:
            return f"remove {self.path} (nothing is decided by it), then run the same command again"
        return f"bring {self.path} back from a backup, then run the same command again"

    def version(self, application: str) -> int:
        """The last transaction version of `application`; -1 when there is none."""
        table = self.refresh()
        found = table.transaction_version(application) if table else None
        return -1 if found is None else int(found)

    def append(self, rows: list[R], *, application: str, version: int) -> bool:
        """Commit `rows` under (application, version); False when that version was committed before."""
        if self.version(application) >= version:
            return False
        from tidegate.pipelines.lake.commits import until_committed

        until_committed(self._commit, rows, application, version, attempts=50, wait=0.001, most=0.2)
        if len(self._files()) > COMPACT_AFTER:
            for owner in {row.owner for row in rows}:
                self.together(owner)
        return True

    def _commit(self, rows: list[R], application: str, version: int) -> None:
        table = self.create()
        last = table.transaction_version(application)
        if last is not None and last >= version:
            return
        columns = file_schema_of(self.record)
        made = [
            self._written(owner, pa.Table.from_pylist([row.to_row() for row in same], schema=columns), news=True)
            for owner, same in groupby(sorted(rows, key=_owner), _owner)
        ]
        self._put(table, made, marks={application: version})

    def _put(
        self,
        table: delta_log.Table,
        made: Sequence[AddAction],
        gone: Sequence[Removal] = (),
        marks: Mapping[str, int] | None = None,
    ) -> None:
        """One commit that adds files and removes others. Raises CommitFailedError when another runner was faster; the
        new files are deleted then."""
        from deltalake.exceptions import CommitFailedError

        from tidegate.pipelines.lake.commits import commit

        try:
            commit(table, self.path, [*made, *gone], marks=marks)
        except CommitFailedError:
            for action in made:
                (self.path / action.path).delete()
            raise

    def settle(self, row: R, *, application: str) -> R | None:
        """Commit a row for its epoch; returns the row that counts, which is another runner's if that came first."""
        self.append([row], application=application, version=row.epoch)
        stored = self.rows(row.owner, generation=row.generation, epoch=row.epoch)
        return stored[0] if len(stored) == 1 else None

    def rows(
        self,
        owner: str,
        *,
        generation: int | None = None,
        epoch: int | None = None,
        since: int = 0,
        upto: int | None = None,
    ) -> list[R]:
        """The rows of `owner` (of one generation, of one epoch, of epochs from `since` on and up to `upto`) in order of
        generation and epoch."""
        low, high = (since, upto) if epoch is None else (epoch, epoch)
        found = [
            row
            for file in self._index(owner)
            if file.may_hold(generation, low, high)
            for row in self._read(file, generation, low, high)
        ]
        return [self.record.from_row(row) for row in sorted(found, key=_place)]

    def newest_first(self, owner: str, *, generation: int | None = None, upto: int | None = None) -> Iterator[R]:
        """The rows of `owner` (of one generation, of epochs up to `upto`), the newest first; files are read as far as
        they are asked for."""
        files = [file for file in self._index(owner) if file.may_hold(generation, 0, upto)]
        files.sort(key=lambda file: (file.generations[1], file.epochs[1]), reverse=True)
        waiting: list[dict[str, Any]] = []
        for number, file in enumerate(files):
            for block in reversed(file.spans()):
                waiting += self._read(file, generation, block[0], block[1] if upto is None else min(block[1], upto))
                waiting.sort(key=_place)
                # What the rest of this file, or the next ones, may hold has its turn before what is older.
                rest = [(other.generations[1], other.epochs[1]) for other in files[number + 1 : number + 2]]
                if block[0] > file.epochs[0]:
                    rest.append((file.generations[1], block[0] - 1))
                while waiting and all(_place(waiting[-1]) > later for later in rest):
                    yield self.record.from_row(waiting.pop())
        yield from map(self.record.from_row, reversed(waiting))

    def last(self, owner: str, generation: int | None = None) -> R | None:
        """The newest row of `owner`, by generation and epoch."""
        files = self._index(owner)
        if not files:
            return None
        top = max(file.generations[1] for file in files) if generation is None else generation
        return next(self.newest_first(owner, generation=top), None)

    def first(self, owner: str, generation: int) -> R | None:
        """The row of epoch 1 of a generation, which never changes; it is shared, so its content must not be changed."""
        if (owner, generation) not in self._firsts:
            found = self.rows(owner, generation=generation, epoch=1)
            if not found:
                return None
            self._firsts[owner, generation] = found[0]
        return self._firsts[owner, generation]

    def owners(self) -> list[str]:
        """Every owner that has a row."""
        return sorted({file.owner for file in self._files()})

    # --- upkeep --------------------------------------------------------------------------------------------------

    def compact(self) -> None:
        """Put the small files of each owner together; no row changes."""
        for owner in self.owners():
            while self.together(owner) > 0:
                pass

    def together(self, owner: str) -> int:
        """Compact files of one owner, block by block, the oldest AT_ONCE of them; no row changes. Returns how many
        files fewer there are.

        Another runner's commit in between makes it give up: the next upkeep tries again.
        """
        from deltalake.exceptions import CommitFailedError

        from tidegate.pipelines.lake.commits import Removal

        table = self.refresh()
        files = self._index(owner)
        newest = max(((file.generations[1], file.epochs[1]) for file in files), default=(0, 0))
        chosen = sorted(_scattered(files, newest), key=lambda file: (file.generations, file.epochs))[:AT_ONCE]
        if table is None or not chosen:
            return 0
        columns = file_schema_of(self.record)
        stored = [(self.path / file.path).parquet().read() for file in chosen]
        if any(set(each.column_names) - set(schema_of(self.record).names) for each in stored):
            return 0  # a newer Tidegate wrote it: its columns would be lost
        rows = pa.concat_tables([columns_of(each, columns) for each in stored])
        rows = rows.sort_by([("generation", "ascending"), ("epoch", "ascending")])
        places = zip(rows["generation"].to_pylist(), rows["epoch"].to_pylist(), strict=True)
        made, begin = [], 0
        for _, same in groupby(places, lambda place: _home(*place, newest)):
            length = sum(1 for _ in same)
            made.append(self._written(owner, rows.slice(begin, length)))
            begin += length
        gone = [Removal(file.name, file.size, {"owner": owner}, news=False) for file in chosen]
        try:
            self._put(table, made, gone)
        except CommitFailedError:
            return 0
        return len(chosen) - len(made)

    def _written(self, owner: str, part: pa.Table, *, news: bool = False) -> AddAction:
        """A file with rows of one owner, which no commit names yet; `news`: they are in no other file."""
        from deltalake.transaction import AddAction

        if not news:
            (self.path / BLOCKS).make()
        name = f"{uuid.uuid4().hex}.parquet" if news else f"{BLOCKS}/{uuid.uuid4().hex}.parquet"
        size = (self.path / name).write_parquet(part, row_group_size=BLOCK, compression="zstd")
        columns = {column: part[column].to_pylist() for column in ("generation", "epoch")}
        stats = {
            "numRecords": part.num_rows,
            "minValues": {column: min(values) for column, values in columns.items()},
            "maxValues": {column: max(values) for column, values in columns.items()},
            "nullCount": {"generation": 0, "epoch": 0},
        }
        return AddAction(name, size, {"owner": owner}, system_clock(), news, json.dumps(stats))

    def _files(self) -> list[_File]:
        """The data files, of all owners."""
        table = self.refresh()
        if table is None:
            return []
        seen, version, known = self._listed
        if seen is not table or version != table.version():
            young = map(_File.of, delta_log.files_of(table, *_STATISTICS, but=known))
            names = [file["path"] for file in delta_log.files_of(table, "path")]
            known = {name: known[name] for name in names if name in known} | {file.name: file for file in young}
            self._listed = (table, table.version(), known)
        return list(known.values())

    def _index(self, owner: str) -> list[_File]:
        return [file for file in self._files() if file.owner == owner]

    def _read(self, file: _File, generation: int | None, low: int, high: int | None) -> list[dict[str, Any]]:
        """The rows of one data file with low <= epoch <= high, of one generation, as they are stored."""
        place = self.path / file.path
        with delta_log.damage_reported(place, self._remedy):
            rows = self._decoded.rows(place, file, low, high)
        return [
            {**row, "owner": file.owner}
            for row in rows
            if low <= row["epoch"]
            and (high is None or row["epoch"] <= high)
            and (generation is None or row["generation"] == generation)
        ]


_STATISTICS = (
    *("partition.owner", "path", "num_records", "size_bytes"),
    *("min.epoch", "max.epoch", "min.generation", "max.generation"),
)


def _owner(row: Record) -> str:
    return row.owner


def _place(row: Mapping[str, Any]) -> tuple[int, int]:
    return row["generation"], row["epoch"]


@dataclass(frozen=True)
class _File:
    """A data file, its `name` in the log, and what its epochs and generations are: first and last."""

    owner: str
    name: str
    path: str
    epochs: tuple[int, int]
    generations: tuple[int, int]
    rows: int
    size: int

    @classmethod
    def of(cls, action: Mapping[str, Any]) -> _File:
        """From the log's entry, whose bounds give epochs and generations."""
        return cls(
            action["partition.owner"],
            action["path"],
            unquote(action["path"]),
            (action["min.epoch"], action["max.epoch"]),
            (action["min.generation"], action["max.generation"]),
            action["num_records"],
            action["size_bytes"],
        )

    def may_hold(self, generation: int | None, low: int, high: int | None) -> bool:
        """Whether a row with low <= epoch <= high may be in it, of one generation."""
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

    def rows(self, path: Location, file: _File, low: int, high: int | None) -> list[dict[str, Any]]:
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


Home = tuple[int, int, int]
"""Which file a row belongs in: its generation, its group of WHOLE blocks, and its block while that group is not full
(else -1)."""


def _home(generation: int, epoch: int, newest: tuple[int, int]) -> Home:
    many = epoch // BLOCK // WHOLE
    full = (generation, many) < (newest[0], newest[1] // BLOCK // WHOLE)
    return generation, many, -1 if full else epoch // BLOCK


def _scattered(files: Sequence[_File], newest: tuple[int, int]) -> list[_File]:
    """The files of one owner with rows that are not yet in the file where they belong, and the present content of that
    file."""
    homes: dict[str, set[Home]] = {}
    for file in files:
        generations = range(file.generations[0], file.generations[1] + 1)
        blocks = range(file.epochs[0] // BLOCK, file.epochs[1] // BLOCK + 1)
        homes[file.path] = {_home(each, block * BLOCK, newest) for each in generations for block in blocks}
    there: dict[Home, list[_File]] = defaultdict(list)
    for file in files:
        for home in homes[file.path]:
            there[home].append(file)
    grows = _home(*newest, newest)
    moving = {home for home, found in there.items() if len(found) > (FEW if home == grows else 1)}
    moving |= {home for file in files if len(homes[file.path]) > 1 for home in homes[file.path]}
    moving |= {
        home for file in files if file.rows > BLOCK and not file.path.startswith(BLOCKS) for home in homes[file.path]
    }
    return [file for file in files if homes[file.path] & moving]


def columns_of(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """The columns of a data file; those that it is too old for are null."""

    def column(field: pa.Field) -> pa.ChunkedArray | pa.Array:
        if field.name not in rows.column_names:
            return pa.nulls(rows.num_rows, field.type)
        there = rows[field.name]
        return there if there.type == field.type else there.cast(field.type)

    return pa.table([column(field) for field in schema], schema=schema)
