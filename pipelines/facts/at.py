"""One look at a lake: what all questions share is read once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from tidegate.pipelines.facts.problem import Bounds, Kind, Reported, Scope
from tidegate.pipelines.lake import Lake
from tidegate.pipelines.lake.leases import Lease, read_leases
from tidegate.pipelines.lake.stream import Stream


def no_rows(key: str) -> bool:
    """Rows are read for no problem."""
    return False


@dataclass(frozen=True)
class At:
    """A look at a lake at `now` (ms, UTC); see `problems`."""

    lake: Lake
    now: int
    scope: Scope
    bounds: Bounds = Bounds()
    reported: Mapping[str, Reported] = field(default_factory=dict)
    shows_rows: Callable[[str], bool] = no_rows

    def key(self, kind: Kind, name: str) -> str:
        """The beginning of the keys of such problems of a table or an INSERT: kind, lake, name."""
        return f"{kind} {self.lake.root} {name}"

    def name(self, of: str) -> str:
        return self.scope.name(of)

    @property
    def owners(self) -> Iterator[tuple[str, str]]:
        """Every table and INSERT: its name in control tables, and its own."""
        yield from ((source.table, source.table) for source in self.scope.sources)
        yield from ((insert.owner, insert.insert) for insert in self.scope.inserts)

    @cached_property
    def leases(self) -> list[Lease]:
        return read_leases(self.lake.logs)

    def is_worked_on(self, owner: str) -> bool:
        """Whether a runner holds its lease."""
        return any(lease.row.owner == owner and not lease.over(self.now) for lease in self.leases)

    def worked_on_at(self, owner: str) -> int | None:
        """When a runner last held its lease (ms, UTC), to half a minute; None where none ever did."""
        return max((lease.held_at for lease in self.leases if lease.row.owner == owner), default=None)

    def positions(self, tables: Sequence[str]) -> dict[str, str]:
        """How far each source table is, as text."""
        found: dict[str, str] = {}
        for table in tables:
            last = Stream(self.lake, table).newest
            if last is not None:
                at = f", {last.position}" if last.position else ""
                found[table] = f"epoch {last.generation}/{last.epoch}{at}"
        return found
