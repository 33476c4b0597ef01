"""One control table: small rows through delta-rs, each commit carrying its transaction version and read back.

A write whose transaction version is not greater than the last one is not made, and what counts is the row that is then
read back: so a commit that was repeated after a crash, or lost to another runner, is seen for what it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Generic, TypeVar
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Schema, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError
from tenacity import retry, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from pipelines.lake import delta_log
from pipelines.lake.records import Record

R = TypeVar("R", bound=Record)

COMPACT_AFTER = 400
"""Files of a control table before they are compacted; a lookup reads the list of them."""


class ControlTable(Generic[R]):
    """The rows of one record type, by owner."""

    def __init__(self, root: Path, record: type[R]) -> None:
        self.path = root / record.table
        self.record = record
        self._table: DeltaTable | None = None
        self._wide = False
        self._listed: tuple[int, list[_File]] | None = None

    def create(self) -> DeltaTable:
        """The Delta table, made if it is not there yet."""
        if self._table is None:
            self.path.mkdir(parents=True, exist_ok=True)
            self._table = DeltaTable.create(
                str(self.path),
                schema=self.record.schema,
                mode="ignore",
                partition_by=["owner"],
                configuration={**delta_log.OWN, "delta.checkpointInterval": "100"},
            )
        if not self._wide:
            self._widen(self._table)
        return self._table

    def _widen(self, table: DeltaTable) -> None:
        """Give a table that an older version made the columns that were added since; its rows have null there."""
        there = {field.name for field in table.schema().fields}
        if missing := [field for field in self.record.schema if field.name not in there]:
            table.alter.add_columns(list(Schema.from_arrow(pa.schema(missing)).fields))
        self._wide = True

    def refresh(self) -> DeltaTable | None:
        """The table as it is now; None when nothing was ever written."""
        if self._table is None:
            if not DeltaTable.is_deltatable(str(self.path)):
                return None
            self._table = DeltaTable(str(self.path))
        self._table = delta_log.brought_up_to_date(self._table)
        return self._table

    def version(self, application: str) -> int:
        """The last transaction version of `application`; -1 when there is none."""
        table = self.refresh()
        found = table.transaction_version(application) if table else None
        return -1 if found is None else int(found)

    def append(self, rows: list[R], *, application: str, version: int) -> bool:
        """Commit `rows` under (application, version); False when that version was committed before."""
        if self.version(application) >= version:
            return False
        batch = pa.Table.from_pylist([row.to_row() for row in rows], schema=self.record.schema)
        self._commit(batch, application, version)
        if len(self._files()) > COMPACT_AFTER:
            self.compact()
        return True

    @retry(
        retry=retry_if_exception_type(CommitFailedError),
        stop=stop_after_attempt(8),
        wait=wait_random_exponential(multiplier=0.02, max=1),
        reraise=True,
    )
    def _commit(self, batch: pa.Table, application: str, version: int) -> None:
        if self.version(application) >= version:
            return
        write_deltalake(
            self.create(),
            batch,
            mode="append",
            commit_properties=CommitProperties(app_transactions=[Transaction(application, version)]),
            post_commithook_properties=PostCommitHookProperties(create_checkpoint=True, cleanup_expired_logs=True),
        )

    def settle(self, row: R, *, application: str) -> R | None:
        """Commit a row that stands for its epoch, and read back which row does: another runner's, if it came first."""
        self.append([row], application=application, version=row.epoch)
        stands = self.rows(row.owner, generation=row.generation, epoch=row.epoch)
        return stands[0] if len(stands) == 1 else None

    def rows(self, owner: str, *, generation: int | None = None, epoch: int | None = None, since: int = 0) -> list[R]:
        """The rows of `owner` (of one generation, of one epoch, of epochs from `since` on) in order of generation and
        epoch. What is not of one epoch is a history, and shared by all who ask: nobody may change what is in it."""
        found: list[R] = []
        for file in self._index(owner):
            if file.epochs[1] < since or (epoch is not None and not file.epochs[0] <= epoch <= file.epochs[1]):
                continue
            if generation is not None and not file.generations[0] <= generation <= file.generations[1]:
                continue
            for row in self._read(file.path, owner, shared=epoch is None):
                if row.epoch < since:
                    continue
                if (generation is None or row.generation == generation) and (epoch is None or row.epoch == epoch):
                    found.append(row)
        return sorted(found, key=lambda row: (row.generation, row.epoch))

    def last(self, owner: str, generation: int | None = None) -> R | None:
        """The newest row of `owner`, by generation and epoch."""
        files = self._index(owner)
        if not files:
            return None
        top = max(file.generations[1] for file in files) if generation is None else generation
        files = [file for file in files if file.generations[0] <= top <= file.generations[1]]
        if any(file.generations[0] != file.generations[1] for file in files):
            # Put together, generations share a file: its greatest epoch may be the other one's.
            rows = self.rows(owner, generation=top)
            return rows[-1] if rows else None
        newest = max(files, key=lambda file: file.epochs[1], default=None)
        return None if newest is None else max(self._read(newest.path, owner), key=lambda row: row.epoch)

    def owners(self) -> list[str]:
        """Every owner that has a row."""
        return sorted({file.owner for file in self._files()})

    def compact(self) -> None:
        """Put the small files of each owner together; no row changes."""
        table = self.refresh()
        if table is not None:
            table.optimize.compact()

    def _files(self) -> list[_File]:
        """The data files, of all owners."""
        table = self.refresh()
        if table is None:
            return []
        if self._listed is None or self._listed[0] != table.version():
            rows = pa.table(table.get_add_actions(flatten=True)).to_pylist()
            self._listed = table.version(), [_File.of(row) for row in rows]
        return self._listed[1]

    def _index(self, owner: str) -> list[_File]:
        return [file for file in self._files() if file.owner == owner]

    def _read(self, path: str, owner: str, *, shared: bool = False) -> tuple[R, ...]:
        """The rows of one data file, which never changes once it is written."""
        read = _shared_records if shared else _records
        return read(self.record, str(self.path / path), owner)


@dataclass(frozen=True)
class _File:
    """A data file and what its epochs and generations are: first and last."""

    owner: str
    path: str
    epochs: tuple[int, int]
    generations: tuple[int, int]

    @classmethod
    def of(cls, action: Mapping[str, Any]) -> _File:
        epochs = action["min.epoch"], action["max.epoch"]
        generations = action["min.generation"], action["max.generation"]
        return cls(action["partition.owner"], unquote(action["path"]), epochs, generations)


@lru_cache(maxsize=4096)
def _stored(path: str) -> tuple[dict[str, Any], ...]:
    return tuple(pq.ParquetFile(path).read().to_pylist())


def _records(record: type[R], path: str, owner: str) -> tuple[R, ...]:
    return tuple(record.from_row({**row, "owner": owner}) for row in _stored(path))


_shared_records = lru_cache(maxsize=4096)(_records)
