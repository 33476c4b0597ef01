"""What upkeep did to the tables of a lake."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, ClassVar

from tidegate.pipelines.records.kinds import Bytes, Column, Count, Note, fact
from tidegate.pipelines.text import counted

if TYPE_CHECKING:
    from tidegate.pipelines.runtime.maintenance import Maintained
    from tidegate.pipelines.runtime.runner import Runner

_WHAT = ("old versions", "landed rows", "quarantined rows")
"""What retention removes, in the order of the record's fields."""


@dataclass(frozen=True)
class MaintainedTable:
    """One table. `skipped`: who works on it, so that nothing was done. `versions` were looked at."""

    ORDER: ClassVar = ("table", "files_before", "files", "freed", "result")

    table: Annotated[str, Column("table")]
    skipped: str | None
    files_before: Annotated[Count, Column("files before")]
    files: Annotated[Count, Column("now")]
    files_removed: Count
    freed: Annotated[Bytes, Column("freed")]
    versions: Count | None = None
    versions_removed: Count | None = None
    landed_rows_removed: Count | None = None
    quarantined_rows_removed: Count | None = None
    nothing_removed_because: str | None = None

    @classmethod
    def of(cls, item: Maintained) -> MaintainedTable:
        kept, files = item.retained, sum(part.removed for part in item.tidied)
        examined = kept.examined if kept and kept.what == "old versions" else None
        removed = (kept.removed if kept and kept.what == what else None for what in _WHAT)
        reason = kept.reason or None if kept else None
        counts = (item.files_before, item.files_after, files, item.freed, examined)
        versions, landed, quarantined = removed
        return cls(item.name, item.skipped or None, *counts, versions, landed, quarantined, reason)

    @property
    @fact("what went", said=True)
    def result(self) -> str:
        if self.skipped:
            return f"passed over, {self.skipped}"
        removed = (self.versions_removed, self.landed_rows_removed, self.quarantined_rows_removed)
        gone = [counted(rows, what[:-1]) for what, rows in zip(_WHAT, removed, strict=True) if rows]
        parts = gone or [self.nothing_removed_because or ""]
        return ", ".join(filter(None, parts))


@dataclass(frozen=True)
class MaintainedLake:
    """All tables; `freed` bytes in all."""

    tables: tuple[MaintainedTable, ...]

    @classmethod
    def of(cls, found: Sequence[Maintained]) -> MaintainedLake:
        return cls(tuple(map(MaintainedTable.of, found)))

    @property
    @fact()
    def freed(self) -> Bytes:
        return sum(item.freed for item in self.tables)

    @property
    @fact()
    def versions_removed(self) -> Count:
        return sum(item.versions_removed or 0 for item in self.tables)

    @property
    @fact()
    def landed_rows_removed(self) -> Count:
        return sum(item.landed_rows_removed or 0 for item in self.tables)

    @property
    @fact()
    def quarantined_rows_removed(self) -> Count:
        return sum(item.quarantined_rows_removed or 0 for item in self.tables)

    @property
    @fact()
    def passed_over(self) -> Count:
        return sum(bool(item.skipped) for item in self.tables)

    @property
    def notes(self) -> tuple[Note, ...]:
        before, after = sum(item.files_before for item in self.tables), sum(item.files for item in self.tables)
        removed = self.versions_removed + self.landed_rows_removed + self.quarantined_rows_removed
        left = f"; {counted(self.passed_over, 'table')} passed over" if self.passed_over else ""
        text = f"{counted(len(self.tables), 'table')}: {counted(before, 'file')} became {after:,}"
        return (Note(f"{text}, {self.freed / 1e6:,.1f} MB freed, {counted(removed, 'row')} removed{left}"),)


def maintain(runner: Runner, keep: timedelta) -> MaintainedLake:
    """Keep a lake up (`Runner.maintenance`): files stay that a version younger than `keep` names."""
    return MaintainedLake.of(runner.maintenance(keep).run())
