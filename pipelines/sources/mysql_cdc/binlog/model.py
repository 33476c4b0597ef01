"""The input of a bounded read of the binlog: which server, which table, which ranges."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tidegate.pipelines.errors import SourceError
from tidegate.pipelines.sources.cdc.changelog import LOG_EPOCH
from tidegate.pipelines.sources.mysql_cdc.names import Lower
from tidegate.pipelines.sources.mysql_cdc.types import SourceColumn

FIRST_POSITION = 4
"""The position of the first event of a binlog file, after the magic number."""


@dataclass(frozen=True)
class BinlogPosition:
    """A place in a binlog: byte `position` of `file` ("binlog.000003"). Compare by `.order`."""

    file: str
    position: int = FIRST_POSITION

    @property
    def number(self) -> int:
        """The file's number: 3 for binlog.000003. Raises SourceError when the name has none."""
        digits = self.file.rpartition(".")[2]
        if not digits.isdecimal():
            raise SourceError(
                f"{self.file!r} is not the name of a binlog file",
                where="binlog position",
                state="nothing was read",
                next_command="SHOW BINARY LOGS   (on the server, for the names that it has)",
            )
        return int(digits)

    @property
    def order(self) -> tuple[int, int]:
        """(file number, position): sorts positions of one log epoch."""
        return self.number, self.position

    def __str__(self) -> str:
        return f"{self.file}:{self.position}"

    def to_json(self) -> dict[str, Any]:
        return {"file": self.file, "position": self.position}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> BinlogPosition:
        return cls(str(values["file"]), int(values["position"]))


@dataclass(frozen=True)
class BinlogRange:
    """Transactions that begin in [start, end). Both must be transaction borders.

    A range may cross files; `split_by_file` makes one of each file, to be read in parallel.
    """

    start: BinlogPosition
    end: BinlogPosition

    def __str__(self) -> str:
        return f"{self.start} -> {self.end}"

    def to_json(self) -> dict[str, Any]:
        return {"log": LOG_EPOCH, "start": self.start.to_json(), "end": self.end.to_json()}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> BinlogRange:
        return cls(BinlogPosition.from_json(values["start"]), BinlogPosition.from_json(values["end"]))


@dataclass(frozen=True)
class Cascades:
    """What foreign keys change of a table by themselves: `names` of the keys, and the tables whose changes they follow,
    as database and name: parents, their parents, and so on. `parents` is None where not all of them can be seen."""

    names: tuple[str, ...] = ()
    parents: frozenset[tuple[str, str]] | None = frozenset()

    def follow(self, database: str, name: str, lower: Lower) -> bool:
        """Whether a change of that table may go on to this one."""
        if self.parents is None:
            return bool(self.names)
        changed = database.translate(lower), name.translate(lower)
        return any(changed == (place.translate(lower), parent.translate(lower)) for place, parent in self.parents)

    def __or__(self, other: Cascades) -> Cascades:
        unseen = self.parents is None or other.parents is None
        parents = None if unseen else frozenset({*(self.parents or ()), *(other.parents or ())})
        return Cascades(tuple(dict.fromkeys((*self.names, *other.names))), parents)

    def to_json(self) -> dict[str, Any]:
        return {"names": [*self.names], "parents": None if self.parents is None else sorted(self.parents)}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Cascades:
        parents = values["parents"]
        found = None if parents is None else frozenset((str(place), str(name)) for place, name in parents)
        return cls(tuple(values["names"]), found)


NO_CASCADES = Cascades()


@dataclass(frozen=True)
class WantedTable:
    """A table to read, with the declared columns in output order and the columns of the declared primary key.

    `columns` are as wide as any that the generation has seen, up to when the range was planned (`widening.followed`);
    their names are the output's names and are matched without regard to case. `before`: the same when the step before
    was planned, for a range that its step begins with; else none. `other_key`: the table's own
    primary key is another, or there is none, so the declared one holds as long as an index does. `cascades_logged`:
    the server logs what foreign keys change by themselves. `cascades`: those that do, so that the row events of their
    tables must have the flag that says so: what a replica has from another server its engine may change below the log.
    `all_seen_from`: an XA transaction that commits from there on has logged its rows where the generation reads; None
    where that is not known, and then `xa_grant` is the statement that would make it known, if there is one.
    """

    database: str
    name: str
    columns: tuple[SourceColumn, ...]
    primary_key: tuple[str, ...] = ()
    other_key: bool = False
    cascades_logged: bool = False
    cascades: Cascades = NO_CASCADES
    all_seen_from: BinlogPosition | None = None
    xa_grant: str = ""
    before: tuple[SourceColumn, ...] = ()

    def is_named(self, database: str, name: str, lower: Lower) -> bool:
        """Whether a server that compares names by `lower` finds this table by these."""
        own = self.database.translate(lower), self.name.translate(lower)
        return own == (database.translate(lower), name.translate(lower))

    def __str__(self) -> str:
        return f"{self.database}.{self.name}"


def split_by_file(span: BinlogRange, files: list[str]) -> list[BinlogRange]:
    """`span` as one range per file of `files` (SHOW BINARY LOGS, in order). Transactions never cross files."""
    first, last = span.start.number, span.end.number
    crossed = [name for name in files if first <= BinlogPosition(name).number <= last]
    pieces = []
    for name, following in zip(crossed, [*crossed[1:], None], strict=True):
        start = span.start if name == span.start.file else BinlogPosition(name)
        end = BinlogPosition(following) if following else span.end
        pieces.append(replace(span, start=start, end=end))
    return pieces
