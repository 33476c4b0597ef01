"""The records of one kind, in the logs of all owners."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

from tidegate.pipelines.lake.owner_log import File, OwnerLogs
from tidegate.pipelines.lake.records import Record

R = TypeVar("R", bound=Record)


class Records(Generic[R]):
    """The records of one kind, by owner."""

    def __init__(self, logs: OwnerLogs, kind: type[R]) -> None:
        self.logs = logs
        self.kind = kind
        self._lasts: dict[tuple[str, int | None], tuple[list[File], R | None]] = {}

    def append(self, rows: list[R], *, application: str, version: int, guarded: bool = True) -> bool:
        """Commit records of one owner under (application, version); False when that version was committed before.
        `guarded`: see `OwnerLog.append`."""
        return self.logs.of(rows[0].owner).append(rows, {application: version}, guarded=guarded)

    def settle(
        self, row: R, *, application: str, beside: Sequence[Record] = (), marks: Mapping[str, int] | None = None
    ) -> R | None:
        """Commit a record for its epoch, with others of its owner (`beside`) and their transactions (`marks`); returns
        the one that counts, which is another runner's if that came first."""
        self.logs.of(row.owner).append([row, *beside], {application: row.epoch, **(marks or {})})
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
        """The records of `owner` (of one generation, of one epoch, of epochs from `since` on and up to `upto`) in order
        of generation and epoch."""
        low, high = (since, upto) if epoch is None else (epoch, epoch)
        log = self.logs.of(owner)
        found = [
            row
            for file in log.files(self.kind)
            if file.may_hold(generation, low, high)
            for row in log.read(file, generation, low, high)
        ]
        return [self.kind.from_row(owner, row) for row in sorted(found, key=_place)]

    def newest_first(self, owner: str, *, generation: int | None = None, upto: int | None = None) -> Iterator[R]:
        """The records of `owner` (of one generation, of epochs up to `upto`), the newest first; files are read as far
        as they are asked for."""
        log = self.logs.of(owner)
        files = [file for file in log.files(self.kind) if file.may_hold(generation, 0, upto)]
        files.sort(key=lambda file: (file.generations[1], file.epochs[1]), reverse=True)
        waiting: list[dict[str, Any]] = []
        for number, file in enumerate(files):
            for block in reversed(file.spans()):
                waiting += log.read(file, generation, block[0], block[1] if upto is None else min(block[1], upto))
                waiting.sort(key=_place)
                # What the rest of this file, or the next ones, may hold has its turn before what is older.
                rest = [(other.generations[1], other.epochs[1]) for other in files[number + 1 : number + 2]]
                if block[0] > file.epochs[0]:
                    rest.append((file.generations[1], block[0] - 1))
                while waiting and all(_place(waiting[-1]) > later for later in rest):
                    yield self.kind.from_row(owner, waiting.pop())
        yield from (self.kind.from_row(owner, row) for row in reversed(waiting))

    def last(self, owner: str, generation: int | None = None) -> R | None:
        """The newest record of `owner`, by generation and epoch; it is shared, so its content must not be changed."""
        files, known = self.logs.of(owner).files(self.kind), self._lasts.get((owner, generation))
        if known is None or known[0] != files:
            known = files, next(self.newest_first(owner, generation=generation), None)
            self._lasts[owner, generation] = known
        return known[1]

    def first(self, owner: str, generation: int) -> R | None:
        """The record of epoch 1 of a generation."""
        return next(iter(self.rows(owner, generation=generation, epoch=1)), None)

    def owners(self) -> list[str]:
        """Every owner that has a record of this kind."""
        return [owner for owner in self.logs.owners() if self.logs.of(owner).files(self.kind)]

    def stamp(self, owner: str) -> frozenset[str]:
        """Changes whenever a record of this kind is added to an owner's."""
        return frozenset(file.path for file in self.logs.of(owner).files(self.kind))


def _place(row: Mapping[str, Any]) -> tuple[int, int]:
    return row["generation"], row["epoch"]
